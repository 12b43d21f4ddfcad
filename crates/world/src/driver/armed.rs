//! A crash to come, after some more events.

use super::{Crash, Failure};

/// The crash, if there is one, and after how many more events.
#[derive(Default)]
pub(crate) struct Armed(Option<(u64, Crash)>);

impl Armed {
    /// It is to come after as many events as it says: at once, if there are none, or if another one is to
    /// come.
    pub(crate) fn arm(&mut self, crash: &Crash) -> Result<(), Failure> {
        if self.0.is_some() {
            return Err(Failure::Cut);
        }
        self.0 = Some((crash.after, crash.clone()));
        if crash.after == 0 { Err(Failure::Cut) } else { Ok(()) }
    }

    /// It comes now, in place of any other one.
    pub(crate) fn now(&mut self, crash: &Crash) -> Failure {
        self.0 = Some((0, crash.clone()));
        Failure::Cut
    }

    /// It does not come any more.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }

    /// An event has passed.
    pub(crate) fn burn(&mut self) -> Result<(), Failure> {
        let Some((left, _)) = &mut self.0 else { return Ok(()) };
        *left = left.saturating_sub(1);
        if *left == 0 { Err(Failure::Cut) } else { Ok(()) }
    }

    /// The crash that ended a step, if that is what ended it.
    pub(crate) fn ended(&mut self, result: &Result<(), Failure>) -> Option<Crash> {
        let crash = if matches!(result, Err(Failure::Cut)) { self.0.take() } else { None };
        crash.map(|(_, crash)| crash)
    }
}
