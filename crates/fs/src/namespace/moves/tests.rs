//! Moves between region and tiers, and tiers that fail.

use super::*;
use crate::check::check_with_containers;
use crate::layout::inode::Kind;
use crate::namespace::{ACCESS_LIST, Allocate, Change, New, Scan, SetAttribute};
use crate::testing::{Fs, NOW, contents, file};
use crate::tiers::{Class, SimulatedContainers};

const FLASH: TierNumber = TierNumber(0);
const DISK: TierNumber = TierNumber(1);

fn file_system() -> (Fs, SimulatedContainers) {
    crate::testing::file_system(&[Class::Flash, Class::Disk])
}

fn read(fs: &Fs, ino: Ino) -> Result<Vec<u8>> {
    let mut bytes = vec![0; fs.inode(ino)?.size as usize];
    fs.read(ino, 0, &mut bytes)?;
    Ok(bytes)
}

fn tier(fs: &Fs, ino: Ino) -> Option<TierNumber> {
    match fs.inode(ino).expect("it exists").form {
        Form::Container(container) => Some(container.tier),
        _ => None,
    }
}

fn numbers(containers: &SimulatedContainers) -> usize {
    use crate::tiers::Containers as _;
    [FLASH, DISK].iter().map(|tier| containers.list(*tier).expect("no failure").len()).sum()
}

#[test]
fn a_container_that_cannot_be_made_durable_fails_the_commit() {
    let (mut fs, containers) = file_system();
    let ino = file(&mut fs, "file", 9000);
    fs.evict_now(ino).expect("a tier takes it");
    fs.sync().expect("no failure");
    fs.write(ino, 0, b"new", NOW).expect("in place");
    containers.fail_syncs();
    assert!(matches!(fs.sync(), Err(Error::Container(_))));
    assert!(matches!(fs.sync(), Err(Error::Failed)), "a repeated sync cannot tell what was lost");
    assert!(matches!(fs.write(ino, 0, b"more", NOW), Err(Error::Failed)));
}

#[test]
fn an_operation_that_fails_keeps_the_container() {
    let (mut fs, _) = file_system();
    let ino = file(&mut fs, "file", 9000);
    fs.evict_now(ino).expect("a tier takes it");
    fs.sync().expect("no failure");
    let failed: Result<()> = fs.transact(|fs| {
        let mut inode = fs.file(ino)?;
        let Form::Container(container) = inode.form else { return Ok(()) };
        fs.resize_container(ino, &mut inode, container, 0)?;
        fs.set_inode(ino, &inode);
        Err(Error::TooLarge)
    });
    assert!(matches!(failed, Err(Error::TooLarge)));
    file(&mut fs, "other", 10);
    fs.sync().expect("no failure");
    assert_eq!(read(&fs, ino).expect("it has its container"), contents(ino, 9000));
}

#[test]
fn a_vanished_tier_fails_its_files_alone() {
    let (mut fs, containers) = file_system();
    let (gone, kept, other) = (file(&mut fs, "a", 9000), file(&mut fs, "b", 9000), file(&mut fs, "c", 9000));
    fs.evict_now(gone).expect("a tier takes it");
    let away = tier(&fs, gone);
    fs.sync().expect("no failure");
    containers.set_gone(away);
    assert_eq!(read(&fs, gone).map_err(|error| error.errno()), Err(libc::EIO));
    assert_eq!(fs.write(gone, 0, b"x", NOW).map_err(|error| error.errno()), Err(libc::EIO));
    assert_eq!(read(&fs, kept).expect("in the region"), contents(kept, 9000));
    fs.evict_now(other).expect("the other tier takes it");
    assert_ne!(tier(&fs, other), away);
    fs.sync().expect("others go on");
    let report = check_with_containers(&fs);
    assert!(report.findings.is_empty() && report.missing.len() == 1, "{report:?}");
    containers.set_gone(None);
    assert_eq!(read(&fs, gone).expect("it is back"), contents(gone, 9000));
}

