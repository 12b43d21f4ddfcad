//! The deadline of device commands: a device is given up when a command is past its deadline and the engine
//! was running to see it.
//!
//! A server that was stopped, or whose machine slept, wakes up long after deadlines that it could not watch,
//! and answers may arrive a moment later. So the clock alone does not decide: the engine checks a device with
//! commands in flight every eighth of its deadline, and gives it up after eight checks without an answer. A
//! pause, however long, counts as one check.

use weir_model::Nanos;

/// The number of checks before a device is given up.
const LOOKS: usize = 8;

/// The checks of a device that has commands in flight.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The time of the next check.
    due: Option<Nanos>,
    /// The times of the last checks, oldest first, at least an eighth of the deadline apart.
    looks: [Nanos; LOOKS],
}

/// Returns the time between checks.
const fn step(deadline: Nanos) -> Nanos {
    Nanos(deadline.0 / LOOKS as u64)
}

impl Watch {
    /// Notes that a command begins.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos, deadline: Nanos) {
        if self.due.is_none() {
            self.due = Some(now + step(deadline));
        }
    }

    /// Returns the time of the next check; `None` if no command has begun since a check found none in flight.
    #[inline]
    pub(crate) const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Checks whether the oldest command, begun at `oldest`, is overdue. `None`: no command is in flight.
    pub(crate) fn look(&mut self, now: Nanos, deadline: Nanos, oldest: Option<Nanos>) -> bool {
        let Some(begun) = oldest else {
            self.due = None;
            return false;
        };
        if now.since(self.looks[LOOKS - 1]) >= step(deadline) {
            self.looks.rotate_left(1);
            self.looks[LOOKS - 1] = now;
        }
        let (end, was_seen) = (begun + deadline, self.looks[0] > begun);
        self.due = Some(if was_seen { end } else { now + step(deadline) });
        was_seen && end <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Nanos = Nanos::secs(8);

    /// Checks at every due time from `at` on; returns when the command begun at `begun` is overdue.
    fn given_up(watch: &mut Watch, begun: Nanos) -> Nanos {
        loop {
            let at = watch.due().expect("a look to come");
            if watch.look(at, DEADLINE, Some(begun)) {
                return at;
            }
        }
    }

    #[test]
    fn a_device_is_given_up_at_its_deadline() {
        let mut watch = Watch::default();
        watch.begin(Nanos(5), DEADLINE);
        assert_eq!(given_up(&mut watch, Nanos(5)), Nanos(5) + DEADLINE);
        // The command begins between two checks.
        let mut watch = Watch::default();
        watch.begin(Nanos(0), DEADLINE);
        assert_eq!(given_up(&mut watch, Nanos::millis(700)), Nanos::millis(700) + DEADLINE);
    }

    #[test]
    fn a_pause_counts_as_one_look_however_long_it_was() {
        for pause in [Nanos::secs(8), Nanos::secs(9), Nanos::secs(3600)] {
            let mut watch = Watch::default();
            watch.begin(Nanos(0), DEADLINE);
            assert!(!watch.look(Nanos::secs(1), DEADLINE, Some(Nanos(0))));
            let awake = Nanos::secs(1) + pause;
            assert!(!watch.look(awake, DEADLINE, Some(Nanos(0))));
            assert_eq!(given_up(&mut watch, Nanos(0)), awake + Nanos::secs(6));
        }
    }

    #[test]
    fn looks_in_close_succession_are_one() {
        let mut watch = Watch::default();
        watch.begin(Nanos(0), DEADLINE);
        for i in 0..100 {
            assert!(!watch.look(Nanos(Nanos::secs(9).0 + i), DEADLINE, Some(Nanos(0))));
        }
    }

    #[test]
    fn nothing_is_watched_once_everything_is_answered() {
        let mut watch = Watch::default();
        watch.begin(Nanos(0), DEADLINE);
        assert!(!watch.look(Nanos::secs(1), DEADLINE, None));
        assert_eq!(watch.due(), None);
    }
}
