//! Devices that are truncated while in use.

use super::harness::{Harness, Shape};
use crate::{AdminCommand, AdminError, AdminId, DeviceSettings, DeviceState, Hardening, LossReason, Notice};
use weir_map::Superblock;
use weir_model::{
    BlockRange, Bytes, DeviceId, Errno, IoKind, Nanos, Op, PlaceId, PlaceKind, RequestError, VolumeId,
};
use weir_policy::placement::Action;

const DATA: DeviceId = DeviceId(0);
const EXTENT: u64 = 128 << 10;

fn shape(within: Nanos) -> Shape {
    let settings = DeviceSettings { verification_max_age: Some(within), ..DeviceSettings::default() };
    Shape { devices: 2, settings, ..Shape::default() }
}

/// Sets up a pool of one device for data and one for metadata, with four durable extents.
fn pool() -> Harness {
    let mut h = Harness::of(shape(Nanos(0)), "sequential");
    h.write(0, &[1; 4 * EXTENT as usize]);
    h.flush().expect("a flush");
    h
}

fn lost(h: &Harness, device: DeviceId) -> Option<LossReason> {
    match h.engine.status().devices[device.index()].state {
        DeviceState::InUse => None,
        DeviceState::Lost { reason: why, .. } => Some(why),
    }
}

/// Returns the number of checks of devices begun.
fn checks(h: &Harness) -> usize {
    let at = |device: DeviceId| Superblock::second_at(h.engine.map().devices()[device.index()].size);
    h.devices.log.iter().filter(|io| io.kind == IoKind::Read && io.at == at(io.device)).count()
}

#[test]
fn no_flush_succeeds_once_a_device_was_truncated() {
    for regrow in [false, true] {
        let mut h = pool();
        h.truncate(DATA, Bytes::mib(2), regrow);
        for _ in 0..3 {
            assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)), "grown again: {regrow}");
        }
        assert_eq!(lost(&h, DATA), Some(if regrow { LossReason::Replaced } else { LossReason::Truncated }));
        assert!(h.try_read(0, 4096).is_err(), "neither zeros nor what may be left");
        h.stop();
    }
}

#[test]
fn regrown_truncated_device_is_detected() {
    let mut h = pool();
    h.truncate(DATA, Bytes::mib(1), false);
    h.write(8 * EXTENT, &[2; EXTENT as usize]);
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    assert!(lost(&h, DATA).is_some_and(LossReason::is_damage));
}

#[test]
fn no_flush_succeeds_once_the_metadata_was_truncated() {
    for regrow in [false, true] {
        let mut h = pool();
        h.truncate(DeviceId(1), Bytes::mib(1), regrow);
        h.write(0, &[2; 4096]);
        for _ in 0..2 {
            assert!(h.flush().is_err());
        }
        assert!(h.engine.status().read_only);
        assert_eq!(h.read(0, 4096).1, [2; 4096], "the data is there");
    }
}

/// The record that a metadata member was left behind is written to every device, including its last page.
#[test]
fn member_record_does_not_hide_truncation() {
    for regrow in [false, true] {
        let shape = Shape { devices: 3, members: 2, ..shape(Nanos(0)) };
        let mut h = Harness::of(shape, "sequential");
        h.write(0, &[1; 4 * EXTENT as usize]);
        h.flush().expect("a flush");
        h.truncate(DATA, Bytes::mib(2), regrow);
        h.lose(DeviceId(1));
        h.run();
        assert_eq!(lost(&h, DATA), Some(if regrow { LossReason::Replaced } else { LossReason::Truncated }));
        assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)), "grown again: {regrow}");
    }
}

