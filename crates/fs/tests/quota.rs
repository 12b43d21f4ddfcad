//! Quotas against a naive twin, which adds up from scratch what users and groups have after each operation.
//!
//! Limits change, counting is in progress while files change, files move between tiers, and the kernel
//! writes some of them without the server. `WEIR_FS_SEED` sets the first seed, `WEIR_FS_OPERATIONS` the
//! number of operations.

mod support;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use support::pair::{format_with_tiers, open};
use weir_fs::check::check;
use weir_fs::error::Error;
use weir_fs::layout::inode::{Form, Kind};
use weir_fs::layout::quota::{Limit, Limits, Owner};
use weir_fs::layout::{Geometry, Ino, Time};
use weir_fs::namespace::{
    Allocate, Change, Counting, Durability, FileSystem, New, OwnerUsage, OwnerUsages, RenameHow,
};
use weir_fs::nvm::{Granule, Simulated};
use weir_fs::tiers::SimulatedContainers;

const NOW: Time = Time { seconds: 1, nanos: 0 };
/// Bytes that one operation of a write stores at most.
const STEP: u64 = Geometry::CHUNK_BYTES_MIN;
const FILE_BYTES_MAX: u64 = 200_000;
const ROOT_USER: u32 = 0;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A file as the twin knows it.
#[derive(Clone, Debug)]
struct File {
    kind: Kind,
    uid: u32,
    gid: u32,
    /// Size as programs see it.
    size: u64,
    /// Size as the inode has it: another one while the kernel has written without the server.
    stored: u64,
    links: u32,
    is_open: bool,
    is_flagged: bool,
}

type Files = BTreeMap<u64, File>;

/// Adds up what each user and group has.
fn usage(files: &Files) -> OwnerUsages {
    let mut all = OwnerUsages::new();
    for file in files.values() {
        for owner in [Owner::User(file.uid), Owner::Group(file.gid)] {
            let OwnerUsage { bytes, inodes } = all.entry(owner).or_default();
            let has_bytes = [Kind::File, Kind::Symlink].contains(&file.kind);
            *bytes += if has_bytes { file.stored.into() } else { 0_u128 };
            *inodes += 1;
        }
    }
    all
}

#[derive(Default)]
struct Counts {
    refused: u32,
    refused_chowns: u32,
    complete: u32,
    running: u32,
    written_behind: u32,
}

struct Twin {
    fs: Option<FileSystem<Simulated>>,
    containers: SimulatedContainers,
    files: Files,
    names: BTreeMap<String, u64>,
    limits: Limits,
    /// The file that the kernel has open without the server.
    passthrough: Option<u64>,
    caller: u32,
    counts: Counts,
}

impl Twin {
    fn new() -> Self {
        let containers = SimulatedContainers::default();
        let memory = format_with_tiers(Simulated::new(16 << 20, Granule::Sector));
        let root = File {
            kind: Kind::Directory,
            uid: 0,
            gid: 0,
            size: 0,
            stored: 0,
            links: 2,
            is_open: true,
            is_flagged: false,
        };
        Self {
            fs: Some(open(memory, Durability::Sync, Some(&containers)).expect("a formatted region")),
            containers,
            files: Files::from([(Ino::ROOT.0, root)]),
            names: BTreeMap::new(),
            limits: Limits::new(),
            passthrough: None,
            caller: 0,
            counts: Counts::default(),
        }
    }

    fn fs(&mut self) -> &mut FileSystem<Simulated> {
        self.fs.as_mut().expect("it is mounted")
    }

    fn is_complete(&mut self) -> bool {
        self.fs().counting() == Counting::Complete
    }

    /// Returns whether limits forbid that the files become these. Of a flagged file that changes, growth
    /// that the kernel has written is exempt for owners that keep it.
    fn forbids(&mut self, after: &Files, changed: Option<u64>) -> bool {
        if self.caller == ROOT_USER || !self.is_complete() {
            return false;
        }
        let (before, now) = (usage(&self.files), usage(after));
        self.limits.iter().any(|(owner, limit)| {
            let (before, now) = (before.get(owner), now.get(owner));
            let (before, now) = (before.copied().unwrap_or_default(), now.copied().unwrap_or_default());
            let mut own = now.bytes as i128 - before.bytes as i128;
            if let Some(ino) = changed
                && let (Some(file), Some(new)) = (self.files.get(&ino), after.get(&ino))
                && [Owner::User(new.uid), Owner::Group(new.gid)].contains(owner)
                && [Owner::User(file.uid), Owner::Group(file.gid)].contains(owner)
            {
                own -= i128::from(file.size) - i128::from(file.stored);
            }
            own > 0 && limit.bytes.is_some_and(|max| now.bytes > max.into())
                || now.inodes > before.inodes && limit.inodes.is_some_and(|max| now.inodes > max)
        })
    }

