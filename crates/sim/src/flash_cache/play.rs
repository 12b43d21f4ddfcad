//! Plays a trace to a cache on flash.

use super::keeper::{Keeper, Owner};
use super::outcome::{FlashCacheOutcome, Measured};
use super::plan::{Evict, FlashCache, FlashCacheError, WarmUp, space};
use crate::cache::{BlockTrace, CacheOutcome, Counts, Dirty, Missed, Request, Residents, WriteMode};
use crate::write_budget::WriteBudget;
use weir_flash::{Counters, DenseMap, Log, LogConfig, Stream};
use weir_model::{Bytes, Nanos};
use weir_policy::admission::Admission;
use weir_policy::eviction::{AccessKind, Block, CacheSize, Insertion};
use weir_policy::reclaim::Reclaim;

/// Accesses whose state is read together, before the first of them is played.
const PREFETCHED: usize = 32;

/// Plays a trace to an initially empty cache on flash.
///
/// Memory per block of the trace: 4 bytes, 5 more with several containers, that of the eviction policy, and 8
/// more with write-back; per block of the flash 4.1 bytes.
///
/// # Errors
/// Fails if the cache cannot be set up, or if the log cannot go on.
pub fn play(trace: &BlockTrace, cache: &FlashCache) -> Result<FlashCacheOutcome, FlashCacheError> {
    let mut player = Player::new(trace, cache)?;
    match cache.warm_up {
        WarmUp::Pass => {
            player.play(0)?;
            player.start_counting();
            player.play(0)?;
        }
        WarmUp::Requests(warm_up) => player.play(warm_up.min(trace.requests()))?,
    }
    Ok(player.finish())
}

/// A cache while a trace is played to it.
pub(super) struct Player<'t> {
    trace: &'t BlockTrace,
    plan: &'t FlashCache,
    config: LogConfig,
    log: Log<DenseMap, Box<dyn Reclaim + Send>>,
    pub(super) keeper: Keeper<'t>,
    /// The policies of the containers; empty if the cleaner evicts.
    lists: Vec<Box<dyn Residents>>,
    /// Capacity of each container.
    capacities: Vec<u32>,
    admission: Option<Box<dyn Admission>>,
    budget: Option<WriteBudget>,
    outcome: CacheOutcome,
    /// Reads and writes by container.
    by_owner: Vec<[Counts; 2]>,
    /// Blocks written because of write hits.
    write_hits: u64,
    /// The log and the erases of its segments when counting began.
    log_before: Counters,
    erases_before: Vec<u32>,
    /// Times of the first and the last counted request.
    first: Option<Nanos>,
    last: Nanos,
}

impl<'t> Player<'t> {
    pub(super) fn new(trace: &'t BlockTrace, plan: &'t FlashCache) -> Result<Self, FlashCacheError> {
        let (blocks, block) = (trace.blocks(), trace.block().bytes());
        let capacities = plan.capacities()?;
        let size = |capacity: u32| CacheSize { blocks, capacity };
        let config = plan.log.config(plan.capacity, block, &plan.evict)?;
        let (lists, drop, share) = match plan.evict {
            Evict::Cache(policy) => {
                let create = policy.residents.ok_or(FlashCacheError::Offline(policy.name))?;
                (capacities.iter().map(|capacity| create(size(*capacity))).collect(), None, 1.0)
            }
            Evict::Cleaner(guarantee) => (Vec::new(), Some(guarantee.drop), guarantee.share),
        };
        let owner = |capacity: &u32| Owner { guarantee: (f64::from(*capacity) * share) as u64, valid: 0 };
        let dirty = plan.mode.dirty().map(|share| Dirty::new(size(plan.capacity), share));
        let owners = (capacities.iter().map(owner).collect(), plan.owners(trace));
        let keeper = Keeper::new((config.segments, config.data_pages()), drop, owners, trace.keys(), dirty);
        let log = Log::new(config, DenseMap::new(blocks), |size| plan.log.victims.create(size, plan.seed));
        let log = log.map_err(|error| FlashCacheError::Config { capacity: plan.capacity, error })?;
        let mut player = Self {
            trace,
            plan,
            config,
            log,
            keeper,
            lists,
            by_owner: Vec::new(),
            capacities,
            admission: None,
            budget: None,
            outcome: CacheOutcome::default(),
            write_hits: 0,
            log_before: Counters::default(),
            erases_before: Vec::new(),
            first: None,
            last: Nanos(0),
        };
        if plan.write_budget.is_some() && trace.duration() == Nanos(0) {
            return Err(FlashCacheError::NoTimes);
        }
        player.start_counting();
        Ok(player)
    }

