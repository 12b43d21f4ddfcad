//! Tests of the effect of each fault.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use weir_map::superblock::ROOT_AT;
use weir_model::{
    Bytes, DeviceId, DeviceOffset, Errno, Io, IoCompletion, IoError, IoId, IoKind, Memory, Nanos, Store,
};
use weir_world::{DeviceSpec, Fault, Kinds, Pace, Seed, StopKind, Storage, UnknownModel, World};

const DISK: DeviceId = DeviceId(0);
const NONE: Kinds = Kinds { reads: false, writes: false, flushes: false };
const EVERYWHERE: std::ops::Range<DeviceOffset> = DeviceOffset(0)..DeviceOffset(u64::MAX);

fn world(faults: Vec<Fault>) -> World {
    let pace = Pace::Random(Nanos::millis(1));
    let disk = DeviceSpec { size: Bytes::mib(1), pace, write_cache: true, sector: 512, faults };
    World::new(Seed(1), Bytes::mib(1), &[disk]).unwrap()
}

fn start(world: &mut World, id: u64, kind: IoKind) {
    let buffer = match kind {
        IoKind::Flush => weir_model::Buffer::EMPTY,
        _ => world.memory.take(Bytes(4096)).unwrap(),
    };
    world.start(Io { id: IoId(id), device: DISK, kind, at: DeviceOffset(0), buffer });
}

fn finish(world: &mut World) -> Vec<IoCompletion> {
    let mut done = Vec::new();
    while let Some(at) = world.next_event() {
        world.advance(at, &mut done);
    }
    done
}

#[test]
fn errors_follow_kind_range_and_count() {
    let kinds = Kinds { writes: true, ..NONE };
    let range = DeviceOffset(8192)..DeviceOffset(16384);
    let mut world = world(vec![Fault::Errors { kinds, range, chance: 1.0, times: 2, error: Errno::EIO }]);
    let page = [7; 4096];
    assert_eq!(world.write(DISK, DeviceOffset(4096), &page), Ok(()));
    assert_eq!(world.write(DISK, DeviceOffset(8192), &page), Err(IoError::Os(Errno::EIO)));
    assert_eq!(world.read(DISK, DeviceOffset(8192), &mut [0; 4096]), Ok(()));
    assert_eq!(world.write(DISK, DeviceOffset(4096), &[7; 8192]), Err(IoError::Os(Errno::EIO)));
    assert_eq!(world.write(DISK, DeviceOffset(8192), &page), Ok(()));
}

#[test]
fn failed_write_is_carried_out_in_part_or_not_at_all() {
    let kinds = Kinds { writes: true, ..NONE };
    let fault = Fault::Errors { kinds, range: EVERYWHERE, chance: 1.0, times: 200, error: Errno::EIO };
    let mut world = world(vec![fault]);
    let mut counts = [0; 9];
    for number in 0..200 {
        let (at, mut page) = (DeviceOffset(4096 * number), [7; 4096]);
        assert!(world.write(DISK, at, &page).is_err());
        world.read(DISK, at, &mut page).unwrap();
        let written = page.iter().take_while(|byte| **byte == 7).count();
        assert!(written % 512 == 0 && page[written..].iter().all(|byte| *byte == 0), "the first sectors");
        counts[written / 512] += 1;
    }
    assert!(counts.iter().all(|count| *count > 0), "none, some and all: {counts:?}");
}

#[test]
fn a_fault_that_is_over_cannot_strike_again() {
    let kinds = Kinds { writes: true, ..NONE };
    let errors = |times| Fault::Errors { kinds, range: EVERYWHERE, chance: 1.0, times, error: Errno::EIO };
    let mut world = world(vec![errors(1), Fault::Hang { during: Nanos::secs(1)..Nanos::secs(2) }]);
    assert!(world.write(DISK, DeviceOffset(0), &[7; 4096]).is_err());
    assert!(world.may_fail(), "the hang is not over");
    world.advance(Nanos::secs(2), &mut Vec::new());
    assert!(!world.may_fail());
    world.break_device(DISK, errors(u64::MAX));
    world.break_device(DISK, errors(0));
    assert!(world.may_fail(), "each fault counts");
    world.repair_devices();
    assert!(!world.may_fail());
    world.break_device(DISK, Fault::Vanish { at: Nanos::secs(9) });
    assert!(world.may_fail(), "it will vanish");
}

