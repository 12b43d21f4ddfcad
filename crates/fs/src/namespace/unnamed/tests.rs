//! Files without a name: what they inherit, what may name them, and what becomes of them.

use super::*;
use crate::check::check;
use crate::layout::quota::{Limit, Owner};
use crate::namespace::{Change, Durability};
use crate::nvm::Simulated;
use crate::testing::{Fs, NOW, contents, evicted_file, file, file_system, open};
use crate::tiers::Class;

const LATER: Time = Time { seconds: 2, nanos: 0 };
const USER: u32 = 1000;

fn new() -> New<'static> {
    let (kind, permissions) = (Kind::File, 0o640);
    New { kind, permissions, uid: USER, gid: 7, device: 0, target: &[], attributes: &[] }
}

/// Creates a file without a name that is open.
fn unnamed(fs: &mut Fs, is_linkable: bool) -> Ino {
    let (ino, inode) = fs.create_unnamed(Ino::ROOT, &new(), is_linkable, NOW).expect("space");
    fs.refer(ino);
    assert_eq!((inode.links, inode.mode, inode.uid, inode.gid), (0, 0o100_640, USER, 7));
    ino
}

/// Checks the file system; returns the number of orphans.
#[track_caller]
fn orphans(fs: &Fs) -> u64 {
    let report = check(fs);
    assert!(report.is_clean(), "{report:#?}");
    report.orphans
}

/// Returns the file system that a power loss leaves.
fn after_power_loss(mut fs: Fs, containers: &crate::tiers::SimulatedContainers) -> Fs {
    fs.commit().expect("no failure");
    open(fs.into_memory(), containers)
}

#[test]
fn a_file_without_a_name_is_an_orphan_until_it_is_linked() {
    let (mut fs, containers) = file_system(&[]);
    let directory_before = fs.inode(Ino::ROOT).expect("the root");
    let ino = unnamed(&mut fs, true);
    assert_eq!(fs.inode(Ino::ROOT).expect("the root"), directory_before, "the directory has no new entry");
    fs.write(ino, 0, &contents(ino, 9000), NOW).expect("space");
    assert_eq!(orphans(&fs), 1);
    let linked = fs.link(ino, Ino::ROOT, b"name", LATER).expect("its first name");
    assert_eq!((linked.links, linked.next, linked.previous, linked.changed), (1, None, None, LATER));
    assert_eq!(orphans(&fs), 0);
    fs.link(ino, Ino::ROOT, b"second", LATER).expect("a second name");
    fs.forget(ino, 1).expect("no failure");
    let fs = after_power_loss(fs, &containers);
    let (found, inode) = fs.lookup(Ino::ROOT, b"name").expect("its name");
    assert_eq!((found, inode.links, inode.parent), (ino, 2, Ino::ROOT));
    let mut bytes = vec![0; 9000];
    assert_eq!(fs.read(ino, 0, &mut bytes).expect("it"), 9000);
    assert!(bytes == contents(ino, 9000));
    assert_eq!(orphans(&fs), 0);
}

#[test]
fn only_a_linkable_file_gets_a_first_name_and_only_once() {
    let (mut fs, _) = file_system(&[]);
    let exclusive = unnamed(&mut fs, false);
    assert!(matches!(fs.link(exclusive, Ino::ROOT, b"name", NOW), Err(Error::NotFound)));
    let ino = unnamed(&mut fs, true);
    file(&mut fs, "taken", 10);
    assert!(
        matches!(fs.link(ino, Ino::ROOT, b"taken", NOW), Err(Error::Exists)),
        "a failure changes nothing"
    );
    assert_eq!(orphans(&fs), 2);
    fs.link(ino, Ino::ROOT, b"name", NOW).expect("its first name");
    fs.unlink(Ino::ROOT, b"name", NOW).expect("it");
    assert!(
        matches!(fs.link(ino, Ino::ROOT, b"name", NOW), Err(Error::NotFound)),
        "it has lost its last one"
    );
    let unlinked = file(&mut fs, "file", 10);
    fs.refer(unlinked);
    fs.unlink(Ino::ROOT, b"file", NOW).expect("it");
    assert!(matches!(fs.link(unlinked, Ino::ROOT, b"name", NOW), Err(Error::NotFound)));
    assert_eq!(orphans(&fs), 3);
}

