//! What compaction makes room for, what it leaves alone, and when it is in vain.

use super::*;
use crate::check::check;
use crate::layout::chunk::{Purpose, Use};
use crate::testing::{Fs, NEW, NOW, contents, file_system};

const PAGE: u64 = PAGE_BYTES;

/// Creates files of `pages` pages until the region is full; returns them.
fn fill(fs: &mut Fs, name: &str, pages: u64) -> Vec<(String, Ino)> {
    let mut files = Vec::new();
    loop {
        let name = format!("{name}{}", files.len());
        let (ino, _) = fs.create_file(Ino::ROOT, name.as_bytes(), &NEW, NOW).expect("an inode");
        let written = fs.write(ino, 0, &contents(ino, pages * PAGE), NOW);
        match written {
            Ok(len) if len as u64 == pages * PAGE => {}
            Ok(_) | Err(Error::NoSpace) => {
                fs.unlink(Ino::ROOT, name.as_bytes(), NOW).expect("it exists");
                fs.forget(ino, 0).expect("no failure");
                return files;
            }
            Err(error) => panic!("{error}"),
        }
        files.push((name, ino));
    }
}

/// Removes every second file.
fn thin(fs: &mut Fs, files: Vec<(String, Ino)>) -> Vec<(String, Ino)> {
    let mut left = Vec::new();
    for (nth, (name, ino)) in files.into_iter().enumerate() {
        if nth % 2 == 0 {
            left.push((name, ino));
            continue;
        }
        fs.unlink(Ino::ROOT, name.as_bytes(), NOW).expect("it exists");
        fs.forget(ino, 0).expect("no failure");
    }
    fs.sync().expect("no failure");
    left
}

#[track_caller]
fn verify(fs: &Fs, files: &[(String, Ino)]) {
    for (name, ino) in files {
        let mut bytes = vec![0; fs.inode(*ino).expect("it exists").size as usize];
        fs.read(*ino, 0, &mut bytes).expect("it");
        assert!(bytes == contents(*ino, bytes.len() as u64), "{name} has other contents");
    }
    let report = check(fs);
    assert!(report.is_clean(), "{report:#?}");
}

/// Returns the longest run of free pages, and the number of all.
fn free(fs: &Fs) -> (u32, u64) {
    let longest = (1..=16).rev().find(|count| {
        let chunks = (0..fs.superblock().geometry.chunks()).map(Chunk);
        chunks.into_iter().any(|chunk| fs.space().fits(chunk, *count))
    });
    (longest.unwrap_or(0), fs.usage().free_pages)
}

#[test]
fn scattered_pages_serve_files_that_need_longer_runs() {
    let (mut fs, _) = file_system(&[]);
    let small = fill(&mut fs, "small", 1);
    let small = thin(&mut fs, small);
    let (longest, all) = free(&fs);
    assert!(longest < 8 && all > 180, "{longest} of {all}");
    let large = fill(&mut fs, "large", 8);
    let (_, left) = free(&fs);
    assert!(left < 16, "{} large files, {left} pages left of {all}", large.len());
    assert!(large.len() as u64 * 8 > all * 9 / 10, "{} large files in {all} pages", large.len());
    verify(&fs, &small);
    verify(&fs, &large);
}

#[test]
fn scattered_pages_become_chunks() {
    let (mut fs, _) = file_system(&[]);
    let small = fill(&mut fs, "small", 3);
    let small = thin(&mut fs, small);
    let (_, all) = free(&fs);
    let large = fill(&mut fs, "large", 48);
    // Each has three chunks and a page that lists them.
    assert!(large.len() as u64 * 48 > all * 2 / 3, "{} large files in {all} pages", large.len());
    verify(&fs, &small);
    verify(&fs, &large);
}

#[test]
fn a_chunk_with_metadata_stays() {
    let (mut fs, _) = file_system(&[]);
    let (directory, _) = fs
        .create_file(
            Ino::ROOT,
            b"directory",
            &crate::namespace::New { kind: Kind::Directory, permissions: 0o755, ..NEW },
            NOW,
        )
        .expect("space");
    let page = |fs: &Fs| fs.inode(directory).expect("it exists").form;
    let before = page(&fs);
    let Form::Run { first, .. } = before else { panic!("a directory has pages") };
    let (chunk, _) = fs.superblock().geometry.chunk_of(first);
    let entry = fs.space().entry(fs.store(), chunk).expect("sound");
    assert_eq!((entry.usage, entry.purpose()), (Use::Pages, Some(Purpose::Metadata)));
    let small = fill(&mut fs, "small", 1);
    let small = thin(&mut fs, small);
    let large = fill(&mut fs, "large", 8);
    assert!(!large.is_empty());
    assert_eq!(page(&fs), before);
    verify(&fs, &small);
}

