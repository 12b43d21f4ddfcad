//! Tests that audits detect damage which a pool does not notice until something else fails.

use super::*;
use crate::Seed;
use crate::campaign::{History, HistoryKind};
use crate::driver::{DeviceLoss, HistoryStep};
use crate::{Fault, Kinds};
use weir_map::Superblock;
use weir_model::Errno;

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

/// Returns an extent of the volume with a copy on such a device, and the location of that copy's first block.
fn copy_on_any(driver: &mut Driver, is_such: impl Fn(DeviceId) -> bool) -> (u64, DeviceId, DeviceOffset) {
    let pool = driver.read_pool().expect("it is sound").expect("commands end");
    let extents = &pool.volumes[&driver.volumes[0].id.0].extents;
    let copies = extents.iter().flat_map(|(index, extent)| {
        extent.holders(0).map(|(place, at)| (*index, DeviceId(place.device), DeviceOffset(at)))
    });
    copies.into_iter().find(|(_, device, _)| is_such(*device)).expect("a copy on such a device")
}

/// Changes bytes on a device directly.
fn damage(driver: &mut Driver, device: DeviceId, at: DeviceOffset) {
    let storage = driver.world.storage(device).expect("a device");
    let mut page = [0; PAGE as usize];
    storage.read(at, &mut page);
    page[100] ^= 1;
    storage.write(at, &page, true);
}

/// A device without metadata loses a copy with one failed flush, and then works again.
#[test]
fn pool_is_audited_once_devices_have_recovered() {
    let mut driver = mirrored();
    let (index, lost, at) = copy_on_any(&mut driver, |device| device.0 > 1);
    let range = DeviceOffset(0)..DeviceOffset(u64::MAX);
    let kinds = Kinds { flushes: true, ..Kinds::default() };
    let fault = Fault::Errors { kinds, range, chance: 1.0, times: 1, error: Errno::EIO };
    driver.step(&HistoryStep::Break(lost.index(), fault)).expect("a device that fails");
    let offset = VolumeOffset(index * driver.setup.extent.bytes().0);
    let write = RequestSpec { volume: 0, op: Op::Write, offset, len: Bytes(PAGE), fua: false };
    driver.step(&HistoryStep::Request(write)).expect("a write");
    driver.step(&HistoryStep::Wait(usize::MAX)).expect("an answer");
    let before = driver.statistics.audits;
    driver.step(&HistoryStep::Audit).expect("both copies are good again");
    assert!(driver.health == Health::Broken && driver.statistics.audits > before, "it was audited");
    damage(&mut driver, lost, at);
    assert!(matches!(driver.audit(), Err(Failure::CopiesDiffer { volume: 0, .. })));
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
