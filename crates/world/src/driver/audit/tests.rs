//! Tests that audits detect damage which a pool does not notice until something else fails.

use super::*;
use crate::Seed;
use crate::campaign::{History, HistoryKind};
use crate::driver::{DeviceLoss, HistoryStep};
use weir_map::Superblock;

const SEED: Seed = Seed(1);

/// Creates a pool with two copies of every volume, some of which is written.
fn mirrored() -> Driver {
    let kind = HistoryKind { devices_min: 3, volumes_min: 2, ..HistoryKind::fault_free(150) };
    let histories = (0..).map(|number| History::new(Seed(SEED.0 + number), &kind));
    let roomy = |history: &History| history.setup.mirrored && history.setup.devices.len() > 2;
    let mut history = histories.into_iter().find(roomy).expect("some pool is mirrored");
    history.setup.policy = "stripe".to_owned();
    history.setup.volumes.truncate(1);
    history.setup.volumes.iter_mut().for_each(|v| (v.copies, v.policy, v.size) = (2, None, Bytes::kib(128)));
    let mut driver = Driver::new(history.setup).expect("a pool");
    let ask =
        RequestSpec { volume: 0, op: Op::Write, offset: VolumeOffset(0), len: Bytes::kib(96), fua: true };
    driver.step(&HistoryStep::Request(ask)).expect("a write");
    driver.step(&HistoryStep::Audit).expect("it is redundant");
    driver
}

/// Returns the locations of the copies of the volume's first block.
fn copies(driver: &mut Driver) -> Vec<(DeviceId, DeviceOffset)> {
    let pool = driver.read_pool().expect("it is sound").expect("commands end");
    let extent = &pool.volumes[&driver.volumes[0].id.0].extents[&0];
    extent.holders(0).map(|(place, at)| (DeviceId(place.device), DeviceOffset(at))).collect()
}

/// Changes bytes on a device directly.
fn damage(driver: &mut Driver, device: DeviceId, at: DeviceOffset) {
    let storage = driver.world.storage(device).expect("a device");
    let mut page = [0; PAGE as usize];
    storage.read(at, &mut page);
    page[100] ^= 1;
    storage.write(at, &page, true);
}

#[test]
fn audit_finds_corrupt_copy() {
    let mut driver = mirrored();
    let [first, second] = copies(&mut driver)[..] else { panic!("two copies") };
    damage(&mut driver, second.0, second.1);
    assert!(matches!(driver.audit(), Err(Failure::CopiesDiffer { volume: 0, .. })));
    damage(&mut driver, first.0, first.1);
    assert!(matches!(driver.audit(), Err(Failure::Stored { .. })));
}

#[test]
fn audit_checks_every_superblock_and_root() {
    let size = |driver: &Driver, device: u8| driver.setup.devices[usize::from(device)].size;
    for device in [0, 1, 2] {
        for copy in [0, 1] {
            let mut driver = mirrored();
            let at = [DeviceOffset(0), Superblock::second_at(size(&driver, device))][copy];
            damage(&mut driver, DeviceId(device), at);
            let seen = matches!(driver.audit(), Err(Failure::OnDisk(defect)) if defect.device == device);
            assert!(seen, "superblock {copy} of device {device}");
        }
    }
    for (device, at) in [0, 1].into_iter().flat_map(|d| weir_map::superblock::ROOT_AT.map(|at| (d, at))) {
        let mut driver = mirrored();
        damage(&mut driver, DeviceId(device), at);
        let seen = matches!(driver.audit(), Err(Failure::OnDisk(defect)) if defect.device == device);
        assert!(seen, "root at {at} of device {device}");
    }
}

#[test]
fn each_device_may_be_lost_and_return_or_be_replaced() {
    let mut driver = mirrored();
    let ask =
        RequestSpec { volume: 0, op: Op::Write, offset: VolumeOffset(0), len: Bytes::kib(64), fua: false };
    for device in 0..driver.setup.devices.len() {
        driver
            .step(&HistoryStep::Lose(DeviceLoss { device, requests: vec![ask] }))
            .expect("it is lost without harm");
    }
    let each = driver.setup.devices.len() as u64;
    assert_eq!((driver.statistics().losses, driver.statistics().replacements), (each, each));
}
