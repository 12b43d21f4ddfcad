//! Piggybacked moves: they use the data of a client's read.

use super::harness::{EXTENT, Harness};
use crate::{Options, Percent};
use weir_model::{BlockRange, DeviceId, Errno, IoError, IoKind, Op, PlaceId, PlaceKind};
use weir_policy::placement::{Access, Action, Placement, PolicyContext, Subscriptions};

/// A policy that requests a copy of each read on the second device.
#[derive(Debug)]
struct CopyRead(PlaceKind);

impl Placement for CopyRead {
    fn name(&self) -> &'static str {
        "copy read"
    }
    fn allocate(&mut self, moment: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().find(|d| d.free > 0).map(|d| d.id)
    }
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, ..Subscriptions::default() }
    }
    fn accessed(&mut self, moment: &mut PolicyContext<'_>, access: &Access) {
        if access.op == Op::Read && !access.places.is_on(DeviceId(1)) {
            let to = PlaceId { device: DeviceId(1), kind: self.0 };
            moment.actions.push(Action::Copy { key: access.key, blocks: access.blocks, to });
        }
    }
}

/// Sets up an extent on the first device, with each block filled with its number, and the policy that copies
/// reads.
fn pool(kind: PlaceKind) -> Harness {
    let mut h = Harness::new(3, "sequential");
    (0..32).for_each(|block| h.write(block * 4096, &[block as u8; 4096]));
    h.flush().expect("a flush");
    h.engine.set_policy(h.now(), Box::new(CopyRead(kind)));
    h.devices.log.clear();
    h
}

/// Returns the blocks valid on the second device.
fn copied(h: &Harness) -> Vec<u16> {
    let record = h.record(h.key(0)).expect("it has places");
    let place = record.places.iter().find(|place| place.device() == DeviceId(1));
    place.map_or(vec![], |place| place.valid.iter().collect())
}

fn reads(h: &Harness) -> usize {
    h.commands(IoKind::Read)
}

#[test]
fn copy_reuses_the_client_read() {
    for kind in [PlaceKind::Whole, PlaceKind::Fine] {
        let mut h = pool(kind);
        // The read is within blocks 3 to 5.
        assert_eq!(h.read(3 * 4096 + 512, 2 * 4096).1[0], 3);
        assert_eq!((reads(&h), copied(&h)), (1, vec![3, 4, 5]));
        assert_eq!(h.engine.mover_status().piggybacked, 3);
        h.flush().expect("a flush");
        let blocks = BlockRange { first: 0, count: 32 };
        let from = PlaceId { device: DeviceId(0), kind: PlaceKind::Whole };
        h.act(Action::Drop { key: h.key(0), blocks, from });
        h.flush().expect("a flush");
        h.reopen();
        let expected: Vec<u8> = (0..EXTENT).map(|at| (at / 4096) as u8).collect();
        assert_eq!(h.read(0, EXTENT).1, expected, "the copies alone");
    }
}

#[test]
fn blocks_written_during_piggyback_are_skipped() {
    let mut h = pool(PlaceKind::Whole);
    h.devices.hanging = vec![DeviceId(0)];
    h.submit(1, Op::Read, 0, 4 * 4096, 0);
    h.run();
    h.submit(2, Op::Write, 2 * 4096, 4096, 9);
    h.run();
    h.wake(DeviceId(0));
    (0..2).for_each(|_| assert!(h.answer().is_some_and(|(_, result)| result.is_ok())));
    assert_eq!(copied(&h), [0, 1, 3]);
    assert_eq!(h.read(0, 4 * 4096).1[2 * 4096 - 1..2 * 4096 + 1], [1, 9]);
}

#[test]
fn failed_read_piggybacks_nothing() {
    let mut h = pool(PlaceKind::Whole);
    (0..3).for_each(|_| h.fail_next(IoKind::Read, IoError::Os(Errno::EIO)));
    h.try_read(0, 4096).expect_err("it cannot be read");
    assert_eq!((copied(&h), h.engine.mover_status().piggybacked), (vec![], 0));
    assert_eq!(h.engine.mover_status().in_flight, 0);
    h.read(0, 4096);
    assert_eq!(copied(&h), [0]);
    h.read(8192, 4096);
    h.lose(DeviceId(1));
    assert_eq!(h.read(0, 4 * 4096).1[3 * 4096], 3);
}

#[test]
fn long_read_is_piggybacked_in_part() {
    let mut h = pool(PlaceKind::Whole);
    h.read(0, EXTENT);
    assert_eq!((copied(&h).len(), h.engine.mover_status().piggybacked, reads(&h)), (32, 16, 2));
}

/// There are more reads than large buffers; each keeps one as long as its read takes.
#[test]
fn concurrent_reads_each_piggyback_a_copy() {
    let mut h = pool(PlaceKind::Fine);
    (1..12).for_each(|extent| h.write(extent * EXTENT as u64, &[7; EXTENT]));
    h.flush().expect("a flush");
    h.devices.hanging = vec![DeviceId(0)];
    (0..12).for_each(|extent| h.submit(extent, Op::Read, extent * EXTENT as u64, 4096, 0));
    h.run();
    h.wake(DeviceId(0));
    (0..12).for_each(|_| assert!(h.answer().is_some_and(|(_, result)| result.is_ok())));
    assert_eq!((h.engine.mover_status().piggybacked, reads(&h)), (12, 12));
    let is_copied = |extent| h.record(h.key(extent)).is_some_and(|record| record.places.len() == 2);
    assert!((0..12).all(is_copied));
}

#[test]
fn piggybacked_copy_is_not_paced_by_its_source() {
    let mut h = pool(PlaceKind::Fine);
    h.set_options(Options { mover_share: Percent(1), ..Options::default() });
    // The moves' debt of the first device's time takes a long time to pay.
    h.devices.hanging = vec![DeviceId(0)];
    h.submit(1, Op::Read, 31 * 4096, 4096, 0);
    h.run();
    let key = h.key(0);
    let blocks = BlockRange { first: 20, count: 8 };
    h.act(Action::Copy { key, blocks, to: PlaceId { device: DeviceId(2), kind: PlaceKind::Fine } });
    h.jump(weir_model::Nanos::secs(1));
    h.wake(DeviceId(0));
    while h.answer().is_some() {}
    let before = h.engine.mover_status().piggybacked;
    h.read(0, 4096);
    assert_eq!(h.engine.mover_status().piggybacked, before + 1);
    assert!(copied(&h).contains(&0));
}

/// The last extents of a device are reserved for new data, but slots of extents already divided are not.
#[test]
fn block_copies_use_existing_slots_below_reserve() {
    let mut h = pool(PlaceKind::Fine);
    (1..50).for_each(|extent| h.write(extent * EXTENT as u64, &[7; EXTENT]));
    h.read(0, 4096);
    assert_eq!(copied(&h), [0], "an extent is cut up");
    let blocks = BlockRange { first: 0, count: 32 };
    let to = PlaceId { device: DeviceId(1), kind: PlaceKind::Whole };
    let free = |h: &Harness| h.engine.data.base.core.map.space(DeviceId(1)).free();
    (1..50).for_each(|extent| h.act(Action::Copy { key: h.key(extent), blocks, to }));
    let left = free(&h);
    assert!(left > 0, "what is left is the reserve");
    h.read(5 * 4096, 4096);
    assert_eq!((copied(&h), free(&h)), (vec![0, 5], left));
    (6..32).chain(1..5).for_each(|block| drop(h.read(block * 4096, 4096)));
    assert_eq!((copied(&h).len(), free(&h)), (32, left));
}