#[test]
fn pinned_files_stay_however_full_the_region_is() {
    let (mut fs, _) = file_system();
    let pinned = file(&mut fs, "pinned", 400_000);
    fs.pin(pinned, true, NOW).expect("a file");
    assert!(matches!(fs.evict_now(pinned), Err(Error::Pinned)));
    let others: Vec<_> = (0..20).map(|number| file(&mut fs, &format!("file-{number}"), 300_000)).collect();
    assert_eq!(tier(&fs, pinned), None);
    assert!(others.iter().filter(|ino| tier(&fs, **ino).is_some()).count() >= 14);
    for ino in others {
        assert_eq!(read(&fs, ino).expect("it"), contents(ino, 300_000));
    }
    assert!(check_with_containers(&fs).is_clean());
}

#[test]
fn a_file_that_outgrows_its_share_leaves_and_returns_when_it_is_small() {
    let (mut fs, containers) = file_system();
    let ino = file(&mut fs, "file", fs_share() - 1);
    assert_eq!(tier(&fs, ino), None);
    fs.write(ino, fs_share() - 1, &[9; 2], NOW).expect("a tier takes it");
    assert!(tier(&fs, ino).is_some());
    assert!(matches!(fs.promote(ino), Err(Error::TooLarge)));
    fs.truncate(ino, 70_000, NOW).expect("no failure");
    fs.promote(ino).expect("it fits");
    assert_eq!((tier(&fs, ino), numbers(&containers)), (None, 1), "the container stays until the commit");
    fs.sync().expect("no failure");
    assert_eq!(numbers(&containers), 0);
    assert_eq!(read(&fs, ino).expect("it"), contents(ino, 70_000));
}

fn fs_share() -> u64 {
    file_system().0.region_share()
}

#[test]
fn a_file_whose_tier_is_full_moves_to_another() {
    let (mut fs, containers) = file_system();
    let ino = file(&mut fs, "file", 9000);
    fs.evict_now(ino).expect("a tier takes it");
    let first = tier(&fs, ino).expect("a tier");
    containers.limit(first, 20_000);
    fs.write(ino, 9000, &contents(ino, 30_000), NOW).expect("the other tier has space");
    assert!(tier(&fs, ino).is_some_and(|tier| tier != first));
    let expected = [contents(ino, 9000), contents(ino, 30_000)].concat();
    assert_eq!(read(&fs, ino).expect("it"), expected);
    fs.sync().expect("no failure");
    assert_eq!(numbers(&containers), 1);
    [FLASH, DISK].iter().for_each(|tier| containers.limit(*tier, 50_000));
    let error = fs.write(ino, 39_000, &[1; 20_000], NOW).map_err(|error| error.errno());
    assert_eq!(error, Err(libc::ENOSPC));
    assert_eq!(read(&fs, ino).expect("it"), expected);
}

/// No tier has space for what is appended.
#[test]
fn a_file_whose_tier_is_full_returns_to_the_region() {
    let (mut fs, containers) = crate::testing::file_system(&[Class::Flash]);
    let ino = file(&mut fs, "file", 9000);
    fs.evict_now(ino).expect("a tier takes it");
    fs.sync().expect("no failure");
    containers.limit(FLASH, 10_000);
    assert_eq!(fs.write(ino, 9000, &[7; 3000], NOW).expect("the region has space"), 3000);
    assert_eq!(tier(&fs, ino), None);
    assert_eq!(read(&fs, ino).expect("it"), [&contents(ino, 9000)[..], &[7; 3000]].concat());
    fs.sync().expect("no failure");
    assert_eq!(numbers(&containers), 0);
}

/// Whoever removes what nobody needs must not remove what a later operation has created.
#[test]
fn a_failed_move_leaves_nothing_to_remove() {
    let (mut fs, containers) = crate::testing::file_system(&[Class::Flash]);
    fs.defer_removals();
    containers.limit(FLASH, 10_000);
    let files = [("large", 20_000), ("small", 5000)].map(|(name, bytes)| file(&mut fs, name, bytes));
    assert!(matches!(fs.evict_now(files[0]), Err(Error::NoTier)));
    fs.evict_now(files[1]).expect("the tier has space");
    fs.sync().expect("no failure");
    for container in fs.take_garbage() {
        fs.containers().remove(container).expect("it is there");
    }
    assert_eq!(read(&fs, files[1]).expect("it is there"), contents(files[1], 5000));
}

