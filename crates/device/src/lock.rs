//! The exclusive lock on a device: `flock` on the same open file that the ring uses.
//!
//! A POSIX record lock would not do: it belongs to the process and is released as soon as the process is
//! killed, while its commands may still be in flight. This lock belongs to the open file, which those
//! commands keep alive.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::DeviceError;

/// Delay between attempts to take the lock.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// The allowed time has passed.
#[derive(Debug)]
pub(crate) struct LockTimeout;

/// Calls `attempt` at once and then repeatedly until `wait` has passed; `None` means "not yet".
pub(crate) fn retry<T>(wait: Duration, mut attempt: impl FnMut() -> Option<T>) -> Result<T, LockTimeout> {
    let start = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        let left = wait.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(LockTimeout);
        }
        std::thread::sleep(RETRY_DELAY.min(left));
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
        Err(LockTimeout) => Err(DeviceError::InUse { path: path.to_owned(), waited: wait }),
    }
}

/// Reports whether anyone holds the lock at the moment.
pub(crate) fn is_locked(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}
