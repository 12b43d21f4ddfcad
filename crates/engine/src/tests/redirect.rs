//! Writes redirected to another device than that of their blocks.

use super::harness::{EXTENT, Harness, span_within};
use crate::policy::index::PolicyIndex;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use weir_model::{BlockRange, DeviceId, Errno, IoError, IoKind, Op, PlaceId, PlaceKind, RequestError};
use weir_policy::placement::{Access, Action, PlaceLookup, Placement, PolicyContext, Subscriptions, WriteTo};

const ALL: BlockRange = BlockRange { first: 0, count: 32 };
pub(super) const WHOLE: fn(u8) -> PlaceId =
    |device| PlaceId { device: DeviceId(device), kind: PlaceKind::Whole };

/// A policy that sends every write to a set target.
#[derive(Debug, Default)]
pub(super) struct Redirect(pub(super) Arc<Mutex<WriteTo>>);

impl Placement for Redirect {
    fn name(&self) -> &'static str {
        "redirect"
    }
    fn allocate(&mut self, moment: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().find(|d| d.free > 0).map(|d| d.id)
    }
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { writes: true, ..Subscriptions::default() }
    }
    fn write_to(&mut self, _: &mut PolicyContext<'_>, _: &Access) -> WriteTo {
        *self.0.lock().expect("one thread")
    }
}

struct Redirected {
    h: Harness,
    to: Arc<Mutex<WriteTo>>,
}

impl Redirected {
    fn new(devices: usize) -> Self {
        let mut h = Harness::new(devices, "sequential");
        let to = Arc::<Mutex<WriteTo>>::default();
        h.engine.set_policy(h.now(), Box::new(Redirect(to.clone())));
        Self { h, to }
    }

    /// Writes a block to a device's whole place.
    fn write(&mut self, device: u8, block: u64, byte: u8) {
        *self.to.lock().expect("one thread") = WriteTo::Whole(DeviceId(device));
        self.h.write(block * 4096, &[byte; 4096]);
    }
}

#[test]
fn redirected_write_goes_to_the_whole_place() {
    let mut r = Redirected::new(2);
    let free = r.h.free();
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    r.write(1, 3, 2);
    assert_eq!(r.h.places(0), [(WHOLE(0), 31), (WHOLE(1), 1)]);
    r.write(1, 3, 3);
    r.write(1, 4, 3);
    assert_eq!((r.h.places(0), free - r.h.free()), (vec![(WHOLE(0), 30), (WHOLE(1), 2)], 2));
    // Part of a block is written: the rest of the block is copied along.
    *r.to.lock().expect("one thread") = WriteTo::Whole(DeviceId(1));
    r.h.write(5 * 4096 + 512, &[4; 512]);
    r.h.flush().expect("a flush");
    r.h.reopen();
    let mut expected = [1; EXTENT];
    expected[3 * 4096..5 * 4096].fill(3);
    expected[5 * 4096 + 512..5 * 4096 + 1024].fill(4);
    assert_eq!(r.h.places(0), [(WHOLE(0), 29), (WHOLE(1), 3)]);
    assert_eq!(r.h.read(0, EXTENT).1, expected);
}

#[test]
fn write_back_to_old_place_waits_for_commit() {
    let mut r = Redirected::new(2);
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    r.write(1, 0, 2);
    r.write(0, 0, 3);
    assert_eq!(r.h.places(0), [(WHOLE(0), 31), (WHOLE(1), 1)], "the first device's block is durable");
    r.h.flush().expect("a flush");
    r.write(0, 0, 4);
    assert_eq!(r.h.places(0), [(WHOLE(0), 32)], "the other place holds nothing any more");
    assert_eq!(r.h.read(0, 4096).1, [4; 4096]);
}

