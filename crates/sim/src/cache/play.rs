//! Plays a trace to caches.

use super::dirty::Dirty;
use super::outcome::Missed;
use super::requests::{Request, Requests};
use super::{AdmissionPolicy, BlockTrace, CacheOutcome, EvictionPolicy, lru_pass};
use weir_policy::admission::{Admission, AdmissionSettings};
use weir_policy::eviction::{AccessKind, Block, CacheSize, Eviction, Insertion};

/// A cache.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Eviction policy.
    pub eviction: &'static EvictionPolicy,
    /// Admission policy.
    pub admission: &'static AdmissionPolicy,
    /// Settings of the admission policy.
    pub settings: AdmissionSettings,
    /// Capacity in blocks; at least 1.
    pub capacity: u32,
    /// Write mode.
    pub mode: WriteMode,
}

/// Treatment of writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WriteMode {
    /// Write-through: to the disk, and to the cache if the block is cached or admitted.
    Through,
    /// Write-around: to the disk; the block leaves the cache.
    Around,
    /// Write-back: to the cache if the block is cached or admitted, otherwise to the disk. A block that is
    /// only in the cache is dirty: it is written to the disk when it is evicted, and when there are too many
    /// dirty blocks, oldest first.
    Back {
        /// Share of the capacity that may be dirty, above 0 and up to 1; at least one block may.
        dirty: f64,
    },
}

/// Plays a trace to an initially empty cache. Memory per block of the trace: that of the eviction policy
/// ([`weir_policy::eviction`]), and 8 bytes more with write-back.
pub fn play(trace: &BlockTrace, setup: &Setup) -> CacheOutcome {
    play_warmed(trace, setup, 0)
}

/// Like [`play`], but the first `warm_up` requests, or all if there are fewer, only warm the cache: they are
/// not counted, and the admission policy's state from them is discarded.
pub fn play_warmed(trace: &BlockTrace, setup: &Setup, warm_up: usize) -> CacheOutcome {
    let setup = Setup { capacity: setup.capacity.max(1), ..*setup };
    (setup.eviction.play)(Player { trace, setup, warm_up: warm_up.min(trace.requests()) })
}

/// Groups caches into the passes that [`play_pass`] runs, by index. LRU caches of all sizes that admit every
/// miss and do not write back share one pass, if there are [enough](lru_pass::MIN_SIZES) of them; any other
/// cache has a pass of its own.
pub fn passes(setups: &[Setup]) -> Vec<Vec<usize>> {
    let mut passes: Vec<Vec<usize>> = Vec::new();
    for (at, setup) in setups.iter().enumerate() {
        let joins = |pass: &&mut Vec<usize>| {
            let first = &setups[pass[0]];
            lru_pass::is_supported(setup) && lru_pass::is_supported(first) && setup.mode == first.mode
        };
        match passes.iter_mut().find(joins) {
            Some(pass) => pass.push(at),
            None => passes.push(vec![at]),
        }
    }
    let apart = |pass: Vec<usize>| match pass.len() {
        ..lru_pass::MIN_SIZES => pass.into_iter().map(|at| vec![at]).collect(),
        _ => vec![pass],
    };
    passes.into_iter().flat_map(apart).collect()
}

/// Plays a trace to the caches of one of the [`passes`]. The counts equal those of [`play`].
pub fn play_pass(trace: &BlockTrace, setups: &[Setup]) -> Vec<CacheOutcome> {
    match setups {
        [first, _, ..]
            if setups.iter().all(|setup| lru_pass::is_supported(setup) && setup.mode == first.mode) =>
        {
            lru_pass::play(trace, setups)
        }
        _ => setups.iter().map(|setup| play(trace, setup)).collect(),
    }
}

/// The arguments of a run, before its eviction policy is known.
#[derive(Clone, Copy)]
pub(super) struct Player<'t> {
    pub(super) trace: &'t BlockTrace,
    setup: Setup,
    /// Number of warm-up requests.
    warm_up: usize,
}

impl Player<'_> {
    pub(super) fn cache_size(&self) -> CacheSize {
        CacheSize { blocks: self.trace.blocks(), capacity: self.setup.capacity }
    }

    pub(super) fn play(&self, cache: impl Eviction) -> CacheOutcome {
        let room = self.cache_size();
        let dirty = match self.setup.mode {
            WriteMode::Back { dirty } => Some(Dirty::new(room, dirty)),
            WriteMode::Through | WriteMode::Around => None,
        };
        let around = self.setup.mode == WriteMode::Around;
        let outcome = CacheOutcome::of_setup(self.trace, &self.setup);
        let admission = || (self.setup.admission.new)(room, &self.setup.settings);
        let mut run = Run { trace: self.trace, cache, admission: admission(), dirty, around, outcome };
        run.play(self.warm_up, |run| {
            run.outcome = CacheOutcome::of_setup(self.trace, &self.setup);
            run.admission = admission();
        });
        run.outcome.dirty = run.dirty.map_or(0, |dirty| dirty.len());
        run.outcome
    }
}

