//! Resource limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_model::Bytes;

/// Returns how many files and sockets the process may have open, after raising the soft limit to `wanted` as
/// far as the hard limit allows. It never lowers the limit.
pub fn open_files(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let now = current.unwrap_or(u64::MAX);
    let most = maximum.unwrap_or(u64::MAX);
    let raised = wanted.min(most);
    if raised <= now {
        return now;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, "the limit on open files stays at {now}");
            now
        }
    }
}

/// Returns the maximum size of a file that the process may write, if it is limited (`ulimit -f`).
pub fn file_size() -> Option<Bytes> {
    getrlimit(Resource::Fsize).current.map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let before = open_files(0);
        assert_eq!(open_files(before), before);
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(open_files(before.saturating_add(1)), maximum.min(before.saturating_add(1)));
        assert!(open_files(0) >= before);
    }
}