/// Containers that somebody is about to remove have the space.
#[test]
fn a_write_that_needs_the_space_of_removed_files_removes_them() {
    let (mut fs, containers) = crate::testing::file_system(&[Class::Flash]);
    fs.defer_removals();
    let files = ["a", "b"].map(|name| file(&mut fs, name, 9000));
    files.iter().for_each(|ino| fs.evict_now(*ino).expect("a tier takes it"));
    fs.unlink(Ino::ROOT, b"a", NOW).expect("it exists");
    fs.sync().expect("no failure");
    assert_eq!((numbers(&containers), fs.has_garbage()), (2, true));
    containers.limit(FLASH, 20_000);
    assert_eq!(fs.write(files[1], 9000, &[7; 3000], NOW).expect("space"), 3000);
    assert_eq!((tier(&fs, files[1]), numbers(&containers)), (Some(FLASH), 1));
}

#[test]
fn a_change_meanwhile_ends_an_eviction() {
    let (mut fs, containers) = file_system();
    let ino = file(&mut fs, "file", 9000);
    let eviction = fs.begin_eviction(ino, FLASH).expect("a tier takes it");
    fs.containers().create(eviction.container).expect("a tier takes it");
    assert!(matches!(fs.begin_eviction(ino, DISK), Err(Error::Changing)));
    let (at, bytes) = fs.eviction_part(&eviction, 0).expect("no change").expect("data");
    assert_eq!((at, bytes), (0, contents(ino, 9000)));
    assert_eq!(fs.eviction_part(&eviction, 9000).expect("no change"), None);
    fs.write(ino, 1, b"x", NOW).expect("space");
    assert!(matches!(fs.eviction_part(&eviction, 0), Err(Error::Changing)));
    assert!(matches!(fs.finish_eviction(&eviction), Err(Error::Changing)));
    assert_eq!((tier(&fs, ino), numbers(&containers)), (None, 0));
}

/// Whoever copies the file has synced it; if not, the commit does.
#[test]
fn a_container_is_durable_before_a_file_has_it() {
    let (mut fs, containers) = file_system();
    let ino = file(&mut fs, "file", 9000);
    let eviction = fs.begin_eviction(ino, FLASH).expect("a tier takes it");
    let port = fs.containers();
    port.create(eviction.container).expect("a tier takes it");
    port.write(eviction.container, 0, &contents(ino, 9000)).expect("space");
    fs.finish_eviction(&eviction).expect("no change");
    fs.sync().expect("no failure");
    let memory = fs.into_memory().after_power_loss(|_| 0);
    let fs = crate::testing::open(memory, &containers.after_power_loss(&mut |_| 0));
    assert_eq!(read(&fs, ino).expect("it can be read"), contents(ino, 9000));
}

#[test]
fn only_garbage_is_swept() {
    use crate::tiers::Containers as _;
    let (mut fs, containers) = file_system();
    let (evicted, moving) = (file(&mut fs, "a", 5000), file(&mut fs, "b", 5000));
    fs.evict_now(evicted).expect("a tier takes it");
    let eviction = fs.begin_eviction(moving, FLASH).expect("a tier takes it");
    containers.create(eviction.container).expect("a tier takes it");
    let garbage = Container { tier: DISK, number: 77 };
    containers.create(garbage).expect("no failure");
    let mut scan = Scan::default();
    while fs.scan(&mut scan) {}
    assert!(!fs.remove_garbage(eviction.container, &scan), "it is about to become the file's");
    assert!(fs.remove_garbage(garbage, &scan));
    assert_eq!(numbers(&containers), 2);
}