#[test]
fn write_over_slot_copy_takes_fresh_slots() {
    let mut r = Redirected::new(2);
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    let to = PlaceId { device: DeviceId(1), kind: PlaceKind::Fine };
    r.h.act(Action::Copy { key: r.h.key(0), blocks: BlockRange { first: 0, count: 4 }, to });
    r.h.flush().expect("a flush");
    let slot = |r: &Redirected, block: u16| {
        let record = r.h.record(r.h.key(0)).expect("it has places");
        record.place(to).and_then(|place| place.slot(block))
    };
    let before = slot(&r, 1);
    *r.to.lock().expect("one thread") = WriteTo::Fine(DeviceId(1));
    r.h.devices.log.clear();
    // Part of a block is written: the rest of the block is copied along.
    r.h.write(4096 + 512, &[2; 512]);
    let kinds: Vec<_> = r.h.devices.log.iter().map(|io| io.kind).collect();
    assert_eq!(kinds, [IoKind::Read, IoKind::Write { fua: false }], "no commit");
    let after = slot(&r, 1);
    assert!(after.is_some() && after != before);
    assert_eq!(r.h.places(0), [(WHOLE(0), 31), (to, 4)]);
    // The new slot is not shared: it is overwritten in place.
    r.h.write(4096, &[3; 512]);
    assert_eq!(slot(&r, 1), after);
    let expected = [[3; 512].as_slice(), &[2; 512], &[1; 3072]].concat();
    assert_eq!(r.h.read(4096, 4096).1, expected);
    r.h.flush().expect("a flush");
    r.h.reopen();
    assert_eq!(r.h.read(4096, 4096).1, expected);
}

#[test]
fn write_is_not_redirected_under_a_read() {
    let mut r = Redirected::new(2);
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    r.h.devices.delay_next = Some(IoKind::Read);
    r.h.submit(1, Op::Read, 0, 8192, 0);
    r.h.run();
    r.write(1, 0, 2);
    r.h.flush().expect("a flush");
    // A read of the block's old place, on the first device, is still in flight.
    r.write(0, 0, 3);
    assert_eq!(r.h.places(0), [(WHOLE(0), 31), (WHOLE(1), 1)]);
    r.h.release(None);
    r.h.run();
    assert!(matches!(r.h.answer(), Some((1, Ok(_)))));
    r.write(0, 0, 4);
    assert_eq!(r.h.places(0), [(WHOLE(0), 32)]);
    assert_eq!(r.h.read(0, 8192).1[4095..4097], [4, 1]);
}

#[test]
fn redirect_keeps_the_target_copy() {
    for device in 0..2 {
        let mut r = Redirected::new(2);
        r.h.write(0, &[1; EXTENT]);
        r.h.flush().expect("a flush");
        let key = r.h.key(0);
        r.h.act(Action::Copy { key, blocks: ALL, to: WHOLE(1) });
        r.write(device, 0, 2);
        assert_eq!(r.h.places(0), [(WHOLE(device), 32)]);
        assert_eq!(r.h.read(0, 8192).1[4095..4097], [2, 1]);
    }
}

#[test]
fn write_stays_in_place_without_space() {
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; EXTENT]);
    r.h.lose(DeviceId(1));
    r.write(1, 0, 2);
    assert_eq!(r.h.places(0), [(WHOLE(0), 32)], "the device is lost");
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; EXTENT]);
    let key = r.h.key(0);
    r.h.act(Action::Copy { key, blocks: ALL, to: WHOLE(1) });
    r.write(2, 0, 2);
    assert!(r.h.places(0).iter().all(|(place, _)| *place != WHOLE(2)), "there are two places already");
    r.write(7, 1, 2);
    assert_eq!(r.h.read(0, 8192).1, [2; 8192], "no such device");
}

#[test]
fn lost_redirected_write_is_in_doubt_then_rolled_back() {
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    r.write(1, 2, 2);
    r.h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
    r.h.flush().expect_err("the write is lost");
    assert_eq!(r.h.try_read(2 * 4096, 4096), Err(RequestError::InDoubt { device: DeviceId(1) }));
    assert_eq!(r.h.read(3 * 4096, 4096).1, [1; 4096]);
    r.h.reopen();
    assert_eq!(r.h.read(0, EXTENT).1, [1; EXTENT]);
}

#[derive(Clone, Debug)]
enum Step {
    Write(WriteTo, u64, usize, u8, bool),
    Trim(u64, usize),
    Move(u64, PlaceId),
    Flush,
    Reopen,
}

const SIZE: usize = 3 * EXTENT;