    /// Compares a result with what the limits say about a change of the files, and makes it if it happened.
    fn settle<T>(
        &mut self,
        result: Result<T, Error>,
        after: Files,
        changed: Option<u64>,
    ) -> Result<Option<T>, String> {
        match (result, self.forbids(&after, changed)) {
            (Ok(done), false) => {
                self.files = after;
                Ok(Some(done))
            }
            (Err(Error::OverQuota), true) => {
                self.counts.refused += 1;
                Ok(None)
            }
            (Ok(_), true) => Err("limits should forbid it".to_owned()),
            (Err(error), _) => Err(format!("{error:?}, but limits allow it")),
        }
    }

    /// Returns the files with one changed.
    fn with(&self, ino: u64, change: impl FnOnce(&mut File)) -> Files {
        let mut after = self.files.clone();
        let file = after.get_mut(&ino).expect("it exists");
        // Each change of a flagged inode stores the size of the container.
        file.stored = file.size;
        change(file);
        after
    }

    fn with_size(&self, ino: u64, size: u64) -> Files {
        self.with(ino, |file| (file.size, file.stored) = (size, size))
    }

    fn create(&mut self, random: &mut SmallRng, name: String) -> Result<(), String> {
        let kind = [Kind::File, Kind::File, Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo]
            [random.random_range(0..6)];
        let (uid, gid) = (random.random_range(0..4), random.random_range(0..3));
        let target = if kind == Kind::Symlink { &b"some-target"[..] } else { &[] };
        let new = New { kind, permissions: 0o755, uid, gid, device: 0, target, attributes: &[] };
        // Some begin without a name, and are open.
        let is_unnamed = kind == Kind::File && random.random_ratio(1, 3);
        let created = match is_unnamed {
            true => self.fs().create_unnamed(Ino::ROOT, &new, true, NOW),
            false => self.fs().create_file(Ino::ROOT, name.as_bytes(), &new, NOW),
        };
        if matches!(created, Err(Error::Exists)) {
            return Ok(());
        }
        let size = target.len() as u64;
        let (links, is_open) = (u32::from(!is_unnamed), is_unnamed);
        let file = File { kind, uid, gid, size, stored: size, links, is_open, is_flagged: false };
        // The number of a file that is refused does not matter.
        let ino = created.as_ref().map_or(u64::MAX, |(ino, _)| ino.0);
        let mut after = self.files.clone();
        if after.insert(ino, file).is_some() {
            return Err(format!("inode {ino} is in use"));
        }
        match self.settle(created, after, None)? {
            Some(_) if is_unnamed => self.fs().refer(Ino(ino)),
            Some(_) => drop(self.names.insert(name, ino)),
            None => {}
        }
        Ok(())
    }

    /// Writes in the steps that the file system takes.
    fn write(
        &mut self,
        ino: u64,
        offset: u64,
        len: u64,
        write: impl FnOnce(&mut Self) -> Result<u64, Error>,
    ) -> Result<(), String> {
        let written = write(self);
        let mut done = 0;
        while done < len {
            let step = STEP.min(len - done);
            let end = offset + done + step;
            let after = self.with(ino, |file| {
                file.size = file.size.max(end);
                file.stored = file.size;
            });
            if self.forbids(&after, Some(ino)) {
                break;
            }
            self.files = after;
            done += step;
        }
        match written {
            Ok(written) if written == done && (len == 0 || done > 0) => Ok(()),
            Err(Error::OverQuota) if done == 0 => {
                self.counts.refused += 1;
                Ok(())
            }
            written => Err(format!("{written:?} instead of {done}")),
        }
    }

