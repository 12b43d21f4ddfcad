//! Volumes with two copies: targets of writes, the state after a failure, and the restoration of copies.

use super::harness::{Harness, Shape};
use crate::{Activity, AdminError, FlushRules, Options};
use weir_model::{
    DeviceId, Errno, ExtentIndex, ExtentKey, Io, IoError, IoKind, Nanos, Op, PlaceKind, ReadShape,
    RequestError,
};
use weir_policy::placement::Action;

const EXTENT: usize = 128 << 10;
const EIO: IoError = IoError::Os(Errno::EIO);
const WRITE: IoKind = IoKind::Write { fua: false };

fn of(devices: usize) -> Harness {
    Harness::of(Shape { devices, members: 2, copies: 2, ..Shape::default() }, "sequential")
}

/// Returns a volume with two blocks of ones on two devices, with an open intent.
pub(super) fn with_open_intent() -> Harness {
    let mut h = of(2);
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    h.write(0, &[1; 4096]);
    h
}

impl Harness {
    /// Returns the places of the volume's first extent, each with its number of valid blocks.
    fn copies(&self) -> Vec<(DeviceId, u32)> {
        let key = ExtentKey { volume: self.volume, index: ExtentIndex(0) };
        let record = self.record(key).expect("it has places");
        assert!(record.places.iter().all(|p| p.at.id().kind == PlaceKind::Whole));
        record.places.iter().map(|p| (p.at.id().device, p.valid.count())).collect()
    }

    fn degraded(&self) -> u64 {
        self.engine.volumes().next().expect("a volume").degraded.0
    }

    fn data_writes(&self) -> Vec<Io> {
        self.devices.log.iter().filter(|io| io.kind == WRITE).copied().collect()
    }
}

#[test]
fn every_block_is_readable_from_either_device() {
    for lost in [0, 1] {
        let mut h = of(3);
        h.write(0, &[1; 8192]);
        h.request(Op::Write, 512, &[2; 512], false).expect("part of a block");
        h.write(EXTENT as u64 - 4096, &[3; 8192]);
        h.flush().expect("a flush");
        assert_eq!(h.copies(), [(DeviceId(0), 3), (DeviceId(1), 3)]);
        h.lose(DeviceId(lost));
        let (_, bytes) = h.read(0, 8192);
        assert!(bytes[512..1024] == [2; 512] && bytes[1024..] == [1; 7168] && bytes[..512] == [1; 512]);
        assert_eq!(h.read(EXTENT as u64 - 4096, 8192).1, [3; 8192]);
    }
}

#[test]
fn overwrite_of_copies_needs_one_durable_intent() {
    let mut h = of(2);
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    assert!(!h.engine.is_doing(Activity::IntentOpen));
    h.devices.log.clear();
    h.write(0, &[2; 4096]);
    assert!(h.engine.is_doing(Activity::IntentOpen));
    let frame =
        h.devices.log.iter().position(|io| io.kind == IoKind::Write { fua: true }).expect("the intent");
    let first = h.devices.log.iter().position(|io| io.kind == WRITE).expect("the data");
    assert!(frame < first, "{:?}", h.devices.log);
    h.devices.log.clear();
    h.write(4096, &[3; 4096]);
    assert_eq!(
        h.devices.log.iter().map(|io| (io.device.0, io.kind)).collect::<Vec<_>>(),
        [(0, WRITE), (1, WRITE)]
    );

    // Without writes the intent is closed, and the next overwrite must open it again.
    (0..10).for_each(|_| h.pass(Nanos::secs(1)));
    assert!(!h.engine.is_doing(Activity::IntentOpen));
    h.reopen();
    assert_eq!(h.copies(), [(DeviceId(0), 2), (DeviceId(1), 2)], "nothing was left to settle");
}

#[test]
fn an_intent_stays_open_under_a_write_in_flight() {
    let mut h = of(2);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.devices.hanging.push(DeviceId(1));
    h.begin(Op::Write, 4096, 4096);
    (0..4).for_each(|_| h.pass(Nanos::secs(1)));
    let intent = |h: &Harness| h.record(h.key(0)).and_then(|record| record.intent);
    assert!(h.engine.is_doing(Activity::IntentOpen) && intent(&h).is_some(), "the copies may differ");
    h.wake(DeviceId(1));
    (0..10).for_each(|_| h.pass(Nanos::secs(1)));
    assert!(!h.engine.is_doing(Activity::IntentOpen) && intent(&h).is_none());
}

