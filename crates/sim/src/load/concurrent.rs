//! Composed loads: several concurrent loads, on volumes of their own or the same ones, and a load whose
//! clients have think time.

use super::{Client, ClientAction, Transferred};
use crate::{Arrival, Load, VolumeData};
use weir_model::{ExtentSize, Nanos};

/// Several concurrent loads, each on volumes of its own, or all on the same. In a closed loop clients are
/// assigned to the loads in turn: with as many clients as loads, each is a process with its own files.
pub(crate) struct ConcurrentLoads {
    loads: Vec<Box<dyn Load>>,
    /// Number of volumes that precede those of each load.
    first_volumes: Vec<usize>,
    /// The next request of each load in an open loop.
    next: Vec<Arrival>,
}

impl ConcurrentLoads {
    /// Combines these loads, at least one, each on volumes of its own.
    pub(crate) fn new(loads: Vec<Box<dyn Load>>) -> Self {
        let mut volumes = 0;
        let before = loads.iter().map(|load| {
            let before = volumes;
            volumes += load.volumes(ExtentSize::DEFAULT).len();
            before
        });
        Self { first_volumes: before.collect(), next: Vec::new(), loads }
    }

    /// Combines these loads, at least one, on the same volumes.
    pub(crate) fn on_shared_volumes(loads: Vec<Box<dyn Load>>) -> Self {
        Self { first_volumes: vec![0; loads.len()], next: Vec::new(), loads }
    }

    fn shift_volume(&self, number: usize, arrival: Arrival) -> Arrival {
        Arrival { volume: self.first_volumes[number] + arrival.volume, ..arrival }
    }
}

impl Load for ConcurrentLoads {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        let mut spaces: Vec<VolumeData> = Vec::new();
        for (before, load) in self.first_volumes.iter().zip(&self.loads) {
            for (number, space) in load.volumes(extent).into_iter().enumerate() {
                match spaces.get_mut(before + number) {
                    Some(same) => *same = std::mem::take(same).union(space),
                    None => spaces.push(space),
                }
            }
        }
        spaces
    }

    fn duration(&self) -> Nanos {
        self.loads.iter().map(|load| load.duration()).max().unwrap_or_default()
    }

    fn next_arrival(&mut self, _: Nanos) -> Arrival {
        if self.next.is_empty() {
            self.next = self.loads.iter_mut().map(|load| load.next_arrival(Nanos(0))).collect();
        }
        let soonest = (0..self.next.len()).min_by_key(|number| self.next[*number].at).unwrap_or(0);
        let arrival = self.next[soonest];
        self.next[soonest] = self.loads[soonest].next_arrival(arrival.at);
        self.shift_volume(soonest, arrival)
    }

    fn next_action(&mut self, client: Client, now: Nanos) -> ClientAction {
        let (number, of_it) = (client.0 % self.loads.len(), Client(client.0 / self.loads.len()));
        match self.loads[number].next_action(of_it, now) {
            ClientAction::Send(arrival) => ClientAction::Send(self.shift_volume(number, arrival)),
            wait @ ClientAction::Wait(_) => wait,
        }
    }

    fn work_done(&self) -> Option<u64> {
        self.loads.iter().map(|load| load.work_done()).sum()
    }

    fn transferred(&self) -> Option<Transferred> {
        self.loads.iter().map(|load| load.transferred()).try_fold(Transferred::default(), |sum, one| {
            let one = one?;
            Some(Transferred { read: sum.read + one.read, written: sum.written + one.written })
        })
    }
}

/// A load whose clients think after each reply in a closed loop.
pub(crate) struct ThinkTimeLoad {
    load: Box<dyn Load>,
    think: Nanos,
}

impl ThinkTimeLoad {
    pub(crate) fn new(load: Box<dyn Load>, think: Nanos) -> Self {
        Self { load, think }
    }
}

impl Load for ThinkTimeLoad {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        self.load.volumes(extent)
    }

    fn duration(&self) -> Nanos {
        self.load.duration()
    }

    fn next_arrival(&mut self, now: Nanos) -> Arrival {
        self.load.next_arrival(now)
    }

    fn next_action(&mut self, client: Client, now: Nanos) -> ClientAction {
        self.load.next_action(client, now + self.think)
    }

    fn work_done(&self) -> Option<u64> {
        self.load.work_done()
    }

    fn transferred(&self) -> Option<Transferred> {
        self.load.transferred()
    }
}
