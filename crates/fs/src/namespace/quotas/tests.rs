//! Limits at their edges, and what programs see of them.

use super::*;
use crate::check::check;
use crate::layout::inode::{Form, Kind};
use crate::layout::quota::BYTES_MAX;
use crate::layout::{Geometry, PAGE_BYTES};
use crate::namespace::{Allocate, New, SetAttribute};
use crate::repair::repair;
use crate::testing::{Fs, NOW, file, file_system, open};
use crate::tiers::Class;

const USER: u32 = 1000;
const LIMIT: Limit = Limit { bytes: Some(10_000), inodes: Some(2) };

/// Returns a file system in which limits hold for a user, and a file of it.
fn limited() -> (Fs, Ino) {
    let (mut fs, _) = file_system(&[Class::Disk]);
    let ino = file(&mut fs, "file", 4000);
    let owner = crate::namespace::Change { uid: Some(USER), ..Default::default() };
    fs.set_attributes(ino, &owner, NOW).expect("no limit");
    fs.set_limit(Owner::User(USER), LIMIT).expect("space");
    while fs.count_inodes(3) {}
    fs.enforce_limits(true);
    (fs, ino)
}

fn new_file(fs: &mut Fs, name: &str) -> Result<Ino> {
    let new = New {
        kind: Kind::File,
        permissions: 0o644,
        uid: USER,
        gid: 0,
        device: 0,
        target: &[],
        attributes: &[],
    };
    fs.create_file(Ino::ROOT, name.as_bytes(), &new, NOW).map(|(ino, _)| ino)
}

fn used(fs: &Fs) -> (u64, u64) {
    let usage = fs.owner_usages().get(&Owner::User(USER)).copied().unwrap_or_default();
    (u64::try_from(usage.bytes).expect("few bytes"), usage.inodes)
}

#[test]
fn a_limit_is_reached_and_not_exceeded() {
    let (mut fs, ino) = limited();
    assert_eq!((used(&fs), fs.counting()), ((4000, 1), Counting::Complete));
    fs.write(ino, 9000, &[1; 1000], NOW).expect("exactly the limit");
    // Not even the bytes before the old end are written.
    assert!(matches!(fs.write(ino, 9000, &[2; 1001], NOW), Err(Error::OverQuota)));
    let mut byte = [0];
    fs.read(ino, 9000, &mut byte).expect("it can be read");
    assert_eq!((byte, used(&fs)), ([1], (10_000, 1)));
    fs.write(ino, 0, &[3; 10_000], NOW).expect("no growth");
    assert!(matches!(fs.truncate(ino, 10_001, NOW), Err(Error::OverQuota)));
    for how in [Allocate::Space { keep_size: false }, Allocate::Zero { keep_size: false }] {
        assert!(matches!(fs.allocate(ino, 0..10_001, how, NOW), Err(Error::OverQuota)));
    }
    fs.read(ino, 9000, &mut byte).expect("it can be read");
    assert_eq!(byte, [3], "nothing was zeroed");
    let uncounted = fs.allocate(ino, 0..10_001, Allocate::Space { keep_size: true }, NOW);
    assert!(matches!(uncounted, Err(Error::NotSupported)));
    new_file(&mut fs, "second").expect("exactly the limit");
    assert!(matches!(new_file(&mut fs, "third"), Err(Error::OverQuota)));
    assert!(matches!(fs.lookup(Ino::ROOT, b"third"), Err(Error::NotFound)));
    fs.enforce_limits(false);
    new_file(&mut fs, "third").expect("root has no limit");
    fs.truncate(ino, 20_000, NOW).expect("root has no limit");
    fs.enforce_limits(true);
    fs.truncate(ino, 15_000, NOW).expect("it lowers the usage, although there is too much");
    fs.unlink(Ino::ROOT, b"file", NOW).expect("it lowers the usage");
    assert_eq!(used(&fs), (0, 2));
    assert!(check(&fs).is_clean());
}

#[test]
fn a_container_that_the_kernel_writes_counts_once_it_is_closed() {
    let (mut fs, ino) = limited();
    fs.evict_now(ino).expect("a tier takes it");
    assert_eq!(used(&fs), (4000, 1), "a move changes nothing");
    let container = fs.passthrough_container(ino).expect("a file").expect("a container");
    fs.set_passthrough(ino, true);
    fs.prepare_passthrough(ino, true).expect("no failure");
    fs.sync().expect("no failure");
    fs.containers().write(container, 15_000, &[1; 5000]).expect("space");
    assert_eq!(used(&fs), (4000, 1));
    // What others do with the file is not refused for that; more growth is.
    fs.link(ino, Ino::ROOT, b"link", NOW).expect("no growth");
    assert_eq!(used(&fs), (20_000, 1));
    assert!(matches!(fs.truncate(ino, 20_001, NOW), Err(Error::OverQuota)));
    assert_eq!(fs.containers().len(container).expect("it exists"), 20_000);
    fs.containers().write(container, 20_000, &[1; 5000]).expect("space");
    fs.set_passthrough(ino, false);
    fs.enforce_limits(false);
    fs.end_passthrough(ino).expect("no failure");
    assert_eq!(used(&fs), (25_000, 1));
}

