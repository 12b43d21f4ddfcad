//! A pending crash, which occurs after a number of events.

use super::{Crash, Failure};

/// The pending crash, if there is one, and the number of events until it occurs.
#[derive(Default)]
pub(crate) struct PendingCrash(Option<(u64, Crash)>);

impl PendingCrash {
    /// Arms the crash. It occurs at once if it is due after no events, or if another one is pending.
    pub(crate) fn arm(&mut self, crash: &Crash) -> Result<(), Failure> {
        if self.0.is_some() {
            return Err(Failure::CrashDue);
        }
        self.0 = Some((crash.after, crash.clone()));
        if crash.after == 0 { Err(Failure::CrashDue) } else { Ok(()) }
    }

    /// Makes it come now, in place of any pending one.
    pub(crate) fn crash_now(&mut self, crash: &Crash) -> Failure {
        self.0 = Some((0, crash.clone()));
        Failure::CrashDue
    }

    /// Cancels the pending crash.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }

    /// Counts an event.
    pub(crate) fn count_event(&mut self) -> Result<(), Failure> {
        let Some((left, _)) = &mut self.0 else { return Ok(()) };
        *left = left.saturating_sub(1);
        if *left == 0 { Err(Failure::CrashDue) } else { Ok(()) }
    }

    /// Takes the crash, if it ended a step.
    pub(crate) fn take_due(&mut self, result: &Result<(), Failure>) -> Option<Crash> {
        let crash = if matches!(result, Err(Failure::CrashDue)) { self.0.take() } else { None };
        crash.map(|(_, crash)| crash)
    }
}
