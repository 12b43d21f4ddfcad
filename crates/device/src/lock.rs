//! The exclusive lock on a device: `flock` on the very open file the ring uses.
//!
//! Not a POSIX record lock: that one belongs to the process and is gone as soon as the process
//! is killed, while commands it submitted may still be on their way to the device. This one
//! belongs to the open file, which those commands keep alive.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::DeviceError;

/// How often a taken lock is asked for again.
const PAUSE: Duration = Duration::from_millis(20);

/// Waited as long as was allowed.
#[derive(Debug)]
pub(crate) struct GaveUp;

/// Tries at once and then again and again until `wait` has passed; `None` means "not yet".
pub(crate) fn retry<T>(wait: Duration, mut attempt: impl FnMut() -> Option<T>) -> Result<T, GaveUp> {
    let start = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        let left = wait.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(GaveUp);
        }
        std::thread::sleep(PAUSE.min(left));
    }
}

/// Locks an open device against every other open of it, in this process or another.
pub(crate) fn exclusive(file: &File, path: &Path, wait: Duration) -> Result<(), DeviceError> {
    let locked = retry(wait, || match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK | Errno::INTR) => None,
        other => Some(other),
    });
    match locked {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => {
            Err(DeviceError::Io { path: path.to_owned(), what: "locking it", source: io::Error::from(e) })
        }
        Err(GaveUp) => Err(DeviceError::InUse { path: path.to_owned(), waited: wait }),
    }
}

/// Whether somebody holds the lock just now.
pub(crate) fn is_held(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}
