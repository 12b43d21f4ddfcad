//! One trace played to caches.

use super::blocks::Request;
use super::{AdmissionPolicy, BlockTrace, CacheOutcome, EvictionPolicy, sizes};
use weir_policy::admission::Admission;
use weir_policy::eviction::{Block, Eviction, Fifo, Insertion, Room, Use};

/// A cache.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Which block leaves.
    pub eviction: &'static EvictionPolicy,
    /// Which blocks come in.
    pub admission: &'static AdmissionPolicy,
    /// Blocks it holds; at least 1.
    pub capacity: u32,
    /// Where writes go.
    pub mode: WriteMode,
}

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WriteMode {
    /// To the disk, and to the cache if the block is there or admitted.
    Through,
    /// To the disk; the block leaves the cache.
    Around,
    /// To the cache if the block is there or admitted, else to the disk. What is in the cache only is dirty: it is written to
    /// the disk when it leaves, and when there is too much of it, what has been dirty for longest first.
    Back {
        /// The share of the capacity that may be dirty, above 0, to 1; at least one block may.
        dirty: f64,
    },
}

/// Plays a trace to a cache, empty at the start. Takes memory for each block of the trace: the eviction policy's
/// ([`weir_policy::eviction`]), and 8 bytes more if writes go back.
pub fn play(trace: &BlockTrace, setup: &Setup) -> CacheOutcome {
    play_warmed(trace, setup, 0)
}

/// The same, but the first so many requests, or all if there are fewer, only warm the cache: they are not counted, and what
/// admission learnt from them is forgotten.
pub fn play_warmed(trace: &BlockTrace, setup: &Setup, warm_up: usize) -> CacheOutcome {
    let setup = Setup { capacity: setup.capacity.max(1), ..*setup };
    (setup.eviction.play)(Player { trace, setup, warm_up: warm_up.min(trace.requests()) })
}

/// Which of these caches [`play_pass`] plays in one pass over the trace, by index: LRU caches of all sizes where every miss comes
/// in and writes do not go back are one pass, if there are [enough](sizes::PAYS) of them; any other cache is one of its own.
pub fn passes(setups: &[Setup]) -> Vec<Vec<usize>> {
    let mut passes: Vec<Vec<usize>> = Vec::new();
    for (at, setup) in setups.iter().enumerate() {
        let joins = |pass: &&mut Vec<usize>| {
            let first = &setups[pass[0]];
            sizes::fits(setup) && sizes::fits(first) && setup.mode == first.mode
        };
        match passes.iter_mut().find(joins) {
            Some(pass) => pass.push(at),
            None => passes.push(vec![at]),
        }
    }
    let apart = |pass: Vec<usize>| match pass.len() {
        ..sizes::PAYS => pass.into_iter().map(|at| vec![at]).collect(),
        _ => vec![pass],
    };
    passes.into_iter().flat_map(apart).collect()
}

/// Plays a trace to the caches of one of the [`passes`]. The counts are those of [`play`].
pub fn play_pass(trace: &BlockTrace, setups: &[Setup]) -> Vec<CacheOutcome> {
    match setups {
        [first, _, ..] if setups.iter().all(|setup| sizes::fits(setup) && setup.mode == first.mode) => {
            sizes::play(trace, setups)
        }
        _ => setups.iter().map(|setup| play(trace, setup)).collect(),
    }
}

/// What is played, for an eviction policy yet to come.
#[derive(Clone, Copy)]
pub(super) struct Player<'t> {
    pub(super) trace: &'t BlockTrace,
    setup: Setup,
    /// Requests.
    warm_up: usize,
}

impl Player<'_> {
    pub(super) fn room(&self) -> Room {
        Room { blocks: self.trace.blocks(), capacity: self.setup.capacity }
    }

    pub(super) fn play(&self, cache: impl Eviction) -> CacheOutcome {
        let room = self.room();
        let dirty = match self.setup.mode {
            WriteMode::Back { dirty } => Some(Dirty::new(room, dirty)),
            WriteMode::Through | WriteMode::Around => None,
        };
        let around = self.setup.mode == WriteMode::Around;
        let outcome = CacheOutcome::of_setup(self.trace, &self.setup);
        let admission = (self.setup.admission.new)(room);
        let mut run = Run { trace: self.trace, cache, admission, dirty, around, outcome };
        run.play(self.warm_up, |run| {
            run.outcome = CacheOutcome::of_setup(self.trace, &self.setup);
            run.admission = (self.setup.admission.new)(room);
        });
        run.outcome.dirty = run.dirty.map_or(0, |dirty| dirty.len);
        run.outcome
    }
}

/// A cache while a trace is played to it.
struct Run<'t, E> {
    trace: &'t BlockTrace,
    cache: E,
    /// `None` admits every miss.
    admission: Option<Box<dyn Admission>>,
    /// `None` unless writes go back.
    dirty: Option<Dirty>,
    around: bool,
    outcome: CacheOutcome,
}