/// Metadata that found no space elsewhere is in chunks that the table says are for data.
#[test]
fn metadata_in_a_chunk_for_data_is_found() {
    let (mut fs, _) = file_system(&[]);
    let small = fill(&mut fs, "small", 1);
    // The chunks for metadata are full by then, and free ones there are none.
    let mut names = 0;
    let mut take = |fs: &mut Fs| {
        let name = format!("{names:0>255}");
        names += 1;
        fs.link(small[0].1, Ino::ROOT, name.as_bytes(), NOW)
    };
    let small = thin(&mut fs, small.clone());
    for _ in 0..600 {
        take(&mut fs).expect("space");
    }
    let fixed = |fs: &Fs| {
        let chunks = (0..fs.superblock().geometry.chunks()).map(Chunk);
        let entries = chunks.filter_map(|chunk| fs.space().entry(fs.store(), chunk).ok());
        entries.filter(|entry| entry.purpose() == Some(Purpose::Metadata)).count()
    };
    let known = fixed(&fs);
    let mut fs = crate::testing::open(fs.into_memory(), &crate::tiers::SimulatedContainers::default());
    let large = fill(&mut fs, "large", 8);
    assert_eq!(fixed(&fs), known, "the table has no more chunks for metadata");
    assert!(!large.is_empty());
    assert!(fs.space().has_free_chunk(), "one is kept free");
    verify(&fs, &small);
    verify(&fs, &large);
}

#[test]
fn a_full_region_is_full() {
    let (mut fs, _) = file_system(&[]);
    let small = fill(&mut fs, "small", 1);
    let before = fs.usage();
    assert!(before.free_pages < 2, "{before:?}");
    fs.sync().expect("no failure");
    assert!(!fs.compact().expect("no failure"), "nothing is to be gained");
    assert!(fs.space().has_free_chunk(), "one is kept free");
    verify(&fs, &small);
}

/// A program that tries again and again must not have data moved each time.
#[test]
fn data_moves_in_vain_once() {
    for (small, large) in [(1, 8), (3, 7), (5, 8), (3, 48), (7, 48)] {
        let (mut fs, _) = file_system(&[]);
        let files = fill(&mut fs, "small", small);
        thin(&mut fs, files);
        for name in ["first", "second"] {
            fill(&mut fs, name, large);
        }
        let before = fs.store.wear_events();
        for name in ["third", "fourth", "fifth"] {
            assert!(fill(&mut fs, name, large).is_empty());
        }
        // A refused write of several chunks may take and free them.
        let events = fs.store.wear_events() - before;
        assert!(events <= 3 * large.div_ceil(16), "{small}, {large}: {events} chunks were written");
    }
}

#[test]
fn targets_of_links_move() {
    let (mut fs, _) = file_system(&[]);
    let target = [b't'; 4000];
    let link = crate::namespace::New { kind: Kind::Symlink, permissions: 0o777, target: &target, ..NEW };
    let mut links = Vec::new();
    loop {
        let name = format!("link{}", links.len());
        match fs.create_file(Ino::ROOT, name.as_bytes(), &link, NOW) {
            Ok((ino, _)) => links.push((name, ino)),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let links = thin(&mut fs, links);
    let (longest, all) = free(&fs);
    assert!(longest < 8 && all > 180, "{longest} of {all}");
    let large = fill(&mut fs, "large", 8);
    assert!(large.len() as u64 * 8 > all * 9 / 10, "{} large files in {all} pages", large.len());
    for (name, ino) in &links {
        let mut bytes = vec![0; target.len() + 1];
        assert_eq!(fs.read(*ino, 0, &mut bytes).expect("it exists"), target.len());
        assert!(bytes[..target.len()] == target, "{name} has another target");
    }
    verify(&fs, &large);
}

/// A chunk in which something is found that stays is left out by the next attempt, which may succeed.
#[test]
fn a_chunk_that_cannot_move_does_not_end_the_attempts() {
    let (mut fs, _) = file_system(&[]);
    fs.set_keeps_null_files(false);
    let small = fill(&mut fs, "small", 1);
    let mut small = thin(&mut fs, small);
    let chunk_of = |fs: &Fs, ino: Ino| match fs.inode(ino).expect("it exists").form {
        Form::Run { first, .. } => fs.geometry().chunk_of(first).0,
        form => panic!("a run, not {form:?}"),
    };
    // Data would move from this chunk first, but one of its pages is no file's.
    let chunk = chunk_of(&fs, small[small.len() / 2].1);
    for _ in 0..3 {
        let nth = small.iter().position(|(_, ino)| chunk_of(&fs, *ino) == chunk).expect("files are there");
        let (name, ino) = small.remove(nth);
        fs.unlink(Ino::ROOT, name.as_bytes(), NOW).expect("it exists");
        fs.forget(ino, 0).expect("no failure");
    }
    fs.sync().expect("no failure");
    let (store, space) = fs.parts();
    space.take_pages_in(store, chunk, 1).expect("a free page");
    assert!(space.take_pages(store, 8, Purpose::Data).is_err());
    assert_eq!(space.sparse_chunks(), [chunk]);
    fs.commit().expect("no failure");
    let places = |fs: &Fs| small.iter().map(|(_, ino)| chunk_of(fs, *ino)).collect::<Vec<_>>();
    let before = places(&fs);
    assert!(fs.compact().expect("no failure"), "it is worth another attempt");
    assert_eq!(places(&fs), before, "what cannot all move stays");
    assert!(!fill(&mut fs, "large", 8).is_empty());
}
