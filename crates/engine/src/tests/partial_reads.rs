//! Reads of which one part has ended when a flush of its device fails, and another part is still in flight.

use super::harness::{EXTENT, Harness};
use super::moves::{ALL, place, written_where_it_was_moved};
use crate::AdminCommand;
use weir_map::Hardening;
use weir_model::{Bytes, DeviceId, Errno, IoError, IoKind, Op, PlaceKind, ReadShape, RequestError, VolumeId};
use weir_policy::placement::Action;

/// Reads from `offset` while the first device hangs, fails a flush of the second, and returns the reply.
fn read_during_loss(h: &mut Harness, offset: u64) -> Result<ReadShape, RequestError> {
    read_during_loss_of(h, h.volume, offset)
}

/// As [`read_during_loss`], of a volume that need not be the one that loses data.
fn read_during_loss_of(h: &mut Harness, read: VolumeId, offset: u64) -> Result<ReadShape, RequestError> {
    h.devices.hanging = vec![DeviceId(0)];
    let losing = std::mem::replace(&mut h.volume, read);
    h.begin(Op::Read, offset, 8192);
    h.run();
    h.volume = losing;
    assert_eq!(h.devices.delayed.len(), 1, "the other part is read");
    h.devices.hanging.clear();
    h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.answer(), Some((1, Err(RequestError::FlushFailed(DeviceId(1))))));
    h.release(None);
    h.answer().expect("a reply").1
}

#[test]
fn part_read_before_its_loss_is_not_returned_with_a_later_part() {
    let mut h = written_where_it_was_moved();
    assert_eq!(read_during_loss(&mut h, 0), Err(RequestError::InDoubt { device: DeviceId(1) }));
}

/// Writes two extents, moves the second to the second device, and makes all of that durable.
fn write_on_two_devices(h: &mut Harness) {
    h.write(0, &[1; 2 * EXTENT]);
    h.act(Action::Move { key: h.key(1), blocks: ALL, to: place(1, PlaceKind::Whole) });
    h.flush().expect("a flush");
}

/// The offset of a read of the last block of the first extent and the first block of the second.
const ACROSS: u64 = EXTENT as u64 - 4096;

#[test]
fn extent_read_before_its_loss_is_not_returned_with_a_later_one() {
    let mut h = Harness::new(3, "sequential");
    write_on_two_devices(&mut h);
    h.write(EXTENT as u64, &[2; 4096]);
    assert_eq!(read_during_loss(&mut h, ACROSS), Err(RequestError::InDoubt { device: DeviceId(1) }));
}

#[test]
fn reads_of_other_blocks_and_volumes_survive_a_loss() {
    let mut h = Harness::new(3, "sequential");
    write_on_two_devices(&mut h);
    h.write(EXTENT as u64 + 8192, &[2; 4096]);
    assert_eq!(read_during_loss(&mut h, ACROSS), Ok(ReadShape::Data), "of other blocks of the extent");

    let mut h = Harness::new(3, "sequential");
    write_on_two_devices(&mut h);
    let (name, size) = ("other".into(), Bytes(4 * EXTENT as u64));
    let other = AdminCommand::CreateVolume { name, size, hardening: Hardening::Flush, copies: 1 };
    let other = h.admin(other).expect("a volume");
    let first = std::mem::replace(&mut h.volume, other);
    write_on_two_devices(&mut h);
    h.volume = first;
    h.write(EXTENT as u64, &[2; 4096]);
    assert_eq!(read_during_loss_of(&mut h, other, ACROSS), Ok(ReadShape::Data), "of another volume");
}
