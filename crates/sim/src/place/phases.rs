//! When the phases of a run end: the warm-up, each window, and the run.

use weir_model::Nanos;

/// When a part of a run ends: at this time, or with this many arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: Nanos,
    arrived: u64,
}

impl Due {
    /// Whether the part has ended.
    #[inline]
    pub(super) fn is_past(self, now: Nanos, arrived: u64) -> bool {
        now >= self.at || arrived >= self.arrived
    }
}

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub(super) duration: Nanos,
    /// By default a third of the run.
    pub(super) warm_up: Option<Nanos>,
    pub(super) requests: u64,
    /// The number of windows.
    pub(super) windows: u32,
}

/// The ends of the phases. They are computed once, because they are asked for several times at each event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    length: Length,
    start: Nanos,
    /// Of the warm-up.
    pub(super) warm_up: Due,
    /// Of the current window.
    pub(super) window: Due,
    pub(super) run: Due,
}

impl Phases {
    /// Returns the phases of a run that starts now.
    pub(super) fn new(length: Length, start: Nanos) -> Self {
        let warm_up = match length.warm_up {
            Some(warm_up) => Due { at: start + warm_up, arrived: u64::MAX },
            None => due(length, start, 1, 3),
        };
        let window = due(length, start, 1, length.windows.into());
        Self { length, start, warm_up, window, run: due(length, start, 1, 1) }
    }

    /// Begins the window after this many.
    pub(super) fn begin_window(&mut self, ended: usize) {
        self.window = due(self.length, self.start, ended as u64 + 1, self.length.windows.into());
    }

    /// Returns the first end that is later than this.
    pub(super) fn next(&self, now: Nanos) -> Option<Nanos> {
        [self.window, self.warm_up, self.run].into_iter().map(|due| due.at).filter(|at| *at > now).min()
    }
}

/// Returns when `part` of `of` parts of a run are done.
fn due(length: Length, start: Nanos, part: u64, of: u64) -> Due {
    let share = |whole: u64| {
        let parts = (u128::from(whole) * u128::from(part)).div_ceil(u128::from(of.max(1)));
        u64::try_from(parts).unwrap_or(u64::MAX)
    };
    Due { at: Nanos(start.0.saturating_add(share(length.duration.0))), arrived: share(length.requests) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_end_by_time_or_by_arrivals() {
        let length = Length { duration: Nanos(100), warm_up: None, requests: 10, windows: 3 };
        let mut phases = Phases::new(length, Nanos(1000));
        let ends =
            |phases: &Phases| [phases.warm_up, phases.window, phases.run].map(|due| (due.at.0, due.arrived));
        assert_eq!(ends(&phases), [(1034, 4), (1034, 4), (1100, 10)]);
        assert_eq!(phases.next(Nanos(1000)), Some(Nanos(1034)));
        assert!(!phases.window.is_past(Nanos(1033), 3));
        assert!(phases.window.is_past(Nanos(1034), 0) && phases.window.is_past(Nanos(1000), 4));
        phases.begin_window(1);
        assert_eq!(ends(&phases), [(1034, 4), (1067, 7), (1100, 10)]);
        assert_eq!(phases.next(Nanos(1034)), Some(Nanos(1067)));
        assert_eq!(phases.next(Nanos(1100)), None);
        let warmed = Phases::new(Length { warm_up: Some(Nanos(50)), ..length }, Nanos(0));
        assert_eq!((warmed.warm_up.at, warmed.warm_up.arrived), (Nanos(50), u64::MAX));
        // As many requests as arrive in the time.
        let endless = Phases::new(Length { requests: u64::MAX, ..length }, Nanos(0));
        assert_eq!(endless.run.arrived, u64::MAX);
    }
}
