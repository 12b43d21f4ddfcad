//! Several places per extent: copies, moves, drops, fine slots, and overwrites of shared blocks.

use super::harness::{EXTENT, Harness, Shape};
use crate::{Options, Percent};
use weir_map::ExtentState;
use weir_model::{
    BlockRange, DeviceId, Errno, ExtentKey, IoError, IoKind, Nanos, Op, PlaceId, PlaceKind, ReadShape,
    RequestError,
};
use weir_policy::placement::Action;

pub(super) const ALL: BlockRange = BlockRange { first: 0, count: 32 };

pub(super) fn place(device: u8, kind: PlaceKind) -> PlaceId {
    PlaceId { device: DeviceId(device), kind }
}

impl Harness {
    /// Returns the extent's places, each with its number of valid blocks.
    pub(super) fn places(&self, index: u64) -> Vec<(PlaceId, u32)> {
        match self.engine.map().find(self.key(index)) {
            ExtentState::Empty => vec![],
            ExtentState::Direct(whole) => vec![(place(whole.device.0, PlaceKind::Whole), 32)],
            ExtentState::Record(r) => r.places.iter().map(|p| (p.at.id(), p.valid.count())).collect(),
        }
    }

    fn copied(&mut self, to: PlaceId) -> ExtentKey {
        let key = self.key(0);
        self.write(0, &[1; EXTENT]);
        self.flush().expect("a flush");
        self.act(Action::Copy { key, blocks: ALL, to });
        key
    }
}

#[test]
fn copy_adds_a_place_and_drop_removes_it() {
    for kind in [PlaceKind::Whole, PlaceKind::Fine] {
        let mut h = Harness::new(2, "sequential");
        let free = h.free();
        let to = place(1, kind);
        let key = h.copied(to);
        assert_eq!(h.places(0), [(place(0, PlaceKind::Whole), 32), (to, 32)]);
        h.flush().expect("a flush");
        h.reopen();
        assert_eq!(h.places(0).len(), 2, "the copy is durable");
        assert_eq!(free - h.free(), 2);
        h.act(Action::Drop { key, blocks: ALL, from: place(0, PlaceKind::Whole) });
        assert_eq!(h.places(0), [(to, 32)]);
        h.flush().expect("a flush");
        assert_eq!(free - h.free(), 1, "the first place is free again");
        h.act(Action::Drop { key, blocks: ALL, from: to });
        assert_eq!(h.places(0), [(to, 32)], "the last place is never dropped");
        assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
        h.request(Op::Trim, 0, &[0; EXTENT], true).expect("a trim");
        assert_eq!((h.free(), h.read(0, EXTENT).0), (free, ReadShape::Zeros));
    }
}

#[test]
fn shared_blocks_are_overwritten_after_durable_invalidation() {
    let mut h = Harness::new(2, "sequential");
    h.copied(place(1, PlaceKind::Whole));
    h.flush().expect("a flush");
    h.devices.log.clear();
    h.write(4096, &[2; 4096]);
    let metadata = h.engine.map().members()[0];
    let frame =
        h.devices.log.iter().position(|io| io.device == metadata && io.kind == IoKind::Write { fua: true });
    let data = h.devices.log.iter().position(|io| io.kind == IoKind::Write { fua: false });
    assert!(frame.expect("a frame") < data.expect("the data"), "{:?}", h.devices.log);
    assert_eq!(h.places(0).len(), 1, "the other copies went with it");
    h.devices.log.clear();
    h.write(8192, &[3; 4096]);
    assert_eq!(h.devices.log.len(), 1, "one commit for the extent: {:?}", h.devices.log);
    let mut expected = [1; EXTENT];
    expected[4096..8192].fill(2);
    expected[8192..12288].fill(3);
    assert_eq!(h.read(0, EXTENT).1, expected);
    h.flush().expect("a flush");
    h.reopen();
    assert_eq!(h.read(0, EXTENT).1, expected);
}

#[test]
fn an_uncommitted_copy_is_overwritten_without_waiting() {
    let mut h = Harness::new(2, "sequential");
    h.copied(place(1, PlaceKind::Whole));
    h.devices.log.clear();
    h.write(0, &[2; 4096]);
    assert_eq!(h.devices.log.len(), 1, "the copy never became durable: {:?}", h.devices.log);
}