fn step() -> impl Strategy<Value = Step> {
    let span = span_within(SIZE);
    let to = (0u8..3, 0u8..7).prop_map(|(device, what)| match what {
        0 => WriteTo::InPlace,
        1 => WriteTo::Fine(DeviceId(device)),
        2 => WriteTo::FineDuplexed([DeviceId(device), DeviceId((device + 1) % 3)]),
        _ => WriteTo::Whole(DeviceId(device)),
    });
    let write = (to, span.clone(), any::<u8>(), any::<bool>());
    prop_oneof![
        12 => write.prop_map(|(to, (at, len), byte, fua)| Step::Write(to, at, len, byte, fua)),
        1 => span.prop_map(|(at, len)| Step::Trim(at, len)),
        3 => (0u64..3, 0u8..3).prop_map(|(extent, device)| Step::Move(extent, WHOLE(device))),
        3 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Compares with a naive twin, a vector of bytes: wherever writes are sent, reads return the written
    /// data.
    #[test]
    fn redirects_preserve_data(steps in prop::collection::vec(step(), 1..80)) {
        let mut r = Redirected::new(3);
        let free = r.h.free();
        let mut twin = vec![0u8; SIZE];
        for step in steps {
            match step {
                Step::Write(to, at, len, byte, fua) => {
                    *r.to.lock().expect("one thread") = to;
                    r.h.request(Op::Write, at, &vec![byte; len], fua).expect("a write");
                    twin[at as usize..][..len].fill(byte);
                }
                Step::Trim(at, len) => {
                    r.h.request(Op::Trim, at, &vec![0; len], false).expect("a trim");
                    let (first, end) = ((at as usize).next_multiple_of(4096), (at as usize + len) / 4096 * 4096);
                    if first < end { twin[first..end].fill(0); }
                }
                Step::Move(extent, to) => {
                    let key = r.h.key(extent);
                    r.h.act(Action::Move { key, blocks: ALL, to });
                }
                Step::Flush => drop(r.h.flush().expect("a flush")),
                Step::Reopen => {
                    r.h.flush().expect("a flush");
                    r.h.reopen();
                    let now = r.h.now();
                    r.h.engine.set_policy(now, Box::new(Redirect(r.to.clone())));
                }
            }
            let (_, bytes) = r.h.read(0, SIZE);
            let differs = bytes.iter().zip(&twin).position(|(a, b)| a != b);
            prop_assert!(differs.is_none(), "first difference at {differs:?}");
        }
        r.h.request(Op::Trim, 0, &vec![0; SIZE], true).expect("a trim");
        prop_assert_eq!(r.h.free(), free);
    }
}

#[test]
fn successive_losses_on_two_devices_cause_doubt() {
    const EIO: IoError = IoError::Os(Errno::EIO);
    // The copy is on a device with a lower number, or with a higher one.
    for copy in [0, 2] {
        let mut r = Redirected::new(4);
        r.h.write(0, &[1; EXTENT]);
        r.h.flush().expect("a flush");
        r.write(1, 3, 2);
        let (key, to) = (r.h.key(0), PlaceId { device: DeviceId(copy), kind: PlaceKind::Fine });
        r.h.act(Action::Copy { key, blocks: BlockRange { first: 3, count: 1 }, to });
        assert!(r.h.places(0).contains(&(to, 1)), "{:?}", r.h.places(0));
        r.h.devices.broken.push((DeviceId(1), IoKind::Flush, EIO));
        r.h.devices.hanging.push(DeviceId(copy));
        r.h.begin(Op::Flush, 0, 0);
        r.h.devices.hanging.clear();
        r.h.release(Some(EIO));
        assert!(matches!(r.h.answer(), Some((_, Err(RequestError::FlushFailed(_))))), "copy on {copy}");
        let read = r.h.try_read(3 * 4096, 4096);
        assert!(matches!(read, Err(RequestError::InDoubt { .. })), "copy on {copy}: {read:?}");
    }
}

/// The quarantine is one of two defences: slots are freed only when every command of their write has ended,
/// unless its device is lost, and a lost device allocates no space.
#[test]
fn slots_of_failed_write_stay_quarantined() {
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    *r.to.lock().expect("one thread") = WriteTo::Fine(DeviceId(1));
    r.h.devices.delay_next = Some(IoKind::Write { fua: false });
    r.h.begin(Op::Write, 0, 4096);
    assert_eq!(r.h.devices.delayed.len(), 1);
    let free = |r: &Redirected| r.h.engine.map().space(DeviceId(1)).free_slots();
    let before = free(&r);
    // A lack of space below: the write is not retried.
    r.h.fail_next(IoKind::Write { fua: false }, IoError::Os(Errno::ENOSPC));
    let failed = r.h.request(Op::Write, 4096, &[2; 4096], false);
    assert_eq!((failed, free(&r)), (Err(RequestError::NoSpace), before - 1), "it is quarantined");
    r.h.release(None);
    assert_eq!(free(&r), before, "nothing can touch it any more");
}

#[test]
fn unused_slots_of_move_stay_quarantined() {
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    *r.to.lock().expect("one thread") = WriteTo::Fine(DeviceId(1));
    r.h.devices.delay_next = Some(IoKind::Write { fua: false });
    r.h.begin(Op::Write, 0, 4096);
    let held = r.h.devices.delayed.pop().expect("the write");
    *r.to.lock().expect("one thread") = WriteTo::InPlace;
    let free = |r: &Redirected| r.h.engine.map().space(DeviceId(1)).free_slots();
    let before = free(&r);
    let (key, to) = (r.h.key(0), PlaceId { device: DeviceId(1), kind: PlaceKind::Fine });
    r.h.devices.delay_next = Some(IoKind::Read);
    r.h.act(Action::Copy { key, blocks: BlockRange { first: 4, count: 2 }, to });
    r.h.write(4 * 4096, &[2; 4096]);
    r.h.release(None);
    assert_eq!((r.h.engine.mover_status().skipped, free(&r)), (1, before - 2), "one copied, one quarantined");
    r.h.devices.delayed.push(held);
    r.h.release(None);
    assert_eq!(free(&r), before - 1);
}

#[test]
fn partial_writes_of_moved_run_wait_for_last_flush() {
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; EXTENT]);
    r.h.flush().expect("a flush");
    let (key, to) = (r.h.key(0), PlaceId { device: DeviceId(1), kind: PlaceKind::Fine });
    r.h.devices.delay_next = Some(IoKind::Read);
    r.h.act(Action::Copy { key, blocks: BlockRange { first: 3, count: 3 }, to });
    // Block 4 is left out: the blocks before and after it are written separately.
    r.h.write(4 * 4096, &[2; 4096]);
    r.h.devices.delay_next = Some(IoKind::Write { fua: false });
    r.h.release(None);
    assert_eq!(r.h.devices.delayed.len(), 1, "one part is held, the other has ended");
    r.h.flush().expect("a flush that does not cover the part in flight");
    r.h.release(None);
    assert!(r.h.places(0).contains(&(to, 2)), "{:?}", r.h.places(0));
    let engine = &r.h.engine;
    let covered = |needs: weir_map::Needs| {
        engine.data.base.core.devices[needs.device.index()].epochs.flushed() >= Some(needs.epoch)
    };
    assert!(engine.map().needs(key).count() > 0 && !engine.map().needs(key).any(covered));
}

