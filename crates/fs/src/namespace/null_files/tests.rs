//! Null files that are made ahead of need.

use super::*;
use crate::check::check;
use crate::namespace::Allocate;
use crate::testing::{Fs, NEW, NOW, contents, file, file_system};

fn stocked() -> Fs {
    let (mut fs, _) = file_system(&[]);
    while fs.make_null_files().expect("no failure") {}
    fs
}

#[track_caller]
fn verify(fs: &Fs) {
    let report = check(fs);
    assert!(report.is_clean(), "{report:#?}");
}

#[test]
fn some_are_made_and_taken_over() {
    let mut fs = stocked();
    // A region of 2 MiB spares a thirty-second of its pages.
    assert_eq!((fs.roots().null_count, fs.roots().null_pages), (16, 16));
    verify(&fs);
    assert_eq!(check(&fs).pages, check(&file_system(&[]).0).pages, "they have no contents");
    fs.sync().expect("no failure");
    let before = fs.usage();
    let first = fs.roots().null_files;
    let ino = file(&mut fs, "file", PAGE_BYTES);
    assert_eq!((Some(ino), fs.roots().null_count), (first, 15));
    let after = fs.usage();
    assert_eq!((before.free_pages - after.free_pages, after.inodes - before.inodes), (1, 1));
    let mut bytes = vec![0; PAGE_BYTES as usize];
    fs.read(ino, 0, &mut bytes).expect("it exists");
    assert!(bytes == contents(ino, PAGE_BYTES));
    fs.sync().expect("no failure");
    verify(&fs);
}

/// The pages that a file has taken over are no reason to give it a chunk where nothing was written.
#[test]
fn a_hole_is_one_also_in_a_file_that_took_over_pages() {
    let mut fs = stocked();
    fs.sync().expect("no failure");
    let chunk = fs.geometry().chunk_bytes;
    let (ino, inode) = fs.create_file(Ino::ROOT, b"sparse", &NEW, NOW).expect("space");
    assert!(matches!(inode.form, Form::Run { .. }), "it has the pages of a null file");
    fs.write(ino, 3 * chunk, &[1], NOW).expect("space");
    assert!(fs.chunk_at(&fs.inode(ino).expect("it exists"), 0).is_none());
    let mut bytes = vec![9; 3 * chunk as usize + 1];
    fs.read(ino, 0, &mut bytes).expect("it exists");
    assert!(bytes[..3 * chunk as usize].iter().all(|byte| *byte == 0) && bytes[3 * chunk as usize] == 1);
    // Space that was asked for stays.
    let (ino, _) = fs.create_file(Ino::ROOT, b"reserved", &NEW, NOW).expect("space");
    fs.allocate(ino, 0..PAGE_BYTES, Allocate::Space { keep_size: true }, NOW).expect("space");
    fs.write(ino, 3 * chunk, &[1], NOW).expect("space");
    assert!(fs.chunk_at(&fs.inode(ino).expect("it exists"), 0).is_some());
    fs.sync().expect("no failure");
    verify(&fs);
}

#[test]
fn none_are_made_where_space_is_short() {
    let (mut fs, _) = file_system(&[]);
    assert!(fs.lacks_null_files());
    let usage = fs.usage();
    file(&mut fs, "large", (usage.free_pages - usage.pages / 5) * PAGE_BYTES);
    assert!(!fs.make_null_files().expect("no failure"));
    assert_eq!(fs.roots().null_count, 0);
    fs.set_keeps_null_files(false);
    assert!(!fs.lacks_null_files());
}

/// They are the first to be freed: files get the space to the last page.
#[test]
fn they_take_no_space_from_files() {
    let fill = |mut fs: Fs| {
        (0..)
            .take_while(|nth| {
                let (ino, _) =
                    fs.create_file(Ino::ROOT, nth.to_string().as_bytes(), &NEW, NOW).expect("space");
                fs.write(ino, 0, &[1; 3 * PAGE_BYTES as usize], NOW)
                    .is_ok_and(|len| len == 3 * PAGE_BYTES as usize)
            })
            .count()
    };
    let without = fill(file_system(&[]).0);
    let with = fill(stocked());
    assert!(without > 50 && with == without, "{with} files with null files, {without} without");
}

/// Space that was freed counts, but cannot be taken before the next commit.
#[test]
fn one_that_finds_no_page_leaves_no_inode() {
    let (mut fs, _) = file_system(&[]);
    let pages = fs.usage().pages;
    let large = file(&mut fs, "large", pages / 2 * PAGE_BYTES);
    let (store, space) = fs.parts();
    while space.take_pages(store, 1, Purpose::Data).is_ok() {}
    fs.truncate(large, 0, NOW).expect("no failure");
    let before = fs.usage();
    assert!(before.free_pages > pages / 3, "{before:?}");
    assert!(!fs.make_null_files().expect("no failure"));
    assert_eq!((fs.usage(), fs.roots().null_count), (before, 0));
}

/// Generations tell files apart that had the same inode one after the other.
#[test]
fn generations_follow_those_of_removed_files() {
    let (mut fs, _) = file_system(&[]);
    let (old, removed) = fs.create_file(Ino::ROOT, b"old", &NEW, NOW).expect("space");
    fs.unlink(Ino::ROOT, b"old", NOW).expect("it exists");
    fs.forget(old, 0).expect("no failure");
    while fs.make_null_files().expect("no failure") {}
    fs.sync().expect("no failure");
    let new = (0..fs.roots().null_count).find_map(|nth| {
        let created = fs.create_file(Ino::ROOT, nth.to_string().as_bytes(), &NEW, NOW);
        Some(created.expect("a null file")).filter(|(ino, _)| *ino == old)
    });
    let (_, new) = new.expect("the inode is used again");
    assert!(new.generation > removed.generation, "{} after {}", new.generation, removed.generation);
}

/// Until the removal is durable, the pages have what the removed file has after a power loss.
#[test]
fn one_of_an_uncommitted_removal_is_not_taken_over() {
    let (mut fs, containers) = file_system(&[]);
    let old = file(&mut fs, "old", PAGE_BYTES);
    fs.sync().expect("no failure");
    fs.unlink(Ino::ROOT, b"old", NOW).expect("it exists");
    assert_eq!(fs.roots().null_count, 1);
    assert_ne!(file(&mut fs, "new", PAGE_BYTES), old);
    let memory = fs.store().memory().after_power_loss(|versions| versions - 1);
    let lost = crate::testing::open(memory, &containers);
    let mut bytes = vec![0; PAGE_BYTES as usize];
    assert_eq!(lost.read(old, 0, &mut bytes).expect("it exists"), bytes.len());
    assert!(bytes == contents(old, PAGE_BYTES));
    fs.sync().expect("no failure");
    assert_eq!(file(&mut fs, "next", PAGE_BYTES), old);
}

/// A small region would lose a noticeable part of its space.
#[test]
fn removed_files_become_null_files_up_to_a_share_of_the_region() {
    let (mut fs, _) = file_system(&[]);
    let names: Vec<_> = (0..10).map(|nth| format!("file{nth}")).collect();
    for name in &names {
        file(&mut fs, name, 3 * PAGE_BYTES);
    }
    for name in &names {
        fs.unlink(Ino::ROOT, name.as_bytes(), NOW).expect("it exists");
    }
    assert_eq!((fs.roots().null_count, fs.roots().null_pages), (5, 15));
    verify(&fs);
}