/// An inode that is freed takes its permission to be linked with it.
#[test]
fn the_next_file_with_the_inode_may_not_be_linked() {
    let (mut fs, _) = file_system(&[]);
    let ino = unnamed(&mut fs, true);
    fs.forget(ino, 1).expect("no failure");
    fs.sync().expect("no failure");
    let next = unnamed(&mut fs, false);
    assert_eq!(next, ino, "the inode is used again");
    assert!(matches!(fs.link(next, Ino::ROOT, b"name", NOW), Err(Error::NotFound)));
}

#[test]
fn its_space_returns_with_the_last_reference_or_the_next_mount() {
    let (mut fs, containers) = file_system(&[]);
    file(&mut fs, "other", 10);
    fs.sync().expect("no failure");
    let before = (fs.usage().free_pages, fs.usage().inodes);
    for bytes in [100, 300_000] {
        let ino = unnamed(&mut fs, true);
        fs.write(ino, 0, &contents(ino, bytes), NOW).expect("space");
        assert_eq!(fs.usage().inodes, before.1 + 1);
        fs.forget(ino, 1).expect("no failure");
        assert!(matches!(fs.inode(ino), Err(Error::NotFound)));
        fs.sync().expect("no failure");
        assert_eq!((fs.usage().free_pages, fs.usage().inodes), before, "after the last close");
    }
    for bytes in [100, 300_000] {
        let ino = unnamed(&mut fs, true);
        fs.write(ino, 0, &contents(ino, bytes), NOW).expect("space");
        fs = after_power_loss(fs, &containers);
        assert_eq!((fs.usage().free_pages, fs.usage().inodes), before, "after a power loss");
        assert_eq!(orphans(&fs), 0);
    }
}

/// Taking one off the list leaves the others on it, wherever it was.
#[test]
fn orphans_around_a_linked_file_stay_orphans() {
    for linked in 0..3 {
        let (mut fs, containers) = file_system(&[]);
        let inos = [unnamed(&mut fs, true), unnamed(&mut fs, true), unnamed(&mut fs, true)];
        fs.link(inos[linked], Ino::ROOT, b"name", NOW).expect("its first name");
        assert_eq!(orphans(&fs), 2);
        let mut fs = after_power_loss(fs, &containers);
        assert_eq!(fs.lookup(Ino::ROOT, b"name").expect("its name").0, inos[linked]);
        assert_eq!((orphans(&fs), check(&fs).files), (0, 1));
        assert_eq!(fs.usage().inodes, 2, "the root and the file");
        fs.sync().expect("no failure");
    }
}

#[test]
fn it_inherits_the_group_of_its_directory() {
    let (mut fs, _) = file_system(&[]);
    let kind = Kind::Directory;
    let (directory, _) = fs
        .create_file(Ino::ROOT, b"d", &New { kind, permissions: 0o2775, gid: 50, ..new() }, NOW)
        .expect("space");
    let (_, inode) = fs.create_unnamed(directory, &new(), true, NOW).expect("space");
    assert_eq!((inode.gid, inode.mode), (50, 0o100_640), "the bit itself is for directories");
    assert!(matches!(fs.create_unnamed(directory, &New { kind, ..new() }, true, NOW), Err(Error::Invalid)));
    fs.refer(directory);
    let error = fs
        .remove_directory(Ino::ROOT, b"d", NOW)
        .and_then(|()| fs.create_unnamed(directory, &new(), true, NOW).map(drop));
    assert!(matches!(error, Err(Error::NotFound)), "it was removed: {error:?}");
}

