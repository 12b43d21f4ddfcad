//! Containers as real files.

use super::*;
use crate::layout::Time;
use crate::tiers::Class;

const REGION: [u8; 16] = [1; 16];

struct Sample {
    _folder: tempfile::TempDir,
    tiers: Vec<Tier>,
}

fn sample() -> Sample {
    let folder = tempfile::tempdir().expect("a folder");
    let tier = |class: Class, uuid| {
        let path = folder.path().join(class.name());
        std::fs::create_dir(&path).expect("a directory");
        Tier::new(class, path, [uuid; 16])
    };
    let tiers = vec![tier(Class::Flash, 7), tier(Class::Disk, 8)];
    ContainerFiles::create(&tiers, REGION).expect("two empty directories");
    Sample { _folder: folder, tiers }
}

impl Sample {
    fn open(&self) -> Result<ContainerFiles, (TierNumber, TierError)> {
        ContainerFiles::open(&self.tiers, REGION, true, |_| false)
    }
}

const ONE: Container = Container { tier: TierNumber(1), number: 257 };

#[test]
fn containers_are_files_with_the_contents_from_their_beginning() {
    let sample = sample();
    let containers = sample.open().expect("they are prepared");
    containers.create(ONE).expect("created");
    containers.write(ONE, 4, b"text").expect("written");
    let path = container_path(&sample.tiers[1].path, 257);
    assert!(path.ends_with("containers/01/257"));
    assert_eq!(std::fs::read(&path).expect("a file"), b"\0\0\0\0text");
    let mut out = [0; 9];
    assert_eq!(containers.read(ONE, 2, &mut out).expect("read"), 6);
    containers.punch(ONE, 5..100).expect("zeroed");
    containers.set_len(ONE, 9).expect("longer");
    assert_eq!(std::fs::read(&path).expect("a file"), b"\0\0\0\0t\0\0\0\0");
    containers.allocate(ONE, 0..100_000).expect("space");
    assert!(std::fs::metadata(&path).expect("a file").blocks() * BLOCK_BYTES >= 100_000);
    containers.sync(ONE).expect("durable");
    assert_eq!((containers.len(ONE).expect("it"), containers.list(ONE.tier).expect("one")), (9, vec![257]));
    assert!(containers.list(TierNumber(0)).expect("none").is_empty());
    // Garbage of the same number is replaced.
    containers.create(ONE).expect("created");
    assert_eq!(containers.len(ONE).expect("it"), 0);
    containers.remove(ONE).expect("removed");
    assert!(lock(&containers.open).is_empty(), "the space of an open file is not free");
    assert!(containers.len(ONE).is_err() && !path.exists());
    assert!(containers.work(ONE.tier).busy_seconds > 0.0);
    assert!(containers.space(ONE.tier).expect("space").total_bytes > 0);
}

#[test]
fn many_containers_are_used_with_few_open_files() {
    let sample = sample();
    let containers = sample.open().expect("they are prepared");
    let container = |number| Container { tier: TierNumber(0), number };
    for number in 1..1200 {
        containers.create(container(number)).expect("created");
        containers.write(container(number), 0, &number.to_le_bytes()).expect("written");
        containers.sync(container(number)).expect("durable");
    }
    assert!(lock(&containers.open).len() <= OPEN_MAX);
    for number in 1..1200 {
        let mut out = [0; 8];
        containers.read(container(number), 0, &mut out).expect("read");
        assert_eq!(u64::from_le_bytes(out), number);
    }
}

#[test]
fn headers_are_kept_where_they_fit() {
    let sample = sample();
    let containers = sample.open().expect("they are prepared");
    containers.create(ONE).expect("created");
    assert_eq!(containers.header(ONE).expect("no failure"), None);
    let modified = Time { seconds: 5, nanos: 6 };
    let header = Header {
        region: REGION,
        ino: 4,
        size: Some(7),
        modified,
        path: b"a/b".to_vec(),
        ..Header::default()
    };
    containers.set_header(ONE, &header).expect("set");
    assert_eq!(containers.header(ONE).expect("it").as_ref(), Some(&header));
    // Longer than some file systems' attributes; where it fits, there is no other file.
    let long = Header { path: vec![b'x'; 4095], ..header.clone() };
    containers.set_header(ONE, &long).expect("set");
    assert_eq!(containers.header(ONE).expect("it").as_ref(), Some(&long));
    containers.set_header(ONE, &header).expect("set");
    assert_eq!(containers.header(ONE).expect("it").as_ref(), Some(&header));
    let sidecar = sidecar_path(&sample.tiers[1].path, ONE.number);
    assert!(!sidecar.exists());
    std::fs::write(&sidecar, long.encode()).expect("written");
    assert_eq!(containers.header(ONE).expect("it"), Some(long.clone()));
    // An old one beside the attribute would count before it.
    containers.set_header(ONE, &header).expect("set");
    assert_eq!(containers.header(ONE).expect("it"), Some(header));
    std::fs::write(&sidecar, long.encode()).expect("written");
    containers.remove(ONE).expect("removed");
    assert!(!sidecar.exists());
}

