//! Composed loads: several concurrent loads, on volumes of their own or the same ones, and a load whose
//! clients have think time.

use super::{Client, Next};
use crate::{Arrival, Load, Space};
use weir_model::{ExtentSize, Nanos};

/// Several concurrent loads, each on volumes of its own, or all on the same. In a closed loop clients are
/// assigned to the loads in turn: with as many clients as loads, each is a process with its own files.
pub(crate) struct SideBySide {
    loads: Vec<Box<dyn Load>>,
    /// Number of volumes that precede those of each load.
    before: Vec<usize>,
    /// The next request of each load in an open loop.
    next: Vec<Arrival>,
}

impl SideBySide {
    /// Combines these loads, at least one, each on volumes of its own.
    pub(crate) fn new(loads: Vec<Box<dyn Load>>) -> Self {
        let mut volumes = 0;
        let before = loads.iter().map(|load| {
            let before = volumes;
            volumes += load.spaces(ExtentSize::DEFAULT).len();
            before
        });
        Self { before: before.collect(), next: Vec::new(), loads }
    }

    /// Combines these loads, at least one, on the same volumes.
    pub(crate) fn on_the_same(loads: Vec<Box<dyn Load>>) -> Self {
        Self { before: vec![0; loads.len()], next: Vec::new(), loads }
    }

    fn of(&self, number: usize, arrival: Arrival) -> Arrival {
        Arrival { volume: self.before[number] + arrival.volume, ..arrival }
    }
}

impl Load for SideBySide {
    fn spaces(&self, extent: ExtentSize) -> Vec<Space> {
        let mut spaces: Vec<Space> = Vec::new();
        for (before, load) in self.before.iter().zip(&self.loads) {
            for (number, space) in load.spaces(extent).into_iter().enumerate() {
                match spaces.get_mut(before + number) {
                    Some(same) => *same = std::mem::take(same).with(space),
                    None => spaces.push(space),
                }
            }
        }
        spaces
    }

    fn lasts(&self) -> Nanos {
        self.loads.iter().map(|load| load.lasts()).max().unwrap_or_default()
    }

    fn next(&mut self, _: Nanos) -> Arrival {
        if self.next.is_empty() {
            self.next = self.loads.iter_mut().map(|load| load.next(Nanos(0))).collect();
        }
        let soonest = (0..self.next.len()).min_by_key(|number| self.next[*number].at).unwrap_or(0);
        let arrival = self.next[soonest];
        self.next[soonest] = self.loads[soonest].next(arrival.at);
        self.of(soonest, arrival)
    }

    fn next_of(&mut self, client: Client, now: Nanos) -> Next {
        let (number, of_it) = (client.0 % self.loads.len(), Client(client.0 / self.loads.len()));
        match self.loads[number].next_of(of_it, now) {
            Next::Ask(arrival) => Next::Ask(self.of(number, arrival)),
            wait @ Next::Wait(_) => wait,
        }
    }

    fn done(&self) -> Option<u64> {
        self.loads.iter().map(|load| load.done()).sum()
    }
}

/// A load whose clients think after each reply in a closed loop.
pub(crate) struct Thinking {
    load: Box<dyn Load>,
    think: Nanos,
}

impl Thinking {
    pub(crate) fn new(load: Box<dyn Load>, think: Nanos) -> Self {
        Self { load, think }
    }
}

impl Load for Thinking {
    fn spaces(&self, extent: ExtentSize) -> Vec<Space> {
        self.load.spaces(extent)
    }

    fn lasts(&self) -> Nanos {
        self.load.lasts()
    }

    fn next(&mut self, now: Nanos) -> Arrival {
        self.load.next(now)
    }

    fn next_of(&mut self, client: Client, now: Nanos) -> Next {
        self.load.next_of(client, now + self.think)
    }

    fn done(&self) -> Option<u64> {
        self.load.done()
    }
}