/// A cache while a trace is played to it.
struct Run<'t, E> {
    trace: &'t BlockTrace,
    cache: E,
    /// `None` admits every miss.
    admission: Option<Box<dyn Admission>>,
    /// `None` without write-back.
    dirty: Option<Dirty>,
    around: bool,
    outcome: CacheOutcome,
}

impl<E: Eviction> Run<'_, E> {
    /// Plays the whole trace; `counts` is called after `warm_up` requests.
    fn play(&mut self, warm_up: usize, counts: impl Fn(&mut Self)) {
        let (mut first, mut to_warm) = (0, warm_up);
        for (requests, trimmed) in self.trace.request_runs() {
            let (warming, counted) = requests.split_at(to_warm);
            first = self.play_requests(&warming, first);
            to_warm -= warming.len();
            if to_warm == 0 && !warming.is_empty() {
                counts(self);
            }
            first = self.play_requests(&counted, first);
            for block in trimmed {
                self.cache.remove(*block);
                if let Some(dirty) = &mut self.dirty {
                    dirty.mark_clean(*block);
                }
            }
        }
    }

    /// Plays requests whose accesses begin at `first`; returns the index after their last access.
    fn play_requests(&mut self, requests: &Requests<'_>, mut first: usize) -> usize {
        for request in requests.iter() {
            self.play_request(request, first);
            first = request.end();
        }
        first
    }

    #[inline]
    fn play_request(&mut self, request: Request, first: usize) {
        let used = request.used();
        let mut admitted = true;
        if let Some(admission) = &mut self.admission {
            admitted = admission.request(self.trace.admission_request(request, first));
        }
        let blocks = &self.trace.accesses()[first..request.end()];
        let (mut misses, mut missed_first, mut missed_last) = (0, false, false);
        for (nth, block) in blocks.iter().enumerate() {
            self.cache.advance_to((first + nth) as u32);
            if let Some(admission) = &mut self.admission {
                admission.block(*block);
            }
            missed_last = !self.access(*block, used, admitted);
            misses += u64::from(missed_last);
            if nth == 0 {
                missed_first = missed_last;
            }
        }
        let missed = Missed { blocks: misses, first: missed_first, last: missed_last };
        let block = self.trace.block();
        self.outcome.counts_mut(used).add_request(request, blocks.len() as u64, missed, block);
    }

    /// Accesses one block of a request; returns whether it was hit.
    #[inline]
    fn access(&mut self, block: Block, used: AccessKind, admitted: bool) -> bool {
        if self.around && used == AccessKind::Write {
            self.cache.remove(block);
            self.outcome.back_end_direct += 1;
            return false;
        }
        let is_hit = self.cache.hit(block, used);
        let is_in = is_hit || (admitted && self.try_insert(block));
        match used {
            AccessKind::Read => self.outcome.filled += u64::from(is_in && !is_hit),
            AccessKind::Write => self.handle_write(block, is_in),
        }
        is_hit
    }

    /// Offers a missed block to the cache; returns whether it was inserted.
    #[inline]
    fn try_insert(&mut self, block: Block) -> bool {
        let Self { cache, admission, .. } = self;
        let insertion = match admission {
            None => cache.insert(block, |_| true),
            Some(admission) => cache.insert(block, |leaving| admission.may_replace(block, leaving)),
        };
        if let Insertion::Replaced(leaving) = insertion {
            self.outcome.evicted += 1;
            if let Some(dirty) = &mut self.dirty {
                self.outcome.back_end_evicted += u64::from(dirty.mark_clean(leaving));
            }
        }
        insertion != Insertion::Refused
    }

    /// Handles the write of a block; `is_in` says whether it is in the cache.
    #[inline]
    fn handle_write(&mut self, block: Block, is_in: bool) {
        self.outcome.written += u64::from(is_in);
        match &mut self.dirty {
            Some(dirty) if is_in => self.outcome.back_end_flushed += u64::from(dirty.mark_dirty(block)),
            _ => self.outcome.back_end_direct += 1,
        }
    }
}