#[test]
fn a_new_owner_takes_over_what_the_kernel_has_written() {
    const GROUP: Owner = Owner::Group(7);
    let (mut fs, ino) = limited();
    fs.set_limit(GROUP, LIMIT).expect("space");
    fs.enforce_limits(false);
    fs.evict_now(ino).expect("a tier takes it");
    let container = fs.passthrough_container(ino).expect("a file").expect("a container");
    fs.set_passthrough(ino, true);
    fs.prepare_passthrough(ino, true).expect("no failure");
    fs.truncate(ino, 0, NOW).expect("no growth");
    fs.sync().expect("no failure");
    fs.containers().write(container, 0, &[1; 10_001]).expect("space");
    fs.enforce_limits(true);
    assert_eq!(used(&fs), (0, 1), "it is not counted yet");
    let change = crate::namespace::Change { gid: Some(7), ..Default::default() };
    assert!(matches!(fs.set_attributes(ino, &change, NOW), Err(Error::OverQuota)));
    assert_eq!(fs.owner_usages().get(&GROUP), None);
    fs.truncate(ino, 10_000, NOW).expect("it lowers the size");
    fs.set_attributes(ino, &change, NOW).expect("exactly the limit of the group");
    assert_eq!(fs.owner_usages()[&GROUP], OwnerUsage { bytes: 10_000, inodes: 1 });
}

#[test]
fn sizes_add_up_beyond_64_bits() {
    let (fs, ino) = limited();
    let inode = Inode { size: 1 << 63, ..fs.inode(ino).expect("it") };
    let mut quotas = Quotas { walk: Walk::Complete, is_enforced: true, ..Quotas::default() };
    let owner = Owner::User(inode.uid);
    quotas.limits = Limits::from([(owner, Limit { bytes: Some(u64::MAX - 1), inodes: None })]);
    for _ in 0..5 {
        Quotas::count(&mut quotas.usage, &inode);
    }
    let charge = Charge::of(&inode).expect("a file");
    for left in (0..5).rev() {
        quotas.begin();
        quotas.add(charge, -1);
        quotas.finish().expect("it lowers the usage");
        let expected = OwnerUsage { bytes: left << 63, inodes: left as u64 };
        assert_eq!(quotas.usage.get(&owner).copied().unwrap_or_default(), expected);
    }
    let mut add = || {
        quotas.begin();
        quotas.add(charge, 1);
        quotas.finish()
    };
    add().expect("within the limit");
    assert!(matches!(add(), Err(Error::OverQuota)));
}

/// A refused write changes nothing, not even where the file is.
#[test]
fn a_refused_write_does_not_move_the_file() {
    let (mut fs, ino) = limited();
    let share = fs.region_share();
    assert!(matches!(fs.write(ino, share, &[1], NOW), Err(Error::OverQuota)));
    assert!(matches!(fs.inode(ino).expect("it").form, Form::Run { .. }));
    fs.enforce_limits(false);
    fs.write(ino, share, &[1], NOW).expect("root has no limit");
    assert!(matches!(fs.inode(ino).expect("it").form, Form::Container(_)));
}

/// Otherwise many small files could fill the region, whatever the limit.
#[test]
fn a_file_of_a_limited_user_that_becomes_small_keeps_no_chunk() {
    let (mut fs, ino) = limited();
    fs.set_limit(Owner::User(USER), Limit { bytes: Some(1 << 30), inodes: None }).expect("space");
    let (run_max, chunk) = (fs.geometry().run_bytes_max(), fs.geometry().chunk_bytes);
    for (size, pages) in [(run_max, run_max.div_ceil(PAGE_BYTES)), (4097, 2), (1, 1), (0, 0)] {
        fs.write(ino, 0, &vec![7; chunk as usize], NOW).expect("space");
        assert!(matches!(fs.inode(ino).expect("it").form, Form::Tree { .. }));
        fs.truncate(ino, size, NOW).expect("no growth");
        assert_eq!(fs.inode(ino).expect("it").pages, pages, "{size}");
        fs.truncate(ino, run_max, NOW).expect("within the limit");
        let mut bytes = vec![9; run_max as usize];
        fs.read(ino, 0, &mut bytes).expect("it can be read");
        let expected: Vec<u8> = (0..run_max).map(|at| if at < size { 7 } else { 0 }).collect();
        assert_eq!(bytes, expected, "{size}");
        fs.truncate(ino, 0, NOW).expect("no growth");
        assert!(check(&fs).is_clean());
    }
    // Its first chunk is a hole, or nothing has been written to it.
    for is_reserved in [false, true] {
        if is_reserved {
            let how = Allocate::Space { keep_size: false };
            fs.allocate(ino, 0..chunk, how, NOW).expect("space");
        } else {
            fs.write(ino, chunk, &[7], NOW).expect("space");
        }
        fs.truncate(ino, 5, NOW).expect("no growth");
        assert_eq!(fs.inode(ino).expect("it").pages, 0);
        let mut bytes = [9; 6];
        assert_eq!(fs.read(ino, 0, &mut bytes).expect("it can be read"), 5);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 9]);
        assert!(check(&fs).is_clean());
    }
}