#[test]
fn directories_that_are_not_those_of_the_tiers_are_refused() {
    let sample = sample();
    let reason = |sample: &Sample| sample.open().map(drop).expect_err("a refusal");
    let (flash, disk) = (&sample.tiers[0].path, &sample.tiers[1].path);
    let away = flash.with_file_name("away");
    let is_locked = sample.open().expect("they are prepared");
    assert_eq!(reason(&sample), (TierNumber(0), TierError::InUse));
    drop(is_locked);
    std::fs::rename(disk, &away).expect("moved");
    assert_eq!(reason(&sample), (TierNumber(1), TierError::NoDirectory));
    std::fs::create_dir(disk).expect("a directory");
    assert_eq!(reason(&sample), (TierNumber(1), TierError::NoMarker));
    std::fs::remove_dir(disk).expect("removed");
    std::fs::rename(flash, disk).expect("swapped");
    std::fs::rename(&away, flash).expect("swapped");
    assert_eq!(reason(&sample), (TierNumber(0), TierError::OtherTier(1)));
    let other = ContainerFiles::open(&sample.tiers, [2; 16], true, |_| false).map(drop);
    assert_eq!(other.expect_err("a refusal"), (TierNumber(0), TierError::OtherRegion(hex(&REGION))));
    let lenient = ContainerFiles::open(&sample.tiers, REGION, false, |_| true).expect("they are left out");
    assert!(matches!(lenient.state(TierNumber(0)), TierState::Gone(_)));
    assert!(lenient.create(ONE).is_err());
}

#[test]
fn what_was_prepared_can_be_taken_back() {
    let sample = sample();
    let again = ContainerFiles::create(&sample.tiers, REGION).expect_err("they are in use");
    assert_eq!(again.1.kind(), io::ErrorKind::AlreadyExists);
    ContainerFiles::discard(&sample.tiers);
    assert!(std::fs::read_dir(&sample.tiers[0].path).expect("the directory").next().is_none());
    ContainerFiles::create(&sample.tiers, REGION).expect("they are empty again");
}

/// A ramfs, which has neither attributes nor holes. It is unmounted in the end.
struct Ramfs(tempfile::TempDir);

impl Ramfs {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("ramfs", folder.path(), "ramfs", flags, None) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                println!("not tested: mounting needs root: {error}");
                None
            }
        }
    }
}

impl Drop for Ramfs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn file_systems_without_attributes_and_holes_serve_too() {
    let Some(ramfs) = Ramfs::new() else { return };
    let path = ramfs.0.path().to_owned();
    let tiers = [Tier::new(Class::Disk, path, [7; 16])];
    ContainerFiles::create(&tiers, REGION).expect("an empty directory");
    let containers = ContainerFiles::open(&tiers, REGION, true, |_| false).expect("it is prepared");
    let container = Container { tier: TierNumber(0), number: 3 };
    containers.create(container).expect("created");
    containers.write(container, 0, &[7; 200_000]).expect("written");
    containers.punch(container, 1000..150_000).expect("zeroed");
    let mut bytes = vec![1; 200_000];
    containers.read(container, 0, &mut bytes).expect("read");
    assert!(bytes[1000..150_000].iter().all(|byte| *byte == 0));
    assert!(bytes[..1000].iter().chain(&bytes[150_000..]).all(|byte| *byte == 7));
    let sidecar = sidecar_path(&tiers[0].path, 3);
    for path in [&b"one"[..], b"two"] {
        let header = Header { region: REGION, path: path.to_vec(), ..Header::default() };
        containers.set_header(container, &header).expect("set");
        assert_eq!(containers.header(container).expect("it"), Some(header));
    }
    assert!(sidecar.exists());
    assert_eq!(containers.list(TierNumber(0)).expect("one"), [3], "a sidecar is no container");
    containers.remove(container).expect("removed");
    assert!(!sidecar.exists());
}

/// A container closed with changes could not be made durable any more.
#[test]
fn containers_with_changes_stay_open() {
    let sample = sample();
    let files = sample.open().expect("both directories");
    let number = |number| Container { tier: TierNumber(0), number };
    for at in 0..OPEN_MAX as u64 + 100 {
        std::fs::write(container_path(&sample.tiers[0].path, at), b"old").expect("space");
    }
    files.write(number(0), 0, b"new").expect("space");
    for container in (1..OPEN_MAX as u64 + 100).map(number) {
        files.read(container, 0, &mut [0]).expect("it is there");
    }
    let open = lock(&files.open);
    assert!(open.len() <= OPEN_MAX && open.get(&number(0)).is_some_and(Open::is_needed));
}

