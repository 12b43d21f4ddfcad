//! Tiers that are added, emptied and removed.

use super::*;
use crate::check::check_with_containers;
use crate::layout::superblock::Superblock;
use crate::layout::{Geometry, PAGE_BYTES};
use crate::nvm::{Granule, Simulated};
use crate::testing::{Fs, NOW, contents, file, open, superblock};
use crate::tiers::{Containers as _, SimulatedContainers};

const FIRST: TierNumber = TierNumber(0);
const SECOND: TierNumber = TierNumber(1);

/// Returns a file system without tiers.
fn file_system() -> (Fs, SimulatedContainers) {
    crate::testing::file_system(&[])
}

fn add(fs: &mut Fs, number: u8) -> TierNumber {
    fs.add_tier(Class::Disk, format!("/{number}").into(), [number; 16]).expect("a new tier")
}

fn verify(fs: &Fs, ino: Ino, bytes: u64) {
    let mut found = vec![0; bytes as usize];
    assert_eq!(fs.read(ino, 0, &mut found).expect("it can be read"), bytes as usize);
    assert!(found == contents(ino, bytes));
}

fn form(fs: &Fs, ino: Ino) -> Form {
    fs.inode(ino).expect("it exists").form
}

#[test]
fn a_tier_that_is_added_takes_files_and_is_still_there_after_a_mount() {
    let (mut fs, containers) = file_system();
    let ino = file(&mut fs, "file", 9000);
    assert!(matches!(fs.evict_now(ino), Err(Error::NoTier)));
    assert_eq!(add(&mut fs, 7), FIRST);
    fs.evict_now(ino).expect("the tier takes it");
    fs.sync().expect("no failure");
    let mut fs = open(fs.into_memory(), &containers);
    assert_eq!((fs.tiers().len(), fs.tiers()[0].next), (1, 2));
    verify(&fs, ino, 9000);
    fs.set_tier_paths(&[(FIRST, "/elsewhere".into())]).expect("it exists");
    assert!(matches!(fs.set_tier_paths(&[(SECOND, "/x".into())]), Err(Error::NoTier)));
    let fs = open(fs.into_memory(), &containers);
    assert_eq!(fs.tiers()[0].path, PathBuf::from("/elsewhere"));
    assert!(check_with_containers(&fs).is_clean());
}

#[test]
fn a_tier_that_leaves_takes_nothing_and_its_files_move() {
    let (mut fs, containers) = file_system();
    add(&mut fs, 7);
    let files: Vec<_> = (0..5).map(|number| file(&mut fs, &format!("file-{number}"), 9000)).collect();
    files[..3].iter().for_each(|ino| fs.evict_now(*ino).expect("the tier takes it"));
    let begun = fs.begin_eviction(files[3], FIRST).expect("the tier takes it");
    fs.set_leaving(FIRST, true).expect("it exists");
    assert!(matches!(fs.finish_eviction(&begun), Err(Error::Changing)), "the tier began to leave");
    assert!(matches!(fs.begin_eviction(files[4], FIRST), Err(Error::NoTier)));
    assert!(matches!(fs.evict_now(files[4]), Err(Error::NoTier)));
    assert!(matches!(fs.remove_tier(FIRST), Err(Error::NotEmpty)));
    // It is remembered.
    let mut fs = open(fs.into_memory(), &containers);
    assert_eq!(fs.tiers()[0].role, Role::Leaving);
    assert_eq!(fs.files_in_tier(FIRST), files[..3]);
    // One to the region, one to another tier.
    fs.move_out(files[0]).expect("the region has space");
    assert!(matches!(form(&fs, files[0]), Form::Run { .. }));
    assert_eq!(add(&mut fs, 8), SECOND);
    files.iter().for_each(|ino| fs.move_out(*ino).expect("the other tier has space"));
    assert!(matches!(form(&fs, files[1]), Form::Container(Container { tier: SECOND, .. })));
    fs.remove_tier(FIRST).expect("it has no files");
    assert!(containers.list(FIRST).expect("no failure").is_empty() && containers.marker(FIRST).is_none());
    files.iter().for_each(|ino| verify(&fs, *ino, 9000));
    assert!(matches!(fs.remove_tier(FIRST), Err(Error::NoTier)));
    let mut fs = open(fs.into_memory(), &containers);
    assert!(fs.tiers()[0].is_removed() && check_with_containers(&fs).is_clean());
    // The next one takes its place, but none of its numbers.
    let next = fs.tiers()[0].next;
    assert!(next > 3);
    assert_eq!((add(&mut fs, 9), fs.tiers()[0].next), (FIRST, next));
}