#[test]
fn new_place_waits_for_commit_if_old_one_may_return() {
    // Everything is on one device, which loses all of its writes together.
    let mut h = Harness::new(2, "sequential");
    let free = h.free();
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.write(4096, &[2; 4096]);
    h.request(Op::Trim, 0, &[0; EXTENT], false).expect("a trim");
    h.devices.log.clear();
    h.write(0, &[3; 4096]);
    assert_eq!(h.devices.log.len(), 1, "nothing but the write: {:?}", h.devices.log);
    h.fail_next(IoKind::Flush, weir_model::IoError::Os(Errno::EIO));
    h.flush().expect_err("a failed flush");
    assert_eq!(h.places(0), [(place(0, PlaceKind::Whole), 1)]);
    assert!(h.try_read(0, 4096).is_err() && h.read(4096, 4096).0 == ReadShape::Zeros);
    h.write(0, &[4; 4096]);
    h.flush().expect("a flush");
    assert_eq!(free - h.free(), 1, "one of the two places is free again");
    h.reopen();
    assert_eq!((h.read(0, 4096).1, h.read(4096, 4096).0), (vec![4; 4096], ReadShape::Zeros));

    // A block was moved to another device; losing that would make the source valid again.
    let mut h = Harness::new(3, "sequential");
    let key = h.key(0);
    h.write(0, &[1; 8192]);
    h.flush().expect("a flush");
    h.act(Action::Move { key, blocks: BlockRange { first: 0, count: 1 }, to: place(1, PlaceKind::Fine) });
    h.request(Op::Trim, 4096, &[0; 4096], false).expect("a trim");
    assert_eq!(h.places(0), [(place(1, PlaceKind::Fine), 1)]);
    h.devices.log.clear();
    h.write(8192, &[3; 4096]);
    let at = |wanted: &dyn Fn(&weir_model::Io) -> bool| h.devices.log.iter().position(wanted);
    let flush = at(&|io| io.device == DeviceId(1) && io.kind == IoKind::Flush).expect("a flush");
    let data = at(&|io| io.kind == IoKind::Write { fua: false }).expect("the data");
    assert!(flush < data, "{:?}", h.devices.log);
    assert_eq!(h.read(0, 12288).1, [[1; 4096], [0; 4096], [3; 4096]].concat());
}

#[test]
fn requests_span_moved_and_unmoved_parts() {
    let mut h = Harness::new(3, "sequential");
    let free = h.free();
    let key = h.key(0);
    h.write(0, &[1; EXTENT]);
    let fine = place(1, PlaceKind::Fine);
    h.act(Action::Move { key, blocks: BlockRange { first: 3, count: 4 }, to: fine });
    assert_eq!(h.places(0), [(place(0, PlaceKind::Whole), 28), (fine, 4)]);
    h.flush().expect("a flush");
    // The write crosses the boundary of both places, with part-blocks in each.
    h.write(2 * 4096 + 512, &[2; 5 * 4096]);
    let mut expected = [1; EXTENT];
    expected[2 * 4096 + 512..7 * 4096 + 512].fill(2);
    assert_eq!(h.read(0, EXTENT).1, expected);
    h.request(Op::Trim, 4 * 4096, &[0; 4096], false).expect("a trim");
    expected[4 * 4096..5 * 4096].fill(0);
    h.flush().expect("a flush");
    h.reopen();
    assert_eq!(h.read(0, EXTENT).1, expected);
    assert_eq!(h.places(0), [(place(0, PlaceKind::Whole), 28), (fine, 3)]);
    h.remove_volume().expect("removed");
    assert_eq!(h.free(), free);
}

