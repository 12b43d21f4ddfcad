//! Read routing between several places.

use super::harness::{EXTENT, Harness};
use weir_model::{BlockRange, DeviceId, Errno, IoError, IoKind, Nanos, Op, PlaceId, PlaceKind, ReadShape};
use weir_policy::placement::{self, Access, Action, Placement, PolicyContext, ReadFrom};

const ALL: BlockRange = BlockRange { first: 0, count: 32 };
const MS: fn(u64) -> Nanos = Nanos::millis;

const fn whole(device: u8) -> PlaceId {
    PlaceId { device: DeviceId(device), kind: PlaceKind::Whole }
}

/// Sets up a pool with extent 0 on both devices, extent 1 on the first and extent 2 on the second.
fn pool() -> Harness {
    let mut h = Harness::new(2, "sequential");
    for extent in 0..3 {
        h.write(extent * EXTENT as u64, &[extent as u8 + 1; EXTENT]);
    }
    let (both, second) = (h.key(0), h.key(2));
    h.act(Action::Copy { key: both, blocks: ALL, to: whole(1) });
    h.act(Action::Move { key: second, blocks: ALL, to: whole(1) });
    h.flush().expect("a flush");
    h
}

/// Makes the device answer a read of a block that is nowhere else after this time.
fn answer_after(h: &mut Harness, device: u8, time: Nanos) {
    h.devices.hanging = vec![DeviceId(device)];
    h.submit(1, Op::Read, (u64::from(device) + 1) * EXTENT as u64, 4096, 0);
    h.run();
    h.jump(time);
    h.wake(DeviceId(device));
    assert!(h.answer().is_some_and(|(_, result)| result.is_ok()));
}

fn reads(h: &Harness) -> Vec<u8> {
    h.devices.log.iter().filter(|io| io.kind == IoKind::Read).map(|io| io.device.0).collect()
}

#[test]
fn reads_go_to_the_fastest_expected_device() {
    let mut h = pool();
    answer_after(&mut h, 0, MS(5));
    answer_after(&mut h, 1, MS(1));
    h.devices.log.clear();
    for _ in 0..8 {
        h.read(0, 4096);
    }
    assert_eq!(reads(&h), [1; 8]);
    h.devices.log.clear();
    h.devices.hanging = vec![DeviceId(0), DeviceId(1)];
    for id in 0..12 {
        h.submit(id, Op::Read, id * 4096, 4096, 0);
        h.run();
    }
    let devices = reads(&h);
    assert_eq!(devices[..4], [1; 4], "up to four times the other's response: {devices:?}");
    let slow = devices.iter().filter(|device| **device == 0).count();
    assert!((1..=3).contains(&slow), "about a sixth of them: {devices:?}");
    h.wake(DeviceId(0));
    h.wake(DeviceId(1));
    (0..12).for_each(|_| assert!(h.answer().is_some_and(|(_, result)| result.is_ok())));
}

#[test]
fn stale_device_is_probed_occasionally() {
    let mut h = pool();
    answer_after(&mut h, 0, MS(5));
    answer_after(&mut h, 1, MS(1));
    for _ in 0..3 {
        h.pass(Nanos::secs(2));
        h.devices.log.clear();
        (0..1000).for_each(|_| drop(h.read(0, 4096)));
        let slow = reads(&h).iter().filter(|device| **device == 0).count();
        assert_eq!(slow, 1, "the first that is drawn; then the figure is fresh");
    }
}

#[test]
fn complete_place_is_read_in_one_command() {
    let mut h = pool();
    answer_after(&mut h, 0, MS(5));
    answer_after(&mut h, 1, MS(1));
    let key = h.key(0);
    h.act(Action::Drop { key, blocks: BlockRange { first: 9, count: 2 }, from: whole(1) });
    h.devices.log.clear();
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
    assert_eq!(reads(&h), [0]);
    h.devices.log.clear();
    h.read(0, 4096);
    h.read(9 * 4096, 4096);
    assert_eq!(reads(&h), [1, 0]);
}

#[test]
fn lost_device_is_avoided_if_another_has_the_block() {
    let mut h = pool();
    answer_after(&mut h, 0, MS(5));
    h.lose(DeviceId(1));
    h.devices.log.clear();
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
    assert!(h.try_read(2 * EXTENT as u64, 4096).is_err());
    assert_eq!(reads(&h), [0]);
}

/// A policy that wants slots read first.
#[derive(Debug)]
struct SlotsFirst;

impl Placement for SlotsFirst {
    fn name(&self) -> &'static str {
        "slots-first"
    }

    fn allocate(&mut self, moment: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().find(|d| d.free > 0).map(|d| d.id)
    }

    fn read_from(&self) -> ReadFrom {
        ReadFrom::Slots
    }
}

