//! `s3fifo`: new blocks go through a small queue first; those used twice there go on to the main one.
//!
//! Source: J. Yang, Y. Zhang, Z. Qiu, Y. Yue, R. Vinayak, "FIFO queues are all you need for cache eviction",
//! SOSP 2023, with its constants.
//!
//! Rule: a tenth of the capacity is the small queue, the rest the main one; both are in the order of arrival.
//! Hits are counted, to at most 3. While the main queue is larger than its share, or the small one is empty,
//! the oldest of the main one leaves if its count is 0, else it becomes the newest with its count
//! decremented. Otherwise the oldest of the small one goes to the main one, with its count reset to 0, if it
//! was hit twice; else it leaves and is remembered. As many such blocks are remembered as nine tenths of the
//! capacity. A remembered miss enters the main queue, any other the small one.
//!
//! When not: where most blocks are used once more, and only soon.

use super::lists::Lists;
use super::{AccessKind, Block, CacheSize, Eviction, Insertion};

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;
const OUT: u8 = 3;

/// The small queue's share of the capacity.
const SMALL_SHARE: f64 = 0.1;
/// The number of remembered blocks, as a share of the capacity.
const GHOST_SHARE: f64 = 0.9;
/// The number of hits in the small queue that move a block to the main one.
const PROMOTION_HITS: u8 = 2;
/// The maximum count.
const COUNT_MAX: u8 = 3;

/// S3-FIFO.
#[derive(Debug)]
pub struct S3Fifo {
    capacity: u32,
    most_main: u32,
    most_ghost: u32,
    queues: Lists<3>,
    states: Vec<S3FifoState>,
}

/// The queue of a block in the two lowest bits, and its count in those above.
#[derive(Clone, Copy, Debug)]
struct S3FifoState(u8);

impl S3FifoState {
    const fn new(queue: u8, count: u8) -> Self {
        Self(queue | count << 2)
    }
    const fn queue(self) -> u8 {
        self.0 & 3
    }
    const fn count(self) -> u8 {
        self.0 >> 2
    }
}

impl S3Fifo {
    /// Creates an empty cache.
    pub fn new(size: CacheSize) -> Self {
        Self {
            capacity: size.capacity,
            most_main: size.capacity - size.share(SMALL_SHARE),
            most_ghost: size.share(GHOST_SHARE),
            queues: Lists::new(size.blocks),
            states: vec![S3FifoState::new(OUT, 0); size.blocks as usize],
        }
    }

    #[inline]
    fn len(&self, queue: u8) -> u32 {
        self.queues.len(queue.into())
    }

    /// Removes a block from its queue. Returns which that was.
    #[inline]
    fn detach(&mut self, block: Block) -> u8 {
        let state = std::mem::replace(&mut self.states[block.index()], S3FifoState::new(OUT, 0));
        if state.queue() != OUT {
            self.queues.remove(state.queue().into(), block);
        }
        state.queue()
    }

    #[inline]
    fn attach(&mut self, block: Block, queue: u8) {
        self.queues.push(queue.into(), block);
        self.states[block.index()] = S3FifoState::new(queue, 0);
    }

    /// Returns the block that must leave, at the old end of its queue.
    fn candidate(&mut self) -> Option<Block> {
        if self.len(MAIN) <= self.most_main {
            while let Some(oldest) = self.queues.oldest(SMALL.into()) {
                if self.states[oldest.index()].count() < PROMOTION_HITS {
                    return Some(oldest);
                }
                self.queues.shift(SMALL.into(), MAIN.into(), oldest);
                self.states[oldest.index()] = S3FifoState::new(MAIN, 0);
            }
        }
        while let Some(oldest) = self.queues.oldest(MAIN.into()) {
            let count = self.states[oldest.index()].count();
            if count == 0 {
                return Some(oldest);
            }
            self.queues.move_to_newest(MAIN.into(), oldest);
            self.states[oldest.index()] = S3FifoState::new(MAIN, count - 1);
        }
        None
    }

    fn remember(&mut self, block: Block) {
        if self.most_ghost == 0 {
            return;
        }
        if self.len(GHOST) >= self.most_ghost
            && let Some(oldest) = self.queues.oldest(GHOST.into())
        {
            self.detach(oldest);
        }
        self.attach(block, GHOST);
    }
}

impl Eviction for S3Fifo {
    #[inline]
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let state = &mut self.states[block.index()];
        let is_in = state.queue() <= MAIN;
        if is_in {
            *state = S3FifoState::new(state.queue(), (state.count() + 1).min(COUNT_MAX));
        }
        is_in
    }

    #[inline]
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        let remembered = self.states[block.index()].queue() == GHOST;
        if self.len(SMALL) + self.len(MAIN) >= self.capacity {
            leaving = self.candidate();
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            // It is not among the remembered blocks while another one may be forgotten.
            self.detach(block);
            if let Some(leaving) = leaving
                && self.detach(leaving) == SMALL
            {
                self.remember(leaving);
            }
        }
        self.detach(block);
        self.attach(block, if remembered { MAIN } else { SMALL });
        leaving.map_or(Insertion::Added, Insertion::Replaced)
    }

    fn remove(&mut self, block: Block) -> bool {
        let is_in = self.states[block.index()].queue() <= MAIN;
        if is_in {
            self.detach(block);
        }
        is_in
    }
}