#[test]
fn its_owner_is_charged_until_it_is_freed() {
    let (mut fs, _) = file_system(&[]);
    fs.set_limit(Owner::User(USER), Limit { bytes: Some(5000), inodes: Some(1) }).expect("space");
    while fs.count_inodes(100) {}
    fs.enforce_limits(true);
    let ino = unnamed(&mut fs, true);
    fs.write(ino, 0, &[1; 5000], NOW).expect("within the limit");
    assert!(matches!(fs.write(ino, 5000, &[1], NOW), Err(Error::OverQuota)));
    let second = fs.create_unnamed(Ino::ROOT, &new(), true, NOW);
    assert!(matches!(second, Err(Error::OverQuota)), "{second:?}");
    assert_eq!(orphans(&fs), 1, "nothing is left of what was refused");
    let usage = fs.owner_usages()[&Owner::User(USER)];
    assert_eq!((usage.bytes, usage.inodes), (5000, 1));
    assert_eq!(fs.owner_usages(), &fs.count_owners());
    fs.link(ino, Ino::ROOT, b"name", NOW).expect("a name costs nothing");
    assert_eq!(fs.owner_usages()[&Owner::User(USER)], usage);
    fs.unlink(Ino::ROOT, b"name", NOW).expect("it");
    fs.forget(ino, 1).expect("no failure");
    assert!(!fs.owner_usages().contains_key(&Owner::User(USER)));
}

#[test]
fn a_file_in_a_container_is_linked_and_freed_like_any_other() {
    let (mut fs, containers) = file_system(&[Class::Disk]);
    evicted_file(&mut fs, "other");
    for is_linked in [true, false] {
        let ino = unnamed(&mut fs, true);
        fs.write(ino, 0, &contents(ino, 9000), NOW).expect("space");
        fs.evict_now(ino).expect("a tier takes it");
        fs.sync().expect("no failure");
        assert_eq!(fs.header(ino).expect("it").path, b"", "it has no path");
        if is_linked {
            fs.take_stale_headers(10);
            fs.link(ino, Ino::ROOT, b"name", NOW).expect("its first name");
            assert_eq!(fs.take_stale_headers(10), [ino], "its container has to name it");
            assert_eq!(fs.header(ino).expect("it").path, b"name");
        }
        fs.forget(ino, 1).expect("no failure");
        fs.sync().expect("no failure");
        let tier = crate::tiers::TierNumber(0);
        let count = fs.containers().list(tier).expect("the tier").len();
        assert_eq!(count, 2, "that of the other file, and that of the linked one");
    }
    let fs = after_power_loss(fs, &containers);
    let mut bytes = vec![0; 9000];
    let (ino, _) = fs.lookup(Ino::ROOT, b"name").expect("its name");
    assert_eq!(fs.read(ino, 0, &mut bytes).expect("it"), 9000);
    assert!(bytes == contents(ino, 9000));
}

#[test]
fn it_is_changed_like_any_other_file() {
    let (mut fs, _) = file_system(&[]);
    let ino = unnamed(&mut fs, true);
    fs.write(ino, 100_000, &[1; 5000], NOW).expect("space");
    fs.truncate(ino, 200, NOW).expect("it");
    fs.allocate(ino, 0..70_000, crate::namespace::Allocate::Space { keep_size: false }, NOW).expect("space");
    fs.set_attribute(ino, b"user.a", b"1", crate::namespace::SetAttribute::Always, NOW).expect("space");
    fs.set_attributes(ino, &Change { permissions: Some(0o4711), ..Change::default() }, NOW).expect("it");
    assert_eq!(orphans(&fs), 1);
    let inode = fs.link(ino, Ino::ROOT, b"name", NOW).expect("its first name");
    assert_eq!((inode.size, inode.mode, inode.links), (70_000, 0o104_711, 1));
    assert_eq!(fs.attribute(ino, b"user.a").expect("it"), b"1");
    assert_eq!(orphans(&fs), 0);
}

#[test]
fn nothing_can_be_created_in_a_file_system_that_is_read_only() {
    let (fs, _) = file_system(&[]);
    let mut fs = FileSystem::<Simulated>::open_read_only(fs.into_memory()).expect("the file system");
    assert_eq!(fs.durability(), Durability::Sync);
    assert!(matches!(fs.create_unnamed(Ino::ROOT, &new(), true, NOW), Err(Error::ReadOnly)));
}
