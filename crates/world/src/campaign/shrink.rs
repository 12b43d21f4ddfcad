//! Making a history that fails short enough to be read.

use super::History;
use crate::driver::{Failure, HistoryStep};

/// A history that fails, and how.
#[derive(Debug)]
pub struct Shrunk {
    /// What is left of it.
    pub history: History,
    /// The failure it now ends in.
    pub failure: Failure,
    /// Histories tried.
    pub tried: u64,
}

/// Leaves out steps of a history that fails, as long as it goes on failing: first many at a time,
/// then one by one. Any failure counts, not only the first one's kind. Stops when `go_on` says so,
/// which is asked before each attempt. `None` if the history does not fail.
pub fn shrink(history: &History, mut go_on: impl FnMut() -> bool) -> Option<Shrunk> {
    let (failure, steps) = history.run().failure?;
    let mut best = History { steps: history.steps[..steps].to_vec(), ..history.clone() };
    let mut failure = failure;
    let mut tried = 1;
    let mut attempt = |candidate: History, best: &mut History, failure: &mut Failure| {
        tried += 1;
        let Some((error, steps)) = candidate.run().failure else { return false };
        *best = candidate;
        best.steps.truncate(steps.max(1));
        *failure = error;
        true
    };
    let mut size = best.steps.len().div_ceil(2);
    loop {
        let mut smaller = false;
        let mut at = 0;
        while at < best.steps.len() && go_on() {
            let end = (at + size).min(best.steps.len());
            let steps: Vec<HistoryStep> =
                best.steps[..at].iter().chain(&best.steps[end..]).cloned().collect();
            let candidate = History { steps, ..best.clone() };
            if attempt(candidate, &mut best, &mut failure) {
                smaller = true;
            } else {
                at += size;
            }
        }
        if size == 1 && !smaller || !go_on() {
            return Some(Shrunk { history: best, failure, tried });
        }
        if !smaller {
            size = size.div_ceil(2);
        }
    }
}
