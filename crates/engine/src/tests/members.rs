//! Metadata on two members, and the failure of one of them, or both.

use super::harness::{Harness, Shape};
use crate::DeviceSettings;
use weir_map::Superblock;
use weir_model::{Bytes, DeviceId, DeviceOffset, DeviceSet, Errno, IoError, IoKind, Op, RequestError};

const MEMBERS: [DeviceId; 2] = [DeviceId(1), DeviceId(2)];
const EIO: IoError = IoError::Os(Errno::EIO);
const DURABLE: IoKind = IoKind::Write { fua: true };

fn mirrored() -> Harness {
    Harness::of(Shape { devices: 3, members: 2, ..Shape::default() }, "sequential")
}

fn only(device: DeviceId) -> DeviceSet {
    [device].into_iter().collect()
}

#[test]
fn frames_go_to_both_members_at_the_same_offset() {
    let mut h = mirrored();
    assert_eq!(h.engine.map().members(), MEMBERS);
    h.write(0, &[1; 4096]);
    h.devices.log.clear();
    h.flush().expect("a flush");
    let frames: Vec<_> =
        h.devices.log.iter().filter(|io| io.kind == DURABLE).map(|io| (io.device, io.at)).collect();
    assert_eq!(frames.iter().map(|(device, _)| *device).collect::<Vec<_>>(), MEMBERS);
    assert_eq!(frames[0].1, frames[1].1);
}

#[test]
fn member_failure_is_recorded_before_flush_reply() {
    let mut h = mirrored();
    h.write(0, &[1; 4096]);
    h.devices.log.clear();
    h.fail_next(DURABLE, EIO);
    h.flush().expect("the other member has it");
    let map = h.engine.map();
    assert_eq!((map.members(), map.left_behind()), (&MEMBERS[1..], only(MEMBERS[0])));
    let size = map.devices()[0].size;
    let written: Vec<_> =
        h.devices.log.iter().filter(|io| io.kind == DURABLE).map(|io| (io.device, io.at)).collect();
    let superblocks = [DeviceOffset(0), Superblock::second_at(size)];
    let expected = [MEMBERS[1], DeviceId(0)].into_iter().flat_map(|d| superblocks.map(|at| (d, at)));
    assert_eq!(written[2..], expected.collect::<Vec<_>>(), "after the two frames");

    h.devices.log.clear();
    h.write(4096, &[2; 4096]);
    h.flush().expect("a flush");
    let frames: Vec<_> = h.devices.log.iter().filter(|io| io.kind == DURABLE).map(|io| io.device).collect();
    assert_eq!(frames, [MEMBERS[1]], "one copy is left");

    // A member that returns gets a new copy.
    h.reopen();
    let map = h.engine.map();
    assert_eq!((map.members().len(), map.left_behind()), (2, DeviceSet::default()));
    let (_, bytes) = h.read(0, 8192);
    assert!(bytes[..4096].iter().all(|b| *b == 1) && bytes[4096..].iter().all(|b| *b == 2));
}

#[test]
fn when_the_last_member_fails_the_pool_is_read_only() {
    let mut h = mirrored();
    h.write(0, &[1; 4096]);
    h.fail_next(DURABLE, EIO);
    h.fail_next(DURABLE, EIO);
    h.flush().expect_err("nothing holds the map");
    assert!(h.engine.status().read_only);
    let (result, bytes) = h.read(0, 4096);
    assert_eq!((result, bytes[0]), (weir_model::ReadShape::Data, 1), "reads go on");
}

#[test]
fn a_superblock_that_cannot_be_written_on_the_last_member_ends_changes() {
    let mut h = mirrored();
    h.write(0, &[1; 4096]);
    h.fail_next(DURABLE, EIO);
    // The other member's frame succeeds, and then its superblock fails.
    h.pass_next(DURABLE);
    h.fail_next(DURABLE, EIO);
    let error = h.flush().expect_err("the loss of the first could not be recorded");
    assert!(matches!(error, RequestError::ReadOnly | RequestError::FlushFailed(_)), "{error:?}");
    assert!(h.engine.status().read_only);
    h.reopen();
    assert_eq!(h.engine.map().members().len(), 2);
    assert_eq!(h.engine.status().devices[0].free.0 % Bytes::kib(128).0, 0);
}

#[test]
fn flush_completes_when_devices_are_lost_during_record() {
    let mut h = Harness::of(Shape { devices: 5, members: 2, ..Shape::default() }, "sequential");
    let (hangs, goes) = (DeviceId(1), DeviceId(2));
    h.write(0, &[1; 4096]);
    h.devices.hanging.push(hangs);
    h.fail_next(DURABLE, EIO);
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.devices.delayed.len(), 1, "its superblock waits for the device that hangs");
    assert_eq!(h.answer(), None);
    h.lose(goes);
    h.wait(DeviceSettings::DEADLINE);
    assert!(matches!(h.answer(), Some((1, Ok(_)))), "the other devices know");
}
