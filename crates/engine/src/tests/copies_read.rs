//! Reads of blocks while both copies are written.

use super::copies::with_open_intent;
use super::harness::Harness;
use weir_model::{DeviceId, Errno, IoError, IoKind, Op, RequestError};

const EIO: IoError = IoError::Os(Errno::EIO);
const WRITE: IoKind = IoKind::Write { fua: false };

#[test]
fn read_meeting_a_write_precedes_later_writes() {
    let mut h = with_open_intent();
    h.devices.hanging = vec![DeviceId(0), DeviceId(1)];
    h.submit(1, Op::Write, 0, 4096, 2);
    h.run();
    h.submit(2, Op::Read, 0, 8192, 0);
    h.submit(3, Op::Write, 4096, 4096, 3);
    h.run();
    assert_eq!(h.devices.delayed.len(), 2, "the second write waits for the read: {:?}", h.devices.delayed);
    h.devices.hanging.clear();
    h.release(None);
    let answered: Vec<u64> = std::iter::from_fn(|| h.answer()).map(|(id, _)| id).collect();
    assert_eq!(answered, [1, 2, 3]);
    assert_eq!(h.read(0, 8192).1, [[2; 4096], [3; 4096]].concat());
}

/// Lets a read begin on one device before a write to both copies. `1` is the read, `2` the write.
fn overtaken_read() -> Harness {
    let mut h = with_open_intent();
    h.devices.delay_next = Some(IoKind::Read);
    h.submit(1, Op::Read, 0, 8192, 9);
    h.run();
    assert_eq!(h.devices.delayed.len(), 1);
    h.submit(2, Op::Write, 0, 4096, 2);
    h
}

#[test]
fn a_read_that_a_write_overtakes_is_answered_after_it() {
    let mut h = overtaken_read();
    h.devices.hanging = vec![DeviceId(1)];
    h.run();
    h.release_one(0, None);
    assert_eq!(h.answer(), None, "one copy has the write, and the other may never");
    h.wake(DeviceId(1));
    let answered: Vec<u64> = std::iter::from_fn(|| h.answer()).map(|(id, _)| id).collect();
    assert_eq!(answered, [2, 1]);
}

#[test]
fn a_read_that_a_failed_write_overtakes_returns_neither_version() {
    let mut h = overtaken_read();
    (0..6).for_each(|_| h.fail_next(WRITE, EIO));
    h.run();
    assert!(h.answer().is_some_and(|(id, result)| id == 2 && result.is_err()));
    h.release(None);
    let doubt = RequestError::InDoubt { device: DeviceId(0) };
    assert_eq!(h.answer(), Some((1, Err(doubt))), "later reads cannot return the same");
}
