//! Access times, what removed files leave, and numbers that are no inode's.

use super::*;
use crate::testing::{Fs, NOW, file, file_system};

const DAY: i64 = 86_400;

fn time(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

#[test]
fn reads_count_once_a_day_and_after_changes() {
    let (mut fs, _) = file_system(&[]);
    let ino = file(&mut fs, "file", 100);
    let read_at = |fs: &super::super::FileSystem<_>, seconds| {
        fs.note_access(ino, time(seconds));
        fs.inode(ino).expect("it exists").accessed.seconds
    };
    assert_eq!(read_at(&fs, 50), 50, "the first read after a change");
    assert_eq!(read_at(&fs, 60), 50);
    assert_eq!(read_at(&fs, 50 + DAY - 1), 50);
    assert_eq!(read_at(&fs, 50 + DAY), 50 + DAY);
    fs.sync().expect("no failure");
    assert_eq!(read_at(&fs, 51 + DAY), 50 + DAY);
}

#[test]
fn a_time_that_is_set_replaces_that_of_an_earlier_read() {
    let (mut fs, _) = file_system(&[]);
    let ino = file(&mut fs, "file", 100);
    fs.note_access(ino, time(50));
    let change = Change { accessed: Some(SetTime::At(time(7))), ..Change::default() };
    assert_eq!(fs.set_attributes(ino, &change, time(60)).expect("it exists").accessed, time(7));
    fs.sync().expect("no failure");
    assert_eq!(fs.inode(ino).expect("it exists").accessed, time(7));
}

/// A file without contents is freed at once, and the next one gets its inode.
#[test]
fn a_new_file_was_not_read_when_the_removed_one_was() {
    let (mut fs, _) = file_system(&[]);
    let old = file(&mut fs, "old", 0);
    fs.note_access(old, time(50));
    fs.unlink(Ino::ROOT, b"old", time(51)).expect("it exists");
    let new = file(&mut fs, "new", 0);
    assert_eq!(new, old, "the inode is used again");
    fs.sync().expect("no failure");
    assert_eq!(fs.inode(new).expect("it exists").accessed, NOW);
}

#[test]
fn a_null_file_counts_as_free() {
    let (mut fs, _) = file_system(&[]);
    file(&mut fs, "first", 4000);
    let before = fs.usage();
    file(&mut fs, "file", 4000);
    fs.unlink(Ino::ROOT, b"file", NOW).expect("it exists");
    fs.sync().expect("no failure");
    assert_eq!(fs.roots().null_count, 1);
    let now = fs.usage();
    assert_eq!((now.free_pages, now.inodes), (before.free_pages, before.inodes));
}

/// Without null files the pages of a removed file are free with the next commit.
#[test]
fn null_files_are_kept_only_on_demand() {
    let (mut fs, _) = file_system(&[]);
    let cycle = |fs: &mut Fs| {
        file(fs, "file", 4000);
        fs.unlink(Ino::ROOT, b"file", NOW).expect("it exists");
        fs.sync().expect("no failure");
        (fs.roots().null_count, fs.space().free_pages())
    };
    fs.set_keeps_null_files(false);
    let (none, free) = cycle(&mut fs);
    assert_eq!((none, cycle(&mut fs)), (0, (0, free)));
    fs.set_keeps_null_files(true);
    assert_eq!(cycle(&mut fs), (1, free - 1));
}

#[test]
fn bitmaps_are_no_inodes() {
    let (mut fs, _) = file_system(&[]);
    let geometry = fs.superblock().geometry;
    let second = geometry.ino_of(1, BITMAP_SLOTS);
    assert!(matches!(fs.inode(second), Err(Error::NotFound)));
    let mut files = (0..geometry.chunk_inodes()).map(|number| file(&mut fs, &format!("file-{number}"), 0));
    assert!(files.any(|ino| ino == second), "a second chunk of inodes");
    for slot in 0..BITMAP_SLOTS {
        assert!(matches!(fs.inode(geometry.ino_of(1, slot)), Err(Error::NotFound)), "slot {slot}");
    }
}