#[test]
fn copy_is_abandoned_if_its_source_lost_writes() {
    let mut h = Harness::new(3, "sequential");
    let key = h.key(0);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.write(EXTENT as u64, &[2; EXTENT]);
    h.devices.hanging.push(DeviceId(1));
    h.act(Action::Copy { key, blocks: ALL, to: place(1, PlaceKind::Whole) });
    assert_eq!(h.devices.delayed.len(), 1, "the copy is being written");
    h.fail_next(IoKind::Flush, weir_model::IoError::Os(Errno::EIO));
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    assert!(h.answer().expect("a reply").1.is_err(), "other blocks of the source are in doubt");
    h.wake(DeviceId(1));
    // No further write to the source causes a flush of it.
    h.request(Op::Trim, 4096, &[0; 4096], false).expect("a trim");
    h.flush().expect("a flush");
    h.reopen();
    assert_eq!(h.read(4096, 4096).0, ReadShape::Zeros, "acknowledged before the flush");
    assert_eq!(h.places(0).len(), 1);
}

#[test]
fn durable_write_to_rolled_back_place_is_in_doubt() {
    let mut h = Harness::new(3, "sequential");
    let key = h.key(0);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.act(Action::Move { key, blocks: ALL, to: place(1, PlaceKind::Whole) });
    assert_eq!(h.places(0), [(place(1, PlaceKind::Whole), 32)], "not durable yet");
    h.devices.log.clear();
    h.fail_next(IoKind::Flush, weir_model::IoError::Os(Errno::EIO));
    let error = RequestError::FlushFailed(DeviceId(1));
    assert_eq!(h.request(Op::Write, 4096, &[2; 4096], true), Err(error), "the old place is back");
    let to = h.devices.log.iter().find(|io| io.kind == IoKind::Write { fua: true }).expect("a durable write");
    assert_eq!(to.device, DeviceId(1), "in place");
    assert_eq!(h.places(0)[0].0, place(0, PlaceKind::Whole));
    let read = h.try_read(4096, 4096);
    assert_eq!(read, Err(RequestError::InDoubt { device: DeviceId(1) }), "neither what was before");
    assert_eq!(h.read(0, 4096).1, [1; 4096], "nobody wrote this one");
    h.write(4096, &[3; 4096]);
    assert_eq!(h.flush(), Err(error), "the volume has not been told");
    h.flush().expect("told once");
    h.reopen();
    assert_eq!(h.read(4096, 4096).1, [3; 4096]);
}

#[test]
fn hung_destination_does_not_stop_the_mover() {
    let mut h = Harness::new(3, "sequential");
    for i in 0..4 {
        h.write(i * EXTENT as u64, &[1; EXTENT]);
    }
    h.flush().expect("a flush");
    let memory = h.free_memory();
    h.devices.hanging.push(DeviceId(1));
    for i in 0..3 {
        h.act(Action::Copy { key: h.key(i), blocks: ALL, to: place(1, PlaceKind::Whole) });
    }
    assert_eq!(h.devices.delayed.len(), 3, "as many as there are buffers");
    h.wait(crate::DeviceSettings::DEADLINE);
    assert_eq!(h.places(0).len(), 1, "the device is given up");
    h.act(Action::Copy { key: h.key(3), blocks: ALL, to: place(2, PlaceKind::Whole) });
    assert_eq!(h.places(3).len(), 2);
    h.wake(DeviceId(1));
    assert_eq!(h.free_memory(), memory, "what hung is given back");
}

#[test]
fn refresh_completes_the_second_place() {
    let mut h = Harness::new(2, "sequential");
    let key = h.copied(place(1, PlaceKind::Whole));
    h.act(Action::Drop { key, blocks: BlockRange { first: 8, count: 8 }, from: place(1, PlaceKind::Whole) });
    assert_eq!(h.places(0)[1].1, 24);
    h.act(Action::Refresh { key });
    assert_eq!(h.places(0)[1].1, 32);
    h.flush().expect("a flush");
    h.act(Action::Drop { key, blocks: ALL, from: place(0, PlaceKind::Whole) });
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
}

#[test]
fn unreadable_block_is_read_from_another_place() {
    let mut h = Harness::new(2, "sequential");
    h.copied(place(1, PlaceKind::Whole));
    // As many failures as attempts at one place.
    (0..3).for_each(|_| h.fail_next(IoKind::Read, weir_model::IoError::Os(Errno::EIO)));
    assert_eq!(h.read(4096, 8192).1, [1; 8192]);
}