    /// Starts to count, with a new admission policy.
    fn start_counting(&mut self) {
        let room = CacheSize { blocks: self.trace.blocks(), capacity: self.plan.capacity };
        self.admission = (self.plan.admission.new)(room, &self.plan.settings);
        self.budget = self.plan.write_budget.map(WriteBudget::new);
        self.outcome = CacheOutcome {
            policy: match self.plan.evict {
                Evict::Cache(policy) => policy.name,
                Evict::Cleaner(_) => "gc",
            },
            admission: self.plan.admission.name,
            block: self.trace.block(),
            size_blocks: self.plan.capacity,
            ..CacheOutcome::default()
        };
        self.by_owner = vec![Default::default(); self.capacities.len()];
        self.write_hits = 0;
        self.keeper.written_back = 0;
        self.log_before = *self.log.counters();
        self.erases_before = self.log.segments().map(|segment| segment.erases).collect();
        self.first = None;
    }

    /// Plays the whole trace; counts from the request after the warm-up on.
    pub(super) fn play(&mut self, warm_up: usize) -> Result<(), FlashCacheError> {
        let trace = self.trace;
        let (mut first, mut to_warm, mut prefetched) = (0, warm_up, 0);
        for (requests, trimmed) in trace.request_runs() {
            for request in requests.iter() {
                if first >= prefetched {
                    prefetched = (first + PREFETCHED).min(trace.accesses().len());
                    self.prefetch(&trace.accesses()[first..prefetched]);
                }
                self.play_request(request, first)?;
                first = request.end();
                if to_warm > 0 {
                    to_warm -= 1;
                    if to_warm == 0 {
                        self.start_counting();
                    }
                }
            }
            trimmed.iter().for_each(|block| self.remove(*block));
        }
        Ok(())
    }

    /// Reads what accesses will need.
    fn prefetch(&self, blocks: &[Block]) {
        self.log.prefetch(blocks.iter().map(|block| block.0.into()));
        self.lists.iter().for_each(|list| list.prefetch(blocks));
        if self.admission.is_some() {
            // Only the loads count.
            std::hint::black_box(blocks.iter().fold(0, |all, block| all ^ self.trace.keys()[block.index()]));
        }
    }

    fn play_request(&mut self, request: Request, first: usize) -> Result<(), FlashCacheError> {
        let (trace, used) = (self.trace, request.used());
        self.first.get_or_insert(request.at());
        self.last = request.at();
        let mut admitted = self.budget.as_mut().is_none_or(|budget| budget.is_left(request.at()));
        if let Some(admission) = &mut self.admission {
            // The policy sees every request.
            admitted &= admission.request(trace.admission_request(request, first));
        }
        let written = self.outcome.cache_writes();
        let blocks = &trace.accesses()[first..request.end()];
        let mut missed = Missed::default();
        for (nth, block) in blocks.iter().enumerate() {
            if let Some(admission) = &mut self.admission {
                admission.block(*block);
            }
            missed.last = !self.access(*block, used, admitted)?;
            missed.blocks += u64::from(missed.last);
            missed.first |= nth == 0 && missed.last;
        }
        if let Some(budget) = &mut self.budget {
            let written = self.outcome.cache_writes() - written;
            budget.take(Bytes(written * trace.block().bytes().0));
        }
        let (count, size) = (blocks.len() as u64, trace.block());
        self.outcome.counts_mut(used).add_request(request, count, missed, size);
        if self.by_owner.len() > 1 {
            let owner = blocks.first().map_or(0, |block| self.keeper.owner(*block));
            self.by_owner[owner][usize::from(used == AccessKind::Write)]
                .add_request(request, count, missed, size);
        }
        Ok(())
    }

