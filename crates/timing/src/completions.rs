//! Commands with known completion times, soonest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_model::{IoId, Nanos};

/// A priority queue by completion time; commands with equal times keep their order.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    heap: BinaryHeap<Reverse<(Nanos, u64, IoId)>>,
    pushed: u64,
}

impl Completions {
    pub(crate) fn push(&mut self, at: Nanos, id: IoId) {
        self.heap.push(Reverse((at, self.pushed, id)));
        self.pushed += 1;
    }
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|&Reverse((at, ..))| at)
    }
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<IoId> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, id))| id)
    }
}
