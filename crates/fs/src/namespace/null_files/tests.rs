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
