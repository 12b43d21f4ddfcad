//! A tier table that is damaged, and how it is written again from the markers of the directories.

mod support;

use support::pair::{self, format_with_tiers};
use weir_fs::check::check;
use weir_fs::error::Error;
use weir_fs::layout::inode::{Form, Kind};
use weir_fs::layout::tier::TIERS_AT;
use weir_fs::layout::{Ino, Time};
use weir_fs::namespace::{Change, Durability, FileSystem, New};
use weir_fs::nvm::{Granule, Memory as _, Simulated};
use weir_fs::repair::{Outcome, Refusal, repair_with_tiers};
use weir_fs::tiers::marker::Marker;
use weir_fs::tiers::{Class, Container, FoundTier, SimulatedContainers, TierNumber};

type Fs = FileSystem<Simulated>;

const NOW: Time = Time { seconds: 7, nanos: 0 };
const FLASH: TierNumber = TierNumber(0);
const DISK: TierNumber = TierNumber(1);
const BYTES: usize = 9000;

fn file(fs: &mut Fs, name: &str) -> Ino {
    let new =
        New { kind: Kind::File, permissions: 0o644, uid: 0, gid: 0, device: 0, target: &[], attributes: &[] };
    let (ino, _) = fs.create_file(Ino::ROOT, name.as_bytes(), &new, NOW).expect("space");
    fs.write(ino, 0, &[ino.0 as u8; BYTES], NOW).expect("space");
    ino
}

fn evict(fs: &mut Fs, ino: Ino, tier: TierNumber) {
    let begun = fs.begin_eviction(ino, tier).expect("the tier takes it");
    fs.containers().create(begun.container).expect("the tier takes it");
    fs.containers().write(begun.container, 0, &[ino.0 as u8; BYTES]).expect("space");
    fs.containers().sync(begun.container).expect("no failure");
    fs.finish_eviction(&begun).expect("nothing has changed");
}

/// Returns a file system with two files in flash, one in disks and one in the region, and what an interrupted
/// eviction left in disks.
fn sample(containers: &SimulatedContainers) -> (Fs, Vec<Ino>) {
    let memory = format_with_tiers(Simulated::new(2 << 20, Granule::Word));
    let mut fs = pair::open(memory, Durability::Sync, Some(containers)).expect("the file system");
    let files: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| file(&mut fs, name)).collect();
    evict(&mut fs, files[0], FLASH);
    evict(&mut fs, files[1], FLASH);
    evict(&mut fs, files[2], DISK);
    let begun = fs.begin_eviction(files[3], DISK).expect("the tier takes it");
    fs.containers().create(begun.container).expect("the tier takes it");
    fs.sync().expect("no failure");
    // What the last group changed would be made right by the log.
    fs.set_attributes(Ino::ROOT, &Change { uid: Some(7), ..Change::default() }, NOW).expect("no failure");
    fs.sync().expect("no failure");
    (fs, files)
}

/// Returns the memory with a damaged table.
fn damaged(fs: Fs) -> Simulated {
    let mut memory = fs.into_memory();
    memory.store(TIERS_AT + 16, &[0x55]);
    memory.after_power_loss(|count| count - 1)
}

/// Returns a tier as its directory says that it is.
fn found(number: TierNumber, next: u64) -> FoundTier {
    let class = if number == FLASH { Class::Flash } else { Class::Disk };
    let marker = Marker { region: [1; 16], tier: [number.0 as u8 + 20; 16], number, class };
    FoundTier { path: format!("/found-{}", number.0).into(), marker, next, containers: next - 1 }
}

fn refused(memory: Simulated, tiers: &[FoundTier], part: &str) {
    let refusal = repair_with_tiers(memory, tiers, NOW).map(|_| ()).expect_err("a refusal");
    assert!(refusal.to_string().contains(part), "{refusal}");
    assert!(!matches!(refusal, Refusal::Incomplete(_)));
}

