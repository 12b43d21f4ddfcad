//! Tests of the redo log.

use super::*;
use crate::nvm::{Granule, Simulated};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

const LOG_AT: u64 = 4096;
const LOG_BYTES: u64 = 8192;
const SIZE: u64 = 32 << 10;

fn open(memory: Simulated) -> Store<Simulated> {
    Store::open(memory, LOG_AT, LOG_BYTES, false).expect("a region")
}

/// Each commit sets every one of `places` to its number; after a power loss at any event all have the same.
fn commit_all_or_nothing(granule: Granule, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut places: Vec<u64> = (0..40).map(|_| random.random_range(2048..3900) * 8).collect();
    places.dedup();
    let mut memory = Simulated::new(SIZE, granule);
    memory.try_power_losses(seed, 8);
    let mut store = open(memory);
    let mut ends = Vec::new();
    for number in 1..=6_u64 {
        places.iter().for_each(|&at| store.stage(at, &number.to_le_bytes()));
        store.commit().expect("no failure");
        ends.push(store.memory.events());
    }
    let losses = store.memory.take_losses();
    assert!(losses.len() > 300, "{} power losses", losses.len());
    for (event, memory) in losses {
        let after = open(memory);
        let found: Vec<_> = places.iter().map(|&at| after.load_u64(at)).collect();
        let acknowledged = ends.iter().filter(|&&end| end <= event).count() as u64;
        assert!(
            found.iter().all(|&it| it == found[0]) && (acknowledged..=acknowledged + 1).contains(&found[0]),
            "seed {seed}, {granule:?}, event {event}: {acknowledged} commits acknowledged, found {found:?}"
        );
    }
}

#[test]
fn commits_are_atomic_at_every_event() {
    for seed in 1..4 {
        commit_all_or_nothing(Granule::Word, seed);
        commit_all_or_nothing(Granule::Sector, seed);
    }
}

#[test]
fn aborted_changes_are_gone() {
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    store.begin();
    store.stage(20_000, &[1; 100]);
    store.begin();
    store.stage(20_050, &[2; 100]);
    store.stage(20_060, &[3; 100]);
    store.abort();
    assert_eq!(store.bytes::<160>(20_000)[..], [[1; 100].as_slice(), &[0; 60]].concat());
    store.commit().expect("no failure");
    let mut out = [0; 160];
    store.memory.load(20_000, &mut out);
    assert_eq!(out[..], [[1; 100].as_slice(), &[0; 60]].concat());
}

/// A group may fill the whole log, but nothing beyond it.
#[test]
fn the_largest_group_survives() {
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    let lines = store.group_lines_max() as u64;
    let first = (LOG_AT + LOG_BYTES) / 64;
    store.memory.store(LOG_AT + LOG_BYTES, &[5]);
    (0..lines).for_each(|line| store.stage((first + 1 + line) * 64, &[7]));
    store.commit().expect("no failure");
    // Of what was written after the log, nothing survives.
    let after = open(store.memory.after_power_loss(|_| 0));
    assert!((0..lines).all(|line| after.bytes::<1>((first + 1 + line) * 64) == [7]));
    assert_eq!(store.bytes::<1>(LOG_AT + LOG_BYTES), [5]);
}

#[test]
fn a_failed_flush_ends_all_commits() {
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    store.stage(20_000, &[1]);
    store.memory.fail_fences();
    assert!(matches!(store.commit(), Err(Error::Io(_))));
    assert!(matches!(store.commit(), Err(Error::Failed)));
    assert!(store.has_failed());
}

#[test]
fn read_only_opening_sees_the_log_and_stores_nothing() {
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    store.stage(20_000, &[7; 64]);
    store.commit().expect("no failure");
    // All granules that the last commit wrote in place are lost.
    let after = store.memory.after_power_loss(|_| 0);
    let reader = Store::open(after, LOG_AT, LOG_BYTES, true).expect("a region");
    assert_eq!(reader.bytes::<64>(20_000), [7; 64]);
    assert_eq!(reader.memory.events(), 0);
}

#[test]
fn data_where_metadata_is_staged_is_refused() {
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    for line in 256..260 {
        store.stage(line * 64, &[1]);
    }
    for (at, len) in [(256 * 64, 1), (255 * 64, 65), (259 * 64 + 63, 1), (200 * 64, 100 * 64)] {
        assert!(matches!(store.store_data(at, &vec![7; len]), Err(Error::Damaged(_))), "{at} {len}");
        assert!(matches!(store.zero_data(at, len as u64), Err(Error::Damaged(_))), "{at} {len}");
    }
    store.store_data(255 * 64, &[7; 64]).expect("nothing is staged there");
    store.zero_data(260 * 64, 6400).expect("nothing is staged there");
    store.commit().expect("no failure");
    store.store_data(256 * 64, &[7; 64]).expect("nothing is staged any more");
}

/// An allocation counts as wear like a chunk of data, and ends what was counted before.
#[test]
fn wear_begins_anew_with_an_allocation() {
    const CHUNK: u64 = 4096;
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    store.set_chunk_bytes(CHUNK);
    let write = |store: &mut Store<Simulated>| {
        store.store_data(5 * CHUNK, &[1; CHUNK as usize]).expect("nothing is staged there");
        store.wear_events()
    };
    assert_eq!(write(&mut store), 1);
    store.note_allocated(Chunk(5));
    assert_eq!((store.wear_events(), store.take_worn()), (2, vec![]));
    assert_eq!(write(&mut store), 2, "the allocation has counted it");
    assert_eq!(write(&mut store), 3);
    assert_eq!((store.take_worn(), store.take_worn()), (vec![Chunk(5)], vec![]));
}

/// What one group cannot note is left for the next one.
#[test]
fn some_worn_chunks_are_taken_at_a_time() {
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    store.set_chunk_bytes(64);
    store.zero_data(20_480, (WORN_MAX as u64 + 5) * 64).expect("nothing is staged there");
    let first = store.take_worn();
    assert_eq!((first.len(), first[0]), (WORN_MAX, Chunk(320)));
    assert_eq!((store.take_worn().len(), store.take_worn().len()), (5, 0));
}

#[test]
fn parts_of_chunks_add_up_to_wear() {
    let mut store = open(Simulated::new(SIZE, Granule::Word));
    store.set_chunk_bytes(4096);
    let events = [0, 1, 2, 3, 3, 4].map(|expected| {
        store.store_data(20_480, &[1; 3072]).expect("nothing is staged there");
        (store.wear_events(), expected)
    });
    assert!(events.iter().all(|(events, expected)| events == expected), "{events:?}");
}