#[test]
fn intent_closes_when_both_copies_are_flushed() {
    let mut h = of(2);
    h.write(0, &[1; EXTENT]);
    // Flushes take long: a commit that no party waits for does not wait for them.
    h.devices.hanging.extend([DeviceId(0), DeviceId(1)]);
    h.begin(Op::Flush, 0, 0);
    h.pass(Nanos::millis(10));
    h.devices.hanging.clear();
    h.release(None);
    assert!(h.answer().is_some_and(|(_, result)| result.is_ok()));
    let flushes = FlushRules { slow_threshold: Nanos(0), slow_flush_interval: Nanos(0) };
    h.set_options(Options { flushes, ..Options::default() });
    h.write(0, &[2; 4096]);
    h.devices.delay_next = Some(IoKind::Flush);
    (0..12).for_each(|_| h.pass(Nanos::secs(1)));
    assert_eq!(h.devices.delayed.len(), 1, "one of the flushes");
    assert!(!h.engine.is_doing(Activity::IntentOpen));
    assert!(h.engine.map().has_pending(h.key(0)), "that the copies are the same is not durable");
    h.release(None);
    assert!(!h.engine.map().has_pending(h.key(0)));
}

#[test]
fn an_intent_stays_open_where_both_copies_are_in_doubt() {
    let mut h = of(4);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.devices.broken = [0, 1].map(|device| (DeviceId(device), IoKind::Flush, EIO)).into();
    h.flush().expect_err("neither copy is durable");
    h.devices.broken.clear();
    assert!(h.try_read(0, 4096).is_err());
    (0..12).for_each(|_| h.pass(Nanos::secs(1)));
    assert!(!h.engine.is_doing(Activity::IntentOpen), "nobody writes there");
    let record = h.record(h.key(0)).expect("it has places");
    assert!(record.may_differ().is_some_and(|blocks| blocks.contains(0)), "the next opening settles it");
}

#[test]
fn clean_stop_closes_all_intents() {
    let mut h = of(2);
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.stop();
    h.reopen();
    assert_eq!(h.copies(), [(DeviceId(0), 2), (DeviceId(1), 2)]);
}

#[test]
fn kill_invalidates_one_copy_and_resyncs_it() {
    let mut h = of(2);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.reopen();
    h.wait(Nanos::secs(1));
    assert_eq!(h.copies(), [(DeviceId(0), 32), (DeviceId(1), 32)], "whole again");
    assert_eq!(h.degraded(), 0);
    h.flush().expect("a flush");
    h.lose(DeviceId(0));
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
}

#[test]
fn required_copy_is_made_despite_full_metadata() {
    let mut h = of(2);
    h.lose(DeviceId(0));
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    assert_eq!(h.degraded(), EXTENT as u64);
    h.fill_metadata_area();
    h.reopen();
    h.wait(Nanos::secs(10));
    assert!(!h.engine.map().has_space_for_places());
    assert_eq!((h.copies().len(), h.degraded()), (2, 0));
    h.flush().expect("a flush");
    h.lose(DeviceId(1));
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
}

/// Sets up an extent with two copies, of which the first fails the next write at every attempt.
fn first_copy_fails() -> Harness {
    let mut h = of(2);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.write(0, &[1; 4096]);
    h.fail_next(WRITE, EIO);
    h.pass_next(WRITE);
    (0..2).for_each(|_| h.fail_next(WRITE, EIO));
    h
}

#[test]
fn resynced_copy_lost_by_failed_flush_is_made_again() {
    let mut h = first_copy_fails();
    h.write(4096, &[2; 4096]);
    assert_eq!(h.degraded(), EXTENT as u64);
    h.devices.broken = vec![(DeviceId(0), IoKind::Flush, EIO)];
    h.wait(Nanos::secs(1));
    h.devices.broken.clear();
    let degraded = h.degraded();
    assert_eq!(degraded, EXTENT as u64, "{:?}", h.copies());
    h.wait(Nanos::secs(10));
    assert_eq!((h.copies(), h.degraded()), (vec![(DeviceId(0), 32), (DeviceId(1), 32)], 0));
}

