//! A pool with mirrored metadata, one of its members left behind, as version 1 wrote it: it opens for as long
//! as version 1 is read. `golden/v1-mirror.image.txt` has the pages (rows of 32 bytes that are not all
//! zeros); `cargo test -p weir-map --test golden_mirror -- --ignored` writes it when the version rises.

mod support;

use support::image::{image_of, store_of};
use support::pool::{POOL, Shape, superblocks};
use support::store::MemStore;
use support::twin::key;
use weir_map::create::{create_with_layout, read_superblock, write_superblock};
use weir_map::superblock::JOURNAL_AT;
use weir_map::{Hardening, Map, MapError, OpenOptions, PAGE, Recovery, Superblock};
use weir_model::{
    BlockRange, Bytes, DeviceId, DeviceOffset, DeviceSet, ExtentIndex, Planted, Store, VolumeId,
};

const IMAGE: &str = include_str!("golden/v1-mirror.image.txt");
const SHAPE: Shape = Shape { extent_log2: 17, journal_pages: 16, meta_pages: 200 };
const MEMBERS: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];

/// Returns superblocks with the metadata on both devices.
fn mirrored() -> Vec<Superblock> {
    let mut superblocks = superblocks(SHAPE);
    let data_at = (JOURNAL_AT.0 + (SHAPE.journal_pages + SHAPE.meta_pages) * PAGE as u64)
        .next_multiple_of(1 << SHAPE.extent_log2);
    for sb in &mut superblocks {
        (sb.journal_pages, sb.meta_pages) = (SHAPE.journal_pages, SHAPE.meta_pages);
        sb.data_at = DeviceOffset(data_at);
        sb.size = Bytes(data_at + (u64::from(sb.data_extents) << SHAPE.extent_log2) + PAGE as u64);
        sb.members = MEMBERS.into_iter().collect();
    }
    superblocks
}

fn only(device: DeviceId) -> DeviceSet {
    [device].into_iter().collect()
}

fn open(store: &mut MemStore, absent: DeviceSet, options: &OpenOptions) -> Result<(Map, Recovery), MapError> {
    let mut found = Vec::new();
    for sb in mirrored().iter().filter(|sb| !absent.contains(sb.device)) {
        found.extend(read_superblock(store, sb.device, sb.size)?);
    }
    let options = OpenOptions { planted: Planted::for_tests(), ..*options };
    weir_map::open(store, &found, &options)
}

/// Makes one change on both members, and one after the second was left behind.
fn sample() -> MemStore {
    let mut store = MemStore::new(2);
    create_with_layout(&mut store, &mirrored()).expect("nothing fails here");
    let (mut map, _) = open(&mut store, DeviceSet::default(), &OpenOptions::default()).expect("a new pool");
    let volume = map.create_volume("mirrored", Bytes(40 << SHAPE.extent_log2), Hardening::Flush, 1);
    commit(&mut map, &mut store);
    for index in 0..2 {
        let whole = map.allocate(DeviceId(index as u8)).expect("there is space");
        map.attach_place(key(volume, index), whole);
        map.mark_written(key(volume, index), whole, BlockRange { first: 0, count: 32 }, None);
        commit(&mut map, &mut store);
        if index == 0 {
            assert!(map.leave_behind(MEMBERS[1]));
            write_superblock(&mut store, &map.devices()[0]).expect("nothing fails here");
        }
    }
    store
}

fn commit(map: &mut Map, store: &mut MemStore) {
    let mut bytes = Vec::new();
    map.begin_commit();
    while let Some(at) = map.next_frame(|_| None, &mut bytes) {
        for member in map.members() {
            store.write(*member, at, &bytes).expect("nothing fails here");
            store.flush(*member).expect("nothing fails here");
        }
    }
    map.finish_commit(&mut Vec::new());
}

fn extents(map: &Map) -> Vec<ExtentIndex> {
    let mut found = Vec::new();
    map.for_each(VolumeId(0), |index, _| found.push(index));
    found
}

#[test]
fn version_1_mirrored_pool_opens() {
    let both = [ExtentIndex(0), ExtentIndex(1)];
    let plain = OpenOptions::default();
    // With both members, the one left behind is rewritten, and then suffices by itself.
    let mut store = store_of(IMAGE);
    let (map, recovery) = open(&mut store, DeviceSet::default(), &plain).expect("version 1 is read");
    assert_eq!((map.pool(), extents(&map), recovery.synchronized), (POOL, both.to_vec(), only(MEMBERS[1])));
    let accepted = OpenOptions { accept_rollback: true, ..plain };
    let (map, _) = open(&mut store, only(MEMBERS[0]), &accepted).expect("the second has all of it");
    assert_eq!((extents(&map), map.members()), (both.to_vec(), &MEMBERS[1..]));

    // The member recorded as missing may be absent.
    let (map, recovery) = open(&mut store_of(IMAGE), only(MEMBERS[1]), &plain).expect("it is on record");
    assert_eq!((extents(&map), recovery.left_behind), (both.to_vec(), only(MEMBERS[1])));

    // The one left behind does not know that it was; by itself it is older, and is not accepted silently.
    let mut store = store_of(IMAGE);
    let error = open(&mut store, only(MEMBERS[0]), &plain).expect_err("it might be older");
    assert!(matches!(error, MapError::MirrorAbsent { device } if device == MEMBERS[0]), "{error}");
    let (map, _) = open(&mut store, only(MEMBERS[0]), &accepted).expect("it was accepted");
    assert_eq!(extents(&map), both[..1]);
    // Both together then have different histories.
    let error = open(&mut store, DeviceSet::default(), &plain).expect_err("they contradict each other");
    assert!(matches!(error, MapError::Diverged { .. }), "{error}");
}

#[test]
#[ignore = "writes the image anew: only when the version rises"]
#[allow(clippy::disallowed_methods, reason = "the one place that writes the image")]
fn write_image() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1-mirror.image.txt");
    std::fs::write(path, image_of(&sample())).expect("the folder is there");
}
