//! Writes to slots of two devices: either one suffices, and no write is acknowledged that only one has.

use super::harness::{EXTENT, Harness, Shape, span_within};
use super::redirect::{Redirect, WHOLE};
use crate::{Notice, Percent, SpaceRules, WhenFull};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use weir_model::{
    BlockRange, Bytes, DeviceId, Errno, IoError, IoKind, Nanos, Op, PlaceId, PlaceKind, RequestError,
};
use weir_policy::placement::{Action, WriteTo};

const ALL: BlockRange = BlockRange { first: 0, count: 32 };
const EIO: IoError = IoError::Os(Errno::EIO);
const WRITE: IoKind = IoKind::Write { fua: false };
const BOTH: WriteTo = WriteTo::FineDuplexed([DeviceId(1), DeviceId(2)]);

const fn fine(device: u8) -> PlaceId {
    PlaceId { device: DeviceId(device), kind: PlaceKind::Fine }
}

/// A pool with homes on device 0, buffers on devices 1 and 2, and the map on the last device.
struct Buffered {
    h: Harness,
    to: Arc<Mutex<WriteTo>>,
}

impl Buffered {
    fn new() -> Self {
        let mut h = Harness::of(Shape { devices: 4, ..Shape::default() }, "sequential");
        let to = Arc::new(Mutex::new(WriteTo::InPlace));
        h.engine.set_policy(h.now(), Box::new(Redirect(to.clone())));
        Self { h, to }
    }

    /// Sets up an extent that is durably at home.
    fn with_home() -> Self {
        let mut b = Self::new();
        b.h.write(0, &[1; EXTENT]);
        b.h.flush().expect("a flush");
        b
    }

    /// Sets up an extent whose first block has a clean copy in a slot of device 1 as well.
    fn with_clean_copy() -> Self {
        let mut b = Self::with_home();
        let (key, blocks) = (b.h.key(0), BlockRange { first: 0, count: 1 });
        b.h.act(Action::Copy { key, blocks, to: fine(1) });
        b.h.flush().expect("a flush");
        b
    }

    /// Fills all slots of device 2.
    fn fill(&mut self) {
        self.sends(WriteTo::Fine(DeviceId(2)));
        for extent in 0..u64::from(self.h.engine.map().space(DeviceId(2)).free()) {
            self.h.write((1 + extent) * EXTENT as u64, &[9; EXTENT]);
        }
        assert_eq!(self.h.engine.map().space(DeviceId(2)).free(), 0);
    }

    fn sends(&self, to: WriteTo) {
        *self.to.lock().expect("one thread") = to;
    }

    fn write(&mut self, to: WriteTo, block: u64, byte: u8) {
        self.sends(to);
        self.h.write(block * 4096, &[byte; 4096]);
    }

    /// Returns the bytes that only lost devices have, and whether ranges of them were reported.
    fn unreachable(&mut self) -> (Bytes, bool) {
        self.h.wait(Nanos::millis(10));
        let mut notices = std::iter::from_fn(|| self.h.engine.next_notice());
        let told = notices.any(|notice| matches!(notice, Notice::Unreachable { .. }));
        (self.h.engine.status().unreachable, told)
    }

    /// Returns the number of blocks that are not at home, and how many of these are on one device only.
    fn dirty(&self, extent: u64) -> (u16, u16) {
        let places = self.h.engine.data.base.places_of_extent(self.h.key(extent));
        let of = |device| places.place(fine(device)).map_or((0, 0), |p| (p.dirty, p.sole));
        (of(1).0.max(of(2).0), of(1).1 + of(2).1)
    }
}

