//! The extent cache: its hits and fetches, and that its answers always equal those of the devices.

use super::harness::{EXTENT, Harness, Shape, span_within};
use crate::Options;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use weir_model::{BlockRange, Bytes, DeviceId, Errno, IoError, IoKind, Op, PlaceId, PlaceKind, ReadShape};
use weir_policy::placement::{Access, Action, Placement, PolicyContext, Subscriptions};

const WRITE: IoKind = IoKind::Write { fua: false };

fn cached(devices: usize, extents: usize) -> Harness {
    let mut h = Harness::new(devices, "sequential");
    h.set_options(Options { extent_cache: Bytes((extents * EXTENT) as u64), ..Options::default() });
    h
}

/// Sets up an extent on a device, with each block filled with its number.
fn numbered(extents: usize) -> Harness {
    let mut h = cached(2, extents);
    (0..32).for_each(|block| h.write(block * 4096, &[block as u8; 4096]));
    h.flush().expect("a flush");
    h.devices.log.clear();
    h
}

fn reads(h: &Harness) -> Vec<u32> {
    h.devices.log.iter().filter(|io| io.kind == IoKind::Read).map(|io| io.buffer.len).collect()
}

#[test]
fn read_fetches_extent_and_later_reads_hit() {
    let mut h = numbered(2);
    assert_eq!(h.read(4096, 4096).1, [1; 4096]);
    assert_eq!(h.read(7 * 4096 + 512, 4096).1, [[7; 3584].as_slice(), &[8; 512]].concat());
    assert_eq!(reads(&h), [EXTENT as u32]);
    let status = h.engine.status().cache;
    assert_eq!((status.hits, status.misses, status.memory_used), (1, 1, Bytes(EXTENT as u64)));
    // A read of a whole extent causes no fetch, and neither does a cache without memory.
    h.reopen();
    h.read(0, 4096);
    assert_eq!(h.engine.status().cache.memory_used, Bytes(0));
}

/// A policy that notes whether the memory cache has the rest of each extent that is accessed.
#[derive(Clone, Debug, Default)]
struct NotesMemory(Arc<Mutex<Vec<bool>>>);

impl Placement for NotesMemory {
    fn name(&self) -> &'static str {
        "notes-memory"
    }
    fn allocate(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        context.devices.iter().find(|device| device.free > 0).map(|device| device.id)
    }
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, ..Subscriptions::default() }
    }
    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        let is_there = context.map.is_in_memory_besides(access.key, access.blocks);
        self.0.lock().expect("one thread").push(is_there);
    }
}

/// A policy sees whether the cache has what a write leaves out of its extent.
#[test]
fn policies_see_what_is_in_memory() {
    let mut h = numbered(1);
    let policy = NotesMemory::default();
    h.engine.set_policy(h.now(), Box::new(policy.clone()));
    let mut noted = |act: &mut dyn FnMut(&mut Harness)| {
        policy.0.lock().expect("one thread").clear();
        act(&mut h);
        policy.0.lock().expect("one thread").clone()
    };
    assert_eq!(noted(&mut |h| h.write(4096, &[1; 4096])), [false], "nothing is cached");
    noted(&mut |h| drop(h.read(0, 4096)));
    for at in [0, 4096, 31 * 4096] {
        assert_eq!(noted(&mut |h| h.write(at, &[2; 4096])), [true], "at {at}");
    }
    // Part of a block is written on the device only: the block is no longer in memory.
    noted(&mut |h| h.write(512, &[3; 512]));
    assert_eq!(noted(&mut |h| h.write(4096, &[4; 4096])), [false]);
    assert_eq!(noted(&mut |h| h.write(0, &[4; 4096])), [true], "the block itself does not count");
    noted(&mut |h| h.write(31 * 4096 + 512, &[3; 512]));
    assert_eq!(noted(&mut |h| h.write(4096, &[4; 4096])), [false], "a block behind it is missing");
    assert_eq!(noted(&mut |h| h.write(EXTENT as u64, &[4; 4096])), [false], "another extent");
}

#[test]
fn writes_go_to_the_device_and_to_the_cache() {
    let mut h = numbered(1);
    h.read(0, 4096);
    h.devices.log.clear();
    h.write(4096, &[99; 8192]);
    assert_eq!(h.commands(WRITE), 1);
    assert_eq!(h.read(0, 4 * 4096).1, [[0; 4096], [99; 4096], [99; 4096], [3; 4096]].concat());
    assert!(reads(&h).is_empty());
    // Part of a block is written; the rest of the block is on the device.
    h.write(512, &[98; 512]);
    assert_eq!(h.read(0, 1536).1, [[0; 512], [98; 512], [0; 512]].concat());
    assert_eq!(reads(&h).len(), 1);
    h.request(Op::Trim, 4096, &[0; 4096], false).expect("a trim");
    assert_eq!(h.read(4096, 8192).1, [[0; 4096], [99; 4096]].concat());
}

#[test]
fn failed_write_is_not_cached() {
    let mut h = numbered(1);
    h.read(0, 4096);
    h.devices.log.clear();
    (0..3).for_each(|_| h.fail_next(WRITE, IoError::Os(Errno::EIO)));
    h.request(Op::Write, 4096, &[99; 4096], false).expect_err("it fails");
    assert_eq!(h.read(4096, 4096).1, [1; 4096], "as the device has it");
    assert_eq!(reads(&h).len(), 1);
}

#[test]
fn blocks_in_doubt_are_not_read_from_cache() {
    let mut h = numbered(1);
    h.read(0, 4096);
    h.write(4096, &[99; 4096]);
    assert_eq!(h.read(4096, 4096).1, [99; 4096]);
    h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
    h.flush().expect_err("the write may be lost");
    h.try_read(4096, 4096).expect_err("in doubt");
    assert_eq!(h.read(8192, 4096).1, [2; 4096]);
}