#[test]
fn flush_waits_for_write_covering_a_lost_one() {
    let mut r = Redirected::new(2);
    r.h.write(0, &[1; 4096]);
    r.h.flush().expect("a flush");
    r.h.write(0, &[2; 4096]);
    r.h.devices.delay_next = Some(IoKind::Flush);
    r.h.submit(1, Op::Flush, 0, 0, 0);
    r.h.run();
    r.write(1, 0, 3);
    r.h.release(Some(IoError::Os(Errno::EIO)));
    let (_, result) = r.h.answer().expect("an answer");
    assert!(result.is_ok(), "nothing is lost: {result:?}");
    assert!(!r.h.engine.data.base.core.map.has_pending(r.h.key(0)), "what covers it is durable");
    r.h.reopen();
    assert_eq!(r.h.read(0, 4096).1, [3; 4096]);
}

#[test]
fn flush_waits_while_covering_writes_are_lost() {
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; 4096]);
    r.h.flush().expect("a flush");
    r.h.write(0, &[2; 4096]);
    r.h.devices.hanging = vec![DeviceId(0)];
    r.h.submit(1, Op::Flush, 0, 0, 0);
    r.h.run();
    for (byte, device) in [(3, 1), (4, 0), (5, 1)] {
        // While one device is flushed, the block goes to slots of the other one; then that flush fails.
        r.h.devices.hanging.clear();
        *r.to.lock().expect("one thread") = WriteTo::Fine(DeviceId(device));
        r.h.write(0, &[byte; 4096]);
        r.h.devices.hanging = vec![DeviceId(device)];
        assert_eq!(r.h.devices.delayed.len(), 1, "the flush");
        r.h.release_one(0, Some(IoError::Os(Errno::EIO)));
        assert_eq!(r.h.answer(), None, "what covers it is not durable either");
    }
    r.h.devices.hanging.clear();
    r.h.release(None);
    assert!(matches!(r.h.answer(), Some((1, Ok(_)))));
    r.h.reopen();
    assert_eq!(r.h.read(0, 4096).1, [5; 4096]);
}