#[test]
fn only_loss_of_sole_copy_is_reported_unreachable() {
    for (to, lost) in [(BOTH, 1), (BOTH, 2), (WriteTo::Fine(DeviceId(1)), 1)] {
        let mut b = Buffered::with_home();
        b.write(to, 3, 2);
        b.write(to, 40, 3);
        // Part of a block is written: the rest of the block is copied along.
        b.h.request(Op::Write, 5 * 4096 + 512, &[4; 512], false).expect("a write");
        b.h.flush().expect("a flush");
        b.h.lose(DeviceId(lost));
        let found = b.unreachable();
        if to != BOTH {
            assert_eq!(found, (Bytes(3 * 4096), true));
            b.h.try_read(3 * 4096, 4096).expect_err("it was there alone");
            continue;
        }
        assert_eq!(found, (Bytes(0), false));
        assert_eq!((b.h.read(3 * 4096, 4096).1, b.h.read(40 * 4096, 4096).1), (vec![2; 4096], vec![3; 4096]));
        let part = [[1; 512].as_slice(), &[4; 512], &[1; 3072]].concat();
        assert_eq!(b.h.read(5 * 4096, 4096).1, part);
        // The block is written back from the other device.
        for extent in 0..2 {
            let key = b.h.key(extent);
            b.h.act(Action::Move { key, blocks: ALL, to: WHOLE(0) });
        }
        b.h.flush().expect("a flush");
        b.h.lose(DeviceId(3 - lost));
        assert_eq!(b.h.read(40 * 4096, 4096).1, [3; 4096]);
    }
}

#[test]
fn duplexed_write_takes_fresh_slots_on_both_devices() {
    let mut b = Buffered::with_home();
    b.write(BOTH, 0, 2);
    b.h.flush().expect("a flush");
    let at = |b: &Buffered| {
        let record = b.h.record(b.h.key(0)).expect("it has places");
        [1, 2].map(|device| record.place(fine(device)).and_then(|place| place.slot(0)).expect("a slot"))
    };
    // Whatever the policy decides, a duplexed block stays duplexed.
    for to in [BOTH, WriteTo::InPlace] {
        let before = at(&b);
        b.sends(to);
        b.h.devices.hanging = vec![DeviceId(2)];
        b.h.devices.log.clear();
        b.h.submit(1, Op::Write, 0, 4096, 3);
        b.h.run();
        let sent: Vec<_> = b.h.devices.log.iter().map(|io| (io.device.0, io.kind)).collect();
        assert_eq!(sent, [(1, WRITE), (2, WRITE)]);
        assert_eq!((b.h.answer(), at(&b)), (None, before), "one has it");
        b.h.wake(DeviceId(2));
        assert!(matches!(b.h.answer(), Some((1, Ok(_)))));
        assert!(at(&b)[0] != before[0] && at(&b)[1] != before[1]);
        assert_eq!((b.h.read(0, 4096).1, b.dirty(0)), (vec![3; 4096], (1, 0)));
    }
}

#[test]
fn failed_duplexed_write_frees_both_slots() {
    let mut b = Buffered::with_home();
    let free = |b: &Buffered| [1, 2].map(|device| b.h.engine.map().space(DeviceId(device)).free());
    let before = free(&b);
    b.sends(BOTH);
    b.h.devices.broken.push((DeviceId(0), IoKind::Read, EIO));
    b.h.request(Op::Write, 512, &[2; 512], false).expect_err("the rest of the block cannot be read");
    b.h.devices.broken.clear();
    b.h.wait(Nanos::secs(10));
    assert_eq!(free(&b), before);
    assert_eq!(b.h.read(0, 4096).1, [1; 4096]);
}

#[test]
fn full_metadata_keeps_duplexed_blocks_duplexed() {
    let mut b = Buffered::with_home();
    b.write(BOTH, 0, 2);
    b.h.flush().expect("a flush");
    b.h.fill_metadata_area();
    for to in [BOTH, WriteTo::InPlace] {
        b.write(to, 0, 3);
        assert!(b.h.read(0, 4096).1 == [3; 4096] && b.dirty(0) == (1, 0), "{to:?}: {:?}", b.dirty(0));
    }
}

