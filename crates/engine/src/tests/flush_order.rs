//! Concurrent flushes and durable writes: one of them reports a lost write, and the success of the others
//! proves nothing.

use super::harness::{Harness, Shape};
use weir_map::superblock::ROOT_AT;
use weir_model::{DeviceId, Errno, IoError, IoKind, Op, RequestError};

const EIO: IoError = IoError::Os(Errno::EIO);
const DURABLE: IoKind = IoKind::Write { fua: true };
const DATA: DeviceId = DeviceId(0);

/// Sets up a pool with a block that is durable and another one that is not.
fn half_written(devices: usize, members: usize) -> Harness {
    let mut h = Harness::of(Shape { devices, members, ..Shape::default() }, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.write(8192, &[2; 4096]);
    h
}

/// Sets up a FLUSH (2) that waits for its device while a durable write (1) is in flight there.
fn flush_beside_a_durable_write() -> Harness {
    let mut h = half_written(2, 1);
    h.devices.delay_next = Some(DURABLE);
    h.submit_fua(1, 0, 4096, 3);
    h.run();
    h.submit(2, Op::Flush, 0, 0, 0);
    h.run();
    h
}

#[test]
fn flush_counts_after_concurrent_durable_writes_succeed() {
    for error in [None, Some(EIO)] {
        let mut h = flush_beside_a_durable_write();
        assert_eq!(h.answer(), None, "what the durable write will tell is not known");
        h.release(error);
        let lost = error.map(|_| RequestError::FlushFailed(DATA));
        let mut answers = [h.answer(), h.answer()].map(|answer| answer.expect("an answer"));
        answers.sort_by_key(|(id, _)| *id);
        assert_eq!(answers.map(|(_, result)| result.err()), [lost, lost]);
        let in_doubt = h.try_read(8192, 4096).is_err();
        assert_eq!(in_doubt, error.is_some());
        h.flush().expect("told once");
        h.stop();
    }
}

#[test]
fn flush_waits_for_concurrent_checkpoint_flush() {
    for error in [None, Some(EIO)] {
        let mut h = half_written(1, 1);
        h.devices.delay_next = Some(IoKind::Flush);
        h.engine.data.base.durability.request_checkpoint();
        h.run();
        h.devices.log.clear();
        h.submit(1, Op::Flush, 0, 0, 0);
        h.run();
        assert_eq!((h.commands(IoKind::Flush), h.commands(DURABLE)), (1, 0), "{:?}", h.devices.log);
        assert_eq!(h.answer(), None);
        h.release(error);
        let (_, result) = h.answer().expect("an answer");
        assert_eq!(result.is_ok(), error.is_none(), "{result:?}");
        assert_eq!(h.try_read(8192, 4096).is_ok(), error.is_none());
    }
}

#[test]
fn checkpoint_root_waits_for_concurrent_flush() {
    for (members, error) in [(1, None), (1, Some(EIO)), (2, Some(EIO))] {
        let mut h = half_written(members, members);
        h.devices.delay_next = Some(IoKind::Flush);
        h.submit(1, Op::Flush, 0, 0, 0);
        h.run();
        let of_first = |h: &Harness| h.devices.delayed[0].device == DATA;
        assert!(of_first(&h), "{:?}", h.devices.delayed);
        h.devices.log.clear();
        h.engine.data.base.durability.request_checkpoint();
        h.run();
        let roots = |h: &Harness, device| {
            h.devices.log.iter().filter(|io| io.device == device && ROOT_AT.contains(&io.at)).count()
        };
        assert_eq!((h.commands(IoKind::Flush), roots(&h, DATA)), (members, 0), "{:?}", h.devices.log);
        h.release(error);
        assert_eq!(roots(&h, DATA), usize::from(error.is_none()), "{:?}", h.devices.log);
        assert_eq!(roots(&h, DeviceId(1)), members - 1, "the other member goes on alone");
    }
}

#[test]
fn lost_device_completes_no_deferred_flush() {
    let mut h = flush_beside_a_durable_write();
    h.lose(DATA);
    let mut answers = [h.answer(), h.answer()].map(|answer| answer.expect("an answer"));
    answers.sort_by_key(|(id, _)| *id);
    assert!(answers.iter().all(|(_, result)| result.is_err()), "{answers:?}");
    h.flush().expect("told once");
    h.release(None);
    h.stop();
}
