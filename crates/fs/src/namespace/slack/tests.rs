//! Slack: who has it, when it is freed, and how full a region gets.

use super::*;
use crate::check::check;
use crate::layout::PAGE_BYTES;
use crate::layout::inode::{Form, Kind};
use crate::namespace::{Allocate, New};
use crate::testing::{Fs, NEW, NOW, contents, file, file_system};

fn pages(fs: &Fs, ino: Ino) -> u32 {
    match fs.inode(ino).expect("it exists").form {
        Form::Run { pages, .. } => pages,
        Form::Empty => 0,
        form => panic!("a run, not {form:?}"),
    }
}

/// Appends `pages` pages, one at a time.
fn append(fs: &mut Fs, ino: Ino, pages: u64) -> Result<()> {
    for _ in 0..pages {
        let size = fs.inode(ino)?.size;
        fs.write(ino, size, &contents(ino, size + PAGE_BYTES)[size as usize..], NOW)?;
    }
    Ok(())
}

#[track_caller]
fn verify(fs: &Fs, ino: Ino) {
    let size = fs.inode(ino).expect("it exists").size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).expect("it"), bytes.len());
    assert!(bytes == contents(ino, size), "inode {} has other contents", ino.0);
}

#[test]
fn a_file_that_has_stopped_growing_keeps_what_it_needs() {
    let (mut fs, _) = file_system(&[]);
    let ino = file(&mut fs, "file", PAGE_BYTES);
    append(&mut fs, ino, 2).expect("space");
    assert_eq!(pages(&fs, ino), 4);
    fs.age_slack();
    append(&mut fs, ino, 2).expect("space");
    assert!(!fs.trim().expect("no failure"), "it is growing");
    assert_eq!(pages(&fs, ino), 8);
    fs.age_slack();
    assert!(!fs.trim().expect("no failure"));
    assert_eq!(pages(&fs, ino), 5);
    verify(&fs, ino);
    assert!(check(&fs).is_clean());
}

#[test]
fn many_files_are_trimmed_in_steps() {
    let (mut fs, _) = file_system(&[]);
    let files: Vec<_> = (0..TRIMMED_MAX + 1)
        .map(|nth| {
            let ino = file(&mut fs, &format!("file{nth}"), 1);
            append(&mut fs, ino, 2).expect("space");
            ino
        })
        .collect();
    fs.age_slack();
    assert!(fs.has_slack(), "of files that have stopped growing");
    assert!(fs.trim().expect("no failure"));
    assert_eq!(files.iter().filter(|ino| pages(&fs, **ino) == 4).count(), 1);
    assert!(!fs.trim().expect("no failure"));
    assert!(files.iter().all(|ino| pages(&fs, *ino) == 3));
}

#[test]
fn allocated_pages_beyond_the_size_stay() {
    let (mut fs, _) = file_system(&[]);
    let ino = file(&mut fs, "file", 1);
    append(&mut fs, ino, 1).expect("space");
    append(&mut fs, ino, 1).expect("space");
    assert!(fs.has_slack());
    let keep = Allocate::Space { keep_size: true };
    fs.allocate(ino, 0..7 * PAGE_BYTES, keep, NOW).expect("space");
    fs.trim_all().expect("no failure");
    assert_eq!(pages(&fs, ino), 7);
    append(&mut fs, ino, 2).expect("space");
    fs.trim_all().expect("no failure");
    assert_eq!(pages(&fs, ino), 7);
}

#[test]
fn pages_that_are_allocated_after_a_file_has_stopped_growing_stay() {
    let (mut fs, _) = file_system(&[]);
    let ino = file(&mut fs, "file", 1);
    append(&mut fs, ino, 2).expect("space");
    fs.age_slack();
    let keep = Allocate::Space { keep_size: true };
    fs.allocate(ino, 0..4 * PAGE_BYTES, keep, NOW).expect("space");
    assert!(!fs.has_slack());
    fs.trim_all().expect("no failure");
    assert_eq!(pages(&fs, ino), 4);
}

#[test]
fn a_null_file_that_is_too_large_is_shortened() {
    let (mut fs, _) = file_system(&[]);
    let first = file(&mut fs, "first", 6 * PAGE_BYTES);
    fs.unlink(Ino::ROOT, b"first", NOW).expect("it exists");
    fs.forget(first, 0).expect("no failure");
    fs.sync().expect("no failure");
    let second = file(&mut fs, "second", 1);
    assert_eq!((second, pages(&fs, second)), (first, 6), "it takes over the null file");
    fs.trim_all().expect("no failure");
    assert_eq!(pages(&fs, second), 1);
    verify(&fs, second);
}

#[test]
fn slack_is_freed_before_a_write_is_refused() {
    let (mut fs, _) = file_system(&[]);
    let (mut files, mut needed) = (Vec::new(), 0);
    loop {
        let ino = file(&mut fs, &format!("file{}", files.len()), 1);
        files.push(ino);
        needed += 1;
        // Each has 8 pages when it has grown, of which it needs 5.
        match append(&mut fs, ino, 4) {
            Ok(()) => needed += 4,
            Err(error) => break assert!(matches!(error, Error::NoSpace), "{error}"),
        }
    }
    let usage = fs.usage();
    assert!(needed * 20 > usage.pages * 17, "{needed} of {}", usage.pages);
    files.iter().for_each(|ino| verify(&fs, *ino));
    assert!(check(&fs).is_clean());
}

#[test]
fn slack_of_removed_files_and_of_what_reuses_their_numbers_is_nothing() {
    for kind in [None, Some(Kind::Symlink), Some(Kind::Directory), Some(Kind::Fifo)] {
        let (mut fs, _) = file_system(&[]);
        let ino = file(&mut fs, "file", 1);
        append(&mut fs, ino, 40).expect("space");
        fs.unlink(Ino::ROOT, b"file", NOW).expect("it exists");
        fs.forget(ino, 0).expect("no failure");
        fs.sync().expect("no failure");
        if let Some(kind) = kind {
            let new = New { kind, target: if kind == Kind::Symlink { b"x" } else { b"" }, ..NEW };
            let (other, _) = fs.create_file(Ino::ROOT, b"other", &new, NOW).expect("space");
            assert_eq!(other, ino, "the number is used again");
        }
        assert!(fs.has_slack());
        fs.trim_all().expect("no failure");
        assert!(check(&fs).is_clean(), "{kind:?}");
    }
}