#[test]
fn required_copy_precedes_endless_moves() {
    let mut h = first_copy_fails();
    h.write(4096, &[2; 4096]);
    assert_eq!(h.degraded(), EXTENT as u64);
    for _ in 0..1000 {
        let key = ExtentKey { volume: h.volume, index: ExtentIndex(1) };
        (0..64).for_each(|_| h.engine.request_action(Action::Refresh { key }));
        h.pass(Nanos::millis(1));
    }
    assert_eq!((h.copies(), h.degraded()), (vec![(DeviceId(0), 32), (DeviceId(1), 32)], 0));
}

#[test]
fn failed_copy_is_invalidated_before_reply_and_resynced() {
    let mut h = first_copy_fails();
    h.devices.log.clear();
    h.submit(1, Op::Write, 4096, 4096, 2);
    h.run();
    assert_eq!(h.answer(), Some((1, Ok(ReadShape::Data))));
    assert!(
        h.devices.log.iter().any(|io| io.kind == IoKind::Write { fua: true }),
        "durably: {:?}",
        h.devices.log
    );
    assert_eq!(h.copies(), [(DeviceId(0), 31), (DeviceId(1), 32)]);
    assert_eq!(h.degraded(), EXTENT as u64);
    assert_eq!(h.read(4096, 4096).1, [2; 4096]);
    h.wait(Nanos::secs(10));
    assert_eq!((h.copies(), h.degraded()), (vec![(DeviceId(0), 32), (DeviceId(1), 32)], 0));
    h.lose(DeviceId(1));
    assert_eq!(h.read(4096, 4096).1, [2; 4096]);
}

#[test]
fn resynced_copies_count_before_resync_ends() {
    const EXTENTS: u64 = 30;
    let mut h = of(2);
    h.lose(DeviceId(0));
    (0..EXTENTS).for_each(|extent| h.write(extent * EXTENT as u64, &[1; 4096]));
    h.flush().expect("a flush");
    // The device that the copies are read from is slow.
    h.devices.hanging = vec![DeviceId(1)];
    h.reopen();
    let mut left = Vec::new();
    for _ in 0..200 {
        h.wait(Nanos::millis(200));
        h.release(None);
        left.push(h.degraded() / EXTENT as u64);
    }
    left.dedup();
    assert!(left.is_sorted_by(|a, b| a > b) && left.ends_with(&[0]) && left.len() > 3, "{left:?}");
}

#[test]
fn flush_failure_during_write_invalidates_copy() {
    // One block that both copies have, and one that neither has.
    for block in [1, 9] {
        let mut h = of(4);
        h.write(0, &[1; 8 * 4096]);
        h.flush().expect("a flush");
        h.write(0, &[1; 4096]);
        h.devices.hanging = vec![DeviceId(0)];
        h.submit(1, Op::Write, block * 4096, 4096, 2);
        h.submit(2, Op::Flush, 0, 0, 0);
        h.run();
        let kinds: Vec<_> = h.devices.delayed.iter().map(|io| io.kind).collect();
        assert_eq!(kinds, [WRITE, IoKind::Flush], "on the first copy's device");
        h.devices.hanging.clear();
        h.release_one(1, Some(EIO));
        h.release(None);
        let answers = [h.answer(), h.answer()];
        assert!(answers.contains(&Some((1, Ok(ReadShape::Data)))), "{answers:?}");
        let holds = |p: &&weir_map::Place| p.valid.contains(block as u16);
        let holders = h.record(h.key(0)).map(|r| r.places.iter().filter(holds).count());
        assert_eq!(holders, Some(1), "block {block}");
        assert_eq!(h.read(block * 4096, 4096).1, [2; 4096]);
        h.wait(Nanos::secs(10));
        assert_eq!((h.copies().len(), h.degraded()), (2, 0));
    }
}

#[test]
fn write_failing_on_all_copies_leaves_blocks_unreadable() {
    let mut h = with_open_intent();
    (0..6).for_each(|_| h.fail_next(WRITE, EIO));
    h.request(Op::Write, 0, &[2; 4096], false).expect_err("both failed");
    h.try_read(0, 4096).expect_err("nobody knows which");
    assert_eq!(h.read(4096, 4096).1, [1; 4096]);
    h.write(0, &[3; 4096]);
    assert_eq!(h.read(0, 4096).1, [3; 4096]);
}