    fn allocate(&mut self, ino: u64, end: u64, how: Allocate) -> Result<(), String> {
        let file = &self.files[&ino];
        let (uid, gid, size) = (file.uid, file.gid, file.size);
        let from = end / 2;
        let done = self.fs().allocate(Ino(ino), from..end, how, NOW);
        let keeps =
            !matches!(how, Allocate::Space { keep_size: false } | Allocate::Zero { keep_size: false });
        let has_limit = |owner| self.limits.get(&owner).is_some_and(|limit| limit.bytes.is_some());
        let is_limited = has_limit(Owner::User(uid)) || has_limit(Owner::Group(gid));
        if how != Allocate::PunchHole && keeps && end > size && is_limited && self.caller != ROOT_USER {
            return match done {
                Err(Error::NotSupported) => Ok(()),
                done => Err(format!("{done:?} instead of a refusal")),
            };
        }
        let after = self.with_size(ino, if keeps { size } else { size.max(end) });
        self.settle(done, after, Some(ino)).map(drop)
    }

    fn chown(&mut self, random: &mut SmallRng, ino: u64) -> Result<(), String> {
        let uid = random.random_bool(0.7).then(|| random.random_range(0..4));
        let gid = random.random_bool(0.7).then(|| random.random_range(0..3));
        let changed = self.fs().set_attributes(Ino(ino), &Change { uid, gid, ..Change::default() }, NOW);
        let after = self.with(ino, |file| {
            (file.uid, file.gid) = (uid.unwrap_or(file.uid), gid.unwrap_or(file.gid));
        });
        let is_refused = self.settle(changed, after, Some(ino))?.is_none();
        self.counts.refused_chowns += u32::from(is_refused);
        Ok(())
    }

    /// Removes a file from the twin if nothing refers to it.
    fn reclaim(&mut self, ino: u64) {
        let file = &self.files[&ino];
        if file.links == 0 && !file.is_open {
            self.files.remove(&ino);
        }
    }

    fn drop_name(&mut self, name: &str) {
        let ino = self.names.remove(name).expect("it exists");
        self.files = self.with(ino, |file| file.links -= 1);
        self.reclaim(ino);
    }

    fn unlink(&mut self, random: &mut SmallRng, name: &str) -> Result<(), String> {
        let ino = self.names[name];
        let file = &self.files[&ino];
        if file.kind == Kind::Directory {
            let removed = self.fs().remove_directory(Ino::ROOT, name.as_bytes(), NOW);
            removed.map_err(|error| error.to_string())?;
        } else {
            if !file.is_open && random.random_ratio(1, 3) {
                self.fs().refer(Ino(ino));
                self.files.get_mut(&ino).expect("it exists").is_open = true;
            }
            let removed = self.fs().unlink(Ino::ROOT, name.as_bytes(), NOW);
            removed.map_err(|error| error.to_string())?;
        }
        self.drop_name(name);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), String> {
        let ino = self.names[from];
        let how = RenameHow::Replace;
        let result = self.fs().rename((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()), how, NOW);
        match result {
            Ok(()) if self.names.get(to) == Some(&ino) => {}
            Ok(()) => {
                if self.names.contains_key(to) {
                    self.drop_name(to);
                }
                self.names.remove(from);
                self.names.insert(to.to_owned(), ino);
                self.files = self.with(ino, |_| {});
            }
            Err(Error::IsDirectory | Error::NotDirectory) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let open = self
            .files
            .iter()
            .find(|(ino, file)| **ino != Ino::ROOT.0 && file.is_open && Some(**ino) != self.passthrough);
        let Some(ino) = open.map(|(ino, _)| *ino) else { return Ok(()) };
        self.fs().forget(Ino(ino), 1).map_err(|error| error.to_string())?;
        self.files.get_mut(&ino).expect("it exists").is_open = false;
        self.reclaim(ino);
        Ok(())
    }

    /// Has the kernel write a file without the server, or ends that.
    fn passthrough(&mut self, random: &mut SmallRng, ino: u64) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        if let Some(ino) = self.passthrough.take() {
            if random.random_ratio(2, 3) {
                self.passthrough = Some(ino);
                let Form::Container(container) = self.fs().inode(Ino(ino)).map_err(text)?.form else {
                    return Err("an open file has moved".to_owned());
                };
                let (at, len) = (random.random_range(0..FILE_BYTES_MAX), random.random_range(1..60_000));
                let containers = self.fs().containers();
                containers.write(container, at, &vec![9; len]).map_err(|error| error.to_string())?;
                let file = self.files.get_mut(&ino).expect("it exists");
                file.size = file.size.max(at + len as u64);
                self.counts.written_behind += 1;
                return Ok(());
            }
            self.fs().set_passthrough(Ino(ino), false);
            if random.random() {
                self.fs().end_passthrough(Ino(ino)).map_err(text)?;
                self.files = self.with(ino, |file| file.is_flagged = false);
            }
            self.fs().forget(Ino(ino), 1).map_err(text)?;
            self.files.get_mut(&ino).expect("it exists").is_open = false;
            self.reclaim(ino);
            return Ok(());
        }
        if self.files[&ino].is_open || self.fs().evict_now(Ino(ino)).is_err() && !self.is_in_container(ino) {
            return Ok(());
        }
        if self.fs().passthrough_container(Ino(ino)).map_err(text)?.is_none() {
            return Ok(());
        }
        self.fs().refer(Ino(ino));
        self.fs().set_passthrough(Ino(ino), true);
        self.fs().prepare_passthrough(Ino(ino), true).map_err(text)?;
        self.fs().sync().map_err(text)?;
        let file = self.files.get_mut(&ino).expect("it exists");
        (file.is_open, file.is_flagged) = (true, true);
        self.passthrough = Some(ino);
        Ok(())
    }

