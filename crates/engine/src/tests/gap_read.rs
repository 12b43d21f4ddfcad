//! Gap reads.

use super::harness::{EXTENT, Harness, Shape};
use weir_model::{
    BlockRange, DeviceId, Errno, IoError, IoKind, Memory, Op, PlaceId, PlaceKind, ReadShape, RequestError,
};
use weir_policy::placement::{self, Action};

const BLOCK: usize = 4096;
/// The blocks that are elsewhere.
const HOLES: [u16; 3] = [3, 9, 20];

const fn whole(device: u8) -> PlaceId {
    PlaceId { device: DeviceId(device), kind: PlaceKind::Whole }
}

const fn slots(device: u8) -> PlaceId {
    PlaceId { device: DeviceId(device), kind: PlaceKind::Fine }
}

/// Returns the byte that fills a block.
fn byte(block: usize) -> u8 {
    block as u8 + 100
}

/// Returns all blocks of the extent, each filled with its own byte.
fn content() -> Vec<u8> {
    (0..EXTENT).map(|at| byte(at / BLOCK)).collect()
}

/// Sets up an extent on the first device whose [`HOLES`] are only in slots of the second and stale on the
/// first. Reads of both devices have been measured.
fn with_holes(devices: usize) -> Harness {
    let mut h = Harness::of(Shape { devices, ..Shape::default() }, "sequential");
    let mut stale = content();
    HOLES.iter().for_each(|hole| stale[usize::from(*hole) * BLOCK..][..BLOCK].fill(1));
    h.write(0, &stale);
    for hole in HOLES {
        let (key, blocks) = (h.key(0), BlockRange { first: hole, count: 1 });
        h.act(Action::Move { key, blocks, to: slots(1) });
        h.write(u64::from(hole) * BLOCK as u64, &[byte(usize::from(hole)); BLOCK]);
    }
    h.flush().expect("a flush");
    h.read(0, BLOCK);
    h.read(u64::from(HOLES[0]) * BLOCK as u64, BLOCK);
    h.devices.log.clear();
    h
}

/// Returns the devices of the reads, each with its number of blocks.
fn reads(h: &Harness) -> Vec<(u8, usize)> {
    let reads = h.devices.log.iter().filter(|io| io.kind == IoKind::Read);
    reads.map(|io| (io.device.0, io.buffer.len as usize / BLOCK)).collect()
}

/// Begins a read of the extent whose long command is not answered yet.
fn begun(devices: usize) -> Harness {
    let mut h = with_holes(devices);
    h.devices.delay_next = Some(IoKind::Read);
    h.submit(1, Op::Read, 0, EXTENT as u64, 0);
    h.run();
    assert_eq!(reads(&h), [(0, 32)]);
    h
}

/// Returns the data of the read, which must have ended by now.
fn found(h: &mut Harness, shape: ReadShape) -> Vec<u8> {
    let reply = h.engine.next_reply().expect("a reply");
    assert_eq!(reply.result, Ok(shape));
    let buffer = reply.buffer.expect("a buffer");
    let bytes = h.devices.memory.bytes(buffer).to_vec();
    h.devices.memory.give(buffer);
    bytes
}

#[test]
fn gap_read_reads_runs_at_once_then_the_holes() {
    let mut h = with_holes(2);
    assert_eq!(h.read(0, EXTENT).1, content());
    assert_eq!(reads(&h), [(0, 32), (1, 1), (1, 1), (1, 1)]);
    h.devices.log.clear();
    assert_eq!(h.read(2 * BLOCK as u64, 8 * BLOCK).1, content()[2 * BLOCK..10 * BLOCK]);
    assert_eq!(reads(&h), [(0, 8), (1, 1), (1, 1)], "a hole at an end comes along if it is small");
    h.devices.log.clear();
    assert_eq!(h.read(3 * BLOCK as u64, 6 * BLOCK).1, content()[3 * BLOCK..9 * BLOCK]);
    assert_eq!(reads(&h), [(1, 1), (0, 5)], "there is no hole between runs");
}

#[test]
fn adjacent_extents_with_holes_are_one_command() {
    let mut h = with_holes(2);
    h.write(EXTENT as u64, &content());
    let (key, last) = (h.key(1), BlockRange { first: 0, count: 1 });
    h.act(Action::Move { key, blocks: last, to: slots(1) });
    h.act(Action::Move { key, blocks: BlockRange { first: 7, count: 1 }, to: slots(1) });
    h.flush().expect("a flush");
    h.devices.log.clear();
    assert_eq!(h.read(0, 2 * EXTENT).1, [content(), content()].concat());
    assert_eq!(reads(&h)[0], (0, 64));
    assert_eq!(reads(&h).len(), 6);
}