mod random {
    use super::*;
    use crate::tests::harness::span_within;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, usize, u8, bool),
        Zero(u64, usize),
        Trim(u64, usize),
        Act(u8, u64, BlockRange, PlaceId),
        Flush,
        Reopen,
    }

    const SIZE: usize = 3 * EXTENT;

    fn step() -> impl Strategy<Value = Step> {
        let span = span_within(SIZE);
        let blocks =
            (0u16..32, 1u16..33).prop_map(|(first, n)| BlockRange { first, count: n.min(32 - first) });
        let to = (0u8..3, any::<bool>())
            .prop_map(|(device, fine)| place(device, if fine { PlaceKind::Fine } else { PlaceKind::Whole }));
        prop_oneof![
            8 => (span.clone(), any::<u8>(), any::<bool>()).prop_map(|((at, len), b, fua)| Step::Write(at, len, b, fua)),
            1 => span.clone().prop_map(|(at, len)| Step::Zero(at, len)),
            1 => span.prop_map(|(at, len)| Step::Trim(at, len)),
            10 => (0u8..4, 0u64..3, blocks, to).prop_map(|(what, n, blocks, to)| Step::Act(what, n, blocks, to)),
            2 => Just(Step::Flush),
            1 => Just(Step::Reopen),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Compares with a naive twin, a vector of bytes: whatever moves, reads return the written data.
        #[test]
        fn moves_preserve_data(steps in prop::collection::vec(step(), 1..80)) {
            let mut h = Harness::new(3, "stripe");
            let free = h.free();
            let mut twin = vec![0u8; SIZE];
            for step in steps {
                match step {
                    Step::Write(at, len, byte, fua) => {
                        h.request(Op::Write, at, &vec![byte; len], fua).expect("a write");
                        twin[at as usize..][..len].fill(byte);
                    }
                    Step::Zero(at, len) => {
                        h.request(Op::WriteZeroes { no_hole: false }, at, &vec![0; len], false).expect("zeroes");
                        twin[at as usize..][..len].fill(0);
                    }
                    Step::Trim(at, len) => {
                        h.request(Op::Trim, at, &vec![0; len], false).expect("a trim");
                        let (first, end) = ((at as usize).next_multiple_of(4096), (at as usize + len) / 4096 * 4096);
                        if first < end { twin[first..end].fill(0); }
                    }
                    Step::Act(what, n, blocks, to) => {
                        let key = h.key(n);
                        h.act(match what {
                            0 => Action::Copy { key, blocks, to },
                            1 => Action::Move { key, blocks, to },
                            2 => Action::Drop { key, blocks, from: to },
                            _ => Action::Refresh { key },
                        });
                    }
                    Step::Flush => drop(h.flush().expect("a flush")),
                    Step::Reopen => {
                        h.flush().expect("a flush");
                        h.reopen();
                    }
                }
                let (_, bytes) = h.read(0, SIZE);
                prop_assert!(bytes == twin, "first difference at {:?}", bytes.iter().zip(&twin).position(|(a, b)| a != b));
            }
            h.request(Op::Trim, 0, &vec![0; SIZE], true).expect("a trim");
            prop_assert_eq!(h.free(), free);
        }
    }
}

#[test]
fn paced_move_ends_with_its_volume() {
    let mut h = Harness::new(3, "sequential");
    h.set_options(Options { mover_share: Percent(1), ..Options::default() });
    h.write(0, &[1; 2 * EXTENT]);
    h.flush().expect("a flush");
    // A client's read keeps the device busy while the first run of the copy takes a second.
    h.devices.hanging = vec![DeviceId(0)];
    h.submit(1, Op::Read, EXTENT as u64, 4096, 0);
    h.run();
    h.act(Action::Copy { key: h.key(0), blocks: ALL, to: place(1, PlaceKind::Whole) });
    h.jump(Nanos::secs(1));
    let reading = h.devices.delayed.remove(0);
    h.wake(DeviceId(0));
    h.devices.delayed.push(reading);
    let copied = h.engine.mover_status();
    assert_eq!((copied.in_flight, copied.copied), (1, 16), "half of it, and then it waits");
    let later = h.engine.deadline().expect("it goes on some time");
    assert!(later > h.now() && later <= h.now() + Nanos::secs(10), "{later}");
    h.release(None);
    while h.answer().is_some() {}
    h.remove_volume().expect("removed");
    assert_eq!(h.engine.mover_status().in_flight, 0);
}