#[test]
fn write_that_cannot_be_duplexed_goes_home() {
    // The same device twice.
    let mut b = Buffered::with_home();
    b.write(WriteTo::FineDuplexed([DeviceId(1); 2]), 0, 2);
    assert!(b.h.read(0, 4096).1 == [2; 4096] && b.dirty(0) == (0, 0), "{:?}", b.dirty(0));
    // There is no metadata space for optional places.
    let mut b = Buffered::with_home();
    b.h.fill_metadata_area();
    b.write(BOTH, 0, 2);
    assert!(b.h.read(0, 4096).1 == [2; 4096] && b.dirty(0) == (0, 0), "{:?}", b.dirty(0));
}

#[test]
fn duplexed_blocks_stay_duplexed_while_space_is_awaited() {
    let mut b = Buffered::with_home();
    b.write(BOTH, 0, 2);
    b.h.flush().expect("a flush");
    let when_full = WhenFull::Wait { timeout: Nanos::secs(1_000) };
    b.h.set_space_rules(SpaceRules { when_full, ..SpaceRules::default() });
    b.sends(WriteTo::InPlace);
    let mut extent = 1;
    while b.h.free() > 0 {
        b.h.write(extent * EXTENT as u64, &[9; 4096]);
        extent += 1;
    }
    b.h.devices.log.clear();
    b.h.submit(2, Op::Write, extent * EXTENT as u64, 4096, 9);
    assert!(b.h.engine.space_status().waiting > 0);
    b.h.devices.delay_next = Some(WRITE);
    b.h.submit(1, Op::Write, 0, 4096, 3);
    b.h.run();
    let written = |device| b.h.devices.log.iter().any(|io| io.device == DeviceId(device) && io.kind == WRITE);
    assert!(written(1) && written(2), "{:?}", b.h.devices.log);
}

#[test]
fn read_does_not_wait_for_duplexed_write() {
    let mut b = Buffered::with_home();
    b.write(BOTH, 0, 2);
    b.sends(BOTH);
    b.h.devices.delay_next = Some(WRITE);
    b.h.submit(1, Op::Write, 0, 4096, 3);
    b.h.run();
    assert_eq!(b.h.read(0, 4096).1, [2; 4096]);
    b.h.release(None);
    assert!(matches!(b.h.answer(), Some((1, Ok(_)))));
    assert_eq!(b.h.read(0, 4096).1, [3; 4096]);
}

#[test]
fn duplexed_write_survives_one_failed_device() {
    let fails = |b: &mut Buffered, device| b.h.devices.broken.push((DeviceId(device), WRITE, EIO));
    for device in [1, 2] {
        let mut b = Buffered::with_home();
        fails(&mut b, device);
        b.write(BOTH, 0, 2);
        assert_eq!(b.h.places(0), [(WHOLE(0), 31), (fine(3 - device), 1)]);
        assert_eq!((b.h.read(0, 4096).1, b.dirty(0)), (vec![2; 4096], (1, 1)));
    }
    let mut b = Buffered::with_home();
    let free = b.h.free();
    (1..3).for_each(|device| fails(&mut b, device));
    b.sends(BOTH);
    b.h.request(Op::Write, 0, &[2; 4096], true).expect_err("neither has it");
    assert_eq!((b.h.read(0, 4096).1, b.h.places(0)), (vec![1; 4096], vec![(WHOLE(0), 32)]));
    b.h.devices.broken.clear();
    b.h.flush().expect("a flush");
    assert_eq!(b.h.free(), free, "the slots are free again");
}

