//! The deadline of device commands: a device is given up when a command is past its deadline and the engine
//! was running to see it.
//!
//! A server that was stopped, or whose machine slept, wakes up long after deadlines that it could not watch,
//! and answers may arrive a moment later. So the clock alone does not decide: the engine checks a device with
//! commands in flight every eighth of its deadline, and gives it up after eight checks without an answer. A
//! pause, however long, counts as one check.

use weir_model::Nanos;

/// The number of checks before a device is given up.
const CHECKS_MAX: usize = 8;

/// The checks of a device that has commands in flight.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// The time of the next check.
    due: Option<Nanos>,
    /// The times of the last checks, oldest first, at least an eighth of the deadline apart.
    checks: [Nanos; CHECKS_MAX],
}

/// Returns the time between checks.
const fn check_interval(deadline: Nanos) -> Nanos {
    Nanos(deadline.0 / CHECKS_MAX as u64)
}

impl Watchdog {
    /// Notes that a command begins.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos, deadline: Nanos) {
        if self.due.is_none() {
            self.due = Some(now + check_interval(deadline));
        }
    }

    /// Returns the time of the next check; `None` if no command has begun since a check found none in flight.
    #[inline]
    pub(crate) const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Checks whether the oldest command, begun at `oldest`, is overdue. `None`: no command is in flight.
    pub(crate) fn check(&mut self, now: Nanos, deadline: Nanos, oldest: Option<Nanos>) -> bool {
        let Some(begun) = oldest else {
            self.due = None;
            return false;
        };
        if now.since(self.checks[CHECKS_MAX - 1]) >= check_interval(deadline) {
            self.checks.rotate_left(1);
            self.checks[CHECKS_MAX - 1] = now;
        }
        let (end, was_seen) = (begun + deadline, self.checks[0] > begun);
        self.due = Some(if was_seen { end } else { now + check_interval(deadline) });
        was_seen && end <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Nanos = Nanos::secs(8);

    /// Checks at every due time from `at` on; returns when the command begun at `begun` is overdue.
    fn overdue_at(watch: &mut Watchdog, begun: Nanos) -> Nanos {
        loop {
            let at = watch.due().expect("a look to come");
            if watch.check(at, DEADLINE, Some(begun)) {
                return at;
            }
        }
    }

    #[test]
    fn a_device_is_given_up_at_its_deadline() {
        let mut watch = Watchdog::default();
        watch.begin(Nanos(5), DEADLINE);
        assert_eq!(overdue_at(&mut watch, Nanos(5)), Nanos(5) + DEADLINE);
        // The command begins between two checks.
        let mut watch = Watchdog::default();
        watch.begin(Nanos(0), DEADLINE);
        assert_eq!(overdue_at(&mut watch, Nanos::millis(700)), Nanos::millis(700) + DEADLINE);
    }

    #[test]
    fn long_pause_counts_as_one_check() {
        for pause in [Nanos::secs(8), Nanos::secs(9), Nanos::secs(3600)] {
            let mut watch = Watchdog::default();
            watch.begin(Nanos(0), DEADLINE);
            assert!(!watch.check(Nanos::secs(1), DEADLINE, Some(Nanos(0))));
            let awake = Nanos::secs(1) + pause;
            assert!(!watch.check(awake, DEADLINE, Some(Nanos(0))));
            assert_eq!(overdue_at(&mut watch, Nanos(0)), awake + Nanos::secs(6));
        }
    }

    #[test]
    fn close_checks_count_as_one() {
        let mut watch = Watchdog::default();
        watch.begin(Nanos(0), DEADLINE);
        for i in 0..100 {
            assert!(!watch.check(Nanos(Nanos::secs(9).0 + i), DEADLINE, Some(Nanos(0))));
        }
    }

    #[test]
    fn no_check_is_due_without_commands() {
        let mut watch = Watchdog::default();
        watch.begin(Nanos(0), DEADLINE);
        assert!(!watch.check(Nanos::secs(1), DEADLINE, None));
        assert_eq!(watch.due(), None);
    }
}