#[test]
fn later_flush_does_not_recover_failed_one() {
    let kinds = Kinds { flushes: true, ..NONE };
    let mut lost = false;
    for _ in 0..20 {
        let fault = Fault::Errors { kinds, range: EVERYWHERE, chance: 1.0, times: 1, error: Errno::EIO };
        let mut world = world(vec![fault]);
        let mut page = [7; 4096];
        world.write(DISK, DeviceOffset(0), &page).unwrap();
        assert_eq!(world.flush(DISK), Err(IoError::Os(Errno::EIO)));
        assert_eq!(world.flush(DISK), Ok(()));
        world.read(DISK, DeviceOffset(0), &mut page).unwrap();
        assert_eq!(page, [7; 4096], "still in the cache");
        world.storage(DISK).unwrap().read_durable(DeviceOffset(0), &mut page);
        lost |= page == [0; 4096];
    }
    assert!(lost);
}

#[test]
fn full_device_accepts_only_overwrites() {
    let mut world = world(vec![Fault::Full { space: Bytes(8192) }]);
    assert_eq!(world.write(DISK, DeviceOffset(65536), &[1; 8192]), Ok(()));
    assert_eq!(world.write(DISK, DeviceOffset(0), &[1; 4096]), Err(IoError::Os(Errno::ENOSPC)));
    assert_eq!(world.write(DISK, DeviceOffset(65536), &[2; 4096]), Ok(()));
}

#[test]
fn slow_device_multiplies_service_time() {
    let times = [1, 100].map(|factor| {
        let mut world = world(vec![Fault::Slow { factor, during: Nanos(0)..Nanos::MAX }]);
        start(&mut world, 1, IoKind::Read);
        finish(&mut world);
        world.now()
    });
    assert_eq!(times[1], Nanos(times[0].0 * 100));
}

#[test]
fn hung_device_completes_late_or_never() {
    let mut world = world(vec![Fault::Hang { during: Nanos(0)..Nanos::secs(5) }]);
    start(&mut world, 1, IoKind::Read);
    assert_eq!(finish(&mut world).len(), 1);
    assert_eq!(world.now(), Nanos::secs(5));
    world.break_device(DISK, Fault::Hang { during: Nanos(0)..Nanos::MAX });
    start(&mut world, 2, IoKind::Read);
    assert!(finish(&mut world).is_empty());
    assert_eq!(world.flush(DISK), Err(IoError::Lost));
}

#[test]
fn vanished_device_fails_with_lost() {
    let mut world = world(vec![]);
    start(&mut world, 1, IoKind::Write { fua: false });
    world.break_device(DISK, Fault::Vanish { at: Nanos(0) });
    start(&mut world, 2, IoKind::Flush);
    let done = finish(&mut world);
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|done| done.result == Err(IoError::Lost)));
}

#[test]
fn power_fails_at_requested_write() {
    let mut world = world(vec![]);
    let page = [7; 4096];
    world.stop_at_store_write(Some(2), StopKind::PowerLoss);
    assert_eq!(world.write(DISK, DeviceOffset(0), &page), Ok(()));
    assert_eq!(world.write(DISK, DeviceOffset(4096), &page), Err(IoError::Lost));
    assert!(world.has_stopped());
    assert_eq!(world.read(DISK, DeviceOffset(0), &mut [0; 4096]), Err(IoError::Lost));
    world.stop(StopKind::PowerLoss);
    assert_eq!(world.read(DISK, DeviceOffset(0), &mut [0; 4096]), Ok(()));
}

#[test]
fn in_flight_commands_never_complete_after_power_loss() {
    let mut world = world(vec![]);
    start(&mut world, 1, IoKind::Flush);
    world.stop(StopKind::PowerLoss);
    assert!(finish(&mut world).is_empty());
    start(&mut world, 1, IoKind::Flush);
    assert_eq!(finish(&mut world).len(), 1, "the same id again is another command");
}

#[test]
fn an_unknown_model_is_named() {
    let disk = DeviceSpec {
        size: Bytes(4096),
        pace: Pace::Model("tape".to_owned()),
        write_cache: true,
        sector: 512,
        faults: vec![],
    };
    let error = World::new(Seed(1), Bytes::mib(1), &[disk]).err();
    assert_eq!(error, Some(UnknownModel("tape".to_owned())));
}