    fn is_in_container(&mut self, ino: u64) -> bool {
        self.fs().inode(Ino(ino)).is_ok_and(|inode| matches!(inode.form, Form::Container(_)))
    }

    fn set_limit(&mut self, random: &mut SmallRng) -> Result<(), String> {
        let id = random.random_range(0..3);
        let owner = if random.random() { Owner::User(id) } else { Owner::Group(id) };
        let bytes = random.random_bool(0.6).then(|| random.random_range(0..600_000));
        let inodes = random.random_bool(0.4).then(|| random.random_range(0..7));
        let limit = Limit { bytes, inodes };
        self.fs().set_limit(owner, limit).map_err(|error| error.to_string())?;
        if limit.is_none() {
            self.limits.remove(&owner);
        } else {
            self.limits.insert(owner, limit);
        }
        Ok(())
    }

    fn remount(&mut self) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        self.passthrough = None;
        self.fs().sync().map_err(text)?;
        let memory = self.fs.take().expect("it is mounted").into_memory();
        self.fs = Some(open(memory, Durability::Sync, Some(&self.containers)).map_err(text)?);
        for (ino, file) in &mut self.files {
            file.is_open = *ino == Ino::ROOT.0;
        }
        self.files.retain(|_, file| file.links > 0);
        Ok(())
    }

    /// Compares what is counted with what there is.
    fn compare(&mut self) -> Result<(), String> {
        let expected = usage(&self.files);
        let fs = self.fs.as_ref().expect("it is mounted");
        let scratch = fs.count_owners();
        if scratch != expected {
            return Err(format!("inodes have {scratch:?}, expected {expected:?}"));
        }
        if *fs.limits() != self.limits {
            return Err(format!("limits {:?}, expected {:?}", fs.limits(), self.limits));
        }
        match fs.counting() {
            Counting::Complete if *fs.owner_usages() != expected => {
                Err(format!("counted {:?}, expected {expected:?}", fs.owner_usages()))
            }
            Counting::Off if !self.limits.is_empty() => Err("nothing is counted".to_owned()),
            Counting::Complete => {
                self.counts.complete += 1;
                Ok(())
            }
            Counting::Running { .. } => {
                self.counts.running += 1;
                Ok(())
            }
            Counting::Off => Ok(()),
        }
    }

    fn step(&mut self, random: &mut SmallRng) -> Result<(), String> {
        self.caller = random.random_range(0..4);
        let is_enforced = self.caller != ROOT_USER;
        self.fs().enforce_limits(is_enforced);
        let regular: Vec<u64> =
            self.files.iter().filter(|(_, file)| file.kind == Kind::File).map(|(ino, _)| *ino).collect();
        let ino = (!regular.is_empty()).then(|| regular[random.random_range(0..regular.len())]);
        let names: Vec<_> = self.names.keys().cloned().collect();
        let name = (!names.is_empty()).then(|| names[random.random_range(0..names.len())].clone());
        let new_name = format!("n{}", random.random_range(0..12));
        let size = random.random_range(0..=FILE_BYTES_MAX);
        match (random.random_range(0..100), ino, name) {
            (0..18, _, _) => self.create(random, new_name),
            (18..38, Some(ino), _) => {
                let len = random.random_range(0..150_000);
                self.write(ino, size, len, |twin| {
                    let written = twin.fs().write(Ino(ino), size, &vec![7; len as usize], NOW);
                    written.map(|written| written as u64)
                })
            }
            (38..42, Some(ino), _) => {
                let from = regular[random.random_range(0..regular.len())];
                let len = self.files[&from].size.min(100_000);
                if from == ino {
                    return Ok(());
                }
                self.write(ino, size, len, |twin| {
                    twin.fs().copy_range((Ino(from), 0), (Ino(ino), size), len, NOW)
                })
            }
            (42..52, Some(ino), _) => {
                let truncated = self.fs().truncate(Ino(ino), size, NOW);
                let after = self.with_size(ino, size);
                self.settle(truncated, after, Some(ino)).map(drop)
            }
            (52..58, Some(ino), _) => {
                let keep_size = random.random();
                let how = [Allocate::Space { keep_size }, Allocate::Zero { keep_size }, Allocate::PunchHole];
                self.allocate(ino, size + 1, how[random.random_range(0..3)])
            }
            (58..66, Some(ino), _) => self.chown(random, ino),
            (66..69, Some(ino), _) => {
                let linked = self.fs().link(Ino(ino), Ino::ROOT, new_name.as_bytes(), NOW);
                if matches!(linked, Err(Error::Exists | Error::NotFound)) {
                    return Ok(());
                }
                let after = self.with(ino, |file| file.links += 1);
                if self.settle(linked, after, Some(ino))?.is_some() {
                    self.names.insert(new_name, ino);
                }
                Ok(())
            }
            (69..76, _, Some(name)) => self.unlink(random, &name),
            (76..79, _, Some(name)) => self.rename(&name, &new_name),
            (79..81, _, _) => self.close(),
            (81..87, Some(ino), _) => self.passthrough(random, ino),
            (87, Some(ino), _) => {
                // Files that are open or small may stay.
                let _ = self.fs().evict_now(Ino(ino));
                Ok(())
            }
            (88, Some(ino), _) => {
                if self.fs().promote(Ino(ino)).is_ok() && self.passthrough != Some(ino) {
                    self.files = self.with(ino, |file| file.is_flagged = false);
                }
                Ok(())
            }
            (89..93, _, _) => self.set_limit(random),
            (93, _, _) => self.remount(),
            (94, _, _) => self.fs().sync().map_err(|error| error.to_string()),
            _ => {
                // Numbers of inodes in use are low.
                let max = if random.random_ratio(1, 6) { 100_000 } else { random.random_range(1..6) };
                self.fs().count_inodes(max);
                Ok(())
            }
        }
    }
}