#[test]
fn stop_waits_for_hung_copy_without_spinning() {
    let mut h = Harness::new(4, "sequential");
    h.write(0, &[1; 2 * EXTENT]);
    h.flush().expect("a flush");
    h.devices.hanging.push(DeviceId(1));
    h.act(Action::Copy { key: h.key(0), blocks: ALL, to: place(1, PlaceKind::Whole) });
    h.devices.delay_next = Some(IoKind::Write { fua: false });
    h.act(Action::Copy { key: h.key(1), blocks: ALL, to: place(2, PlaceKind::Whole) });
    assert_eq!(h.devices.delayed.len(), 2);
    h.begin_stop();
    // The other copy fails when everything pending has been committed.
    h.release_last(IoError::Os(Errno::ENOSPC));
    // Longer than a change waits for its commit, shorter than the deadline of a command.
    h.wait(Nanos::secs(20));
    assert!(!h.engine.stopped());
    h.wake(DeviceId(1));
    assert!(h.engine.stopped());
}

#[test]
fn loss_on_both_devices_of_a_move_causes_doubt() {
    for kind in [PlaceKind::Whole, PlaceKind::Fine] {
        // Written in place, or where no block was valid.
        for block in [0, 1] {
            let mut h = Harness::new(3, "sequential");
            let (key, at) = (h.key(0), block * 4096);
            h.write(0, &[1; 4096]);
            h.flush().expect("a flush");
            h.write(at, &[2; 4096]);
            h.act(Action::Move { key, blocks: ALL, to: place(1, kind) });
            assert_eq!(h.read(at, 4096).1, [2; 4096]);
            // The metadata is on a third device. The first device loses its write, so the copy is the only
            // one; then the second loses the copy.
            h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
            h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
            h.flush().expect_err("the write is lost");
            let doubt = Err(RequestError::InDoubt { device: DeviceId(1) });
            assert_eq!(h.try_read(at, 4096), doubt, "not what was there before");
            let other = (1 - block) * 4096;
            let expected = if block == 0 { [0; 4096] } else { [1; 4096] };
            assert_eq!(h.read(other, 4096).1, expected, "it was durable before");
            h.write(at, &[3; 4096]);
            h.flush().expect("told once");
            h.reopen();
            assert_eq!(h.read(at, 4096).1, [3; 4096]);
        }
    }
}

#[test]
fn flush_covers_destination_after_source_is_lost() {
    let mut h = Harness::of(Shape { devices: 3, members: 2, ..Shape::default() }, "sequential");
    h.write(0, &[1; 4096]);
    h.devices.delay_next = Some(IoKind::Flush);
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.devices.delayed.len(), 1, "the flush of the first device is under way");
    h.act(Action::Move { key: h.key(0), blocks: ALL, to: place(2, PlaceKind::Whole) });
    h.lose(DeviceId(0));
    h.run();
    assert_eq!(h.answer(), Some((1, Ok(ReadShape::Data))));
    let is_flush = |io: &weir_model::Io| (io.device, io.kind) == (DeviceId(2), IoKind::Flush);
    assert!(h.devices.log.iter().any(is_flush), "{:?}", h.devices.log);
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
}

/// Sets up a block whose last write is on the second device, not flushed, and whose old data is on the first.
pub(super) fn written_where_it_was_moved() -> Harness {
    let mut h = Harness::new(3, "sequential");
    let (key, blocks) = (h.key(0), BlockRange { first: 1, count: 1 });
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.act(Action::Move { key, blocks, to: place(1, PlaceKind::Fine) });
    h.write(4096, &[2; 4096]);
    h
}