#[test]
fn flush_failure_of_one_device_puts_nothing_in_doubt() {
    for device in [1, 2] {
        let mut b = Buffered::with_home();
        b.write(BOTH, 0, 2);
        b.h.devices.broken = vec![(DeviceId(device), IoKind::Flush, EIO)];
        b.h.flush().expect("the other one has it");
        assert_eq!((b.h.read(0, 4096).1, b.dirty(0)), (vec![2; 4096], (1, 1)));
        b.h.reopen();
        assert_eq!(b.h.read(0, 4096).1, [2; 4096]);
    }
    let mut b = Buffered::with_home();
    b.write(BOTH, 0, 2);
    b.h.devices.broken = [1, 2].map(|device| (DeviceId(device), IoKind::Flush, EIO)).to_vec();
    b.h.flush().expect_err("neither has it");
    assert!(matches!(b.h.try_read(0, 4096), Err(RequestError::InDoubt { .. })));
    b.h.reopen();
    assert_eq!(b.h.read(0, 4096).1, [1; 4096]);
}

#[test]
fn device_loss_during_duplexed_write_costs_one_copy() {
    for lost in [1, 2] {
        let mut b = Buffered::with_home();
        b.write(BOTH, 0, 2);
        b.sends(BOTH);
        b.h.devices.hanging = vec![DeviceId(lost)];
        b.h.submit_fua(1, 0, 4096, 3);
        b.h.run();
        assert_eq!(b.h.answer(), None);
        b.h.lose(DeviceId(lost));
        assert!(matches!(b.h.answer(), Some((1, Ok(_)))));
        assert_eq!((b.h.read(0, 4096).1, b.unreachable()), (vec![3; 4096], (Bytes(0), false)));
        // With one of them left, a write goes there, or to its blocks' place.
        b.write(WriteTo::Fine(DeviceId(3 - lost)), 0, 4);
        b.write(BOTH, 1, 5);
        assert_eq!(b.h.read(0, 8192).1, [[4; 4096], [5; 4096]].concat());
    }
}

#[test]
fn drop_keeps_second_copy_until_written_back() {
    let mut b = Buffered::with_home();
    b.write(BOTH, 0, 2);
    b.write(BOTH, 1, 2);
    let (key, one) = (b.h.key(0), BlockRange { first: 0, count: 1 });
    b.h.act(Action::Drop { key, blocks: ALL, from: fine(2) });
    assert_eq!(b.dirty(0), (2, 0));
    b.h.act(Action::Copy { key, blocks: one, to: WHOLE(0) });
    b.h.act(Action::Drop { key, blocks: ALL, from: fine(2) });
    assert_eq!(b.h.places(0), [(WHOLE(0), 31), (fine(1), 2), (fine(2), 1)]);
    assert_eq!(b.dirty(0), (1, 0));
}

#[test]
fn drop_keeps_last_copy_on_available_device() {
    let mut b = Buffered::with_home();
    let key = b.h.key(0);
    b.h.act(Action::Copy { key, blocks: ALL, to: fine(1) });
    b.h.flush().expect("a flush");
    b.h.lose(DeviceId(0));
    b.h.act(Action::Drop { key, blocks: ALL, from: fine(1) });
    assert_eq!(b.h.read(0, EXTENT).1, [1; EXTENT]);
}

#[test]
fn write_without_slots_on_both_goes_home() {
    let mut b = Buffered::with_home();
    b.fill();
    b.write(BOTH, 0, 5);
    assert_eq!(b.h.places(0), [(WHOLE(0), 32)]);
    assert_eq!(b.h.read(0, 8192).1, [[5; 4096], [1; 4096]].concat());
}

/// A duplexed write does not overwrite a clean copy in a slot: it would become the only copy.
#[test]
fn write_without_slots_spares_clean_copy() {
    let mut b = Buffered::with_clean_copy();
    b.fill();
    assert_eq!(b.h.places(0), [(WHOLE(0), 32), (fine(1), 1)]);
    b.write(BOTH, 0, 5);
    assert_eq!((b.dirty(0), b.h.read(0, 4096).1), ((0, 0), vec![5; 4096]));
}

