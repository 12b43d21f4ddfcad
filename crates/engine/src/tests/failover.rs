//! Commands in flight to a device when it is given up, for blocks that another device has too.

use super::harness::{Harness, Shape};
use crate::{DeviceSettings, DeviceState};
use weir_model::{BlockRange, DeviceId, ExtentIndex, ExtentKey, Nanos, Op, PlaceId, PlaceKind, RequestError};
use weir_policy::placement::Action;

const EXTENT: usize = 128 << 10;
const BLOCK: usize = 4096;

/// Sets up three devices, with each block on two of them.
fn copies(settings: DeviceSettings) -> Harness {
    Harness::of(Shape { devices: 3, members: 2, copies: 2, settings, ..Shape::default() }, "sequential")
}

fn is_lost(h: &Harness, device: u8) -> bool {
    matches!(h.engine.status().devices[usize::from(device)].state, DeviceState::Lost { .. })
}

/// Returns the device that reads of the first block go to, once response times are measured.
fn read_from(h: &mut Harness) -> DeviceId {
    (0..4).for_each(|_| drop(h.read(0, BLOCK)));
    h.devices.log.clear();
    h.read(0, BLOCK);
    h.devices.log[0].device
}

#[test]
fn hung_read_fails_over_to_other_copy_and_buffer() {
    let mut h = copies(DeviceSettings::default());
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    let memory = h.free_memory();
    let bad = read_from(&mut h);
    h.devices.hanging.push(bad);
    assert_eq!(h.read(BLOCK as u64 + 512, 1024).1, [1; 1024]);
    assert!(is_lost(&h, bad.0));
    assert_eq!(memory.0 - h.free_memory().0, BLOCK as u64, "what the device has is kept back");
    assert_eq!(h.read(0, EXTENT).1, [1; EXTENT], "from the other one at once");
    h.wake(bad);
    assert_eq!(h.free_memory(), memory);
}

#[test]
fn restarted_read_gathers_parts_in_one_buffer() {
    let mut h = copies(DeviceSettings::default());
    for extent in 0..4 {
        h.write(extent * EXTENT as u64, &[extent as u8 + 1; EXTENT]);
    }
    h.flush().expect("a flush");
    let memory = h.free_memory();
    let bad = read_from(&mut h);
    let key = |index| ExtentKey { volume: h.volume, index: ExtentIndex(index) };
    let on_bad = |h: &Harness, key| {
        let record = h.record(key).expect("it has places");
        record.places.iter().any(|place| place.device() == bad)
    };
    let hit: Vec<_> = [0, 1, 2, 3].map(key).into_iter().filter(|key| on_bad(&h, *key)).collect();
    assert!(!hit.is_empty());
    h.devices.hanging.push(bad);
    let (_, bytes) = h.read(512, 4 * EXTENT - 1024);
    let expected: Vec<u8> = (512..4 * EXTENT - 512).map(|at| (at / EXTENT) as u8 + 1).collect();
    assert!(bytes == expected);
    h.wake(bad);
    assert_eq!(h.free_memory(), memory);
}

#[test]
fn read_fails_over_past_two_hung_devices() {
    let mut h = Harness::new(4, "sequential");
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    let key = ExtentKey { volume: h.volume, index: ExtentIndex(0) };
    let blocks = BlockRange { first: 0, count: 32 };
    for (device, kind) in [(1, PlaceKind::Whole), (2, PlaceKind::Fine)] {
        let to = PlaceId { device: DeviceId(device), kind };
        h.engine.request_action(Action::Copy { key, blocks, to });
        h.run();
    }
    h.flush().expect("a flush");
    let memory = h.free_memory();
    let bad = [0, 1].map(DeviceId);
    h.devices.hanging.extend(bad);
    assert_eq!(h.read(BLOCK as u64, 2 * BLOCK).1, [1; 2 * BLOCK]);
    bad.into_iter().for_each(|device| h.wake(device));
    assert_eq!(h.free_memory(), memory);
}

#[test]
fn read_modify_write_uses_other_copy() {
    let settings = DeviceSettings { sector: 4096, ..DeviceSettings::default() };
    let mut h = copies(settings);
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    let bad = read_from(&mut h);
    h.devices.hanging.push(bad);
    h.request(Op::Write, 512, &[2; 512], false).expect("it goes to the device that is left");
    assert!(is_lost(&h, bad.0));
    h.flush().expect("a flush");
    let expected = [[1; 512], [2; 512], [1; 512]].concat();
    assert_eq!(h.read(0, 1536).1, expected);
}

#[test]
fn restarted_read_waits_for_memory_up_to_deadline() {
    for comes in [true, false] {
        let mut h = copies(DeviceSettings::default());
        h.write(0, &[1; EXTENT]);
        h.flush().expect("a flush");
        let bad = read_from(&mut h);
        h.devices.hanging.push(bad);
        h.begin(Op::Read, 0, BLOCK as u64);
        let taken = h.take_memory();
        h.wait(DeviceSettings::DEADLINE);
        assert!(is_lost(&h, bad.0) && h.answer().is_none());
        if comes {
            h.give(taken);
            h.wait(Nanos::millis(20));
            assert!(h.answer().expect("a reply").1.is_ok());
        } else {
            h.wait(DeviceSettings::DEADLINE);
            let error = h.answer().expect("a reply").1.expect_err("no memory");
            assert!(matches!(error, RequestError::Io { device, .. } if device == bad));
        }
    }
}