/// What is written while a sync runs may be missed by it.
#[test]
fn changes_during_a_sync_need_another_one() {
    let sample = sample();
    let files = sample.open().expect("both directories");
    files.create(ONE).expect("created");
    lock(&files.open).get_mut(&ONE).expect("open").note_sync(1, false);
    assert!(lock(&files.open).get(&ONE).expect("open").is_needed(), "its name is not durable");
    files.write(ONE, 0, b"text").expect("space");
    let changes = lock(&files.open).get(&ONE).expect("open").changes;
    assert_eq!(changes, 3, "a write is noted before and after: a sync may come in between");
    files.write(ONE, 0, b"more").expect("space");
    files.sync(ONE).expect("no failure");
    assert!(!lock(&files.open).get(&ONE).expect("open").is_needed());
    files.write(ONE, 0, b"last").expect("space");
    // The end of a sync that began before.
    lock(&files.open).get_mut(&ONE).expect("open").note_sync(changes, false);
    assert!(lock(&files.open).get(&ONE).expect("open").is_needed());
    files.note_change(ONE).expect("it is there");
    files.sync(ONE).expect("no failure");
    assert!(!lock(&files.open).get(&ONE).expect("open").is_needed());
}

/// The kernel tells of a failure once; what it had to write may be lost.
#[test]
fn a_sync_that_has_failed_fails_again() {
    let sample = sample();
    let files = sample.open().expect("both directories");
    files.create(ONE).expect("created");
    files.write(ONE, 0, b"text").expect("space");
    let set = |file| std::mem::replace(&mut lock(&files.open).get_mut(&ONE).expect("open").file, file);
    let file = set(Arc::new(File::open("/dev/null").expect("a device, which has no sync")));
    assert!(files.sync(ONE).is_err());
    set(file);
    assert!(files.sync(ONE).is_err());
    files.write(ONE, 0, b"more").expect("space");
    assert!(files.sync(ONE).is_err());
}

#[test]
fn tiers_are_adopted_and_released_while_others_are_open() {
    use crate::tiers::{FoundTier, allocated_bytes};
    let sample = sample();
    let files = sample.open().expect("both directories");
    let path = sample.tiers[0].path.parent().expect("a folder").join("third");
    std::fs::create_dir(&path).expect("a directory");
    assert_eq!(FoundTier::at(&path), Err(TierError::NoMarker));
    let (number, tier) = (TierNumber(2), Tier::new(Class::Disk, path.clone(), [9; 16]));
    files.adopt(number, &tier).expect("it is empty");
    assert_eq!(files.adopt(number, &tier).map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
    let container = Container { tier: number, number: 300 };
    files.create(container).expect("created");
    files.write(container, 0, &[7; 100_000]).expect("written");
    files.sync(container).expect("durable");
    assert!((100_000..200_000).contains(&allocated_bytes(&path).expect("its space")));
    let found = FoundTier::at(&path).expect("a tier");
    assert_eq!(
        (found.next, found.containers, found.tier().uuid, found.tier().class),
        (301, 1, [9; 16], Class::Disk)
    );
    let all = [&sample.tiers[..], &[tier]].concat();
    let second = ContainerFiles::open(&all[2..], REGION, true, |_| true).expect("it may lack");
    assert!(matches!(second.state(TierNumber(0)), TierState::Gone(_)), "it is the third, and locked");
    files.remove(container).expect("removed");
    files.release(number).expect("released");
    assert_eq!(files.verify(number), Err(TierError::Removed));
    assert!(files.create(container).is_err());
    assert!(std::fs::read_dir(&path).expect("the directory").next().is_none());
    // An interrupted release leaves the marker, so that it can be found and done again.
    files.adopt(number, &all[2]).expect("it is empty");
    std::fs::write(container_path(&path, 300), b"").expect("space");
    (0..FOLDERS).filter(|part| *part != 44).for_each(|part| drop(std::fs::remove_dir(folder(&path, part))));
    let found = FoundTier::at(&path).expect("it has a marker");
    assert_eq!((found.next, found.containers), (301, 1));
    std::fs::remove_file(container_path(&path, 300)).expect("removed");
    std::fs::remove_dir_all(path.join(FOLDER)).expect("removed");
    assert_eq!(FoundTier::at(&path).expect("it has a marker").containers, 0);
    ContainerFiles::discard(&all[2..]);
    assert!(std::fs::read_dir(&path).expect("the directory").next().is_none());
    // What a region has removed is not missing.
    let all = [&sample.tiers[..], &[Tier::removed(301)]].concat();
    drop(files);
    ContainerFiles::open(&all, REGION, true, |_| false).expect("the others are there");
}