impl<E: Eviction> Run<'_, E> {
    /// Plays all of it; `counts` is called when so many requests have warmed the cache.
    fn play(&mut self, warm_up: usize, counts: impl Fn(&mut Self)) {
        let (mut first, mut to_warm) = (0, warm_up);
        for (requests, trimmed) in self.trace.stretches() {
            let (warming, counted) = requests.split_at(to_warm.min(requests.len()));
            first = self.requests(warming, first);
            to_warm -= warming.len();
            if to_warm == 0 && !warming.is_empty() {
                counts(self);
            }
            first = self.requests(counted, first);
            for block in trimmed {
                self.cache.remove(*block);
                if let Some(dirty) = &mut self.dirty {
                    dirty.forget(*block);
                }
            }
        }
    }

    /// Plays requests of which the first begins with this access; the access after them.
    fn requests(&mut self, requests: &[Request], mut first: usize) -> usize {
        for request in requests {
            self.request(*request, first);
            first = request.end();
        }
        first
    }

    #[inline]
    fn request(&mut self, request: Request, first: usize) {
        let used = request.used();
        let mut admitted = true;
        if let Some(admission) = &mut self.admission {
            admitted = admission.request(self.trace.asked(request, first));
        }
        let blocks = &self.trace.accesses()[first..request.end()];
        let (mut misses, mut missed_first, mut missed_last) = (0, false, false);
        for (nth, block) in blocks.iter().enumerate() {
            self.cache.reach((first + nth) as u32);
            if let Some(admission) = &mut self.admission {
                admission.block(*block);
            }
            missed_last = !self.access(*block, used, admitted);
            misses += u64::from(missed_last);
            if nth == 0 {
                missed_first = missed_last;
            }
        }
        let len = blocks.len() as u64;
        let block = self.trace.block().bytes().0;
        let (before, behind) = (request.before(), request.behind());
        let counts = self.outcome.of(used);
        counts.accesses += len;
        counts.misses += misses;
        counts.requests += 1;
        counts.missed += u64::from(misses > 0);
        counts.bytes += len * block - before - behind;
        counts.missed_bytes +=
            misses * block - if missed_first { before } else { 0 } - if missed_last { behind } else { 0 };
    }

    /// One block of a request; whether it was hit.
    #[inline]
    fn access(&mut self, block: Block, used: Use, admitted: bool) -> bool {
        if self.around && used == Use::Write {
            self.cache.remove(block);
            self.outcome.back_end_direct += 1;
            return false;
        }
        let is_hit = self.cache.hit(block, used);
        let is_in = is_hit || (admitted && self.take_in(block));
        match used {
            Use::Read => self.outcome.filled += u64::from(is_in && !is_hit),
            Use::Write => self.written(block, is_in),
        }
        is_hit
    }

    /// Whether a missed block came in.
    #[inline]
    fn take_in(&mut self, block: Block) -> bool {
        let Self { cache, admission, .. } = self;
        let insertion = match admission {
            None => cache.insert(block, |_| true),
            Some(admission) => cache.insert(block, |leaving| admission.may_replace(block, leaving)),
        };
        if let Insertion::Replaced(leaving) = insertion {
            self.outcome.evicted += 1;
            if let Some(dirty) = &mut self.dirty {
                self.outcome.back_end_evicted += u64::from(dirty.forget(leaving));
            }
        }
        insertion != Insertion::Refused
    }

    /// A block was written, which is in the cache or not.
    #[inline]
    fn written(&mut self, block: Block, is_in: bool) {
        self.outcome.written += u64::from(is_in);
        match &mut self.dirty {
            Some(dirty) if is_in => self.outcome.back_end_flushed += u64::from(dirty.add(block)),
            _ => self.outcome.back_end_direct += 1,
        }
    }
}

/// Which blocks are dirty: a queue in the order in which they became so, of at most as many as may be.
struct Dirty {
    queue: Fifo,
    len: u64,
}

impl Dirty {
    fn new(room: Room, share: f64) -> Self {
        let most = (f64::from(room.capacity) * share) as u32;
        Self { queue: Fifo::new(Room { capacity: most.clamp(1, room.capacity), ..room }), len: 0 }
    }

    /// A block is dirty; whether another one had to be written to the disk for it.
    fn add(&mut self, block: Block) -> bool {
        if self.queue.hit(block, Use::Write) {
            return false;
        }
        let flushed = self.queue.insert(block, |_| true) != Insertion::Added;
        self.len += u64::from(!flushed);
        flushed
    }

    /// A block is not dirty any more; whether it was.
    fn forget(&mut self, block: Block) -> bool {
        let was = self.queue.remove(block);
        self.len -= u64::from(was);
        was
    }
}
