//! Wear is counted, and stays even whatever rests and whatever is written over.

use super::*;
use crate::check::check;
use crate::layout::PAGE_BYTES;
use crate::testing::{Fs, NOW, contents, file, file_system};

const GAP: u32 = 4;

/// Returns the least and the most wear of the chunks that are free or have data.
fn wear(fs: &Fs) -> (u32, u32) {
    let chunks = (fs.geometry().system_chunks()..fs.geometry().chunks()).map(Chunk);
    let entries = chunks.map(|chunk| fs.space.entry(&fs.store, chunk).expect("sound"));
    let counted = entries.filter(|entry| match entry.usage {
        Use::Free | Use::Data => true,
        _ => entry.purpose() == Some(Purpose::Data),
    });
    let wear: Vec<_> = counted.map(|entry| entry.wear).collect();
    (*wear.iter().min().expect("chunks"), *wear.iter().max().expect("chunks"))
}

/// Writes over a file, part by part, and levels wear in between if `levels`; returns the largest difference.
fn write_over(fs: &mut Fs, hot: Ino, times: u32, levels: bool) -> u32 {
    let bytes = contents(hot, fs.inode(hot).expect("it exists").size);
    let mut most = 0;
    for _ in 0..times {
        for (nth, part) in bytes.chunks(4 * PAGE_BYTES as usize).enumerate() {
            fs.write(hot, nth as u64 * 4 * PAGE_BYTES, part, NOW).expect("space");
        }
        for step in 0.. {
            let Some(plan) = fs.plan_levelling(GAP).filter(|_| levels) else { break };
            assert!(step < 100, "levelling does not end: {plan:?}, {:?}", wear(fs));
            assert!(fs.level(&plan).expect("no failure"), "nothing has changed: {plan:?}");
            fs.sync().expect("no failure");
        }
        let (least, greatest) = wear(fs);
        most = most.max(greatest - least);
    }
    most
}

#[track_caller]
fn verify(fs: &Fs, files: &[Ino]) {
    for ino in files {
        let mut bytes = vec![0; fs.inode(*ino).expect("it exists").size as usize];
        fs.read(*ino, 0, &mut bytes).expect("it");
        assert!(bytes == contents(*ino, bytes.len() as u64), "inode {} has other contents", ino.0);
    }
    let report = check(fs);
    assert!(report.is_clean(), "{report:#?}");
}

/// A region in which large and small files rest, and the file that is written over.
fn sample(hot_bytes: u64) -> (Fs, Ino, Vec<Ino>) {
    let (mut fs, _) = file_system(&[]);
    let chunk = fs.geometry().chunk_bytes;
    let mut files = vec![file(&mut fs, "large", 10 * chunk - 100)];
    files.extend((0..20).map(|nth| file(&mut fs, &format!("small{nth}"), 3 * PAGE_BYTES)));
    let hot = file(&mut fs, "hot", hot_bytes);
    files.push(hot);
    fs.sync().expect("no failure");
    (fs, hot, files)
}

#[test]
fn what_is_written_over_moves_and_so_does_what_rests() {
    for hot_bytes in [2 << 16, 5 * PAGE_BYTES] {
        let (mut fs, hot, files) = sample(hot_bytes);
        let without = write_over(&mut fs, hot, 120, false);
        assert!(without > 30, "{without} without levelling");
        verify(&fs, &files);
        let (mut fs, hot, files) = sample(hot_bytes);
        // A round may write each chunk once, and a move counts once.
        let most = write_over(&mut fs, hot, 500, true);
        assert!(most <= 2 * GAP + 3, "chunks of data differ by {most}");
        assert!(wear(&fs).0 > 2, "all take part: {:?}", wear(&fs));
        verify(&fs, &files);
    }
}

#[test]
fn wear_counts_what_is_written_and_survives_a_mount() {
    let (mut fs, hot, files) = sample(1 << 16);
    let before = wear(&fs);
    write_over(&mut fs, hot, 11, false);
    fs.sync().expect("no failure");
    let after = wear(&fs);
    assert_eq!(after.1 - before.1, 10, "the first time fills what was allocated");
    let fs = crate::testing::open(fs.into_memory(), &crate::tiers::SimulatedContainers::default());
    assert_eq!(wear(&fs), after);
    verify(&fs, &files);
}

#[test]
fn without_a_difference_nothing_moves() {
    let (mut fs, _, files) = sample(1 << 16);
    assert!(fs.plan_levelling(GAP).is_none());
    // What was planned before a change is left alone.
    let hot = files[files.len() - 1];
    write_over(&mut fs, hot, 20, false);
    let plan = fs.plan_levelling(GAP).expect("one chunk differs");
    fs.truncate(hot, 0, NOW).expect("no failure");
    fs.sync().expect("no failure");
    assert!(!fs.level(&plan).expect("no failure"));
    assert!(check(&fs).is_clean());
}

