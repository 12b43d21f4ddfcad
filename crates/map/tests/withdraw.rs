//! A place is released and replaced by another before anything of it is durable: the state that returns when
//! a device loses its writes.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::pool::{self, Shape};
use support::store::MemStore;
use weir_map::{CopyOutcome, Epoch, ExtentState, Hardening, Location, Map, Needs, SpaceReservation, Whole};
use weir_model::{BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, PlaceId, PlaceKind};

const FIRST: DeviceId = DeviceId(0);
const SECOND: DeviceId = DeviceId(1);
const THIRD: DeviceId = DeviceId(2);
const ALL: BlockRange = BlockRange { first: 0, count: 16 };

const fn block(first: u16) -> BlockRange {
    BlockRange { first, count: 1 }
}

fn needs(device: DeviceId) -> Option<Needs> {
    Some(Needs { device, epoch: Epoch(7) })
}

/// Commits without the writes to devices that were not flushed.
fn commit(map: &mut Map) -> Vec<weir_map::Chunk> {
    commit_flushed(map, None)
}

fn commit_flushed(map: &mut Map, flushed: Option<Epoch>) -> Vec<weir_map::Chunk> {
    map.begin_commit();
    let (mut frame, mut released) = (Vec::new(), Vec::new());
    while map.next_frame(|_| flushed, &mut frame).is_some() {}
    map.finish_commit(&mut released);
    released
}

/// Creates a map with an extent whose blocks 0 and 1 are durable, in a place on the first device.
fn map() -> (Map, ExtentKey, Whole) {
    let shape = Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 };
    let sizes = pool::superblocks_of(shape, &[50, 50, 50]);
    let mut store = MemStore::new(sizes.len());
    pool::create(&mut store, &sizes).unwrap();
    let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
    let volume = map.create_volume("volume", Bytes::mib(1), Hardening::Flush, 1);
    commit(&mut map);
    let key = ExtentKey { volume, index: ExtentIndex(0) };
    let whole = map.allocate(FIRST).unwrap();
    map.attach_place(key, whole);
    map.mark_written(key, whole, BlockRange { first: 0, count: 2 }, None);
    commit(&mut map);
    (map, key, whole)
}

/// Returns the whole places, each with its valid blocks.
fn wholes(map: &Map, key: ExtentKey) -> Vec<(Whole, Vec<u16>)> {
    let ExtentState::Record(record) = map.find(key) else { return Vec::new() };
    let place = |place: &weir_map::Place| match place.at {
        Location::Whole(whole) => Some((whole, place.valid.iter().collect())),
        Location::Fine { .. } => None,
    };
    record.places.iter().filter_map(place).collect()
}

fn trim(map: &mut Map, key: ExtentKey) {
    map.clear_blocks(key, ALL, SpaceReservation::Unchanged);
    map.release_empty_places(key);
    assert!(matches!(map.find(key), ExtentState::Empty));
}

#[test]
fn place_may_replace_unrestorable_one() {
    let (mut map, key, old) = map();
    map.mark_written(key, old, block(2), needs(FIRST));
    trim(&mut map, key);
    assert!(map.may_attach_place(key), "both are on the device that may lose its writes");
    let new = map.allocate(FIRST).unwrap();
    map.attach_place(key, new);
    map.mark_written(key, new, block(0), needs(FIRST));
    assert_eq!(map.withdraw(FIRST, None), [key]);
    // The block written last falls back on the durable state; the trim of the other one stays.
    assert_eq!(wholes(&map, key), [(old, vec![0])]);
    let released = commit(&mut map);
    assert_eq!(released, [weir_map::Chunk::Whole(new)], "the old place is needed again");
    assert_eq!(map.pending_release_count(), 0);
}

#[test]
fn undurable_version_place_may_return() {
    let (mut map, key, old) = map();
    map.mark_written(key, old, block(5), needs(FIRST));
    let new = map.allocate(SECOND).unwrap();
    map.attach_place(key, new);
    map.mark_written(key, new, block(5), needs(SECOND));
    assert_eq!(wholes(&map, key), [(old, vec![0, 1]), (new, vec![5])]);
    let returns = |map: &Map| map.may_become_valid_again(key, Location::from(old).id(), block(5));
    assert!(returns(&map), "nothing may be written there");
    map.withdraw(SECOND, None);
    assert_eq!(wholes(&map, key)[0], (old, vec![0, 1, 5]), "or it would be here");
}

#[test]
fn place_waits_for_restorable_twin() {
    let (mut map, key, old) = map();
    // Block 0 goes to slots of another device; the place loses its other blocks, and is released.
    let slots = map.allocate_slots(SECOND, 1).unwrap();
    map.mark_written(key, slots, block(0), needs(SECOND));
    map.clear_blocks(key, block(1), SpaceReservation::Unchanged);
    map.release_empty_places(key);
    assert_eq!(wholes(&map, key), []);
    assert!(!map.may_attach_place(key), "the second device's loss would bring back the first one's place");
    assert_eq!(map.withdraw(SECOND, None), [key]);
    assert_eq!(wholes(&map, key), [(old, vec![0])]);
    // The same, but the slots become durable.
    let slots = map.allocate_slots(SECOND, 1).unwrap();
    map.mark_written(key, slots, block(0), needs(SECOND));
    map.release_empty_places(key);
    assert!(!map.may_attach_place(key));
    commit_flushed(&mut map, Some(Epoch(7)));
    assert!(map.may_attach_place(key), "nothing brings it back any more");
    let ExtentState::Record(record) = map.find(key) else { panic!("it has a place") };
    assert_eq!(record.places.iter().map(|p| p.at.id().kind).collect::<Vec<_>>(), [PlaceKind::Fine]);
}

