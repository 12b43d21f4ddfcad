//! Consequences of the sizes of a pool's devices, extents and metadata areas.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::pool::{self, META, Shape};
use support::store::MemStore;
use weir_map::{Hardening, NewDevice, OpenOptions, PAGE, Superblock};
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceOffset, Planted, Store};

const SHAPE: Shape = Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 };

/// Creates a pool of empty devices.
fn created(shape: Shape) -> (MemStore, Vec<Superblock>) {
    let sizes = pool::superblocks(shape);
    let mut store = MemStore::new(sizes.len());
    pool::create(&mut store, &sizes).unwrap();
    (store, sizes)
}

#[test]
fn slots_require_record_to_fit_frame() {
    // The longest frame is an eighth of the journal: one page of it, or four.
    for (journal_pages, expected) in [(8, false), (32, true)] {
        let (mut store, sizes) = created(Shape { extent_log2: 20, journal_pages, ..SHAPE });
        let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
        assert_eq!(map.has_fine_places(), expected, "{journal_pages} pages");
        assert_eq!(map.allocate_slots(DeviceId(1), 1).is_some(), expected, "{journal_pages} pages");
    }
}

#[test]
fn recovery_reads_expected_bytes() {
    let (mut store, sizes) = created(SHAPE);
    let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
    for volumes in 0..3 {
        if volumes > 0 {
            map.create_volume(&format!("volume {volumes}"), Bytes::mib(1), Hardening::Flush, 1);
            map.begin_commit();
            let mut frame = Vec::new();
            let at = map.next_frame(|_| None, &mut frame).unwrap();
            store.write(META, at, &frame).unwrap();
            map.finish_commit(&mut Vec::new());
        }
        let expected = map.expected_recovery();
        let options = OpenOptions { planted: Planted::for_tests(), ..OpenOptions::default() };
        let recovery;
        (map, recovery) = weir_map::open(&mut store, map.devices().to_vec().as_slice(), &options).unwrap();
        assert!(
            recovery.bytes_read <= expected.bytes_read,
            "{} of {}",
            recovery.bytes_read,
            expected.bytes_read
        );
        assert!(
            recovery.bytes_read.0 + 2 * PAGE as u64 >= expected.bytes_read.0,
            "{recovery:?} {expected:?}"
        );
        assert_eq!(expected.bytes_to_replay.0 > 0, volumes > 0);
    }
}

#[test]
fn larger_device_replaces_lost_one() {
    let (gone, size) = (DeviceId(1), Bytes::mib(64));
    let (mut store, sizes) = created(SHAPE);
    assert!(size > sizes[gone.index()].size);
    let new = NewDevice { name: "larger".into(), size, class: DeviceClass::Hdd };
    let options = OpenOptions { accept_rollback: true, ..OpenOptions::default() };
    let replaced = weir_map::replace(&mut store, &sizes[..1], gone, &new, &options).unwrap();
    assert_eq!((replaced.size, replaced.class), (size, DeviceClass::Hdd));
    let read = weir_map::create::read_superblock(&mut store, gone, size).unwrap().unwrap();
    assert_eq!(read, replaced);
    // The second copy is in the last page.
    let mut page = [0; PAGE];
    store.read(gone, DeviceOffset(size.0 - PAGE as u64), &mut page).unwrap();
    assert!(page[..] == replaced.encode()[..]);
}

/// Metadata pages of deleted records are free again, once no root reaches them.
#[test]
fn pages_of_dropped_records_are_freed() {
    let (mut store, sizes) = created(SHAPE);
    let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
    let commit = |map: &mut weir_map::Map, store: &mut MemStore| {
        map.begin_commit();
        let mut frame = Vec::new();
        while let Some(at) = map.next_frame(|_| None, &mut frame) {
            store.write(META, at, &frame).unwrap();
            map.finish_commit(&mut Vec::new());
        }
        map.finish_commit(&mut Vec::new());
        map.checkpoint_now(store).unwrap();
    };
    let volume = map.create_volume("v", Bytes::mib(1), Hardening::Flush, 1);
    commit(&mut map, &mut store);
    let key = weir_model::ExtentKey { volume, index: weir_model::ExtentIndex(0) };
    let mut free = Vec::new();
    for _ in 0..4 {
        let whole = map.allocate(DeviceId(1)).unwrap();
        map.attach_place(key, whole);
        // A partly valid extent needs a record.
        map.mark_written(key, whole, weir_model::BlockRange { first: 0, count: 1 }, None);
        commit(&mut map, &mut store);
        map.clear_blocks(
            key,
            weir_model::BlockRange { first: 0, count: map.extent().blocks() },
            weir_map::SpaceReservation::Release,
        );
        map.release_empty_places(key);
        (0..4).for_each(|_| commit(&mut map, &mut store));
        free.push(map.metadata_space().free);
    }
    assert!(free.iter().all(|pages| *pages == free[0]), "{free:?}");
}
