//! Device files that are older than the state the pool has used.

use super::harness::{Disks, Harness, Shape};
use crate::DeviceSettings;
use weir_map::check::Severity;
use weir_map::{MapError, OpenOptions};
use weir_model::{Bytes, DeviceId, DeviceSet, Nanos, Op};

const EXTENT: usize = 128 << 10;
const LEN: usize = 6 * EXTENT;

fn pool(devices: usize, members: usize, copies: u8) -> Harness {
    let settings = DeviceSettings { verification_max_age: Some(Nanos(0)), ..DeviceSettings::default() };
    let mut h = Harness::of(Shape { devices, members, copies, settings, ..Shape::default() }, "stripe");
    h.write(0, &[1; LEN]);
    h.flush().expect("a flush");
    h
}

/// Removes or truncates the device's file; the pool continues, and ends. Returns the contents before that.
fn lose_file(h: &mut Harness, device: DeviceId, removed: bool, stopped: bool) -> Disks {
    let older = h.disks();
    match removed {
        true => h.devices.removed.push(device),
        false => h.truncate(device, Bytes::mib(1), true),
    }
    // With one copy the flushes fail; without the only metadata the second write does.
    let _ = h.request(Op::Write, 0, &[2; 4096], false);
    let _ = h.flush();
    let _ = h.request(Op::Write, 0, &[2; LEN / 2], false);
    let _ = h.flush();
    if stopped {
        h.stop();
    }
    older
}

fn content(h: &mut Harness) -> Vec<u8> {
    h.read(0, LEN).1
}

fn newest() -> Vec<u8> {
    [vec![2; LEN / 2], vec![1; LEN / 2]].concat()
}

#[test]
fn older_file_is_ignored_if_others_have_its_data() {
    for device in (0..4).map(DeviceId) {
        for (removed, stopped) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut h = pool(4, 2, 2);
            let older = lose_file(&mut h, device, removed, stopped);
            h.put_back(device, &older);
            let recovery = h.try_reopen(OpenOptions::default()).expect("all data is on other devices");
            let case = format!("device {device}, removed: {removed}, stopped: {stopped}");
            assert_eq!(recovery.outdated.iter().collect::<Vec<_>>(), [device], "{case}");
            assert!(content(&mut h) == newest(), "{case}");
            // Both copies are restored, and each is the newest.
            h.wait(Nanos::secs(30));
            h.flush().expect("a flush");
            assert_eq!(
                h.engine.data.base.durability.missing_copies.degraded(&h.engine.data.base.core, h.volume),
                (Bytes(0), false),
                "{case}"
            );
            h.stop();
            let recovery = h.try_reopen(OpenOptions::default()).expect("a pool");
            assert!(recovery.outdated.is_empty(), "{case}");
            h.lose(DeviceId((device.0 + 1) % 4));
            assert!(content(&mut h) == newest(), "{case}");
        }
    }
}

/// Opens the pool with a power loss after each number of writes: reads must return the newest data.
fn open_with_power_losses(h: &mut Harness, device: DeviceId) {
    let before = h.disks();
    for writes in 0.. {
        h.put_disks(before.clone());
        let opened = h.opens_within(writes);
        h.reopen();
        assert!(content(h) == newest(), "device {device}, cut after {writes} writes");
        if opened {
            assert!(writes > 5, "it writes");
            break;
        }
    }
    h.put_disks(before);
}

#[test]
fn power_loss_during_open_never_revives_older_file() {
    for device in (0..3).map(DeviceId) {
        let mut h = pool(3, 2, 2);
        let older = lose_file(&mut h, device, true, true);
        h.put_back(device, &older);
        open_with_power_losses(&mut h, device);
    }
}

#[test]
fn older_file_with_only_copy_is_refused() {
    for removed in [true, false] {
        let mut h = pool(3, 1, 1);
        let older = lose_file(&mut h, DeviceId(0), removed, true);
        h.put_back(DeviceId(0), &older);
        let before = h.disks();
        let refused = h.try_reopen(OpenOptions::default());
        let Err(MapError::Outdated { device: DeviceId(0), bytes }) = refused else { panic!("{refused:?}") };
        assert!(bytes >= Bytes(EXTENT as u64), "{bytes}");
        assert!(h.disks() == before, "nothing has changed");
        let accepted = OpenOptions { accept_rollback: true, ..OpenOptions::default() };
        h.try_reopen(accepted).expect("the older data is accepted");
        let all = content(&mut h);
        assert!(all.chunks(EXTENT).any(|extent| extent == [2; EXTENT]), "what others have is the newest");
        h.stop();
        h.reopen();
        assert!(content(&mut h) == all);
    }
}

