//! Narrowing of shared blocks to one place, and the commits that it waits for.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::pool::{self, Shape};
use support::store::MemStore;
use support::twin::State;
use weir_map::{CopyOutcome, Epoch, ExtentState, Hardening, Location, Map, Needs, Whole};
use weir_model::{BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, PlaceId, PlaceKind};

const FAST: DeviceId = DeviceId(0);
const SLOW: DeviceId = DeviceId(1);
const ALL: BlockRange = BlockRange { first: 0, count: 16 };
const HOME: PlaceId = PlaceId { device: SLOW, kind: PlaceKind::Whole };

fn needs(device: DeviceId, epoch: u64) -> Option<Needs> {
    Some(Needs { device, epoch: Epoch(epoch) })
}

/// Commits the changes that need no flush, and those that a flush of the slow device makes durable.
fn commit(map: &mut Map, slow: Option<Epoch>) -> usize {
    map.begin_commit();
    let (mut frame, mut released) = (Vec::new(), Vec::new());
    while map.next_frame(|d| if d == SLOW { slow } else { None }, &mut frame).is_some() {}
    map.finish_commit(&mut released);
    released.len()
}

/// Returns the places of the durable map, each with its valid blocks.
fn durable(map: &Map, key: ExtentKey) -> Vec<(PlaceId, Vec<u16>)> {
    let state = State::of(map);
    state.extents[&key].places.iter().map(|p| (p.id, p.blocks.keys().copied().collect())).collect()
}

/// Creates a map with an extent that is durable in a place on the fast device, and space for it on the slow
/// one.
fn map() -> (Map, ExtentKey, Whole, Whole) {
    let shape = Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 };
    let sizes = pool::superblocks_of(shape, &[50, 50]);
    let mut store = MemStore::new(sizes.len());
    pool::create(&mut store, &sizes).unwrap();
    let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
    let volume = map.create_volume("volume", Bytes::mib(1), Hardening::Flush, 1);
    commit(&mut map, None);
    let key = ExtentKey { volume, index: ExtentIndex(0) };
    let fast = map.allocate(FAST).unwrap();
    map.attach_place(key, fast);
    map.mark_written(key, fast, ALL, None);
    commit(&mut map, None);
    let slow = map.allocate(SLOW).unwrap();
    (map, key, fast, slow)
}

/// Moves one half after the other home, as the mover does: a state with the first half in both places comes
/// before.
fn move_home(map: &mut Map, key: ExtentKey, fast: Whole, slow: Whole) {
    let halves = [BlockRange { first: 0, count: 8 }, BlockRange { first: 8, count: 8 }];
    for (half, source) in halves.into_iter().zip([None, needs(FAST, 3)]) {
        assert_eq!(map.add_copy(key, slow, half, source, needs(SLOW, 7)), CopyOutcome::Added);
    }
    assert!(map.drop_copy(key, Location::from(fast).id(), ALL));
    map.release_empty_places(key);
    assert!(matches!(map.find(key), ExtentState::Direct(whole) if whole == slow));
}

#[test]
fn returned_data_is_written_at_home() {
    let (mut map, key, fast, slow) = map();
    move_home(&mut map, key, fast, slow);
    let first = BlockRange { first: 0, count: 1 };
    assert!(!map.may_overwrite(key, HOME, first), "a state on the way has it in both places");
    map.invalidate_others(key, HOME, first);
    assert!(map.may_overwrite(key, HOME, ALL));
    assert_eq!(commit(&mut map, None), 0, "nothing of it can be durable before the flush");
    assert_eq!(durable(&map, key), [(Location::from(fast).id(), (0..16).collect())]);
}

#[test]
fn failed_flush_restores_previous_place() {
    let (mut map, key, fast, slow) = map();
    move_home(&mut map, key, fast, slow);
    map.invalidate_others(key, HOME, ALL);
    assert_eq!(map.withdraw(SLOW, Some(Epoch(6))), [key]);
    map.release_empty_places(key);
    assert!(matches!(map.find(key), ExtentState::Direct(whole) if whole == fast), "{:?}", map.find(key));
    assert_eq!(commit(&mut map, None), 0, "what needs the fast device's flush still waits for it");
    map.begin_commit();
    let (mut frame, mut released) = (Vec::new(), Vec::new());
    while map.next_frame(|_| Some(Epoch(9)), &mut frame).is_some() {}
    map.finish_commit(&mut released);
    assert_eq!(released, [weir_map::Chunk::Whole(slow)]);
    assert_eq!(durable(&map, key), [(Location::from(fast).id(), (0..16).collect())]);
}

#[test]
fn commit_without_flush_leaves_one_place() {
    let (mut map, key, _, slow) = map();
    let half = BlockRange { first: 0, count: 8 };
    assert_eq!(map.add_copy(key, slow, half, None, None), CopyOutcome::Added);
    commit(&mut map, None);
    let rest = BlockRange { first: 8, count: 8 };
    assert_eq!(map.add_copy(key, slow, rest, None, needs(SLOW, 7)), CopyOutcome::Added);
    let first = BlockRange { first: 0, count: 1 };
    let fast = PlaceId { device: FAST, kind: PlaceKind::Whole };
    map.invalidate_others(key, fast, first);
    assert!(!map.may_overwrite(key, fast, first), "what is durable has it in both places");
    assert_eq!(map.needs(key).count(), 0, "the next change needs no flush");
    commit(&mut map, None);
    assert!(map.may_overwrite(key, fast, first));
    assert!(map.has_pending(key), "the other half waits for its flush");
    commit(&mut map, Some(Epoch(7)));
    let both = durable(&map, key);
    assert!(both.contains(&(HOME, (1..16).collect())), "{both:?}");
    assert!(both.contains(&(fast, (0..16).collect())), "{both:?}");
}
