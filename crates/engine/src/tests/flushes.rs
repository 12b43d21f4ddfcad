//! FLUSHes that need a commit, and those that do not.

use super::harness::{Harness, Shape};
use crate::{FlushRules, Loss, Options};
use weir_map::Hardening;
use weir_model::{BlockRange, DeviceId, Errno, IoError, IoKind, Nanos, Op, PlaceId, PlaceKind, RequestError};
use weir_policy::placement::Action;

const FLUSH: IoKind = IoKind::Flush;
const DURABLE: IoKind = IoKind::Write { fua: true };

/// Sets up a pool in which everything is durable.
fn settled(copies: u8, hardening: Hardening) -> Harness {
    let shape = Shape { devices: 2, members: 2, copies, ..Shape::default() };
    let mut h = Harness::of(shape, "sequential");
    h.set_hardening(hardening).expect("a command");
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    h.wait(Nanos::secs(60));
    h.devices.log.clear();
    h
}

/// Makes a device take 50 ms for a client's FLUSH, so that it counts as slow.
fn delay_flush(h: &mut Harness) {
    h.devices.delay_next = Some(FLUSH);
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    h.wait(Nanos::millis(50));
    h.release(None);
    assert!(matches!(h.answer(), Some((1, Ok(_)))));
}

#[test]
fn unreported_loss_fails_one_more_flush() {
    let mut h = settled(1, Hardening::Flush);
    h.engine.fail_next_flush(h.volume, DeviceId(1));
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DeviceId(1))));
    h.flush().expect("it was told");
    h.engine.fail_next_flush(weir_model::VolumeId(99), DeviceId(1));
    h.flush().expect("nothing is known of such a volume");
}

#[test]
fn losses_of_a_volume_are_numbered() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    assert_eq!(h.engine.last_loss(h.volume), None);
    for number in 1..4 {
        h.write(0, &[2; 4096]);
        h.fail_next(FLUSH, IoError::Os(Errno::EIO));
        let Err(RequestError::FlushFailed(device)) = h.flush() else { panic!("a failed flush") };
        assert_eq!(h.engine.last_loss(h.volume), Some(Loss { number, device }));
        h.flush().expect("nothing was lost since");
        assert_eq!(h.engine.last_loss(h.volume).map(|loss| loss.number), Some(number));
    }
}

#[test]
fn flush_without_writes_issues_no_command() {
    for (copies, hardening) in [(1, Hardening::Flush), (2, Hardening::Flush), (1, Hardening::Write)] {
        let mut h = settled(copies, hardening);
        for id in 0..100 {
            h.submit(id, Op::Flush, 0, 0, 0);
        }
        h.run();
        for id in 0..100 {
            assert_eq!(h.answer().map(|(id, result)| (id, result.is_ok())), Some((id, true)));
        }
        assert!(h.devices.log.is_empty(), "{copies} copies, {hardening:?}: {:?}", h.devices.log);
    }
}

#[test]
fn durable_overwrites_leave_nothing_to_flush() {
    let mut h = settled(1, Hardening::Flush);
    h.request(Op::Write, 4096, &[2; 4096], true).expect("a write");
    h.devices.log.clear();
    h.flush().expect("a flush");
    assert!(h.devices.log.is_empty(), "{:?}", h.devices.log);
}

#[test]
fn every_kind_of_change_is_flushed() {
    for copies in [1, 2] {
        let changes: [(Op, u64, usize); 4] = [
            (Op::Write, 0, 4096),
            (Op::Write, 1 << 20, 100),
            (Op::WriteZeroes { no_hole: false }, 4096, 4096),
            (Op::Trim, 0, 8192),
        ];
        for (op, at, len) in changes {
            let mut h = settled(copies, Hardening::Flush);
            h.request(op, at, &vec![3; len], false).expect("a change");
            h.devices.log.clear();
            h.flush().expect("a flush");
            assert!(!h.devices.log.is_empty(), "{op:?} with {copies} copies: nothing was made durable");
            let (_, before) = h.read(0, 2 << 20);
            h.reopen();
            assert_eq!(h.read(0, 2 << 20).1, before, "{op:?} with {copies} copies");
        }
    }
}

/// A device owes a flush until the flush in flight has succeeded, whoever requested it.
#[test]
fn a_flush_waits_for_the_one_in_flight_and_fails_with_it() {
    for fails in [false, true] {
        let mut h = settled(1, Hardening::Flush);
        h.write(0, &[2; 4096]);
        h.devices.delay_next = Some(FLUSH);
        h.submit(1, Op::Flush, 0, 0, 0);
        h.run();
        h.submit(2, Op::Flush, 0, 0, 0);
        h.run();
        assert_eq!(h.answer(), None);
        h.release(fails.then_some(IoError::Os(Errno::EIO)));
        let expected = fails.then_some(RequestError::FlushFailed(h.devices.log[0].device));
        let mut answers = [h.answer(), h.answer()].map(|answer| answer.expect("an answer"));
        answers.sort_by_key(|(id, _)| *id);
        assert_eq!(answers.map(|(_, result)| result.err()), [expected, expected]);
    }
}