/// A write reads two old blocks from different devices. The one that it has read comes into doubt while it
/// waits for the other.
#[test]
fn old_block_in_doubt_since_it_was_read_fails_the_write() {
    let mut r = Redirected::new(3);
    r.h.write(0, &[1; EXTENT]);
    r.h.act(Action::Move { key: r.h.key(0), blocks: BlockRange { first: 5, count: 1 }, to: WHOLE(1) });
    r.h.flush().expect("a flush");
    r.h.write(2 * 4096, &[2; 4096]);
    *r.to.lock().expect("one thread") = WriteTo::Fine(DeviceId(2));
    r.h.devices.hanging = vec![DeviceId(1)];
    r.h.submit(1, Op::Write, 2 * 4096 + 512, 3 * 4096, 3);
    r.h.run();
    assert_eq!(r.h.devices.delayed.len(), 1, "the old content of the last block");
    r.h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
    r.h.begin(Op::Flush, 0, 0);
    r.h.wake(DeviceId(1));
    let answers: Vec<_> = std::iter::from_fn(|| r.h.answer()).collect();
    let error = RequestError::InDoubt { device: DeviceId(0) };
    assert!(answers.contains(&(1, Err(error))), "{answers:?}");
}

/// The cheap look-ups return what [`PlaceLookup::places`] counts.
#[test]
fn cheap_look_ups_agree_with_counted_places() {
    let mut r = Redirected::new(2);
    let extent = EXTENT as u64;
    // The extents: one whole place, two of them, one with a slot, slots alone, nothing.
    (0..3).for_each(|index| r.h.write(index * extent, &[1; EXTENT]));
    r.write(1, 32, 2);
    *r.to.lock().expect("one thread") = WriteTo::Fine(DeviceId(1));
    r.h.write(2 * extent, &[2; 4096]);
    r.h.write(3 * extent, &[2; 4096]);
    // First of changes that are not durable, then of the durable map.
    for is_durable in [false, true] {
        if is_durable {
            r.h.flush().expect("a flush");
        }
        check_cheap_look_ups(&r);
    }
}

fn check_cheap_look_ups(r: &Redirected) {
    let lookup = r.h.engine.data.base.whereabouts(PolicyIndex(0));
    let fine = |device| PlaceId { device: DeviceId(device), kind: PlaceKind::Fine };
    let mut found = Vec::new();
    for index in 0..5 {
        let (key, mut ids) = (r.h.key(index), Vec::new());
        lookup.visit_place_ids(key, &mut |id| ids.push(id));
        let places = lookup.places(key);
        assert_eq!(ids, places.as_slice().iter().map(|place| place.id).collect::<Vec<_>>());
        for id in [WHOLE(0), WHOLE(1), fine(0), fine(1)] {
            let has_blocks = places.place(id).is_some_and(|place| place.of_extent > 0);
            assert_eq!(lookup.has_place(key, id), has_blocks, "{id:?} of extent {index}");
        }
        found.push(ids);
    }
    for id in [WHOLE(0), WHOLE(1), fine(0), fine(1)] {
        for (first, extents) in [(0, u64::MAX), (0, 0b1010), (1, 0b111)] {
            let asked = (0..5 - first).filter(|nth| extents >> nth & 1 != 0);
            let has_place = |nth: &u64| lookup.has_place(r.h.key(first + nth), id);
            let expected: u64 = asked.filter(has_place).map(|nth| 1 << nth).sum();
            assert_eq!(lookup.have_place(r.h.key(first), extents, id), expected, "{id:?} from {first}");
        }
    }
    assert_eq!(
        found,
        [vec![WHOLE(0)], vec![WHOLE(0), WHOLE(1)], vec![WHOLE(0), fine(1)], vec![fine(1)], vec![]]
    );
}