#[test]
fn misdirected_writes_are_acknowledged() {
    for shift in [None, Some(Bytes(8192))] {
        let mut world = world(vec![Fault::Misdirect { range: EVERYWHERE, shift, chance: 1.0, times: 1 }]);
        assert_eq!(world.write(DISK, DeviceOffset(4096), &[7; 4096]), Ok(()));
        let mut at = |offset| {
            let mut page = [0; 4096];
            world.read(DISK, DeviceOffset(offset), &mut page).unwrap();
            page
        };
        assert_eq!(at(4096), [0; 4096]);
        assert_eq!(at(12288), [if shift.is_some() { 7 } else { 0 }; 4096]);
        assert_eq!(world.write(DISK, DeviceOffset(4096), &[7; 4096]), Ok(()));
        assert_eq!(world.take_faults().len(), 1);
        // The sectors that it overwrote are damaged; its target has been written since.
        let storage = world.storage(DISK).unwrap();
        assert_eq!(storage.is_damaged(EVERYWHERE), shift.is_some());
        assert!(!storage.is_damaged(DeviceOffset(4096)..DeviceOffset(8192)));
    }
}

#[test]
fn lost_write_damage_follows_its_bytes() {
    let fault = Fault::Misdirect { range: EVERYWHERE, shift: None, chance: 1.0, times: 1 };
    let mut world = world(vec![fault]);
    start(&mut world, 1, IoKind::Write { fua: true });
    finish(&mut world);
    world.stop(StopKind::PowerLoss);
    let buffer = world.memory.take(Bytes(4096)).unwrap();
    for (id, kind, at) in [(2, IoKind::Read, 0), (3, IoKind::Write { fua: false }, 65536)] {
        world.start(Io { id: IoId(id), device: DISK, kind, at: DeviceOffset(at), buffer });
        finish(&mut world);
    }
    assert_eq!(world.memory.damaged_sectors(buffer).len(), 8);
    let copy = world.storage(DISK).unwrap().damaged_sectors(DeviceOffset(65536), Bytes(8192));
    assert_eq!(copy.len(), 8);
    world.memory.bytes_mut(buffer.part(0, 512)).fill(1);
    assert_eq!(world.memory.damaged_sectors(buffer).len(), 7);
}

#[test]
fn flipped_bit_can_be_restored() {
    let mut world = world(vec![]);
    world.write(DISK, DeviceOffset(4096), &[7; 4096]).unwrap();
    let storage = world.storage(DISK).unwrap();
    assert_eq!(storage.written_pages(EVERYWHERE), [DeviceOffset(4096)]);
    let first = |storage: &Storage| {
        let mut byte = [0];
        storage.read(DeviceOffset(5000), &mut byte);
        byte[0]
    };
    storage.rot(DeviceOffset(5000), 16);
    assert_eq!(first(storage), 7 ^ 16);
    assert!(storage.is_damaged(EVERYWHERE));
    storage.restore_bits(DeviceOffset(5000), 16);
    assert_eq!(first(storage), 7);
    assert!(!storage.is_damaged(EVERYWHERE));
}

#[test]
fn repaired_devices_have_no_faults() {
    let mut world = world(vec![Fault::Vanish { at: Nanos(0) }]);
    assert_eq!(world.write(DISK, DeviceOffset(0), &[7; 4096]), Err(IoError::Lost));
    world.repair_devices();
    assert_eq!(world.write(DISK, DeviceOffset(0), &[7; 4096]), Ok(()));
}

/// A member that has lost both roots could not be told from an older file of itself.
#[test]
fn one_of_two_roots_is_written() {
    let mut world = world(vec![Fault::Misdirect { range: EVERYWHERE, shift: None, chance: 1.0, times: 3 }]);
    let [first, second] = ROOT_AT;
    for (at, is_lost) in [(first, true), (second, false), (first, true), (second, false)] {
        assert_eq!(world.write(DISK, at, &[7; 4096]), Ok(()));
        assert_eq!(world.storage(DISK).unwrap().is_damaged(at..at + Bytes(4096)), is_lost, "{at}");
    }
}