#[test]
fn write_during_fetch_makes_fetched_blocks_stale() {
    let mut h = numbered(1);
    h.devices.delay_next = Some(IoKind::Read);
    h.submit(1, Op::Read, 0, 4096, 0);
    h.run();
    h.submit(2, Op::Read, 4096, 4096, 1);
    h.submit(3, Op::Write, 8192, 4096, 99);
    h.run();
    assert_eq!(h.answer(), Some((3, Ok(ReadShape::Data))));
    assert_eq!(h.answer(), None, "both reads wait for the fetch");
    h.release(None);
    assert_eq!((h.answer().map(|a| a.0), h.answer().map(|a| a.0)), (Some(1), Some(2)));
    assert_eq!(h.read(8192, 4096).1, [99; 4096]);
    assert_eq!(h.read(4096, 4096).1, [1; 4096]);
}

#[test]
fn failed_fetch_falls_back_to_plain_read() {
    let mut h = numbered(1);
    (0..3).for_each(|_| h.fail_next(IoKind::Read, IoError::Os(Errno::EIO)));
    assert_eq!(h.read(4096, 4096).1, [1; 4096]);
    assert_eq!(reads(&h), [EXTENT as u32, EXTENT as u32, EXTENT as u32, 4096]);
}

#[test]
fn hung_device_keeps_only_the_fetch_buffer() {
    let mut h = numbered(1);
    h.devices.hanging = vec![DeviceId(0), DeviceId(1)];
    h.submit(1, Op::Read, 0, 4096, 0);
    h.run();
    h.devices.hanging.clear();
    for device in [0, 1] {
        h.lose(DeviceId(device));
    }
    assert!(h.answer().expect("an answer").1.is_err());
    assert_eq!(h.engine.status().cache.memory_used, Bytes(0));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize, u8),
    Trim(u64, usize),
    Read(u64, usize),
    Move(u64, BlockRange, PlaceId, bool),
    Fail(bool),
    Flush,
}

const SIZE: usize = 4 * EXTENT;

fn step() -> impl Strategy<Value = Step> {
    let span = span_within(SIZE);
    let blocks = (0u16..32, 1u16..33).prop_map(|(first, n)| BlockRange { first, count: n.min(32 - first) });
    let to = (0u8..3, any::<bool>()).prop_map(|(device, fine)| PlaceId {
        device: DeviceId(device),
        kind: if fine { PlaceKind::Fine } else { PlaceKind::Whole },
    });
    prop_oneof![
        6 => (span.clone(), any::<u8>()).prop_map(|((at, len), byte)| Step::Write(at, len, byte)),
        1 => span.clone().prop_map(|(at, len)| Step::Trim(at, len)),
        12 => span.prop_map(|(at, len)| Step::Read(at, len)),
        4 => (0u64..4, blocks, to, any::<bool>()).prop_map(|(n, blocks, to, copy)| Step::Move(n, blocks, to, copy)),
        1 => any::<bool>().prop_map(Step::Fail),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Compares with a naive twin, a vector of bytes; two extents of four fit. A write that fails leaves the
    /// old data.
    #[test]
    fn reads_match_an_uncached_pool(copies in 1u8..3, steps in prop::collection::vec(step(), 1..100)) {
        let shape = Shape { devices: 3, members: 2, copies, ..Shape::default() };
        let mut h = Harness::of(shape, "sequential");
        h.set_options(Options { extent_cache: Bytes(2 * EXTENT as u64), ..Options::default() });
        let mut twin = vec![0u8; SIZE];
        for step in steps {
            match step {
                Step::Write(at, len, byte) => {
                    h.request(Op::Write, at, &vec![byte; len], false).expect("a write");
                    twin[at as usize..][..len].fill(byte);
                }
                Step::Trim(at, len) => {
                    h.request(Op::Trim, at, &vec![0; len], false).expect("a trim");
                    let (first, end) = ((at as usize).next_multiple_of(4096), (at as usize + len) / 4096 * 4096);
                    if first < end { twin[first..end].fill(0); }
                }
                Step::Read(at, len) => prop_assert!(h.read(at, len).1 == twin[at as usize..][..len]),
                Step::Move(extent, blocks, to, copy) => {
                    let key = h.key(extent);
                    h.act(if copy { Action::Copy { key, blocks, to } } else { Action::Move { key, blocks, to } });
                }
                // Fails one attempt of the next read, which is retried.
                Step::Fail(fails) => {
                    h.forget_failures();
                    if fails { h.fail_next(IoKind::Read, IoError::Os(Errno::EIO)); }
                }
                Step::Flush => drop(h.flush().expect("a flush")),
            }
        }
        for at in (0..SIZE as u64).step_by(8192) {
            prop_assert!(h.read(at, 8192).1 == twin[at as usize..][..8192]);
        }
        let status = h.engine.status().cache;
        prop_assert!(status.memory_used <= status.size);
    }
}

#[test]
fn extent_is_not_fetched_under_a_write() {
    let mut h = numbered(2);
    h.devices.delay_next = Some(WRITE);
    h.submit(1, Op::Write, 0, 4096, 9);
    h.run();
    // A fetch now would bring the block as it was before the write.
    assert_eq!(h.read(4096, 4096).1, [1; 4096]);
    h.release(None);
    assert_eq!(h.answer(), Some((1, Ok(ReadShape::Data))));
    assert_eq!(h.read(0, 4096).1, [9; 4096]);
}
