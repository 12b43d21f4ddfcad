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

/// Takes all runs of so many pages there are, in an operation and a commit of its own; returns them.
fn take_all(store: &mut Store<Simulated>, space: &mut Space, pages: u32) -> Vec<Page> {
    begin(store, space);
    let taken = std::iter::from_fn(|| space.take_pages(store, pages, Purpose::Data).ok()).collect();
    commit(store, space);
    taken
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

/// A chunk of metadata that an operation emptied in vain is still one.
#[test]
fn an_aborted_operation_leaves_chunks_of_metadata() {
    let (mut fs, pages) = sample();
    let (store, space) = fs.parts();
    begin(store, space);
    let first = space.take_pages(store, pages, Purpose::Metadata).expect("a free chunk");
    commit(store, space);
    let before = (space.fixed.clone(), space.free_pages());
    begin(store, space);
    space.free_pages_at(store, first, pages).expect("they are allocated");
    store.abort();
    space.abort(store);
    assert_eq!((space.fixed.clone(), space.free_pages()), before);
}

/// Each chunk with free pages is listed once: by what it has, and by its longest run.
#[track_caller]
fn verify_lists(space: &Space) {
    let mut listed = 0;
    for (is_fixed, classes) in [false, true].into_iter().zip(&space.by_run) {
        for (class, chunks) in classes.iter().enumerate() {
            for chunk in chunks {
                let found = (space.fixed.contains(chunk), space.class(*chunk));
                assert_eq!(found, (is_fixed, Some(class)), "{chunk:?}");
            }
            listed += chunks.len();
        }
    }
    assert_eq!(listed, space.busy.keys().filter(|chunk| space.class(**chunk).is_some()).count());
}

#[test]
fn chunks_are_listed_as_what_they_are() {
    for (purpose, fixes) in [(Purpose::Data, false), (Purpose::Data, true), (Purpose::Metadata, false)] {
        let (mut fs, pages) = sample();
        let (store, space) = fs.parts();
        begin(store, space);
        let first = space.take_pages(store, pages - 1, purpose).expect("a free chunk");
        verify_lists(space);
        if fixes {
            assert!(space.fix(space.geometry.chunk_of(first).0), "it has data alone");
            verify_lists(space);
        }
        commit(store, space);
        begin(store, space);
        space.free_pages_at(store, first, 1).expect("they are allocated");
        space.free_pages_at(store, Page(first.0 + 1), pages - 2).expect("they are allocated");
        verify_lists(space);
        commit(store, space);
        verify_lists(space);
        begin(store, space);
        space.take_pages(store, 1, purpose).expect("a free page");
        verify_lists(space);
        store.abort();
        space.abort(store);
        verify_lists(space);
    }
}

/// If data has moved to the chunk that is kept free, the next one that is emptied is kept instead.
#[test]
fn a_chunk_that_will_be_kept_free_does_not_count() {
    let (mut fs, _) = sample();
    let (store, space) = fs.parts();
    begin(store, space);
    let mut chunks = Vec::new();
    while let Ok(chunk) = space.take_chunk(store, Use::Data, 9, 0) {
        chunks.push(chunk);
    }
    space.divide_chunk(store, Purpose::Data).expect("one is kept free");
    assert!(!space.has_free_chunk());
    commit(store, space);
    for chunk in &chunks[..2] {
        begin(store, space);
        space.free_chunk(store, *chunk).expect("it is a file's");
        let promised = space.free_pages_after_commit();
        commit(store, space);
        assert_eq!(space.free_pages(), promised);
    }
}

/// Data moves from one chunk if what is missed is free there then, and not again where that was in vain.
#[test]
fn data_moves_from_as_few_chunks_as_possible() {
    let (mut fs, pages) = sample();
    let (store, space) = fs.parts();
    let taken = take_all(store, space, 1);
    begin(store, space);
    for page in taken.iter().filter(|page| page.0 % 2 == 0) {
        space.free_pages_at(store, *page, 1).expect("it is allocated");
    }
    commit(store, space);
    let sources = |store: &mut Store<Simulated>, space: &mut Space, count| {
        assert!(space.take_pages(store, count, Purpose::Data).is_err(), "no two are consecutive");
        space.sparse_chunks().len()
    };
    assert_eq!(sources(store, space, pages / 2), 1);
    assert_eq!(sources(store, space, pages / 2 + 1), 3);
    assert!(!space.note_compaction(), "nothing has moved");
    assert_eq!(sources(store, space, pages / 2 + 1), 0);
    assert_eq!(sources(store, space, pages), 0);
    assert_eq!(sources(store, space, pages / 2), 1, "less may be had");
}

/// If no chunk is free, all that are divided into pages are looked at.
#[test]
fn a_run_is_found_in_the_last_chunk() {
    let (mut fs, pages) = sample();
    let (store, space) = fs.parts();
    let mut runs = take_all(store, space, pages);
    runs.sort_unstable();
    begin(store, space);
    // Their longest runs have the same binary logarithm.
    for (nth, run) in runs[..=TRIED_MAX].iter().enumerate() {
        let count = if nth == TRIED_MAX { 7 } else { 4 };
        space.free_pages_at(store, *run, count).expect("they are allocated");
    }
    commit(store, space);
    begin(store, space);
    assert_eq!(space.take_pages(store, 7, Purpose::Data).expect("a run of 7"), runs[TRIED_MAX]);
}

/// Also those that the operation itself has taken in the chunk.
#[test]
fn pages_of_a_chunk_that_was_emptied_in_vain_are_as_before() {
    let (mut fs, pages) = sample();
    let (store, space) = fs.parts();
    begin(store, space);
    let first = space.take_pages(store, pages - 1, Purpose::Data).expect("a free chunk");
    commit(store, space);
    let before = (space.busy.clone(), space.free_pages());
    begin(store, space);
    let last = space.take_pages(store, 1, Purpose::Data).expect("the chunk's last page");
    assert_eq!(last.0 - first.0, u64::from(pages - 1));
    space.free_pages_at(store, first, pages - 1).expect("they are allocated");
    space.free_pages_at(store, last, 1).expect("it was taken");
    store.abort();
    space.abort(store);
    assert_eq!((space.busy.clone(), space.free_pages()), before);
    verify_lists(space);
}
