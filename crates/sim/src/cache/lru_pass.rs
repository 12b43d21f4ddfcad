//! LRU caches of many sizes in one pass: see [`Stack`].

use super::requests::Request;
use super::stack::Stack;
use super::{BlockTrace, CacheOutcome, Counts, Setup, WriteMode};
use weir_policy::eviction::{AccessKind, Block};

/// Reports whether [`play`] accepts the setup: LRU that admits every miss. Write-back is excluded: the dirty
/// blocks depend on the evictions, so each size needs its own pass.
pub(super) fn is_supported(setup: &Setup) -> bool {
    let is_back = matches!(setup.mode, WriteMode::Back { .. });
    setup.eviction.name == "lru" && setup.admission.name == "all" && !is_back
}

/// Minimum number of caches for which one common pass is faster than a pass each.
pub(super) const MIN_SIZES: usize = 5;

/// Plays a trace to caches that [fit](is_supported) and differ only in their capacity. The counts equal those
/// of separate runs. Time per access is logarithmic in the number of sizes.
pub(super) fn play(trace: &BlockTrace, setups: &[Setup]) -> Vec<CacheOutcome> {
    let mut sizes: Vec<_> = setups.iter().map(|setup| setup.capacity).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let around = setups.iter().any(|setup| setup.mode == WriteMode::Around);
    let mut run = Run {
        trace,
        stack: Stack::new(trace.blocks()),
        around,
        reads: Direction::new(sizes.len()),
        writes: Direction::new(sizes.len()),
        removed: vec![0; sizes.len() + 1],
        sizes,
    };
    run.play();
    let held = run.stack.occupancy(&run.sizes);
    setups.iter().map(|setup| run.outcome(setup, &held)).collect()
}

/// Counts of one direction. An entry by zone counts the blocks whose depth exceeds that many of the sizes.
struct Direction {
    totals: Counts,
    misses: Vec<u64>,
    missed_bytes: Vec<u64>,
    /// Requests, by the zone of their deepest block.
    missed: Vec<u64>,
}

impl Direction {
    fn new(sizes: usize) -> Self {
        let zones = || vec![0; sizes + 1];
        Self { totals: Counts::default(), misses: zones(), missed_bytes: zones(), missed: zones() }
    }

    /// Returns the counts of the cache of the nth size.
    fn counts(&self, nth: usize) -> Counts {
        let deeper = |zones: &[u64]| zones[nth + 1..].iter().sum();
        Counts {
            misses: deeper(&self.misses),
            missed_bytes: deeper(&self.missed_bytes),
            missed: deeper(&self.missed),
            ..self.totals
        }
    }
}

struct Run<'t> {
    trace: &'t BlockTrace,
    stack: Stack,
    /// True if a written block leaves the cache (write-around).
    around: bool,
    /// Sizes in ascending order.
    sizes: Vec<u32>,
    reads: Direction,
    writes: Direction,
    /// Removed blocks, by zone.
    removed: Vec<u64>,
}

impl Run<'_> {
    fn play(&mut self) {
        let mut first = 0;
        for (requests, trimmed) in self.trace.request_runs() {
            for request in requests.iter() {
                self.request(request, first);
                first = request.end();
            }
            trimmed.iter().for_each(|block| self.remove(*block));
        }
    }

    #[inline]
    fn request(&mut self, request: Request, first: usize) {
        let trace = self.trace;
        let blocks = &trace.accesses()[first..request.end()];
        let block_size = trace.block().bytes().0;
        let used = request.used();
        let mut deepest = 0;
        for (nth, block) in blocks.iter().enumerate() {
            let zone = self.access(*block, used);
            let before = if nth == 0 { request.leading_bytes() } else { 0 };
            let behind = if nth + 1 == blocks.len() { request.trailing_bytes() } else { 0 };
            let direction = self.direction_mut(used);
            direction.misses[zone] += 1;
            direction.missed_bytes[zone] += block_size - before - behind;
            deepest = deepest.max(zone);
        }
        let direction = self.direction_mut(used);
        direction.missed[deepest] += 1;
        direction.totals.requests += 1;
        direction.totals.accesses += blocks.len() as u64;
        direction.totals.bytes +=
            blocks.len() as u64 * block_size - request.leading_bytes() - request.trailing_bytes();
    }

    /// Accesses a block; returns the number of sizes that are too small for it.
    #[inline]
    fn access(&mut self, block: Block, used: AccessKind) -> usize {
        if self.around && used == AccessKind::Write {
            self.remove(block);
            return self.sizes.len();
        }
        let depth = self.stack.touch(block);
        self.zone(depth)
    }

    fn remove(&mut self, block: Block) {
        let depth = self.stack.remove(block);
        let zone = self.zone(depth);
        self.removed[zone] += 1;
    }

    #[inline]
    fn zone(&self, depth: Option<u32>) -> usize {
        depth.map_or(self.sizes.len(), |depth| self.sizes.partition_point(|size| *size < depth))
    }

    #[inline]
    fn direction_mut(&mut self, used: AccessKind) -> &mut Direction {
        match used {
            AccessKind::Read => &mut self.reads,
            AccessKind::Write => &mut self.writes,
        }
    }

    /// Returns the outcome of a cache; `held` is the number of blocks in the cache of each size at the end.
    fn outcome(&self, setup: &Setup, held: &[u32]) -> CacheOutcome {
        let nth = self.sizes.partition_point(|size| *size < setup.capacity);
        let (reads, writes) = (self.reads.counts(nth), self.writes.counts(nth));
        let written = if self.around { 0 } else { writes.accesses };
        let came = reads.misses + if self.around { 0 } else { writes.misses };
        let removed: u64 = self.removed[..=nth].iter().sum();
        CacheOutcome {
            filled: reads.misses,
            written,
            evicted: came - removed - u64::from(held[nth]),
            back_end_direct: writes.accesses,
            reads,
            writes,
            ..CacheOutcome::of_setup(self.trace, setup)
        }
    }
}
