//! What is quarantined, what is free, and how often chunks are allocated.

use super::*;
use crate::nvm::Simulated;
use crate::testing::{Fs, NOW, file, file_system};

/// Returns a file system, and the number of pages of its chunks.
fn sample() -> (Fs, u32) {
    let (fs, _) = file_system(&[]);
    let pages = fs.superblock().geometry.chunk_pages() as u32;
    (fs, pages)
}

fn begin(store: &mut Store<Simulated>, space: &mut Space) {
    store.begin();
    space.begin();
}

fn commit(store: &mut Store<Simulated>, space: &mut Space) {
    store.commit().expect("no failure");
    space.committed();
}

/// Durable metadata refers to what a group has freed, also if the chunk's last pages are freed in vain.
#[test]
fn freed_pages_stay_quarantined_after_a_later_operation_fails() {
    let (mut fs, pages) = sample();
    let (store, space) = fs.parts();
    let half = pages / 2;
    begin(store, space);
    let first = space.take_pages(store, pages, Purpose::Data).expect("a free chunk");
    commit(store, space);
    begin(store, space);
    space.free_pages_at(store, first, half).expect("they are allocated");
    begin(store, space);
    space.free_pages_at(store, Page(first.0 + u64::from(half)), half).expect("they are allocated");
    store.abort();
    space.abort(store);
    begin(store, space);
    while let Ok(other) = space.take_pages(store, half, Purpose::Data) {
        assert_ne!(other, first, "a commit has to come first");
    }
    commit(store, space);
    begin(store, space);
    assert_eq!(space.take_pages(store, half, Purpose::Data).expect("what was freed"), first);
}

#[test]
fn free_pages_are_those_of_the_table() {
    let (mut fs, pages) = sample();
    let geometry = fs.superblock().geometry;
    let (store, space) = fs.parts();
    let verify = |store: &Store<Simulated>, space: &Space| {
        let table = Space::load(store, geometry, false).expect("sound");
        assert_eq!((space.free_pages(), space.free_chunks()), (table.free_pages(), table.free_chunks()));
    };
    begin(store, space);
    let run = space.take_pages(store, pages, Purpose::Data).expect("a free chunk");
    verify(store, space);
    begin(store, space);
    space.free_pages_at(store, run, 1).expect("it is allocated");
    space.free_pages_at(store, Page(run.0 + 1), pages - 1).expect("they are allocated");
    commit(store, space);
    verify(store, space);
}

#[test]
fn chunks_wear_evenly() {
    const TIMES: u32 = 3;
    let (mut fs, _) = sample();
    let (store, space) = fs.parts();
    for _ in 0..TIMES * (space.free_chunks() + space.reserved()) as u32 {
        begin(store, space);
        let chunk = space.take_chunk(store, Use::Data, 9, 0).expect("a free chunk");
        space.free_chunk(store, chunk).expect("it is a file's");
        commit(store, space);
    }
    let entry = |chunk| space.entry(store, chunk).expect("sound");
    let chunks = (space.geometry.system_chunks()..space.geometry.chunks()).map(Chunk).map(entry);
    let wear: Vec<_> = chunks.filter(|entry| entry.usage == Use::Free).map(|entry| entry.wear).collect();
    assert!(wear.iter().all(|wear| *wear == TIMES), "{wear:?}");
}

#[test]
fn space_that_is_quarantined_counts_once() {
    let (mut fs, _) = file_system(&[]);
    let (chunk_pages, run) = {
        let geometry = fs.superblock().geometry;
        (geometry.chunk_pages(), geometry.run_bytes_max())
    };
    // Two runs do not fit into the chunk that has the root's page, so the second is alone in one. It
    // becomes a chunk of the file, which a page lists.
    file(&mut fs, "first", run);
    let before = fs.usage().free_pages;
    let second = file(&mut fs, "second", run);
    fs.write(second, run, &[1], NOW).expect("space");
    for when in ["before the commit", "after it"] {
        assert_eq!(fs.usage().free_pages, before - chunk_pages - 1, "{when}");
        fs.sync().expect("no failure");
    }
}

/// An operation that is taken back leaves no chunk behind as one of metadata.
#[test]
fn an_aborted_operation_fixes_no_chunk() {
    let (mut fs, pages) = sample();
    let (store, space) = fs.parts();
    begin(store, space);
    while space.take_pages(store, pages - 1, Purpose::Data).is_ok() {}
    // Each chunk for data has one free page. Those for metadata are filled.
    for chunk in space.fixed.clone() {
        while space.fits(chunk, 1) {
            space.take_pages_in(store, chunk, 1).expect("it fits");
        }
    }
    commit(store, space);
    let before = space.fixed.clone();
    begin(store, space);
    space.take_pages(store, 1, Purpose::Metadata).expect("a page of a chunk for data");
    assert_eq!(space.fixed.len(), before.len() + 1);
    store.abort();
    space.abort(store);
    assert_eq!(space.fixed, before);
}
