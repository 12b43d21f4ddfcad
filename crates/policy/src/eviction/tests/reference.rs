//! Misses of libCacheSim, counted for a synthetic trace.
//!
//! The counts are those of libCacheSim 0.3.5 (its Python package), printed by `bench/cache-reference
//! --golden`, which makes the same trace. (`s3fifo` is that of an earlier version, aa0fc40: 0.3.5 fills the
//! main queue directly until the first block leaves.) Where a policy here differs on purpose, a twin contains
//! only the opposite choice, and its counts must equal libCacheSim's: this proves that the difference is the
//! only one.

use super::naive::take;
use super::*;

const SIZES: [u32; 6] = [100, 101, 250, 402, 1000, 1503];

const MISSES: [(&str, [usize; 6]); 11] = [
    ("fifo", [37508, 37479, 34905, 33087, 20869, 17270]),
    ("lru", [37470, 37445, 34726, 32925, 19852, 15444]),
    ("clock", [37416, 37395, 34611, 32538, 19250, 15421]),
    ("sieve", [35791, 35902, 31104, 27817, 20436, 16662]),
    ("lfu", [36001, 35986, 31430, 28128, 20738, 16405]),
    ("slru", [36002, 35999, 31576, 28168, 20443, 14131]),
    ("2q", [36337, 36292, 32200, 28912, 20679, 12400]),
    ("arc", [36234, 36195, 31779, 30115, 23953, 15815]),
    ("lirs", [36137, 36091, 31661, 29824, 23939, 19074]),
    ("wtinylfu-libcachesim", [35958, 35808, 31332, 27683, 19090, 15469]),
    ("belady", [29332, 29283, 23288, 18549, 11101, 9147]),
];

/// Returns libCacheSim's misses.
fn expected(policy: &str) -> [usize; 6] {
    MISSES.iter().find(|(name, _)| *name == policy).expect("a policy").1
}

const BLOCKS: u32 = 5000;

/// Generates a trace: the product of two draws prefers low numbers, with an occasional scan.
fn trace() -> Vec<Block> {
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % 2000
    };
    let mut blocks = Vec::new();
    for round in 0..40 {
        blocks.extend((0..700).map(|_| Block(draw() * draw() / 2000)));
        blocks.extend((0..300).map(|nth| Block(2000 + (round * 170 + nth) % 3000)));
    }
    blocks
}

fn counts<E: Eviction>(new: impl Fn(CacheSize) -> E) -> [usize; 6] {
    let trace = trace();
    SIZES.map(|capacity| misses(new(CacheSize { blocks: BLOCKS, capacity }), &trace))
}

#[test]
fn misses_match_libcachesim() {
    assert_eq!(counts(Fifo::new), expected("fifo"));
    assert_eq!(counts(Lru::new), expected("lru"));
    assert_eq!(counts(Clock::new), expected("clock"));
    assert_eq!(counts(Sieve::new), expected("sieve"));
    assert_eq!(counts(Lfu::new), expected("lfu"));
    assert_eq!(counts(TwoQ::new), expected("2q"));
    assert_eq!(counts(Arc::new), expected("arc"));
    assert_eq!(counts(WTinyLfuLibCacheSim::new), expected("wtinylfu-libcachesim"));
    let trace = trace();
    let future = NextUses::new(&trace, BLOCKS);
    assert_eq!(counts(|room| Belady::new(room, &trace, &future)), expected("belady"));
}

/// Where four equal segments take the whole capacity, there is no difference.
#[test]
fn slru_differs_only_by_rounding() {
    let (ours, theirs) = (counts(Slru::new), expected("slru"));
    for ((size, ours), theirs) in SIZES.into_iter().zip(ours).zip(theirs) {
        assert!(size % 4 != 0 || ours == theirs, "{size} blocks: {ours}, not {theirs}");
    }
    assert_eq!(counts(SlruTwin::new), theirs);
    assert_eq!(ours, SLRU);
}

#[test]
fn lirs_differs_only_outside_stack() {
    assert_eq!(counts(|room| LirsTwin::new(room, true)), expected("lirs"));
    let ours = counts(Lirs::new);
    assert_eq!(counts(|room| LirsTwin::new(room, false)), ours);
    assert_eq!(ours, LIRS);
}

/// The publication's counts, which are not libCacheSim's: pinned, so that a change is noticed.
#[test]
fn published_wtinylfu_misses_are_stable() {
    assert_eq!(counts(WTinyLfu::new), W_TINY_LFU);
}

const SLRU: [usize; 6] = [36002, 36013, 31569, 28183, 20443, 14123];
const LIRS: [usize; 6] = [36141, 36106, 31660, 29766, 23933, 19074];
const W_TINY_LFU: [usize; 6] = [35687, 35738, 31160, 27547, 18811, 15988];