#[test]
fn restorable_place_keeps_its_space() {
    let (mut map, key, old) = map();
    for (device, number) in [(FIRST, 1), (SECOND, 2), (THIRD, 3)] {
        let slots = map.allocate_slots(device, 1).unwrap();
        map.mark_written(key, slots, block(number), None);
    }
    commit(&mut map);
    let second = PlaceId { device: SECOND, kind: PlaceKind::Whole };
    assert!(!map.may_add_place(key, second), "it has four places");
    // The remaining block of the whole place goes to a device that may lose it; the place is released.
    let slots = map.allocate_slots(THIRD, 1).unwrap();
    map.mark_written(key, slots, block(0), needs(THIRD));
    map.release_empty_places(key);
    assert_eq!(wholes(&map, key), []);
    assert!(!map.may_add_place(key, second), "there would be five if the first one came back");
    assert!(!map.may_attach_place(key));
    assert_eq!(map.withdraw(THIRD, None), [key]);
    assert_eq!(wholes(&map, key), [(old, vec![0])]);
    let ExtentState::Record(record) = map.find(key) else { panic!("it has several places") };
    assert_eq!(record.places.len(), weir_map::PLACES_MAX);
}

const WHOLE: PlaceId = PlaceId { device: FIRST, kind: PlaceKind::Whole };

/// Moves a block to slots of the second device.
fn move_away(map: &mut Map, key: ExtentKey, range: BlockRange) {
    let slots = map.allocate_slots(SECOND, range.count).unwrap();
    assert_eq!(map.add_copy(key, slots, range, needs(FIRST), needs(SECOND)), CopyOutcome::Added);
    assert!(map.drop_copy(key, WHOLE, range));
}

#[test]
fn lost_move_falls_back_to_source() {
    let (mut map, key, old) = map();
    // The first write to the device that loses everything precedes the one that is moved there.
    let slots = map.allocate_slots(SECOND, 1).unwrap();
    map.mark_written(key, slots, block(5), needs(SECOND));
    map.mark_written(key, old, block(7), needs(FIRST));
    move_away(&mut map, key, block(7));
    assert_eq!(wholes(&map, key), [(old, vec![0, 1])]);
    assert_eq!(map.withdraw(SECOND, None), [key]);
    assert_eq!(wholes(&map, key), [(old, vec![0, 1, 7])]);
    let slots = commit_flushed(&mut map, Some(Epoch(7)));
    assert_eq!((slots.len(), map.pending_release_count()), (2, 0), "one each for what was written and moved");
    assert_eq!(wholes(&map, key), [(old, vec![0, 1, 7])]);
}

#[test]
fn lost_durable_move_falls_back() {
    let (mut map, key, old) = map();
    // Block 7 is durable when it is written, but the change waits for that of block 5, which is not; and its
    // copy waits for the same flush.
    let slots = map.allocate_slots(SECOND, 1).unwrap();
    map.mark_written(key, slots, block(5), needs(SECOND));
    map.mark_written(key, old, block(7), None);
    for moved in [7, 0] {
        let slots = map.allocate_slots(SECOND, 1).unwrap();
        assert_eq!(map.add_copy(key, slots, block(moved), None, needs(SECOND)), CopyOutcome::Added);
        assert!(map.drop_copy(key, WHOLE, block(moved)));
    }
    assert_eq!(wholes(&map, key), [(old, vec![1])]);
    assert_eq!(map.withdraw(SECOND, None), [key]);
    assert_eq!(wholes(&map, key), [(old, vec![0, 1, 7])]);
    let slots = commit(&mut map);
    assert_eq!((slots.len(), map.pending_release_count()), (3, 0), "one each for what was written and moved");
    assert_eq!(wholes(&map, key), [(old, vec![0, 1, 7])]);
}

#[test]
fn lost_copy_restores_first_place() {
    let (mut map, key, _) = map();
    let key = ExtentKey { index: ExtentIndex(1), ..key };
    let whole = map.allocate(FIRST).unwrap();
    map.attach_place(key, whole);
    let slots = map.allocate_slots(SECOND, 1).unwrap();
    map.mark_written(key, slots, block(3), needs(SECOND));
    map.mark_written(key, whole, block(6), None);
    let copy = map.allocate(SECOND).unwrap();
    assert_eq!(map.add_copy(key, copy, block(6), None, needs(SECOND)), CopyOutcome::Added);
    assert!(map.drop_copy(key, WHOLE, block(6)));
    map.release_empty_places(key);
    assert_eq!(wholes(&map, key), [(copy, vec![6])]);
    assert_eq!(map.withdraw(SECOND, None), [key]);
    map.release_empty_places(key);
    assert_eq!(wholes(&map, key), [(whole, vec![6])]);
    let released = commit(&mut map);
    assert!(released.contains(&weir_map::Chunk::Whole(copy)) && released.len() == 2, "{released:?}");
    assert_eq!(map.pending_release_count(), 0);
}