#[test]
fn failed_write_does_not_reappear_from_invalid_copy() {
    // One device is full; the other's flush fails while the write to it is in flight. That the write does not
    // count never becomes durable.
    let mut h = with_open_intent();
    h.devices.hanging = vec![DeviceId(0)];
    h.devices.broken = vec![(DeviceId(0), IoKind::Flush, EIO)];
    for kind in [WRITE, IoKind::Write { fua: true }] {
        h.devices.broken.push((DeviceId(1), kind, IoError::Os(Errno::ENOSPC)));
    }
    h.submit(1, Op::Write, 0, 4096, 2);
    h.submit(2, Op::Flush, 0, 0, 0);
    h.run();
    h.devices.delayed.sort_by_key(|io| io.kind != IoKind::Flush);
    assert_eq!(h.devices.delayed.iter().map(|io| io.kind).collect::<Vec<_>>(), [IoKind::Flush, WRITE]);
    h.wake(DeviceId(0));
    let answered: Vec<_> = std::iter::from_fn(|| h.answer()).collect();
    assert!(answered.len() == 2 && answered.iter().all(|(_, result)| result.is_err()), "{answered:?}");
    let seen = h.try_read(0, 4096).ok().map(|(_, bytes)| bytes);
    h.devices.broken.clear();
    h.reopen();
    let (_, bytes) = h.read(0, 4096);
    assert!(seen.is_none_or(|seen| seen == bytes), "it read as something else before the cut");
}

#[test]
fn unreadable_block_is_repaired_from_other_copy() {
    let mut h = of(2);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    (0..3).for_each(|_| h.fail_next(IoKind::Read, EIO));
    assert_eq!(h.read(4096, 8192).1, [1; 8192]);
    assert_eq!(h.copies().iter().map(|(_, n)| *n).sum::<u32>(), 62, "two blocks have one copy");
    h.devices.log.clear();
    h.wait(Nanos::secs(10));
    assert_eq!(h.copies().iter().map(|(_, n)| *n).sum::<u32>(), 64);
    assert_eq!(h.data_writes().len(), 1, "{:?}", h.devices.log);

    // The same for a read-modify-write.
    (0..3).for_each(|_| h.fail_next(IoKind::Read, EIO));
    h.request(Op::Trim, 0, &[0; 4096], false).expect("a trim");
    h.write(512, &[2; 512]);
    assert_eq!(h.read(0, 1024).1, [[0; 512], [2; 512]].concat());
}

#[test]
fn degraded_writes_are_reported_and_resynced() {
    let mut h = of(3);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.lose(DeviceId(0));
    h.write(4096, &[2; 4096]);
    h.write(EXTENT as u64, &[3; 4096]);
    h.flush().expect("a flush");
    assert_eq!(h.copies(), [(DeviceId(0), 31), (DeviceId(1), 32)], "exactly what it missed");
    h.wait(Nanos::secs(10));
    assert_eq!(h.degraded(), EXTENT as u64, "the second extent is on two other devices");
    h.reopen();
    h.wait(Nanos::secs(10));
    assert_eq!((h.copies(), h.degraded()), (vec![(DeviceId(0), 32), (DeviceId(1), 32)], 0));
    h.flush().expect("a flush");
    h.lose(DeviceId(1));
    assert_eq!(h.read(0, 12288).1, [[1; 4096], [2; 4096], [1; 4096]].concat());
}

/// A second copy that is there takes no more space of the metadata area: it is completed even in a full one.
#[test]
fn copies_are_resynced_in_a_full_metadata_area() {
    let shape = Shape { devices: 3, members: 2, copies: 2, volume: 1 << 44, ..Shape::default() };
    let mut h = Harness::of(shape, "sequential");
    h.write(0, &[1; EXTENT]);
    // One extent in each page of the map.
    let refused = (1..).find(|n| h.request(Op::Write, n * 700 * EXTENT as u64, &[1; 4096], false).is_err());
    assert!(refused > Some(8) && h.free() > 0, "{refused:?}");
    h.flush().expect("a flush");
    h.lose(DeviceId(0));
    h.write(4096, &[2; 4096]);
    h.flush().expect("a flush");
    assert_eq!(h.copies(), [(DeviceId(0), 31), (DeviceId(1), 32)]);
    h.reopen();
    assert!(!h.engine.map().has_metadata_space());
    h.wait(Nanos::secs(10));
    assert_eq!(h.copies(), [(DeviceId(0), 32), (DeviceId(1), 32)]);
    assert_eq!(h.degraded(), EXTENT as u64, "the last extent could not get a second place");
}