/// libCacheSim's rule: all segments are a quarter, rounded down. A block inserted when all are full makes the
/// lowest too large, until a hit moves a block down into it: then the excess is evicted.
struct SlruTwin {
    capacity: usize,
    segments: [Vec<Block>; 4],
}

impl SlruTwin {
    fn new(size: CacheSize) -> Self {
        Self { capacity: size.capacity as usize, segments: Default::default() }
    }
}

impl Eviction for SlruTwin {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let most = self.capacity / 4;
        let Some(at) = self.segments.iter().position(|segment| segment.contains(&block)) else {
            return false;
        };
        take(&mut self.segments[at], block);
        let mut to = (at + 1).min(3);
        self.segments[to].push(block);
        while at < 3 && self.segments[to].len() > most {
            let cooled = self.segments[to].remove(0);
            if to == 0 {
                continue;
            }
            to -= 1;
            self.segments[to].push(cooled);
        }
        true
    }

    fn insert(&mut self, block: Block, _: impl FnOnce(Block) -> bool) -> Insertion {
        if self.segments.iter().map(Vec::len).sum::<usize>() == self.capacity {
            let first = self.segments.iter_mut().find(|segment| !segment.is_empty());
            first.map(|segment| segment.remove(0));
        }
        let at = self.segments.iter().position(|segment| segment.len() < self.capacity / 4).unwrap_or(0);
        self.segments[at].push(block);
        Insertion::Added
    }

    fn remove(&mut self, _: Block) -> bool {
        unreachable!("no trim in this trace")
    }
}

/// LIRS, with libCacheSim's hits of blocks in the queue that are not in the stack, or the paper's.
struct LirsTwin {
    capacity: usize,
    most_hir: usize,
    is_reference: bool,
    stack: Vec<Block>,
    lir: Vec<Block>,
    queue: Vec<Block>,
    /// Blocks in the stack as if they were in the cache, though they are not in the queue: there the hit
    /// block may leave by its own hit.
    orphaned: Vec<Block>,
    left: Vec<Block>,
}

impl LirsTwin {
    fn new(size: CacheSize, is_reference: bool) -> Self {
        let capacity = size.capacity as usize;
        let [stack, lir, queue, astray, left] = Default::default();
        let most_hir = (capacity / 100).max(1);
        Self { capacity, most_hir, is_reference, stack, lir, queue, orphaned: astray, left }
    }

    fn prune(&mut self) {
        while self.stack.first().is_some_and(|bottom| !self.lir.contains(bottom)) {
            let bottom = self.stack.remove(0);
            take(&mut self.left, bottom);
            take(&mut self.orphaned, bottom);
        }
    }

    fn limit(&mut self) {
        while self.stack.len() > 2 * self.capacity && !self.left.is_empty() {
            let first = self.left.remove(0);
            take(&mut self.stack, first);
        }
    }

    fn evict_hir(&mut self) {
        let oldest = self.queue.remove(0);
        if self.stack.contains(&oldest) {
            self.left.push(oldest);
        }
    }

    /// Moves the oldest LIR block to the queue.
    fn evict_lir(&mut self) {
        let bottom = self.stack.remove(0);
        take(&mut self.lir, bottom);
        while self.queue.len() >= self.most_hir {
            self.evict_hir();
        }
        self.queue.push(bottom);
        self.prune();
    }

    fn make_lir(&mut self, block: Block) {
        while self.lir.len() >= self.capacity - self.most_hir {
            self.evict_lir();
        }
        self.lir.push(block);
    }
}

impl Eviction for LirsTwin {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        if take(&mut self.stack, block) {
            self.stack.push(block);
            if self.lir.contains(&block) {
                self.prune();
            } else if take(&mut self.queue, block) || take(&mut self.orphaned, block) {
                self.make_lir(block);
                self.prune();
            } else {
                return false;
            }
        } else if take(&mut self.queue, block) {
            self.queue.push(block);
            while self.is_reference && self.lir.len() >= self.capacity - self.most_hir {
                self.evict_lir();
            }
            if !self.queue.contains(&block) {
                self.orphaned.push(block);
            }
            self.stack.push(block);
        } else {
            return false;
        }
        self.limit();
        true
    }

    fn insert(&mut self, block: Block, _: impl FnOnce(Block) -> bool) -> Insertion {
        if take(&mut self.left, block) {
            self.make_lir(block);
        } else {
            self.stack.push(block);
            if self.lir.len() < self.capacity - self.most_hir {
                self.lir.push(block);
            } else {
                while self.queue.len() >= self.most_hir {
                    self.evict_hir();
                }
                self.queue.push(block);
            }
        }
        self.limit();
        Insertion::Added
    }

    fn remove(&mut self, _: Block) -> bool {
        unreachable!("no trim in this trace")
    }
}