#[test]
fn temporarily_restored_place_is_released() {
    let (mut map, key, old) = map();
    move_away(&mut map, key, BlockRange { first: 0, count: 2 });
    map.release_empty_places(key);
    let slots = map.allocate_slots(FIRST, 1).unwrap();
    map.mark_written(key, slots, block(9), needs(FIRST));
    map.clear_blocks(key, BlockRange { first: 0, count: 2 }, SpaceReservation::Unchanged);
    assert_eq!(map.withdraw(SECOND, None), [key]);
    let released = commit_flushed(&mut map, Some(Epoch(7)));
    assert!(released.contains(&weir_map::Chunk::Whole(old)) && released.len() == 3, "{released:?}");
    assert_eq!((wholes(&map, key), map.pending_release_count()), (vec![], 0));
}

#[test]
fn copy_is_withdrawable_until_durable() {
    let (mut map, key, _) = map();
    let copy = map.allocate(SECOND).unwrap();
    let unsure = |map: &Map, flushed| {
        map.withdrawable_blocks(key, SECOND, flushed)
            .map(|(blocks, epoch)| (blocks.iter().collect::<Vec<_>>(), epoch))
    };
    assert_eq!(unsure(&map, None), None);
    assert_eq!(map.add_copy(key, copy, block(1), needs(FIRST), needs(SECOND)), CopyOutcome::Added);
    assert!(map.drop_copy(key, WHOLE, block(1)));
    assert_eq!(unsure(&map, None), Some((vec![1], Epoch(7))));
    assert_eq!(unsure(&map, Some(Epoch(7))), None, "it is durable");
    // The block moves away, and back to the very same slot, which may contain the old data.
    commit_flushed(&mut map, Some(Epoch(7)));
    let later = |device, epoch| Some(Needs { device, epoch: Epoch(epoch) });
    let slots = map.allocate_slots(FIRST, 1).unwrap();
    map.mark_written(key, slots, block(1), later(FIRST, 8));
    assert_eq!(map.add_copy(key, copy, block(1), later(FIRST, 8), later(SECOND, 9)), CopyOutcome::Added);
    assert_eq!(unsure(&map, Some(Epoch(7))), Some((vec![1], Epoch(9))));
}

#[test]
fn failed_flush_reopens_write_intent() {
    let (mut map, key, _) = map();
    let second = map.allocate(SECOND).unwrap();
    let both = BlockRange { first: 0, count: 2 };
    assert_eq!(map.add_copy(key, second, both, None, None), CopyOutcome::Added);
    map.open_intent(key, block(0));
    commit(&mut map);
    map.close_intent(key, ALL, [needs(FIRST), needs(SECOND)]);
    assert_eq!(map.withdraw(FIRST, None), [key]);
    // The other device's flush succeeds.
    commit_flushed(&mut map, Some(Epoch(7)));
    assert!(!map.has_pending(key));
    let ExtentState::Record(record) = map.find(key) else { panic!("two places") };
    let intent = record.intent.clone().expect("they may still differ");
    assert_eq!(intent.iter().collect::<Vec<_>>(), [0], "the second block never did");
}

/// A block in doubt has an intent. It is rewritten elsewhere, and that device loses the write.
#[test]
fn block_back_in_its_only_place_keeps_its_intent() {
    let (mut map, key, old) = map();
    map.open_intent(key, block(0));
    commit(&mut map);
    let slots = map.allocate_slots(SECOND, 1).unwrap();
    map.mark_written(key, slots, block(0), needs(SECOND));
    map.close_intent(key, block(0), [needs(SECOND), None]);
    assert_eq!(map.withdraw(SECOND, None), [key]);
    commit(&mut map);
    assert_eq!(wholes(&map, key), [(old, vec![0, 1])]);
    let ExtentState::Record(record) = map.find(key) else { panic!("it has a place") };
    let intent = record.intent.clone().expect("the content of the old place may not be durable");
    assert_eq!(intent.iter().collect::<Vec<_>>(), [0]);
}

/// An extent gets no place on a device while the release of its place there can be withdrawn.
#[test]
fn place_waits_for_release_of_another_on_its_device() {
    let (mut map, key, _) = map();
    let copy = map.allocate(SECOND).unwrap();
    assert_eq!(map.add_copy(key, copy, block(0), None, None), CopyOutcome::Added);
    commit(&mut map);
    let second = PlaceId { device: SECOND, kind: PlaceKind::Whole };
    assert!(map.drop_copy(key, second, block(0)));
    map.release_empty_places(key);
    assert!(!map.may_add_place(key, second));
    assert_eq!(commit(&mut map), [weir_map::Chunk::Whole(copy)]);
    assert!(map.may_add_place(key, second));
}