/// The durable inode refers to it until then.
#[test]
fn a_container_that_the_next_commit_removes_is_not_swept() {
    let (mut fs, containers) = file_system();
    let ino = file(&mut fs, "file", 9000);
    fs.evict_now(ino).expect("a tier takes it");
    fs.sync().expect("no failure");
    // Its number is not one of this mount.
    let mut fs = crate::testing::open(fs.into_memory(), &containers);
    let Form::Container(container) = fs.inode(ino).expect("it exists").form else { panic!("it has moved") };
    fs.promote(ino).expect("space");
    let mut scan = Scan::default();
    while fs.scan(&mut scan) {}
    assert!(!fs.remove_garbage(container, &scan));
    let fs = crate::testing::open(fs.store().memory().after_power_loss(|_| 0), &containers);
    assert_eq!(read(&fs, ino).expect("it has its container"), contents(ino, 9000));
}

#[test]
fn headers_have_the_path_of_the_file() {
    let (mut fs, _) = file_system();
    let new = New {
        kind: Kind::Directory,
        permissions: 0o755,
        uid: 0,
        gid: 0,
        device: 0,
        target: &[],
        attributes: &[],
    };
    let (directory, _) = fs.create_file(Ino::ROOT, b"directory", &new, NOW).expect("space");
    let ino = file(&mut fs, "file", 5000);
    fs.evict_now(ino).expect("a tier takes it");
    let how = crate::namespace::RenameHow::Replace;
    fs.rename((Ino::ROOT, b"file"), (directory, b"new"), how, NOW).expect("no failure");
    assert_eq!(fs.take_stale_headers(10), [ino]);
    let headers = fs.headers(&[ino]);
    assert_eq!(
        (headers.len(), &headers[0].1.path[..], headers[0].1.size),
        (1, &b"directory/new"[..], Some(5000))
    );
    fs.rename((Ino::ROOT, b"directory"), (Ino::ROOT, b"other"), how, NOW).expect("no failure");
    assert_eq!(fs.take_renamed(), Some(directory));
    fs.note_moved(&[ino, directory]);
    assert_eq!(
        (fs.take_stale_headers(10), fs.header(ino).expect("it").path),
        (vec![ino], b"other/new".to_vec())
    );
    fs.link(ino, Ino::ROOT, b"second", NOW).expect("space");
    fs.unlink(directory, b"new", NOW).expect("it has another name");
    assert_eq!(fs.take_stale_headers(10), [ino]);
    assert_eq!(fs.header(ino).expect("it").path, b"second");
}

/// The mode of a file with a list of accesses has the list's mask in place of what its group may do.
#[test]
fn a_header_grants_the_group_of_a_file_with_a_list_nothing() {
    let (mut fs, _) = file_system();
    let ino = file(&mut fs, "file", 5000);
    let change = Change { permissions: Some(0o4764), ..Change::default() };
    fs.set_attributes(ino, &change, NOW).expect("it exists");
    fs.evict_now(ino).expect("a tier takes it");
    assert_eq!(fs.header(ino).expect("it exists").mode & 0o7777, 0o4764);
    fs.take_stale_headers(10);
    fs.set_attribute(ino, ACCESS_LIST, b"a list", SetAttribute::Always, NOW).expect("space");
    assert_eq!(fs.take_stale_headers(10), [ino], "the header of before grants more");
    assert_eq!(fs.header(ino).expect("it exists").mode & 0o7777, 0o4704);
    fs.remove_attribute(ino, ACCESS_LIST, NOW).expect("it exists");
    assert_eq!(fs.take_stale_headers(10), [ino]);
    assert_eq!(fs.header(ino).expect("it exists").mode & 0o7777, 0o4764);
}

/// It has been made smaller, and the container has not yet: no hole or data is beyond its end.
#[test]
fn a_file_ends_where_its_container_goes_on() {
    use crate::tiers::Seek;
    let (mut fs, _) = file_system();
    let ino = file(&mut fs, "file", 9000);
    fs.evict_now(ino).expect("a tier takes it");
    fs.sync().expect("no failure");
    fs.truncate(ino, 5000, NOW).expect("a file");
    assert_eq!(fs.seek(ino, 100, Seek::Hole).expect("the end is one"), 5000);
    fs.allocate(ino, 4000..5000, crate::namespace::Allocate::PunchHole, NOW).expect("a file");
    assert!(matches!(fs.seek(ino, 4000, Seek::Data), Err(Error::NoSuchOffset)));
    let Form::Container(container) = fs.inode(ino).expect("it exists").form else { panic!("it has moved") };
    let containers = fs.containers();
    assert_eq!(containers.len(container).expect("it exists"), 9000, "the durable size needs it");
    fs.sync().expect("no failure");
    assert_eq!(containers.len(container).expect("it exists"), 5000);
}