/// Sets up the pool with blocks 4 to 7 of extent 0 in slots of the second device, where nothing else of the
/// extent is, and a slow second device.
fn with_slow_slots() -> Harness {
    let mut h = pool();
    let (key, slots) = (h.key(0), PlaceId { device: DeviceId(1), kind: PlaceKind::Fine });
    h.act(Action::Drop { key, blocks: ALL, from: whole(1) });
    h.act(Action::Copy { key, blocks: BlockRange { first: 4, count: 4 }, to: slots });
    h.flush().expect("a flush");
    answer_after(&mut h, 0, MS(1));
    answer_after(&mut h, 1, MS(5));
    h.devices.log.clear();
    h
}

#[test]
fn slots_first_reads_go_to_slots() {
    let mut h = with_slow_slots();
    h.read(4 * 4096, 4096);
    assert_eq!(reads(&h), [0], "the second device is slower");
    h.engine.set_policy(h.now(), Box::new(SlotsFirst));
    h.pass(Nanos::secs(2));
    h.devices.log.clear();
    (0..1000).for_each(|_| drop(h.read(5 * 4096, 4096)));
    assert_eq!(reads(&h), [1; 1000], "no other place is probed either");
    h.devices.log.clear();
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
    assert_eq!(reads(&h), [0, 1, 0], "a request is split, each block from where it is cached");
}

#[test]
fn slots_first_reads_fall_back_to_other_places() {
    let mut h = with_slow_slots();
    h.engine.set_policy(h.now(), Box::new(SlotsFirst));
    h.devices.broken.push((DeviceId(1), IoKind::Read, IoError::Os(Errno::EIO)));
    assert_eq!(h.read(4 * 4096, 4096).1, [1; 4096]);
    let devices = reads(&h);
    assert_eq!((devices.first(), devices.last()), (Some(&1), Some(&0)), "{devices:?}");
    h.devices.broken.clear();
    h.lose(DeviceId(1));
    h.devices.log.clear();
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
    assert_eq!(reads(&h), [0]);
}

#[test]
fn volume_policy_sets_its_read_preference() {
    let mut h = with_slow_slots();
    let read = |h: &mut Harness, choice: Option<&str>| {
        h.engine.set_volume_policy(h.now(), "vol", choice.and_then(placement::with_default_settings));
        h.devices.log.clear();
        h.read(4 * 4096, 4096);
        reads(h)
    };
    assert_eq!(read(&mut h, Some("hystor")), [1]);
    assert_eq!(read(&mut h, None), [0]);
    h.engine.set_policy(h.now(), Box::new(SlotsFirst));
    assert_eq!(read(&mut h, None), [1]);
    assert_eq!(read(&mut h, Some("stripe")), [0]);
}

#[test]
fn read_of_cleared_blocks_is_ordered_with_later_write() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.devices.delay_next = Some(IoKind::Read);
    h.submit(1, Op::Read, 4096, 8192, 0);
    h.run();
    let read = h.devices.delayed.pop().expect("a read under way");
    h.request(Op::Trim, 8192, &[0; 4096], false).expect("a trim");
    h.flush().expect("a flush");
    h.devices.delay_next = Some(IoKind::Write { fua: false });
    h.submit(2, Op::Write, 8192, 4096, 2);
    h.run();
    let write = std::mem::take(&mut h.devices.delayed);
    assert_eq!(write[0].at.0, read.at.0 + 4096, "the write goes where the read is");
    h.lose_write(write[0], &[2; 4096]);
    // The device has executed the write but not reported it; the read comes after it.
    h.devices.delayed = vec![read];
    h.release(None);
    assert_eq!(h.answer(), None, "it is read once more, when the write has ended");
    assert_eq!(h.read(8192, 4096).0, ReadShape::Zeros, "as all see it until then");
    h.devices.delayed = write;
    h.release(None);
    let done = Ok(ReadShape::Data);
    assert_eq!((h.answer(), h.answer()), (Some((2, done)), Some((1, done))));
    assert_eq!(h.read(4096, 8192).1, [[1; 4096], [2; 4096]].concat());
}

#[test]
fn read_of_repeatedly_cleared_blocks_completes() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.devices.delay_next = Some(IoKind::Read);
    h.submit(1, Op::Read, 4096, 12288, 0);
    h.run();
    h.request(Op::Trim, 8192, &[0; 4096], false).expect("a trim");
    h.write(8192, &[2; 4096]);
    h.devices.delay_next = Some(IoKind::Read);
    h.release(None);
    assert_eq!((h.answer(), h.devices.delayed.len()), (None, 1), "it is read once more");
    h.submit(2, Op::Trim, 8192, 4096, 0);
    h.submit(3, Op::Write, 0, 4096, 3);
    h.run();
    let done = Ok(ReadShape::Data);
    assert_eq!((h.answer(), h.answer()), (Some((3, done)), None), "who would clear it waits, others do not");
    h.release(None);
    assert_eq!((h.answer(), h.answer()), (Some((1, done)), Some((2, done))));
    assert_eq!(h.read(8192, 4096).0, ReadShape::Zeros);
}