    /// Accesses one block of a request; returns whether it was hit.
    fn access(&mut self, block: Block, used: AccessKind, admitted: bool) -> Result<bool, FlashCacheError> {
        if used == AccessKind::Write && self.plan.mode == WriteMode::Around {
            self.remove(block);
            self.outcome.back_end_direct += 1;
            return Ok(false);
        }
        let owner = self.keeper.owner(block);
        let is_hit = match self.lists.get_mut(owner) {
            Some(list) => list.hit(block, used),
            None => self.log.exists(block.0.into()),
        };
        let is_new = !is_hit && admitted && self.make_room(block, owner);
        match used {
            AccessKind::Read => self.outcome.filled += u64::from(is_new),
            AccessKind::Write => {
                let is_in = is_hit || is_new;
                self.outcome.written += u64::from(is_in);
                self.write_hits += u64::from(is_hit);
            }
        }
        if is_new || (is_hit && used == AccessKind::Write) {
            self.log.write(block.0.into(), Stream(0), &mut self.keeper)?;
        }
        if used == AccessKind::Write {
            match &mut self.keeper.dirty {
                Some(dirty) if is_hit || is_new => {
                    self.outcome.back_end_flushed += u64::from(dirty.mark_dirty(block));
                }
                _ => self.outcome.back_end_direct += 1,
            }
        }
        Ok(is_hit)
    }

    /// Makes room for a missed block; returns whether it may enter.
    fn make_room(&mut self, block: Block, owner: usize) -> bool {
        let Self { lists, admission, .. } = self;
        // The cleaner evicts later, and what it evicts has no say.
        let Some(list) = lists.get_mut(owner) else { return true };
        let mut may_replace =
            |leaving| admission.as_mut().is_none_or(|admission| admission.may_replace(block, leaving));
        match list.insert(block, &mut may_replace) {
            Insertion::Added => true,
            Insertion::Refused => false,
            Insertion::Replaced(leaving) => {
                self.outcome.evicted += 1;
                if let Some(dirty) = &mut self.keeper.dirty {
                    self.outcome.back_end_evicted += u64::from(dirty.mark_clean(leaving));
                }
                self.log.trim(leaving.0.into());
                self.keeper.forget(leaving);
                true
            }
        }
    }

    /// Removes a block from the cache without writing it back.
    fn remove(&mut self, block: Block) {
        let owner = self.keeper.owner(block);
        if let Some(list) = self.lists.get_mut(owner) {
            list.remove(block);
        }
        if let Some(dirty) = &mut self.keeper.dirty {
            dirty.mark_clean(block);
        }
        if self.log.trim(block.0.into()) {
            self.keeper.forget(block);
        }
    }

    /// Plays the request with this index, whose access has the same index.
    #[cfg(test)]
    pub(super) fn play_one(&mut self, index: usize) -> Result<(), FlashCacheError> {
        let request = self.trace.request_runs().flat_map(|(requests, _)| requests.iter()).nth(index);
        request.map_or(Ok(()), |request| self.play_request(request, index))
    }

    /// Returns the containers.
    #[cfg(test)]
    pub(super) fn owners(&self) -> Vec<Owner> {
        self.keeper.owners_at(self.log.valid())
    }

    /// Whether a block is in the cache.
    #[cfg(test)]
    pub(super) fn contains(&self, block: Block) -> bool {
        self.log.exists(block.0.into())
    }

    pub(super) fn finish(self) -> FlashCacheOutcome {
        let mut cache = self.outcome;
        let done = self.log.counters().since(&self.log_before);
        if self.lists.is_empty() {
            cache.evicted = done.dropped;
            cache.back_end_evicted = self.keeper.written_back;
        }
        cache.dirty = self.keeper.dirty.as_ref().map_or(0, Dirty::len);
        let owners = self.keeper.owners_at(self.log.valid());
        let containers = owners.into_iter().zip(&self.capacities).zip(self.by_owner);
        let containers = containers.map(|((owner, capacity), counts)| (*capacity, owner, counts));
        FlashCacheOutcome::new(Measured {
            write_hits: self.write_hits,
            done,
            space: space(&self.config, self.plan.capacity, self.trace.block().bytes()),
            data_pages: self.config.data_pages(),
            segments: self.log.segments().zip(self.erases_before).collect(),
            valid_histogram: self.log.valid_histogram(10),
            containers: if self.capacities.len() > 1 { containers.collect() } else { Vec::new() },
            duration: self.last.since(self.first.unwrap_or(self.last)),
            plan: self.plan,
            cache,
        })
    }
}