fn repaired(memory: Simulated, tiers: &[FoundTier]) -> (Simulated, Outcome) {
    repair_with_tiers(memory, tiers, NOW).unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[test]
fn without_its_table_a_file_system_can_be_read_but_not_changed() {
    let containers = SimulatedContainers::default();
    let (fs, files) = sample(&containers);
    let memory = damaged(fs);
    let opened = pair::open(memory.clone(), Durability::Sync, Some(&containers));
    let error = opened.map(|_| ()).expect_err("nobody knows which numbers are free");
    assert!(matches!(error, Error::TierTable) && error.to_string().contains("--tier DIR"), "{error}");
    let fs = FileSystem::open_read_only(memory).expect("files in the region can be read");
    let mut bytes = [0; BYTES];
    fs.read(files[3], 0, &mut bytes).expect("it is in the region");
    assert!(bytes == [files[3].0 as u8; BYTES]);
    assert!(matches!(fs.read(files[0], 0, &mut bytes), Err(Error::Container(_))));
    let report = check(&fs);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert!(report.findings[0].contains("tier table"), "{:#?}", report.findings);
}

#[test]
fn the_table_is_written_again_and_no_number_is_used_twice() {
    let containers = SimulatedContainers::default();
    let (fs, files) = sample(&containers);
    let memory = damaged(fs);
    // Flash lacks a container that an inode has; disks have one that none has.
    let (memory, outcome) = repaired(memory, &[found(DISK, 3), found(FLASH, 2)]);
    assert!(outcome.lost.is_empty() && outcome.repaired[0].contains("the tier table"), "{outcome:?}");
    let mut fs = pair::open(memory, Durability::Sync, Some(&containers)).expect("the file system");
    let next: Vec<_> = fs.tiers().iter().map(|tier| (tier.next, tier.uuid[0], tier.class)).collect();
    assert_eq!(next, [(3, 20, Class::Flash), (3, 21, Class::Disk)]);
    for ino in &files {
        let mut bytes = [0; BYTES];
        fs.read(*ino, 0, &mut bytes).expect("it can be read");
        assert!(bytes == [ino.0 as u8; BYTES]);
    }
    evict(&mut fs, files[3], FLASH);
    let form = fs.inode(files[3]).expect("it").form;
    assert_eq!(form, Form::Container(Container { tier: FLASH, number: 3 }));
    assert!(check(&fs).is_clean());
}

#[test]
fn directories_that_lack_or_contradict_each_other_are_refused() {
    let (fs, _) = sample(&SimulatedContainers::default());
    let memory = damaged(fs);
    let other = |change: fn(&mut FoundTier)| {
        let mut tier = found(DISK, 3);
        change(&mut tier);
        [found(FLASH, 3), tier]
    };
    refused(memory.clone(), &[], "2 files are in tier 0; name its directory, too: --tier DIR");
    refused(memory.clone(), &[found(FLASH, 3)], "1 files are in tier 1");
    refused(memory.clone(), &other(|tier| tier.marker.region = [9; 16]), "belongs to another region");
    refused(memory.clone(), &other(|tier| tier.marker.number = FLASH), "both say that they are tier 0");
    refused(memory.clone(), &other(|tier| tier.marker.number = TierNumber(999)), "says that it is tier 999");
    refused(memory, &other(|tier| tier.path = "x".repeat(5000).into()), "too many bytes");
}

#[test]
fn tiers_without_files_need_not_be_named() {
    let containers = SimulatedContainers::default();
    let (mut fs, files) = sample(&containers);
    files[..2].iter().for_each(|ino| fs.promote(*ino).expect("space"));
    fs.sync().expect("no failure");
    fs.sync().expect("no failure");
    fs.set_attributes(Ino::ROOT, &Change { uid: Some(8), ..Change::default() }, NOW).expect("no failure");
    fs.sync().expect("no failure");
    let (memory, _) = repaired(damaged(fs), &[found(DISK, 2)]);
    let mut fs = pair::open(memory, Durability::Sync, Some(&containers)).expect("the file system");
    assert!(fs.tiers()[0].is_removed() && fs.tiers()[1].path.ends_with("found-1"));
    fs.promote(files[2]).expect("space");
    fs.sync().expect("no failure");
    fs.set_attributes(Ino::ROOT, &Change { uid: Some(9), ..Change::default() }, NOW).expect("no failure");
    fs.sync().expect("no failure");
    let (memory, _) = repaired(damaged(fs), &[]);
    let fs = pair::open(memory, Durability::Sync, Some(&containers)).expect("the file system");
    assert!(fs.tiers().is_empty() && check(&fs).is_clean());
}

#[test]
fn a_repair_that_loses_power_can_be_done_again() {
    let containers = SimulatedContainers::default();
    let (fs, _) = sample(&containers);
    let mut memory = damaged(fs);
    memory.try_power_losses(3, 4);
    let tiers = [found(FLASH, 3), found(DISK, 3)];
    let (mut memory, _) = repaired(memory, &tiers);
    let losses = memory.take_losses();
    assert!(losses.len() > 20, "{}", losses.len());
    for (event, image) in losses {
        let (memory, _) = repaired(image, &tiers);
        let fs = pair::open(memory, Durability::Sync, Some(&containers)).expect("the file system");
        assert_eq!(fs.tiers().iter().map(|tier| tier.next).collect::<Vec<_>>(), [3, 3], "event {event}");
    }
}

#[test]
fn a_damaged_inode_does_not_make_numbers_run_out() {
    let containers = SimulatedContainers::default();
    let (mut fs, files) = sample(&containers);
    let mut inode = fs.inode(files[0]).expect("it");
    inode.form = Form::Container(Container { tier: FLASH, number: u64::MAX });
    let at = support::damage::inode_at(&fs, files[0]);
    fs.store_mut().memory_mut().store(at, &inode.encode());
    let (memory, outcome) = repaired(damaged(fs), &[found(FLASH, 3), found(DISK, 3)]);
    assert!(outcome.lost.len() == 1 && outcome.lost[0].contains("its contents"), "{outcome:?}");
    let fs = pair::open(memory, Durability::Sync, Some(&containers)).expect("the file system");
    assert_eq!(fs.tiers()[0].next, 3);
}