#[test]
fn usage_is_that_of_a_recount_and_limits_forbid_what_exceeds_them() {
    let mut totals = Counts::default();
    let first = number("WEIR_FS_SEED", 1);
    for seed in first..first + 6 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut twin = Twin::new();
        for step in 0..number("WEIR_FS_OPERATIONS", 2500) {
            let done = twin.step(&mut random).and_then(|()| twin.compare());
            done.unwrap_or_else(|error| panic!("seed {seed}, operation {step}: {error}"));
        }
        twin.fs().enforce_limits(false);
        let report = check(twin.fs());
        assert!(report.is_clean(), "seed {seed}: {report:#?}");
        totals.refused += twin.counts.refused;
        totals.refused_chowns += twin.counts.refused_chowns;
        totals.complete += twin.counts.complete;
        totals.running += twin.counts.running;
        totals.written_behind += twin.counts.written_behind;
    }
    println!(
        "{} refused, {} of them changes of owners; after {} operations all was counted, and counting was in \
         progress after {}; {} writes by the kernel",
        totals.refused, totals.refused_chowns, totals.complete, totals.running, totals.written_behind
    );
    assert!(totals.refused > 300 && totals.refused_chowns > 20 && totals.written_behind > 20);
    assert!(totals.complete > 2000 && totals.running > 500);
}