#[test]
fn an_older_file_with_the_only_metadata_is_refused() {
    let mut h = pool(2, 1, 1);
    let older = lose_file(&mut h, DeviceId(1), true, true);
    h.put_back(DeviceId(1), &older);
    let refused = h.try_reopen(OpenOptions::default());
    assert!(matches!(refused, Err(MapError::OutdatedMetadata { device: DeviceId(1) })), "{refused:?}");
    let accepted = OpenOptions { accept_rollback: true, ..OpenOptions::default() };
    h.try_reopen(accepted).expect("the older metadata is accepted");
    h.stop();
    h.reopen();
}

#[test]
fn a_file_saved_from_the_server_counts() {
    for device in (0..2).map(DeviceId) {
        for stopped in [true, false] {
            let mut h = pool(2, 1, 1);
            lose_file(&mut h, device, true, stopped);
            // The open file is copied, and put back.
            h.devices.removed.clear();
            let recovery = h.try_reopen(OpenOptions::default()).expect("a pool");
            assert_eq!(recovery.outdated, DeviceSet::default());
            assert!(device != DeviceId(0) || content(&mut h) == newest(), "stopped: {stopped}");
            h.write(0, &[3; LEN]);
            h.flush().expect("a flush");
            h.stop();
            h.reopen();
            assert!(content(&mut h) == [3; LEN]);
        }
    }
}

#[test]
fn older_file_with_only_copy_of_blocks_is_refused() {
    let settings = DeviceSettings { verification_max_age: Some(Nanos(0)), ..DeviceSettings::default() };
    let mut h = Harness::of(Shape { devices: 3, members: 1, settings, ..Shape::default() }, "stripe");
    (0..6).for_each(|extent| h.write(extent * EXTENT as u64, &[1; 4096]));
    h.flush().expect("a flush");
    let older = h.disks();
    h.devices.removed.push(DeviceId(0));
    let _ = h.request(Op::Write, 0, &[2; 4096], false);
    let _ = h.flush();
    h.stop();
    h.put_back(DeviceId(0), &older);
    let refused = h.try_reopen(OpenOptions::default());
    assert!(matches!(refused, Err(MapError::Outdated { device: DeviceId(0), .. })), "{refused:?}");
    let accepted = OpenOptions { accept_rollback: true, ..OpenOptions::default() };
    h.try_reopen(accepted).expect("the older data is accepted");
    assert!((1..6).all(|extent| h.read(extent * EXTENT as u64, 4096).1 == [1; 4096]));
}

/// Stops the pool; opens, writes and closes it once more; then restores the device's file from before that.
fn exchange_file(h: &mut Harness, device: DeviceId) {
    h.stop();
    let older = h.disks();
    h.reopen();
    h.write(0, &[2; LEN / 2]);
    h.flush().expect("a flush");
    h.stop();
    h.put_back(device, &older);
}

#[test]
fn older_file_is_detected_by_its_roots() {
    for device in [DeviceId(2), DeviceId(3)] {
        let mut h = pool(4, 2, 2);
        exchange_file(&mut h, device);
        let found = h.check().findings;
        assert!(found.iter().any(|f| f.device == device && f.severity == Severity::Damage), "{found:?}");
        open_with_power_losses(&mut h, device);
        let recovery = h.try_reopen(OpenOptions::default()).expect("all data is on other devices");
        assert_eq!(recovery.outdated.iter().collect::<Vec<_>>(), [device]);
        h.wait(Nanos::secs(30));
        h.flush().expect("a flush");
        let base = &h.engine.data.base;
        assert_eq!(base.durability.missing_copies.degraded(&base.core, h.volume), (Bytes(0), false));
        h.stop();
        assert!(h.try_reopen(OpenOptions::default()).expect("a pool").outdated.is_empty());
        h.lose(DeviceId(5 - device.0));
        assert!(content(&mut h) == newest(), "what was made anew is the newest");
    }
}

#[test]
fn older_file_by_roots_with_only_copy_is_refused() {
    let mut h = pool(2, 2, 1);
    exchange_file(&mut h, DeviceId(0));
    let before = h.disks();
    let refused = h.try_reopen(OpenOptions::default());
    assert!(matches!(refused, Err(MapError::Outdated { device: DeviceId(0), .. })), "{refused:?}");
    assert!(h.disks() == before, "nothing was changed");
    let accepted = OpenOptions { accept_rollback: true, ..OpenOptions::default() };
    h.try_reopen(accepted).expect("the older data is accepted");
}