#[test]
fn slow_device_is_gap_read_first() {
    // The blocks from 4 on are in slots too: reading these first would leave eight runs on the first device.
    let mut h = with_holes(2);
    for first in (4..20).step_by(2).filter(|block| !HOLES.contains(block)) {
        let key = h.key(0);
        h.act(Action::Copy { key, blocks: BlockRange { first, count: 1 }, to: slots(1) });
    }
    h.flush().expect("a flush");
    h.devices.log.clear();
    assert_eq!(h.read(0, EXTENT).1, content());
    assert_eq!(reads(&h), [(0, 32), (1, 1), (1, 1), (1, 1)]);
}

#[test]
fn hole_moved_during_gap_read_is_read_at_new_place() {
    let mut h = begun(2);
    let (key, blocks) = (h.key(0), BlockRange { first: 9, count: 1 });
    h.act(Action::Move { key, blocks, to: whole(0) });
    h.write(20 * BLOCK as u64, &[7; BLOCK]);
    h.flush().expect("a flush");
    h.devices.log.clear();
    h.release(None);
    let mut expected = content();
    expected[20 * BLOCK..21 * BLOCK].fill(7);
    assert_eq!(found(&mut h, ReadShape::Data), expected);
    assert_eq!(reads(&h), [(1, 1), (0, 1), (1, 1)]);
}

#[test]
fn hole_cleared_during_gap_read_is_zeros() {
    let mut h = begun(2);
    h.request(Op::Trim, 9 * BLOCK as u64, &[0; BLOCK], false).expect("a trim");
    h.flush().expect("a flush");
    h.release(None);
    let mut expected = content();
    expected[9 * BLOCK..10 * BLOCK].fill(0);
    assert_eq!(found(&mut h, ReadShape::Mixed), expected);
}

#[test]
fn failed_gap_read_falls_back_to_single_runs() {
    let mut h = with_holes(2);
    let runs = [(0, 3), (1, 1), (0, 5), (1, 1), (0, 10), (1, 1), (0, 11)];
    h.fail_next(IoKind::Read, IoError::Os(Errno::EIO));
    assert_eq!(h.read(0, EXTENT).1, content());
    let tried = reads(&h);
    assert_eq!((tried[0], &tried[1..]), ((0, 32), &runs[..]));
    h.devices.log.clear();
    assert_eq!(h.read(0, EXTENT).1, content());
    assert_eq!(reads(&h), runs, "what is bad may be in a hole for good");
}

#[test]
fn unreadable_block_fails_the_gap_read() {
    for bad in [0, 1] {
        let mut h = with_holes(2);
        h.devices.broken.push((DeviceId(bad), IoKind::Read, IoError::Os(Errno::EIO)));
        let Err(RequestError::Io { device, .. }) = h.try_read(0, EXTENT) else { panic!("{bad} is broken") };
        assert_eq!(device, DeviceId(bad));
        h.devices.broken.clear();
        assert_eq!(h.read(0, EXTENT).1, content());
    }
}

#[test]
fn gap_read_fails_over_to_another_buffer() {
    let mut h = begun(3);
    let (key, blocks) = (h.key(0), BlockRange { first: 0, count: 32 });
    h.act(Action::Copy { key, blocks, to: whole(2) });
    h.flush().expect("a flush");
    let late = h.devices.delayed.pop().expect("the long command");
    h.devices.log.clear();
    h.lose(DeviceId(0));
    h.devices.memory.bytes_mut(late.buffer).fill(9);
    assert_eq!(found(&mut h, ReadShape::Data), content());
    assert!(reads(&h).iter().all(|(device, _)| *device != 0), "{:?}", reads(&h));
    h.devices.delayed.push(late);
    h.release(None);
    assert_eq!(h.read(0, EXTENT).1, content());
}

#[test]
fn gap_read_fails_without_another_copy() {
    let mut h = begun(2);
    h.lose(DeviceId(0));
    let Some((1, Err(RequestError::Io { device, .. }))) = h.answer() else { panic!("the blocks are lost") };
    assert_eq!(device, DeviceId(0));
    assert_eq!(h.read(3 * BLOCK as u64, BLOCK).1, [byte(3); BLOCK]);
}

#[test]
fn slots_first_preference_disables_gap_reads() {
    let mut h = with_holes(2);
    h.engine.set_volume_policy(h.now(), "vol", placement::with_default_settings("hystor"));
    assert_eq!(h.read(0, EXTENT).1, content());
    assert_eq!(reads(&h), [(0, 3), (1, 1), (0, 5), (1, 1), (0, 10), (1, 1), (0, 11)]);
}