#[test]
fn move_back_waits_until_source_is_durable() {
    let mut h = written_where_it_was_moved();
    let (key, blocks) = (h.key(0), BlockRange { first: 1, count: 1 });
    h.devices.log.clear();
    h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
    h.act(Action::Move { key, blocks, to: place(0, PlaceKind::Whole) });
    let flushed = h.devices.log.iter().position(|io| io.device == DeviceId(1) && io.kind == IoKind::Flush);
    let before = &h.devices.log[..flushed.expect("a flush of what is to be moved")];
    assert!(before.iter().all(|io| io.kind == IoKind::Flush), "{before:?}");
    assert_eq!(h.try_read(4096, 4096), Err(RequestError::InDoubt { device: DeviceId(1) }));
    h.reopen();
    assert_eq!(h.read(4096, 4096).1, [1; 4096]);
}

#[test]
fn read_of_blocks_lost_meanwhile_is_in_doubt() {
    let mut h = written_where_it_was_moved();
    // The map falls back on the first device, which is healthy and has the old data.
    h.devices.hanging.push(DeviceId(1));
    assert_eq!(h.try_read(4096, 4096), Err(RequestError::InDoubt { device: DeviceId(1) }));
}

#[test]
fn write_back_continues_with_full_metadata() {
    let mut h = Harness::new(2, "sequential");
    let (home, slots) = (place(0, PlaceKind::Whole), place(1, PlaceKind::Fine));
    let key = h.copied(slots);
    h.act(Action::Drop { key, blocks: BlockRange { first: 4, count: 2 }, from: home });
    h.write(EXTENT as u64, &[2; 2 * EXTENT]);
    let (other, in_part) = (h.key(1), h.key(2));
    h.act(Action::Copy { key: in_part, blocks: BlockRange { first: 0, count: 4 }, to: slots });
    h.flush().expect("a flush");
    h.fill_metadata_area();
    for key in [other, in_part] {
        h.act(Action::Copy { key, blocks: ALL, to: slots });
    }
    assert_eq!(h.places(1), [(home, 32)], "nobody needs a copy");
    assert_eq!(h.places(2), [(home, 32), (slots, 4)], "each slot takes space");
    h.act(Action::Move { key, blocks: ALL, to: home });
    h.flush().expect("a flush");
    assert_eq!(h.places(0), [(home, 32)]);
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT]);
}

#[test]
fn change_in_flight_does_not_validate_lost_blocks() {
    let (home, away) = (place(0, PlaceKind::Whole), place(1, PlaceKind::Whole));
    let mut h = Harness::of(Shape { devices: 2, members: 1, ..Shape::default() }, "sequential");
    h.write(0, &[1; EXTENT]);
    let key = h.key(0);
    h.flush().expect("a flush");
    h.write(0, &[2; 4096]);
    let is_write = |io: &&weir_model::Io| io.kind == IoKind::Write { fua: false };
    let write = *h.devices.log.iter().rev().find(is_write).expect("a write");
    assert_eq!((write.device, h.places(0)), (home.device, vec![(home, 32)]));
    // A first change records the block in both places, a later one only in the other.
    h.act(Action::Copy { key, blocks: BlockRange { first: 0, count: 1 }, to: away });
    h.devices.hanging = vec![home.device];
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    h.devices.hanging.clear();
    h.act(Action::Move { key, blocks: ALL, to: away });
    assert_eq!(h.places(0), [(away, 32)]);
    h.devices.delay_next = Some(IoKind::Flush);
    h.release_one(0, Some(IoError::Os(Errno::EIO)));
    assert_eq!(h.answer(), None, "where the block is now is to be durable first");
    h.lose_write(write, &[1; 4096]);
    h.reopen();
    let on_home = h.places(0).into_iter().find(|(place, _)| *place == home);
    assert_eq!(on_home.map(|(_, blocks)| blocks), Some(31), "{:?}", h.places(0));
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
}

#[test]
fn write_that_waits_for_a_commit_fails_with_the_metadata() {
    let mut h = Harness::new(2, "sequential");
    h.copied(place(1, PlaceKind::Whole));
    h.flush().expect("a flush");
    let metadata = h.engine.map().members()[0];
    h.devices.broken.push((metadata, IoKind::Write { fua: true }, weir_model::IoError::Os(Errno::EIO)));
    h.submit(1, Op::Write, 4096, 4096, 2);
    h.run();
    assert_eq!(h.answer(), Some((1, Err(RequestError::ReadOnly))));
}