#[test]
fn programs_neither_see_nor_change_the_attribute() {
    let (mut fs, _) = limited();
    fs.set_attribute(Ino::ROOT, b"user.a", b"1", SetAttribute::Always, NOW).expect("space");
    assert_eq!(fs.attributes(Ino::ROOT).expect("sound"), [(b"user.a".to_vec(), b"1".to_vec())]);
    assert!(matches!(fs.attribute(Ino::ROOT, ATTRIBUTE), Err(Error::NoAttribute)));
    let set = fs.set_attribute(Ino::ROOT, ATTRIBUTE, b"", SetAttribute::Always, NOW);
    assert!(matches!(set, Err(Error::NotSupported)));
    assert!(matches!(fs.remove_attribute(Ino::ROOT, ATTRIBUTE, NOW), Err(Error::NoAttribute)));
    fs.remove_attribute(Ino::ROOT, b"user.a", NOW).expect("it exists");
    assert_eq!(fs.stored_limits().expect("sound"), Limits::from([(Owner::User(USER), LIMIT)]));
}

/// The largest value fits into the smallest runs.
#[test]
fn as_many_limits_as_there_can_be_are_stored() {
    let (mut fs, containers) = file_system(&[Class::Disk]);
    let geometry = Geometry::new(2 << 20, Geometry::CHUNK_BYTES_MIN).expect("a possible size");
    assert!((BYTES_MAX + 100) as u64 <= geometry.run_bytes_max());
    let limits: Limits = (0..quota::LIMITS_MAX as u32).map(|id| (Owner::User(id), LIMIT)).collect();
    fs.store_limits(&limits).expect("space");
    fs.sync().expect("no failure");
    let mut fs = open(fs.into_memory(), &containers);
    assert_eq!(*fs.limits(), limits);
    assert!(matches!(fs.set_limit(Owner::Group(1), LIMIT), Err(Error::Invalid)));
    assert_eq!(*fs.limits(), limits);
    fs.set_limit(Owner::User(0), Limit::default()).expect("one less");
    fs.set_limit(Owner::Group(1), LIMIT).expect("as many as before");
    assert!(check(&fs).is_clean());
}

/// Damaged limits keep a file system from being mounted; a repair removes them, and nothing else.
#[test]
fn a_repair_removes_damaged_limits_and_keeps_sound_ones() {
    for is_damaged in [true, false] {
        let (mut fs, _) = limited();
        fs.set_attribute(Ino::ROOT, b"user.a", b"1", SetAttribute::Always, NOW).expect("space");
        fs.sync().expect("no failure");
        let (first, _) = fs.inode(Ino::ROOT).expect("it").attributes.expect("attributes");
        let mut page = [0; 4096];
        fs.store().load_data(first.address(), &mut page);
        let at = page.windows(ATTRIBUTE.len()).position(|name| name == ATTRIBUTE).expect("the name");
        let damaged_at = match is_damaged {
            true => first.address() + (at + ATTRIBUTE.len() + 17) as u64,
            // Number of links of the root.
            false => fs.inode_at(Ino::ROOT).expect("it") + 4,
        };
        fs.store_mut().memory_mut().store(damaged_at, &[9]);
        let memory = fs.into_memory();
        let fs = FileSystem::open_read_only(memory).expect("it can be read");
        assert!(!check(&fs).is_clean());
        let opened = FileSystem::open(fs.into_memory(), crate::namespace::Durability::Sync);
        assert_eq!(matches!(opened, Err(Error::Damaged(_))), is_damaged);
        let memory = damaged(damaged_at);
        let (memory, outcome) = repair(memory, NOW).expect("it can be repaired");
        let said = outcome.lost.iter().any(|line| line.contains("limits of users and groups"));
        assert_eq!(said, is_damaged, "{outcome:?}");
        let fs = FileSystem::open(memory, crate::namespace::Durability::Sync).expect("it is sound");
        assert_eq!(fs.limits().is_empty(), is_damaged);
        assert_eq!(fs.attribute(Ino::ROOT, b"user.a").expect("it stays"), b"1");
    }
}

/// Returns the memory of the file system of the test above, with one byte changed.
fn damaged(at: u64) -> crate::nvm::Simulated {
    let (mut fs, _) = limited();
    fs.set_attribute(Ino::ROOT, b"user.a", b"1", SetAttribute::Always, NOW).expect("space");
    fs.sync().expect("no failure");
    let mut memory = fs.into_memory();
    memory.store(at, &[9]);
    memory
}