#[test]
fn flush_failure_of_one_copy_fails_no_request() {
    let mut h = of(2);
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.fail_next(IoKind::Flush, EIO);
    h.flush().expect("the other copy has it");
    assert_eq!(h.read(0, 8192).1, [[2; 4096], [1; 4096]].concat());
    h.reopen();
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
}

#[test]
fn late_map_change_is_lost_with_its_epoch() {
    let mut h = of(2);
    h.write(9 * 4096, &[1; 4096]);
    h.flush().expect("a flush");
    // The second device takes the write at once and makes it durable; the first is slow.
    h.devices.hanging = vec![DeviceId(0)];
    h.submit(1, Op::Write, 0, 4096, 2);
    h.run();
    h.submit(2, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.answer().map(|(id, result)| (id, result.is_ok())), Some((2, true)));
    h.devices.hanging.clear();
    h.write(4096, &[3; 4096]);
    h.devices.broken = vec![(DeviceId(0), WRITE, EIO), (DeviceId(1), IoKind::Flush, EIO)];
    h.release_one(0, Some(EIO));
    let (id, result) = h.answer().expect("an answer");
    assert_eq!((id, result.err()), (1, Some(RequestError::FlushFailed(DeviceId(1)))));
    h.devices.broken.clear();
    assert_eq!(h.try_read(0, 4096).err(), Some(RequestError::InDoubt { device: DeviceId(1) }));
    assert_eq!(h.read(4096, 4096).1, [3; 4096], "the first device has it too");
}

#[test]
fn reverted_third_place_loses_no_write() {
    let mut h = of(3);
    h.write(0, &[1; EXTENT]);
    h.devices.broken = vec![(DeviceId(0), WRITE, EIO)];
    h.write(0, &[2; 4096]);
    h.devices.broken.clear();
    h.flush().expect("a flush");
    assert_eq!(h.copies(), [(DeviceId(0), 31), (DeviceId(1), 32)]);
    // The place is given up for blocks written elsewhere, and returns when those cannot be flushed.
    h.lose(DeviceId(1));
    h.write(0, &[3; EXTENT]);
    h.write(4096, &[4; 4096]);
    h.devices.broken = vec![(DeviceId(0), IoKind::Flush, EIO)];
    h.flush().expect_err("one device has all but a block of it alone");
    h.devices.broken.clear();
    h.reopen();
    let on: Vec<_> = h.copies().into_iter().map(|(device, _)| device).collect();
    assert_eq!(on, [DeviceId(0), DeviceId(2), DeviceId(1)]);
    h.request(Op::Trim, 8192, &[0; 4096], false).expect("a trim");
    h.write(8192, &[5; 4096]);
    assert_eq!(h.read(8192, 4096).1, [5; 4096]);
    h.flush().expect("a flush");
    h.reopen();
    h.wait(Nanos::secs(10));
    assert_eq!((h.read(8192, 4096).1, h.degraded()), (vec![5; 4096], 0));
}

#[test]
fn flush_waits_until_missing_copy_is_recorded() {
    let mut h = of(4);
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    let lost = *h.data_writes().iter().rfind(|io| io.device == DeviceId(0)).expect("a write");
    // While its devices are flushed, another block of the extent is written: that change needs the next
    // flush.
    h.devices.hanging = vec![DeviceId(0), DeviceId(1)];
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    h.submit(2, Op::Write, 65536, 4096, 3);
    h.run();
    assert_eq!(h.devices.delayed.len(), 4, "{:?}", h.devices.delayed);
    h.devices.delayed.sort_by_key(|io| io.kind == IoKind::Flush);
    h.fail_next(IoKind::Flush, EIO);
    h.devices.hanging.clear();
    h.wake(DeviceId(0));
    assert_eq!((h.answer(), h.answer()), (Some((2, Ok(ReadShape::Data))), Some((1, Ok(ReadShape::Data)))));
    // After a power loss, the device whose flush failed has lost the write.
    h.lose_write(lost, &[1; 4096]);
    h.reopen();
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
}

