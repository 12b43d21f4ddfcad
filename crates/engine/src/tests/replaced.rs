//! Devices that are permanently gone, and blank ones in their place.

use super::harness::{Harness, Shape};
use weir_map::{MapError, OpenOptions};
use weir_model::{Bytes, DeviceId, Nanos, Op};

const LEN: usize = 6 * (128 << 10);

fn pool(devices: usize, members: usize, copies: u8) -> Harness {
    let mut h = Harness::of(Shape { devices, members, copies, ..Shape::default() }, "stripe");
    h.write(0, &[1; LEN]);
    h.write(4096, &[2; 8192]);
    h.flush().expect("a flush");
    h
}

fn content() -> Vec<u8> {
    let mut bytes = vec![1; LEN];
    bytes[4096..12288].fill(2);
    bytes
}

#[test]
fn blank_device_replaces_missing_one() {
    for device in (0..4).map(DeviceId) {
        for stopped in [true, false] {
            let mut h = pool(4, 2, 2);
            if stopped {
                h.stop();
            }
            h.replace(device, None).expect("all that was on it is on others");
            let recovery = h.try_reopen(OpenOptions::default()).expect("a pool");
            let case = format!("device {device}, stopped: {stopped}");
            assert_eq!(recovery.outdated.iter().collect::<Vec<_>>(), [device], "{case}");
            assert!(h.read(0, LEN).1 == content(), "{case}");
            h.wait(Nanos::secs(30));
            h.flush().expect("a flush");
            assert_eq!(
                h.engine.data.base.durability.missing_copies.degraded(&h.engine.data.base.core, h.volume),
                (Bytes(0), false),
                "{case}"
            );
            h.stop();
            assert!(h.check().is_clean(), "{case}");
            let recovery = h.try_reopen(OpenOptions::default()).expect("a pool");
            assert!(recovery.outdated.is_empty(), "{case}");
            h.lose(DeviceId((device.0 + 1) % 4));
            assert!(h.read(0, LEN).1 == content(), "{case}");
        }
    }
}

#[test]
fn resynced_blocks_are_durable_on_two_devices() {
    let mut h = pool(2, 2, 2);
    h.stop();
    h.replace(DeviceId(1), None).expect("all that was on it is on the other one");
    h.try_reopen(OpenOptions::default()).expect("a pool");
    let mut steps = 0;
    while h.engine.data.base.durability.missing_copies.degraded(&h.engine.data.base.core, h.volume)
        != (Bytes(0), false)
    {
        h.wait(Nanos::millis(1));
        steps += 1;
        assert!(steps < 4000, "a commit is asked for once the last copy is there");
    }
    h.try_reopen(OpenOptions::default()).expect("a pool");
    h.lose(DeviceId(0));
    assert!(h.read(0, LEN).1 == content());
}

#[test]
fn replacement_is_atomic_under_power_loss() {
    for device in (0..3).map(DeviceId) {
        let mut h = pool(3, 2, 2);
        h.stop();
        let before = h.disks();
        for writes in 0.. {
            h.put_disks(before.clone());
            let replaced = h.replace(device, Some(writes));
            let options = OpenOptions {
                accept_rollback: true,
                without: [device].into_iter().collect(),
                ..OpenOptions::default()
            };
            h.try_reopen(options).expect("a pool, with the device or without");
            assert!(h.read(0, LEN).1 == content(), "device {device}, cut after {writes} writes");
            if replaced.is_ok() {
                assert!(writes > 5, "it writes");
                break;
            }
        }
    }
}