/// What it lacks would read as zeros elsewhere.
#[test]
fn a_file_whose_container_lacks_bytes_stays_there() {
    let (mut fs, _) = file_system();
    for (name, bytes) in [("small", 9000), ("large", 200_000)] {
        let ino = file(&mut fs, name, bytes);
        fs.evict_now(ino).expect("a tier takes it");
        fs.sync().expect("no failure");
        let form = fs.inode(ino).expect("it exists").form;
        let Form::Container(container) = form else { panic!("it was evicted") };
        for len in [0, 1 << 16, bytes - 1].into_iter().filter(|len| *len < bytes).rev() {
            fs.containers().set_len(container, len).expect("it exists");
            assert!(matches!(fs.promote(ino), Err(Error::Container(_))), "{name}, {len} bytes");
            assert!(matches!(fs.move_out(ino), Err(Error::Container(_))), "{name}, {len} bytes");
            assert_eq!(fs.inode(ino).expect("it exists").form, form, "{name}, {len} bytes");
            let how = Allocate::Space { keep_size: false };
            let changes = [
                fs.write(ino, bytes, &[1], NOW).map(drop),
                fs.write(ino, bytes - 1, &[1], NOW).map(drop),
                fs.truncate(ino, bytes + 1, NOW),
                fs.allocate(ino, 0..bytes, how, NOW),
                fs.prepare_passthrough(ino, true),
            ];
            for (number, done) in changes.into_iter().enumerate() {
                assert!(matches!(done, Err(Error::Container(_))), "{name}, {len} bytes, change {number}");
            }
            assert_eq!(fs.containers().len(container).expect("it exists"), len);
        }
        fs.truncate(ino, bytes - 1, NOW).expect("a file may be cut");
        fs.sync().expect("no failure");
        assert_eq!(fs.containers().len(container).expect("it exists"), 0, "it has not become longer");
    }
}

#[test]
fn files_of_the_region_are_known_after_a_mount_and_a_promotion() {
    let (mut fs, containers) = file_system();
    let files = ["one", "two"].map(|name| file(&mut fs, name, 9000));
    fs.evict_now(files[1]).expect("a tier takes it");
    fs.sync().expect("no failure");
    let victims = |fs: &mut Fs| {
        let mut victims: Vec<_> = fs.take_victims(u64::MAX, 10).into_iter().map(|(ino, _)| ino).collect();
        victims.sort_unstable();
        victims
    };
    let mut fs = crate::testing::open(fs.into_memory(), &containers);
    let mut scan = Scan::default();
    while fs.scan(&mut scan) {}
    assert_eq!(victims(&mut fs), [files[0]]);
    fs.promote(files[1]).expect("space");
    assert_eq!(victims(&mut fs), [files[1]]);
}

/// A file that was accessed often and one that was accessed last: which one leaves is omega's choice.
#[test]
fn omega_weighs_accesses() {
    let first_to_leave = |omega: f64| {
        let (mut fs, _) = file_system();
        fs.set_omega(omega);
        // The clock ticks when something leaves.
        let others = ["a", "b"].map(|name| file(&mut fs, name, 5000));
        let tick = |fs: &Fs| lock(&fs.tiers.heat).evict().is_some_and(|ino| others.contains(&ino));
        assert!(tick(&fs));
        let often = file(&mut fs, "often", 5000);
        (0..9).for_each(|_| assert!(fs.read(often, 0, &mut [0; 10]).is_ok()));
        assert!(tick(&fs));
        file(&mut fs, "last", 5000);
        fs.take_victims(1, 1)[0].0 == often
    };
    assert!(first_to_leave(0.0), "only recency counts");
    assert!(!first_to_leave(1e15), "only accesses count");
}
