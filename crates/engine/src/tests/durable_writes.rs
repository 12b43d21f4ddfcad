//! Durable writes that fail: the meaning of a lack of space, for one command and for two.

use super::harness::Harness;
use crate::{DeviceSettings, DurableWrites};
use weir_model::{DeviceId, Errno, IoError, IoKind, Op, RequestError};

const EIO: IoError = IoError::Os(Errno::EIO);
const ENOSPC: IoError = IoError::Os(Errno::ENOSPC);
const EDQUOT: IoError = IoError::Os(Errno::EDQUOT);
const DATA: DeviceId = DeviceId(0);
const EXTENT: u64 = 128 << 10;
const WRITE: IoKind = IoKind::Write { fua: false };
const DURABLE: IoKind = IoKind::Write { fua: true };

/// Sets up an extent that is durable, with one block overwritten since, which is not.
fn half_written(durable_writes: DurableWrites) -> Harness {
    let settings = DeviceSettings { durable_writes, ..DeviceSettings::default() };
    let mut h = Harness::with_settings(2, "sequential", settings);
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.write(8192, &[2; 4096]);
    h.devices.log.clear();
    h
}

fn is_in_doubt(h: &mut Harness) -> bool {
    h.try_read(8192, 4096) == Err(RequestError::InDoubt { device: DATA })
}

fn durable_write(h: &mut Harness) -> Result<(), RequestError> {
    h.request(Op::Write, 0, &[3; 4096], true).map(|_| ())
}

fn commands(h: &Harness) -> Vec<IoKind> {
    h.devices.log.iter().filter(|io| io.device == DATA).map(|io| io.kind).collect()
}

fn writes(h: &Harness) -> Vec<IoKind> {
    commands(h).into_iter().filter(|kind| *kind != IoKind::Flush).collect()
}

#[test]
fn no_space_from_durable_write_puts_earlier_writes_in_doubt() {
    for error in [ENOSPC, EDQUOT] {
        let mut h = half_written(DurableWrites::OneCommand);
        h.fail_next(DURABLE, error);
        assert_eq!(durable_write(&mut h), Err(RequestError::FlushFailed(DATA)));
        assert_eq!(writes(&h), [DURABLE], "it is not tried again");
        assert!(is_in_doubt(&mut h), "what was cached may be lost");
        assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    }
}

#[test]
fn a_durable_write_by_two_commands_is_a_write_and_a_flush() {
    let mut h = half_written(DurableWrites::WriteThenFlush);
    durable_write(&mut h).expect("a durable write");
    assert_eq!(commands(&h), [WRITE, IoKind::Flush]);
    assert_eq!(h.read(0, 4096).1, [3; 4096]);
    h.stop();
}

#[test]
fn no_space_from_plain_step_puts_nothing_in_doubt() {
    for error in [ENOSPC, EDQUOT] {
        let mut h = half_written(DurableWrites::WriteThenFlush);
        h.fail_next(WRITE, error);
        assert_eq!(durable_write(&mut h), Err(RequestError::NoSpace));
        assert_eq!(commands(&h), [WRITE]);
        assert!(!is_in_doubt(&mut h));
        h.flush().expect("nothing was lost");
        h.stop();
    }
}

#[test]
fn failed_flush_step_loses_writes_and_is_not_retried() {
    for error in [ENOSPC, EDQUOT, EIO, IoError::Os(Errno(4)), IoError::Os(Errno(11)), IoError::Os(Errno(12))]
    {
        let mut h = half_written(DurableWrites::WriteThenFlush);
        h.fail_next(IoKind::Flush, error);
        assert_eq!(durable_write(&mut h), Err(RequestError::FlushFailed(DATA)), "{error}");
        assert_eq!(writes(&h), [WRITE], "it is not tried again");
        assert!(is_in_doubt(&mut h) && h.try_read(0, 4096).is_err());
        h.flush().expect_err("told to whoever flushes next");
        h.flush().expect("told once");
        h.stop();
    }
}

#[test]
fn failed_write_step_is_retried() {
    let mut h = half_written(DurableWrites::WriteThenFlush);
    h.fail_next(WRITE, EIO);
    durable_write(&mut h).expect("a durable write");
    assert_eq!(commands(&h), [WRITE, WRITE, IoKind::Flush]);
    h.flush().expect("a flush");
    h.stop();
}

#[test]
fn flush_step_counts_after_earlier_flushes_succeed() {
    for error in [None, Some(EIO)] {
        let mut h = half_written(DurableWrites::WriteThenFlush);
        h.devices.delay_next = Some(IoKind::Flush);
        h.submit(1, Op::Flush, 0, 0, 0);
        h.run();
        h.submit_fua(2, 0, 4096, 3);
        h.run();
        assert_eq!(h.answer(), None, "what the first flush will tell is not known");
        h.release(error);
        let mut answers = [h.answer(), h.answer()].map(|answer| answer.expect("an answer"));
        answers.sort_by_key(|(id, _)| *id);
        assert!(answers.iter().all(|(_, result)| result.is_ok() == error.is_none()), "{answers:?}");
        assert_eq!(h.try_read(0, 4096).is_err(), error.is_some());
    }
}