#[test]
fn files_without_space_elsewhere_keep_their_tier() {
    let (mut fs, containers) = file_system();
    add(&mut fs, 7);
    // Larger than the share that one file may have of the region.
    let large = file(&mut fs, "large", 700_000);
    assert!(matches!(form(&fs, large), Form::Container(_)));
    fs.set_leaving(FIRST, true).expect("it exists");
    assert!(matches!(fs.move_out(large), Err(Error::NoTier)));
    add(&mut fs, 8);
    containers.limit(SECOND, 10 * PAGE_BYTES);
    assert!(matches!(fs.move_out(large), Err(Error::NoTier)));
    verify(&fs, large, 700_000);
    fs.set_leaving(FIRST, false).expect("it exists");
    let small = file(&mut fs, "small", 60_000);
    fs.evict_now(small).expect("the tier takes it");
    assert_eq!(fs.files_in_tier(FIRST), [large, small]);
}

#[test]
fn a_table_without_space_or_none_takes_no_tier() {
    let (mut fs, containers) = file_system();
    let long = |number: usize| PathBuf::from(format!("/{}{number}", "x".repeat(2010)));
    fs.add_tier(Class::Flash, long(1), [1; 16]).expect("one fits");
    assert!(matches!(fs.add_tier(Class::Flash, long(2), [2; 16]), Err(Error::Invalid)));
    assert_eq!((fs.tiers().len(), containers.marker(SECOND)), (1, None));
    let mut memory = Simulated::new(2 << 20, Granule::Word);
    memory = FileSystem::create(memory, &superblock(), (0, 0), NOW).expect("a new file system");
    let old = Superblock { has_tiers: false, ..superblock() }.encode();
    for at in [0, Geometry::COPY_AT] {
        use crate::nvm::Memory as _;
        memory.store(at, &old);
    }
    let mut fs = open(memory, &SimulatedContainers::default());
    assert!(matches!(fs.add_tier(Class::Disk, "/a".into(), [1; 16]), Err(Error::NotSupported)));
    assert!(check_with_containers(&fs).is_clean());
}

#[test]
fn files_of_a_lost_tier_stay_and_cannot_be_read() {
    let (mut fs, containers) = file_system();
    add(&mut fs, 7);
    let files: Vec<_> = (0..3).map(|number| file(&mut fs, &format!("file-{number}"), 9000)).collect();
    files[..2].iter().for_each(|ino| fs.evict_now(*ino).expect("the tier takes it"));
    // Of one of them, size and times were those of its container.
    fs.prepare_passthrough(files[0], true).expect("usable");
    fs.sync().expect("no failure");
    containers.set_gone(Some(FIRST));
    fs.set_leaving(FIRST, true).expect("it exists");
    fs.lose_files(FIRST).expect("no failure");
    // After a crash in between, it is done again.
    let mut fs = open(fs.into_memory(), &containers);
    assert!(fs.is_leaving(FIRST) && fs.files_in_tier(FIRST).is_empty());
    fs.lose_files(FIRST).expect("no failure");
    fs.forget_tier(FIRST).expect("it has no files");
    containers.set_gone(None);
    containers.release(FIRST).expect("its directory is another one's");
    // Another tier takes the place and the numbers after it.
    assert_eq!(add(&mut fs, 8), FIRST);
    let mut fs = open(fs.into_memory(), &containers);
    assert!(check_with_containers(&fs).is_clean());
    let found = fs.tier_contents();
    assert_eq!((found.tiers, found.lost), (vec![(0, 0)], 2));
    for ino in &files[..2] {
        let error = fs.read(*ino, 0, &mut [0; 10]).expect_err("its data is lost");
        assert_eq!((error.errno(), fs.inode(*ino).expect("it exists").size), (libc::EIO, 9000));
        assert!(!fs.inode(*ino).expect("it exists").is_passthrough);
        assert_eq!(fs.write(*ino, 0, b"new", NOW).expect_err("its data is lost").errno(), libc::EIO);
        assert_eq!(fs.promote(*ino).expect_err("its data is lost").errno(), libc::EIO);
        fs.inode(*ino).expect("it exists");
    }
    verify(&fs, files[2], 9000);
    // Emptied, it is a file like any other; one can be removed.
    fs.truncate(files[0], 0, NOW).expect("it can be emptied");
    fs.write(files[0], 0, &contents(files[0], 9000), NOW).expect("space");
    verify(&fs, files[0], 9000);
    fs.unlink(Ino::ROOT, b"file-1", NOW).expect("a file");
    fs.sync().expect("no failure");
    assert_eq!(fs.tier_contents().lost, 0);
    assert!(check_with_containers(&fs).is_clean());
}