#[test]
fn flush_wait_for_failing_device_is_bounded() {
    let mut h = of(2);
    let extent = EXTENT as u64;
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.devices.broken = vec![(DeviceId(0), IoKind::Flush, EIO)];
    h.devices.delay_next = Some(IoKind::Write { fua: true });
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    let mut rounds = 0;
    let answer = loop {
        if let Some(answer) = h.answer() {
            break answer;
        }
        // While a commit's frame is in flight, a client writes where the device has just failed, and
        // elsewhere.
        for (id, offset) in [(100, rounds * extent + 4096), (200, (rounds + 1) * extent)] {
            h.submit(id + rounds, Op::Write, offset, 4096, 3);
            h.run();
            assert_eq!(h.answer(), Some((id + rounds, Ok(ReadShape::Data))));
        }
        rounds += 1;
        assert!(rounds < 6, "no answer");
        h.devices.delay_next = Some(IoKind::Write { fua: true });
        h.release(None);
    };
    assert_eq!(answer, (1, Ok(ReadShape::Data)), "the other copy has it");
    h.devices.delay_next = None;
    h.release(None);
    h.reopen();
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
}

#[test]
fn failed_read_of_blocks_trimmed_meanwhile_is_zeros() {
    let mut h = of(2);
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    h.devices.delay_next = Some(IoKind::Read);
    h.submit(1, Op::Read, 0, 8192, 9);
    h.run();
    h.submit(2, Op::Trim, 0, 4096, 0);
    h.run();
    h.release(Some(IoError::Lost));
    let answered: Vec<_> = std::iter::from_fn(|| h.answer()).collect();
    assert_eq!(answered, [(2, Ok(ReadShape::Data)), (1, Ok(ReadShape::Mixed))]);
}

#[test]
fn full_second_device_leaves_one_copy_until_freed() {
    let mut h = of(2);
    let all = h.engine.map().space(DeviceId(0)).free().min(h.engine.map().space(DeviceId(1)).free());
    for i in 0..u64::from(all) + 1 {
        let _ = h.request(Op::Write, i * EXTENT as u64, &[1; 4096], false);
    }
    h.flush().expect("a flush");
    h.request(Op::Trim, EXTENT as u64, &[0; EXTENT], true).expect("a trim");
    h.wait(Nanos::secs(20));
    let per_device: Vec<_> = h
        .engine
        .map()
        .devices()
        .iter()
        .map(|sb| sb.data_extents - h.engine.map().space(sb.device).free())
        .collect();
    assert!(per_device.iter().all(|used| *used > 0), "{per_device:?}");
    h.request(Op::Trim, 0, &vec![0; 20 << 20], true).expect("a trim");
    h.request(Op::Trim, 20 << 20, &vec![0; 20 << 20], true).expect("a trim");
    h.wait(Nanos::secs(20));
    assert_eq!(h.degraded(), 0);
}

#[test]
fn two_copies_need_redundant_devices_and_map() {
    let refused = |devices, members| {
        let mut h = Harness::of(Shape { devices, members, ..Shape::default() }, "sequential");
        h.remove_volume().expect("removed");
        h.copies = 2;
        h.create_volume().expect_err("refused")
    };
    assert_eq!(refused(1, 1), AdminError::OneDevice);
    assert_eq!(refused(2, 1), AdminError::MapNotMirrored);
}

#[test]
fn lost_device_copy_does_not_prevent_doubt() {
    let mut h = of(4);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    h.devices.hanging.push(DeviceId(1));
    h.begin(Op::Flush, 0, 0);
    h.devices.hanging.clear();
    h.lose(DeviceId(0));
    h.release(Some(EIO));
    let (_, result) = h.answer().expect("an answer");
    assert_eq!(result.err(), Some(RequestError::FlushFailed(DeviceId(1))));
    assert_eq!(h.try_read(0, 4096).err(), Some(RequestError::InDoubt { device: DeviceId(1) }));
}