/// The space of removed files that the next ones take over moves like that of others.
#[test]
fn null_files_move() {
    let (mut fs, hot, files) = sample(1 << 16);
    let small = files[1];
    write_over(&mut fs, hot, 20, false);
    // Of what differs, only small files are left.
    for name in ["large", "hot"] {
        let (ino, _) = fs.lookup(Ino::ROOT, name.as_bytes()).expect("it exists");
        fs.unlink(Ino::ROOT, name.as_bytes(), NOW).expect("it exists");
        fs.forget(ino, 0).expect("no failure");
    }
    fs.sync().expect("no failure");
    let plan = fs.plan_levelling(GAP).expect("small files rest");
    let chunk = |fs: &Fs, ino: Ino| match fs.inode(ino).expect("it exists").form {
        crate::layout::inode::Form::Run { first, .. } => fs.geometry().chunk_of(first).0,
        form => panic!("a run, not {form:?}"),
    };
    let here: Vec<_> = files[1..21].iter().filter(|ino| chunk(&fs, **ino) == plan.from).copied().collect();
    assert!(here.contains(&small), "the first of them");
    fs.unlink(Ino::ROOT, b"small0", NOW).expect("it exists");
    fs.forget(small, 0).expect("no failure");
    assert_eq!(fs.roots().null_count, 1);
    assert!(fs.level(&plan).expect("no failure"), "one of its runs is a null file's");
    fs.sync().expect("no failure");
    verify(&fs, &here[1..]);
    let new = file(&mut fs, "new", 3 * PAGE_BYTES);
    assert!(new == small && chunk(&fs, new) == plan.to, "it takes over the null file, where that is now");
    verify(&fs, &[new]);
}

/// What was allocated and not written reads as zeros wherever it moves, although others wrote there.
#[test]
fn unwritten_chunks_stay_unwritten() {
    let (mut fs, _) = file_system(&[]);
    let chunk = fs.geometry().chunk_bytes;
    let (ino, _) = fs.create_file(Ino::ROOT, b"file", &crate::testing::NEW, NOW).expect("space");
    let space = crate::namespace::Allocate::Space { keep_size: false };
    fs.allocate(ino, 0..4 * chunk, space, NOW).expect("space");
    let hot = file(&mut fs, "hot", 8 * chunk);
    write_over(&mut fs, hot, 20, false);
    fs.unlink(Ino::ROOT, b"hot", NOW).expect("it exists");
    fs.forget(hot, 0).expect("no failure");
    fs.sync().expect("no failure");
    let mut moved = 0;
    while let Some(plan) = fs.plan_levelling(GAP) {
        assert!(moved < 100 && fs.level(&plan).expect("no failure"), "{moved}: {plan:?}");
        fs.sync().expect("no failure");
        moved += 1;
    }
    assert!(moved >= 4, "{moved} chunks moved");
    let mut bytes = vec![1; 4 * chunk as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).expect("it exists"), bytes.len());
    assert!(bytes.iter().all(|byte| *byte == 0), "it has what the removed file had");
    assert!(check(&fs).is_clean());
}

/// A chunk that has been allocated since, or that the next commit frees, takes no data.
#[test]
fn data_moves_to_no_chunk_that_is_not_free() {
    let (mut fs, hot, files) = sample(1 << 16);
    write_over(&mut fs, hot, 20, false);
    fs.sync().expect("no failure");
    let plan = fs.plan_levelling(GAP).expect("one chunk differs");
    let bytes = fs.space.free_chunks() * fs.geometry().chunk_bytes;
    let other = file(&mut fs, "other", bytes);
    assert!(!fs.level(&plan).expect("no failure"), "another file has it");
    fs.truncate(other, 0, NOW).expect("no failure");
    assert!(!fs.level(&plan).expect("no failure"), "the other file has it after a power loss");
    fs.sync().expect("no failure");
    assert!(fs.level(&plan).expect("no failure"), "it is free again");
    verify(&fs, &files);
}

#[test]
fn what_is_most_worn_moves_first() {
    let (mut fs, hot, _) = sample(1 << 16);
    let hotter = file(&mut fs, "hotter", 1 << 16);
    write_over(&mut fs, hotter, 30, false);
    write_over(&mut fs, hot, 20, false);
    let plan = fs.plan_levelling(GAP).expect("two chunks differ");
    let (ino, index, _) = fs.owner_of(plan.from).expect("a large file's");
    assert_eq!((ino, index), (hotter, 0));
}
