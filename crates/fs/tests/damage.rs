//! Random damage of metadata: nothing panics, and a repair ends in a clean file system or in a refusal that
//! names what is lost.
//!
//! Files that no line of the repair names, and whose metadata was not damaged, have what they had.
//! `WEIR_FS_SEED` sets the first seed, `WEIR_FS_DAMAGES` how many there are.

mod support;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use support::damage::{Damage, Sample, damage, damaged};
use support::snapshot::of_file_system;
use weir_fs::check::check;
use weir_fs::layout::inode::Kind;
use weir_fs::layout::{Ino, Time};
use weir_fs::namespace::{FileSystem, New, SetAttribute};
use weir_fs::nvm::Simulated;
use weir_fs::repair::{Outcome, Refusal, repair};

const NOW: Time = Time { seconds: 1_000_000, nanos: 0 };

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Uses a file system that may be damaged; any error is fine.
fn exercise(sample: &Sample, memory: Simulated) {
    if let Ok(fs) = FileSystem::open_read_only(memory.clone()) {
        check(&fs);
        let _ = of_file_system(&fs);
    }
    let Ok(mut fs) = sample.open(memory) else { return };
    let _ = fs.set_attribute(Ino::ROOT, b"user.a", &[1; 5000], SetAttribute::Always, NOW);
    for entry in fs.list(Ino::ROOT, 0, 100).unwrap_or_default() {
        let _ = fs.write(entry.ino, 3000, &[7; 70_000], NOW);
        let _ = fs.set_attribute(entry.ino, b"user.b", &[2; 50], SetAttribute::Always, NOW);
        let _ = fs.truncate(entry.ino, 100, NOW);
        let _ = fs.evict_now(entry.ino);
        let _ = fs.promote(entry.ino);
        let _ = fs.locate(entry.ino, 10);
        let _ = fs.rename((Ino::ROOT, &entry.name), (Ino::ROOT, b"renamed"), HOW, NOW);
        let _ = fs.remove_directory(Ino::ROOT, b"renamed", NOW);
        let _ = fs.unlink(Ino::ROOT, b"renamed", NOW);
    }
    create(&mut fs);
    let _ = fs.sync();
    fs.usage();
    fs.wear();
    let _ = fs.forget_all();
    check(&fs);
}

const HOW: weir_fs::namespace::RenameHow = weir_fs::namespace::RenameHow::Replace;

fn create(fs: &mut FileSystem<Simulated>) {
    for (kind, name) in [(Kind::File, b"new-file"), (Kind::Directory, b"new-dirs")] {
        let new = New { kind, permissions: 0o644, uid: 0, gid: 0, device: 0, target: &[], attributes: &[] };
        if let Ok((ino, _)) = fs.create_file(Ino::ROOT, name, &new, NOW) {
            let _ = fs.write(ino, 0, &[3; 9000], NOW);
        }
    }
}

/// Returns whether a line names one of these inodes.
fn is_named(outcome: &Outcome, inos: &[u64]) -> bool {
    let names =
        |ino: &u64| if *ino == 1 { "the root directory:".to_owned() } else { format!("inode {ino}:") };
    let names: Vec<_> = inos.iter().map(names).collect();
    let mut lines = outcome.lost.iter().chain(&outcome.repaired);
    lines.any(|line| names.iter().any(|name| line.contains(name)))
}

/// Compares a repaired file system with what there was.
fn compare(sample: &Sample, damages: &[Damage], fs: &FileSystem<Simulated>, outcome: &Outcome) {
    let (found, inos) = of_file_system(fs).expect("everything can be read");
    let is_root_damaged = damages.iter().any(|damage| damage.owner == Some(Ino::ROOT.0));
    if !is_root_damaged && !is_named(outcome, &[Ino::ROOT.0]) {
        assert_eq!(fs.limits(), &sample.snapshot.limits, "limits have changed, and nothing says so");
    }
    for (path, ino) in &sample.inos {
        // The file and its ancestors.
        let mut line = vec![*ino];
        let mut rest = path.as_str();
        while let Some((parent, _)) = rest.rsplit_once('/') {
            line.push(sample.inos[parent]);
            rest = parent;
        }
        let is_damaged = damages.iter().any(|it| it.owner.is_some_and(|owner| line.contains(&owner)));
        if is_damaged || is_named(outcome, &line) {
            continue;
        }
        assert_eq!(inos.get(path), Some(ino), "{path} is missing, and nothing says so");
        assert!(
            found.data.get(path) == sample.snapshot.data.get(path),
            "{path} has changed, and nothing says so"
        );
        let (now, before) = (&found.files[path], &sample.snapshot.files[path]);
        assert_eq!((now.mode, now.size, &now.attributes), (before.mode, before.size, &before.attributes));
    }
}

#[test]
fn damage_is_repaired_or_refused_and_every_loss_is_named() {
    let first = number("WEIR_FS_SEED", 1);
    let (mut clean, mut lossy, mut refused) = (0, 0, 0);
    let mut sample = Sample::new(first / 16);
    for seed in first..first + number("WEIR_FS_DAMAGES", 400) {
        if seed % 16 == 0 {
            sample = Sample::new(seed / 16);
        }
        let mut random = SmallRng::seed_from_u64(seed);
        let damages = damage(&mut random, &sample);
        println!("seed {seed}: {damages:?}");
        let memory = damaged(&sample, &damages);
        exercise(&sample, memory.clone());
        match repair(memory, NOW) {
            Ok((memory, outcome)) => {
                println!("{outcome:#?}");
                let mut fs = sample.open(memory).expect("it can be mounted");
                let report = check(&fs);
                assert!(report.is_clean() && report.orphans == 0, "{report:#?}");
                compare(&sample, &damages, &fs, &outcome);
                create(&mut fs);
                fs.sync().expect("no failure");
                assert!(check(&fs).is_clean());
                *(if outcome.lost.is_empty() { &mut clean } else { &mut lossy }) += 1;
            }
            Err(Refusal::Incomplete(findings)) => panic!("{findings:#?}"),
            Err(refusal) => {
                println!("{refusal}");
                refused += 1;
            }
        }
    }
    println!("{clean} repaired without a loss, {lossy} with losses, {refused} refused");
    assert!(clean > lossy && lossy > refused, "{clean} {lossy} {refused}");
}

/// After a power loss during a repair, another one ends as a repair does.
#[test]
fn an_interrupted_repair_is_finished_by_another() {
    let first = number("WEIR_FS_SEED", 1);
    let mut losses = 0;
    for seed in first..first + number("WEIR_FS_DAMAGES", 400) / 10 {
        let sample = Sample::new(seed);
        let mut random = SmallRng::seed_from_u64(seed ^ 0x5eed);
        let damages = damage(&mut random, &sample);
        println!("seed {seed}: {damages:?}");
        let mut memory = damaged(&sample, &damages);
        memory.try_power_losses(seed, 1);
        let Ok((mut memory, first_outcome)) = repair(memory, NOW) else { continue };
        for (event, image) in memory.take_losses() {
            losses += 1;
            let again = repair(image, NOW);
            let (memory, mut outcome) =
                again.unwrap_or_else(|error| panic!("loss before event {event}: {error}"));
            outcome.lost.extend(first_outcome.lost.iter().cloned());
            outcome.repaired.extend(first_outcome.repaired.iter().cloned());
            let fs = sample.open(memory).expect("it can be mounted");
            assert!(check(&fs).is_clean(), "loss before event {event}");
            compare(&sample, &damages, &fs, &outcome);
        }
    }
    println!("{losses} power losses");
    assert!(losses > 300, "{losses}");
}
