//! A load whose clients all pause once.

use super::{Client, ClientAction, Transferred};
use crate::{Arrival, Load, VolumeData};
use std::ops::Range;
use weir_model::{ExtentSize, Nanos};

/// A load whose clients send nothing for a while: in a closed loop those whose next request would begin in
/// the pause wait for its end; in an open loop all arrivals from its begin on are that much later.
pub struct Paused {
    load: Box<dyn Load>,
    pause: Range<Nanos>,
}

impl Paused {
    /// Adds a pause to a load; both times count from the load's start.
    pub fn new(load: Box<dyn Load>, pause: Range<Nanos>) -> Self {
        Self { load, pause }
    }

    fn len(&self) -> Nanos {
        self.pause.end.since(self.pause.start)
    }
}

impl Load for Paused {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        self.load.volumes(extent)
    }

    fn duration(&self) -> Nanos {
        self.load.duration() + self.len()
    }

    fn next_arrival(&mut self, now: Nanos) -> Arrival {
        let own = if now < self.pause.end { now.min(self.pause.start) } else { now - self.len() };
        let arrival = self.load.next_arrival(own);
        let at = if arrival.at < self.pause.start { arrival.at } else { arrival.at + self.len() };
        Arrival { at, ..arrival }
    }

    fn next_action(&mut self, client: Client, now: Nanos) -> ClientAction {
        if self.pause.contains(&now) {
            return ClientAction::Wait(self.pause.end);
        }
        self.load.next_action(client, now)
    }

    fn work_done(&self) -> Option<u64> {
        self.load.work_done()
    }

    fn transferred(&self) -> Option<Transferred> {
        self.load.transferred()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse;

    fn load(words: &str, pause: Range<u64>) -> Paused {
        let load = parse(words, 1, crate::units::size, crate::units::duration).expect("a load");
        Paused::new(load, Nanos::millis(pause.start)..Nanos::millis(pause.end))
    }

    #[test]
    fn clients_wait_for_the_end_of_the_pause() {
        let mut load = load("scan size=4KiB over=64KiB rate=100", 20..50);
        let mut next = |ms| load.next_action(Client(0), Nanos::millis(ms));
        let sent = |action| match action {
            ClientAction::Send(arrival) => Some((arrival.at, arrival.offset.0)),
            ClientAction::Wait(_) => None,
        };
        assert_eq!(sent(next(19)), Some((Nanos::millis(19), 0)));
        assert_eq!(next(20), ClientAction::Wait(Nanos::millis(50)));
        assert_eq!(sent(next(50)), Some((Nanos::millis(50), 4096)));
    }

    #[test]
    fn arrivals_are_later_by_the_pause() {
        let mut load = load("scan size=4KiB over=64KiB rate=100", 20..50);
        let mut at = Nanos(0);
        let mut next = || {
            at = load.next_arrival(at).at;
            at
        };
        let times: Vec<Nanos> = (0..50).map(|_| next()).collect();
        assert!(times.is_sorted());
        assert!(times.iter().all(|at| !(Nanos::millis(20)..Nanos::millis(50)).contains(at)), "{times:?}");
        assert!(
            times.iter().any(|at| *at < Nanos::millis(20)) && times.iter().any(|at| *at >= Nanos::millis(50))
        );
    }
}