#[test]
fn device_with_only_copy_needs_forced_replacement() {
    let mut h = pool(3, 1, 1);
    h.stop();
    let before = h.disks();
    // Devices are numbered starting with those without metadata.
    let refused = h.replace(DeviceId(0), None);
    h.put_back(DeviceId(0), &before);
    assert!(h.disks() == before, "what is refused changes nothing");
    h.replace(DeviceId(0), Some(0)).expect_err("it is gone");
    let Err(MapError::OnlyCopy { device: DeviceId(0), bytes, others: 0, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(bytes.0 > 0 && bytes.0 < LEN as u64, "{bytes}");
    let without = OpenOptions { without: [DeviceId(0)].into_iter().collect(), ..OpenOptions::default() };
    h.try_reopen(without).expect("a pool without the device");
    h.request(Op::Trim, 0, &[0; LEN], false).expect("what is lost can be given up");
    h.flush().expect("a flush");
    h.stop();
    h.replace(DeviceId(0), None).expect("nothing is on it any more");
    h.try_reopen(OpenOptions::default()).expect("a pool");
    h.write(0, &[3; LEN]);
    assert!(h.read(0, LEN).1 == [3; LEN]);
}

#[test]
fn replaced_device_is_never_accepted() {
    for device in (0..4).map(DeviceId) {
        let mut h = pool(4, 2, 2);
        h.stop();
        let older = h.disks();
        h.replace(device, None).expect("all that was on it is on others");
        // Before the pool knows the new device, and after.
        for _ in 0..2 {
            let new = h.disks();
            h.put_back(device, &older);
            for accept_rollback in [false, true] {
                let refused = h.try_reopen(OpenOptions { accept_rollback, ..OpenOptions::default() });
                assert!(
                    matches!(refused, Err(MapError::Replaced { device: old }) if old == device),
                    "{refused:?}"
                );
            }
            assert!(!h.check().is_clean());
            h.put_back(device, &new);
            h.try_reopen(OpenOptions::default()).expect("the new one");
            assert!(h.read(0, LEN).1 == content());
            h.wait(Nanos::secs(30));
            h.stop();
        }
    }
}

#[test]
fn diverged_replaced_device_is_never_accepted() {
    let (one, other) = (DeviceId(0), DeviceId(1));
    let mut h = pool(2, 2, 2);
    h.stop();
    let before = h.disks();
    // The other device continues alone, long enough for its generation to be the newest.
    h.replace(one, Some(0)).expect_err("it is gone");
    let accept = |gone: DeviceId| OpenOptions {
        accept_rollback: true,
        without: [gone].into_iter().collect(),
        ..OpenOptions::default()
    };
    h.try_reopen(accept(one)).expect("the other one alone");
    h.write(0, &[7; LEN]);
    h.flush().expect("a flush");
    h.stop();
    let alone = h.disks();
    h.put_disks(before);
    h.replace(other, None).expect("all is on the first one");
    h.try_reopen(OpenOptions::default()).expect("the first one and the new one");
    h.stop();
    h.put_back(other, &alone);
    for options in [OpenOptions::default(), OpenOptions { accept_rollback: true, ..OpenOptions::default() }] {
        let refused = h.try_reopen(options);
        assert!(matches!(refused, Err(MapError::Replaced { device }) if device == other), "{refused:?}");
    }
}

#[test]
fn copy_on_absent_device_counts_as_only_copy() {
    let mut refused = 0;
    for away in (1..4).map(DeviceId) {
        let mut h = pool(4, 2, 2);
        h.stop();
        let before = h.disks();
        h.replace(away, Some(0)).expect_err("it is away");
        match h.replace_without(DeviceId(0), away) {
            Err(MapError::OnlyCopy { device: DeviceId(0), .. }) => refused += 1,
            other => {
                other.expect("the new one");
                h.put_back(away, &before);
                h.try_reopen(OpenOptions::default()).expect("a pool");
                assert!(h.read(0, LEN).1 == content(), "{away} was away");
            }
        }
    }
    assert!(refused > 0, "some extents were on the device and the one that was away");
}

#[test]
fn returning_device_learns_of_replacement() {
    let (new, away) = (DeviceId(0), DeviceId(3));
    let mut h = Harness::of(Shape { devices: 4, members: 2, copies: 2, ..Shape::default() }, "stripe");
    h.stop();
    let before = h.disks();
    h.replace(away, Some(0)).expect_err("it is away");
    h.replace(new, None).expect("nothing was on it");
    h.put_back(away, &before);
    assert_eq!(h.superblock(away).join_generation(new), 0);
    h.try_reopen(OpenOptions::default()).expect("a pool");
    h.stop();
    let joined = h.superblock(away).join_generation(new);
    assert!(joined > 0 && joined == h.superblock(new).join_generation(new), "{joined}");
}

#[test]
fn two_copies_are_possible_while_a_device_is_absent() {
    let mut h = pool(2, 2, 2);
    h.remove_volume().expect("it goes");
    h.stop();
    h.replace(DeviceId(1), Some(0)).expect_err("nothing is written");
    let without = OpenOptions {
        accept_rollback: true,
        without: [DeviceId(1)].into_iter().collect(),
        ..OpenOptions::default()
    };
    h.try_reopen(without).expect("a pool of one device");
    h.create_volume().expect("its second copies come with the second device");
    h.write(0, &[4; LEN]);
    h.flush().expect("a flush");
    assert_eq!(
        h.engine.data.base.durability.missing_copies.degraded(&h.engine.data.base.core, h.volume),
        (Bytes(LEN as u64), false)
    );
}