/// A slow device is flushed in parallel with commits that no party waits for; a FLUSH that arrives then waits
/// for that device.
#[test]
fn flush_waits_for_background_flush_of_slow_device() {
    let mut h = settled(1, Hardening::Flush);
    let flushes = FlushRules { slow_threshold: Nanos(0), slow_flush_interval: Nanos(0) };
    h.set_options(Options { flushes, ..Options::default() });
    h.write(0, &[2; 4096]);
    h.devices.delay_next = Some(FLUSH);
    h.wait(Nanos::secs(10));
    assert_eq!(h.devices.delayed.len(), 1, "a flush nobody asked for");
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.answer(), None, "the device owes what was written");
    h.release(None);
    assert!(matches!(h.answer(), Some((1, Ok(_)))));
}

/// A slow device is not flushed while clients use it; no later request asks for a flush.
#[test]
fn deferred_slow_flush_happens_eventually() {
    let mut h = settled(1, Hardening::Flush);
    let flushes = FlushRules { slow_threshold: Nanos(0), slow_flush_interval: Nanos::secs(30) };
    h.set_options(Options { flushes, ..Options::default() });
    h.write(0, &[2; 4096]);
    delay_flush(&mut h);
    h.write(1 << 20, &[2; 4096]);
    for _ in 0..4000 {
        h.read(1 << 20, 4096);
        h.wait(Nanos::millis(2));
    }
    assert!(h.engine.data.base.core.map.has_pending(h.key(8)), "it is not flushed meanwhile");
    h.wait(Nanos::secs(60));
    assert!(!h.engine.data.base.core.map.has_pending(h.key(8)));
}

/// A slow device is flushed at once if a move waits for it.
#[test]
fn waiting_move_flushes_slow_device_at_once() {
    let mut h = Harness::new(3, "sequential");
    let flushes = FlushRules { slow_threshold: Nanos(0), slow_flush_interval: Nanos::secs(30) };
    h.set_options(Options { flushes, ..Options::default() });
    let (key, to) = (h.key(0), PlaceId { device: DeviceId(1), kind: PlaceKind::Whole });
    let blocks = BlockRange { first: 0, count: 8 };
    h.write(0, &[1; 8192]);
    h.act(Action::Copy { key, blocks, to });
    delay_flush(&mut h);
    // The durable state has the block in both places; only a flush removes it from the second one.
    h.write(5 * 4096, &[2; 4096]);
    h.devices.log.clear();
    let blocks = BlockRange { first: 0, count: 1 };
    h.act(Action::Drop { key, blocks, from: to });
    h.act(Action::Copy { key, blocks, to });
    for _ in 0..500 {
        h.read(0, 4096);
        h.wait(Nanos::millis(2));
    }
    let is_flushed = h.devices.log.iter().any(|io| (io.device, io.kind) == (DeviceId(0), FLUSH));
    assert!(is_flushed, "{:?}", h.record(key));
}

/// While the loss of a member is being recorded, nothing is acknowledged as durable.
#[test]
fn a_flush_waits_until_a_lost_member_is_recorded() {
    let mut h = settled(1, Hardening::Flush);
    h.devices.delay_next = Some(DURABLE);
    h.lose(DeviceId(1));
    assert_eq!(h.devices.delayed.len(), 1, "a superblock is being written: {:?}", h.devices.log);
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.answer(), None);
    h.release(None);
    assert!(matches!(h.answer(), Some((1, Ok(_)))));
}

/// A lost device cannot be flushed any more: the next FLUSH reports this, and later ones make no claim about
/// its writes.
#[test]
fn lost_device_fails_exactly_one_flush() {
    let mut h = settled(1, Hardening::Flush);
    h.write(0, &[2; 4096]);
    let device =
        h.devices.log.iter().find(|io| matches!(io.kind, IoKind::Write { .. })).expect("a write").device;
    h.lose(device);
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(device)));
    assert!(h.try_read(0, 4096).is_err());
}

/// Otherwise it would be acknowledged after the FLUSH that reports the loss, and the next FLUSH would
/// succeed.
#[test]
fn write_partly_lost_before_completion_fails() {
    let mut h = Harness::new(3, "stripe");
    h.devices.hanging.push(DeviceId(0));
    h.submit(1, Op::Write, 0, 256 << 10, 7);
    h.run();
    assert_eq!(h.devices.delayed.len(), 1, "the other half is done");
    h.fail_next(FLUSH, IoError::Os(Errno::EIO));
    let lost = Some(RequestError::FlushFailed(DeviceId(1)));
    assert_eq!(h.flush().err(), lost);
    h.wake(DeviceId(0));
    assert_eq!(h.answer().map(|(id, result)| (id, result.err())), Some((1, lost)));
}
