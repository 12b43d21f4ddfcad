//! Shrinks a failing history until it is short enough to read.

use super::History;
use crate::driver::{Failure, HistoryStep};

/// A shrunk history with its failure.
#[derive(Debug)]
pub struct ShrunkHistory {
    /// The remaining history.
    pub history: History,
    /// The failure in which it now ends.
    pub failure: Failure,
    /// Number of histories tried.
    pub attempts: u64,
}

/// Removes steps from a failing history as long as it still fails: first many at a time, then one by one. Any
/// failure counts, not only one of the original kind. Stops when `should_continue`, which is called before
/// each attempt, returns false. Returns `None` if the history does not fail.
pub fn shrink(history: &History, mut should_continue: impl FnMut() -> bool) -> Option<ShrunkHistory> {
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
        while at < best.steps.len() && should_continue() {
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
        if size == 1 && !smaller || !should_continue() {
            return Some(ShrunkHistory { history: best, failure, attempts: tried });
        }
        if !smaller {
            size = size.div_ceil(2);
        }
    }
}