/// The check must have ended: the device may execute its commands in any order.
#[test]
fn last_page_write_waits_for_its_check() {
    let mut h = Harness::of(Shape { devices: 3, members: 2, ..shape(Nanos(0)) }, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.devices.log.clear();
    h.devices.delay_next = Some(IoKind::Read);
    h.lose(DeviceId(1));
    let written = |h: &Harness| {
        let last = |id: DeviceId| Superblock::second_at(h.engine.map().devices()[id.index()].size);
        h.devices
            .log
            .iter()
            .filter(|io| matches!(io.kind, IoKind::Write { .. }) && io.at == last(io.device))
            .count()
    };
    assert_eq!((h.devices.delayed.len(), written(&h)), (1, 0), "checks from before say nothing");
    h.release(None);
    assert_eq!(written(&h), 2, "of both devices that are left");
}

#[test]
fn no_durable_write_is_acknowledged_once_a_device_was_truncated() {
    let mut h = pool();
    h.request(Op::Write, 0, &[2; 4096], true).expect("a durable write");
    h.truncate(DATA, Bytes::mib(2), true);
    assert_eq!(h.request(Op::Write, 0, &[3; 4096], true), Err(RequestError::FlushFailed(DATA)));
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
}

#[test]
fn short_read_loses_the_device() {
    let mut h = pool();
    h.truncate(DATA, Bytes(4096), false);
    assert!(h.try_read(0, 4096).is_err());
    assert_eq!(lost(&h, DATA), Some(LossReason::Truncated));
    assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
}

#[test]
fn read_only_load_detects_truncation_periodically() {
    let mut h = pool();
    h.wait(Nanos::secs(2));
    h.truncate(DATA, Bytes::mib(2), true);
    h.wait(Nanos::secs(60));
    assert_eq!(lost(&h, DATA), None, "nobody uses it");
    h.begin(Op::Read, 0, 4096);
    h.wait(Nanos::millis(1));
    assert_eq!(lost(&h, DATA), Some(LossReason::Replaced));
}

#[test]
fn mirrored_volumes_survive_truncation() {
    let mut h = Harness::of(Shape { devices: 3, members: 2, copies: 2, ..shape(Nanos(0)) }, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    // When a device is given up, the superblocks of the others are rewritten; that is no reason to give these
    // up.
    h.truncate(DeviceId(1), Bytes::mib(1), true);
    h.flush().expect("the other copy, and the other metadata, are there");
    assert_eq!((lost(&h, DeviceId(1)), lost(&h, DeviceId(2))), (Some(LossReason::Replaced), None));
    h.write(0, &[2; EXTENT as usize]);
    h.flush().expect("a flush");
    assert_eq!(h.read(0, EXTENT as usize).1, [2; EXTENT as usize]);
    assert_eq!(lost(&h, DeviceId(0)), None);
}

#[test]
fn a_flush_waits_for_a_check_that_began_after_it() {
    let mut h = pool();
    h.devices.delay_next = Some(IoKind::Read);
    h.submit(1, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!((h.devices.delayed.len(), h.answer()), (1, None));
    // Requested while a check is in flight: the device may have been truncated after that began.
    let before = checks(&h);
    h.submit(2, Op::Flush, 0, 0, 0);
    h.run();
    assert_eq!(h.answer(), None);
    h.release(None);
    let mut answers = [h.answer(), h.answer()].map(|answer| answer.expect("an answer"));
    answers.sort_by_key(|(id, _)| *id);
    assert!(answers.iter().all(|(_, result)| result.is_ok()), "{answers:?}");
    assert!(checks(&h) > before, "one more for the second");
}

#[test]
fn check_is_valid_for_its_max_age() {
    let mut h = Harness::of(shape(Nanos::secs(10)), "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    let before = checks(&h);
    h.write(4096, &[1; 4096]);
    h.flush().expect("a flush");
    assert_eq!(checks(&h), before);
    h.wait(Nanos::secs(11));
    h.flush().expect("a flush");
    assert!(checks(&h) > before);
}

#[test]
fn unreadable_last_page_proves_nothing() {
    let mut h = pool();
    h.devices.broken.push((DATA, IoKind::Read, weir_model::IoError::Os(Errno::EIO)));
    h.flush().expect("it is there");
    assert_eq!(lost(&h, DATA), None);
}

#[test]
fn truncation_fails_degraded_mirror() {
    for removed in [false, true] {
        let shape = Shape { devices: 4, members: 2, copies: 2, ..shape(Nanos(0)) };
        let mut h = Harness::of(shape, "stripe");
        h.write(0, &[1; 4 * EXTENT as usize]);
        h.flush().expect("a flush");
        h.lose(DeviceId(0));
        h.write(0, &[2; 4096]);
        h.flush().expect("the other copies are there");
        if removed {
            h.devices.removed.push(DeviceId(1));
        } else {
            h.truncate(DeviceId(1), Bytes::mib(1), true);
        }
        h.write(0, &[3; 4096]);
        assert!(h.flush().is_err(), "removed: {removed}");
    }
}

#[test]
fn truncation_fails_incomplete_mirror() {
    let mut h = Harness::of(Shape { devices: 3, members: 2, copies: 2, ..shape(Nanos(0)) }, "sequential");
    h.devices.broken.push((DATA, IoKind::Write { fua: false }, weir_model::IoError::Os(Errno::ENOSPC)));
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("one copy is there, and nothing has happened to it");
    h.devices.removed.push(DeviceId(1));
    assert!(h.flush().is_err(), "of what is on it alone nothing is left when it is closed");
}

fn reported_removals(h: &mut Harness) -> Vec<DeviceId> {
    let told = std::iter::from_fn(|| h.engine.next_notice());
    told.filter_map(|notice| if let Notice::Removed { device } = notice { Some(device) } else { None })
        .collect()
}

#[test]
fn removed_file_stays_in_use_but_flushes_fail() {
    let mut h = pool();
    h.devices.removed.push(DATA);
    for _ in 0..3 {
        assert_eq!(h.flush(), Err(RequestError::FlushFailed(DATA)));
    }
    assert_eq!(h.request(Op::Write, 0, &[2; 4096], true), Err(RequestError::FlushFailed(DATA)));
    h.write(0, &[3; 4096]);
    assert_eq!(h.read(0, 4096).1, [3; 4096], "all is there until it is closed");
    assert_eq!((lost(&h, DATA), reported_removals(&mut h)), (None, vec![DATA]));
    let status = h.engine.status();
    assert_eq!(status.devices.iter().map(|device| device.removed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(status.devices[0].errors.total(), 0, "no command has failed");
    h.stop();
}

#[test]
fn removal_of_only_metadata_stops_changes() {
    let mut h = pool();
    h.devices.removed.push(DeviceId(1));
    assert!(h.flush().is_err());
    assert!(h.engine.status().read_only);
    assert_eq!(h.read(0, 4096).1, [1; 4096]);
}

#[test]
fn redundant_data_and_metadata_survive_file_removal() {
    let mut h = Harness::of(Shape { devices: 3, members: 2, copies: 2, ..shape(Nanos(0)) }, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.devices.removed.push(DeviceId(1));
    h.write(0, &[2; 4096]);
    h.flush().expect("the other copy, and the other metadata, have names");
    assert_eq!(h.engine.map().members(), [DeviceId(2)]);
    assert_eq!(reported_removals(&mut h), [DeviceId(1)]);
    // Both copies of data on these two devices would be gone.
    h.devices.removed.push(DeviceId(0));
    h.write(4096, &[2; 4096]);
    assert!(h.flush().is_err());
}

type Change = fn(&mut Harness) -> Result<VolumeId, AdminError>;

/// Returns a command that creates another volume.
fn another_volume() -> AdminCommand {
    let (name, size) = ("other".into(), Bytes::mib(1));
    AdminCommand::CreateVolume { name, size, hardening: Hardening::Flush, copies: 1 }
}

#[test]
fn admin_commands_fail_without_intact_metadata() {
    for (removed, regrow) in [(true, false), (false, false), (false, true)] {
        let damaged = |h: &mut Harness| match removed {
            true => h.devices.removed.push(DeviceId(1)),
            false => h.truncate(DeviceId(1), Bytes::mib(1), regrow),
        };
        let changes: [Change; 3] =
            [|h| h.admin(another_volume()), |h| h.set_hardening(Hardening::Write), Harness::remove_volume];
        for change in changes {
            let mut h = pool();
            damaged(&mut h);
            let refused = Err(AdminError::Damaged("d1".into()));
            assert_eq!(change(&mut h), refused, "removed: {removed}, grown again: {regrow}");
            assert_eq!(h.admin(another_volume()), refused, "nor later");
        }
    }
}

#[test]
fn admin_command_waits_for_a_check() {
    let mut h = pool();
    h.devices.delay_next = Some(IoKind::Read);
    h.engine.admin(h.now(), AdminId(1), another_volume());
    h.run();
    assert_eq!((h.devices.delayed.len(), h.engine.next_admin_reply()), (1, None));
    h.release(None);
    h.engine.next_admin_reply().expect("a reply").result.expect("all is well");
}

/// The catalogue of volumes is in the metadata alone.
#[test]
fn admin_commands_succeed_with_one_intact_member() {
    for metadata in [false, true] {
        let mut h = Harness::of(Shape { devices: 3, members: 2, ..shape(Nanos(0)) }, "sequential");
        h.devices.removed.push(if metadata { DeviceId(1) } else { DATA });
        h.admin(another_volume()).expect("it is durable");
        h.set_hardening(Hardening::Write).expect("it is durable");
        h.remove_volume().expect("it is durable");
        assert_eq!(h.engine.map().members().len(), if metadata { 1 } else { 2 });
        h.devices.removed.push(DeviceId(2));
        let last = h.admin(AdminCommand::RemoveVolume { name: "other".into() });
        assert_eq!(last.is_ok(), !metadata, "the last member is gone: {last:?}");
    }
}

#[test]
fn no_flush_succeeds_once_the_last_metadata_is_removed_though_both_copies_are_there() {
    let mut h = Harness::of(Shape { devices: 4, members: 2, copies: 2, ..shape(Nanos(0)) }, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    // The member is left behind, not lost.
    h.write(4096, &[1; 4096]);
    h.devices.broken.push((DeviceId(3), IoKind::Flush, weir_model::IoError::Os(Errno::EIO)));
    h.devices.broken.push((DeviceId(3), IoKind::Write { fua: true }, weir_model::IoError::Os(Errno::EIO)));
    h.admin(another_volume()).expect("the other member has it");
    assert_eq!(h.engine.map().members(), [DeviceId(2)]);
    h.devices.broken.clear();
    h.wait(Nanos::secs(60));
    h.devices.removed.push(DeviceId(2));
    assert!(h.flush().is_err());
}

#[test]
fn stop_verifies_devices_once_more() {
    for within in [Nanos(0), Nanos::secs(10)] {
        for (removed, regrow) in [(true, false), (false, false), (false, true)] {
            let mut h = Harness::of(shape(within), "sequential");
            h.write(0, &[1; 4096]);
            h.flush().expect("a flush");
            assert_eq!(h.engine.damaged_device(), None);
            match removed {
                true => h.devices.removed.push(DATA),
                false => h.truncate(DATA, Bytes::mib(2), regrow),
            }
            h.stop();
            assert_eq!(h.engine.damaged_device(), Some(DATA), "removed: {removed}, grown again: {regrow}");
        }
    }
}

#[test]
fn stop_succeeds_if_damaged_data_is_redundant() {
    let mut h = Harness::of(Shape { devices: 3, members: 2, copies: 2, ..shape(Nanos(0)) }, "sequential");
    h.write(0, &[1; EXTENT as usize]);
    h.flush().expect("a flush");
    h.devices.removed.push(DeviceId(1));
    h.stop();
    assert_eq!(reported_removals(&mut h), [DeviceId(1)]);
    assert_eq!(h.engine.damaged_device(), None);
}

#[test]
fn removed_and_truncated_file_is_reported_as_both() {
    for regrow in [false, true] {
        let mut h = pool();
        h.devices.removed.push(DATA);
        h.flush().expect_err("it would be gone with the server");
        assert_eq!(lost(&h, DATA), None);
        h.truncate(DATA, Bytes::mib(2), regrow);
        h.flush().expect_err("it is gone");
        h.wait(Nanos::secs(2));
        assert_eq!(lost(&h, DATA), Some(if regrow { LossReason::Replaced } else { LossReason::Truncated }));
        assert!(h.engine.status().devices[0].removed, "as well");
        h.stop();
    }
}

/// A policy's copies are in two places too: zeros must not be read from them.
#[test]
fn truncated_cached_copy_is_never_read() {
    for copied in [false, true] {
        let mut h = pool();
        let key = h.key(0);
        let (from, to) = (PlaceId { device: DATA, kind: PlaceKind::Whole }, DeviceId(1));
        assert!(h.engine.map().find(key).has_block(0), "{from:?}");
        if copied {
            let blocks = BlockRange { first: 0, count: 32 };
            h.act(Action::Copy { key, blocks, to: PlaceId { device: to, ..from } });
            h.flush().expect("a flush");
        }
        h.stop();
        h.truncate(DATA, Bytes::mib(2), true);
        let report = h.check();
        let remedies: Vec<_> = report.findings.iter().map(|found| found.remedy.is_repair()).collect();
        assert_eq!(remedies, [!copied], "{report:#?}");
    }
}