/// The same where the bound on extra space is reached, or one of the two devices is lost.
#[test]
fn forbidden_duplexed_write_spares_clean_copy() {
    for is_lost in [false, true] {
        let mut b = Buffered::with_clean_copy();
        if is_lost {
            b.h.lose(DeviceId(2));
        } else {
            let bounded = SpaceRules { extra: Some(Percent(0)), ..SpaceRules::default() };
            b.h.set_space_rules(bounded);
        }
        b.write(BOTH, 0, 5);
        assert_eq!(b.dirty(0), (0, 0), "lost: {is_lost}");
        assert!(b.h.read(0, 4096).1 == [5; 4096]);
        assert!(b.h.places(0).contains(&(WHOLE(0), 32)), "{:?}", b.h.places(0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(WriteTo, u64, usize, u8, bool),
    Trim(u64, usize),
    Act(u64, BlockRange, u8),
    Flush,
    Reopen,
}

const SIZE: usize = 3 * EXTENT;

fn step() -> impl Strategy<Value = Step> {
    let span = span_within(SIZE);
    let to = prop_oneof![3 => Just(BOTH), 1 => Just(WriteTo::Whole(DeviceId(0)))];
    let write = (to, span.clone(), any::<u8>(), any::<bool>());
    let blocks = (0u16..32, 1u16..32).prop_map(|(first, count)| BlockRange { first, count });
    prop_oneof![
        12 => write.prop_map(|(to, (at, len), byte, fua)| Step::Write(to, at, len, byte, fua)),
        1 => span.prop_map(|(at, len)| Step::Trim(at, len)),
        4 => (0u64..3, blocks, 0u8..6).prop_map(|(extent, blocks, what)| Step::Act(extent, blocks, what)),
        3 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

impl Buffered {
    fn step(&mut self, step: Step, twin: &mut [u8]) {
        match step {
            Step::Write(to, at, len, byte, fua) => {
                self.sends(to);
                self.h.request(Op::Write, at, &vec![byte; len], fua).expect("a write");
                twin[at as usize..][..len].fill(byte);
            }
            Step::Trim(at, len) => {
                self.h.request(Op::Trim, at, &vec![0; len], false).expect("a trim");
                let (first, end) = ((at as usize).next_multiple_of(4096), (at as usize + len) / 4096 * 4096);
                if first < end {
                    twin[first..end].fill(0);
                }
            }
            Step::Act(extent, blocks, what) => {
                let key = self.h.key(extent);
                self.h.act(match what {
                    0 => Action::Move { key, blocks, to: WHOLE(0) },
                    1 => Action::Copy { key, blocks, to: WHOLE(0) },
                    2 | 3 => Action::Copy { key, blocks, to: fine(what - 1) },
                    _ => Action::Drop { key, blocks, from: fine(what - 3) },
                });
            }
            Step::Flush => drop(self.h.flush().expect("a flush")),
            Step::Reopen => {
                self.h.flush().expect("a flush");
                self.h.reopen();
                let now = self.h.now();
                self.h.engine.set_policy(now, Box::new(Redirect(self.to.clone())));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Compares with a naive twin, a vector of bytes: after any writes, moves and drops, one of the two
    /// devices can be lost at any time.
    #[test]
    fn nothing_is_lost_with_either_device(
        before in prop::collection::vec(step(), 1..60),
        lost in 1u8..3,
        after in prop::collection::vec(step(), 0..20),
    ) {
        let mut b = Buffered::new();
        let mut twin = vec![0u8; SIZE];
        for step in before {
            b.step(step, &mut twin);
            (0..3).for_each(|extent| assert_eq!(b.dirty(extent).1, 0, "on one device alone"));
        }
        b.h.lose(DeviceId(lost));
        prop_assert_eq!(b.unreachable(), (Bytes(0), false));
        prop_assert!(b.h.read(0, SIZE).1 == twin);
        // A pool with a lost device cannot be opened again without the option to do so.
        for step in after.into_iter().filter(|step| !matches!(step, Step::Reopen)) {
            b.step(step, &mut twin);
            prop_assert!(b.h.read(0, SIZE).1 == twin);
        }
    }
}
