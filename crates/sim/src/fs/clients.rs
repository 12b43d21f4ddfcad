//! The clients of a load: what each does, and since when.

use super::load::{FileOp, FileStep};
use std::collections::VecDeque;
use weir_model::{Bytes, Nanos};

/// A client's operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) step: FileStep,
    /// When it began.
    pub(super) began: Nanos,
    /// When its processor time is over.
    pub(super) ready: Nanos,
    /// Reads of containers that it waits for.
    pub(super) reads: usize,
}

/// A client that waits for space.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    client: usize,
    step: FileStep,
    since: Nanos,
    wanted: Bytes,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) current: Vec<Option<Current>>,
    waiters: VecDeque<Waiter>,
    /// When each processor is free.
    processors: Vec<Nanos>,
    pub(super) waits: u64,
    pub(super) waited: Nanos,
}

impl Clients {
    pub(super) fn new(count: usize, processors: usize) -> Self {
        Self {
            current: vec![None; count],
            waiters: VecDeque::new(),
            processors: vec![Nanos(0); processors.max(1)],
            waits: 0,
            waited: Nanos(0),
        }
    }

    /// Takes processor time, on the processor that is free first. Returns when it is over.
    pub(super) fn compute(&mut self, now: Nanos, time: Nanos) -> Nanos {
        let Some(first) = self.processors.iter_mut().min() else { return now + time };
        *first = (*first).max(now) + time;
        *first
    }

    /// Lets a client wait, behind the others.
    pub(super) fn wait(&mut self, client: usize, step: FileStep, since: Nanos, wanted: Bytes) {
        self.waiters.push_back(Waiter { client, step, since, wanted });
    }

    /// Returns the space that the waiting clients want.
    pub(super) fn wanted(&self) -> Bytes {
        Bytes(self.waiters.iter().map(|waiter| waiter.wanted.0).sum())
    }

    /// Whether any client waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns the client that waits longest, and its step.
    pub(super) fn first_waiter(&self) -> Option<(usize, FileStep, Nanos)> {
        self.waiters.front().map(|waiter| (waiter.client, waiter.step, waiter.since))
    }

    /// Ends the wait of the client that waits longest.
    pub(super) fn end_wait(&mut self, now: Nanos) {
        if let Some(waiter) = self.waiters.pop_front() {
            self.waits += 1;
            self.waited += now.since(waiter.since);
        }
    }
}

/// Whether an operation reads only.
pub(super) fn is_read(op: FileOp) -> bool {
    matches!(op, FileOp::Read(_) | FileOp::Stat(_))
}
