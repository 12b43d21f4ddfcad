//! A file system and its model, on which the same operations run.

use super::model::{Errno, Model, ROOT};
use super::operation::Operation;
use super::snapshot::{self, Behind, State};
use super::tiers::{every_container_has_a_file, evict, sweep};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use weir_fs::check::check;
use weir_fs::error::Error;
use weir_fs::layout::inode::{Form, Inode, Kind};
use weir_fs::layout::superblock::Superblock;
use weir_fs::layout::{Geometry, Ino, Page, Time};
use weir_fs::namespace::{
    Allocate, Change, Counting, Durability, Eviction, FileSystem, New, RenameHow, SetAttribute,
};
use weir_fs::nvm::Memory;
use weir_fs::tiers::{Containers, NoContainers, SimulatedContainers, TierNumber};

/// Files without a name that are kept open at a time.
const OPEN_MAX: usize = 3;

/// A file system, its model, and the states that a power loss may leave.
pub struct Pair<M> {
    fs: Option<FileSystem<M>>,
    pub model: Model,
    /// States since the last durable one, which is the first. The last is the present one.
    pub states: Vec<State>,
    durability: Durability,
    inos: BTreeMap<u64, Ino>,
    open: Vec<Ino>,
    containers: Option<SimulatedContainers>,
    evictions: Vec<Eviction>,
    /// Files that the kernel has open without the server, and whether it may write them.
    passthrough: BTreeMap<u64, bool>,
    /// What files were that it may have written.
    behind: Behind,
    /// The last operation made containers durable.
    is_synced: bool,
    /// Inodes of all files ever created, with their generations, by which the kernel and NFS tell them apart.
    created: BTreeSet<(u64, u32)>,
    /// Whether the last change of the tier table was possible.
    has_changed_tiers: bool,
    now: i64,
}

fn time(now: i64) -> Time {
    Time { seconds: now, nanos: 0 }
}

/// Formats the memory with small chunks, so that small files have all forms.
pub fn format<M: Memory>(memory: M) -> M {
    let geometry = Geometry::new(memory.size(), Geometry::CHUNK_BYTES_MIN).expect("a possible size");
    let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: false };
    FileSystem::create(memory, &superblock, (0, 0), time(0)).expect("the region is large enough")
}

/// Formats the memory as one with tiers below it.
pub fn format_with_tiers<M: Memory>(memory: M) -> M {
    let geometry = Geometry::new(memory.size(), Geometry::CHUNK_BYTES_MIN).expect("a possible size");
    let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: true };
    let made =
        FileSystem::create_with_tiers(memory, &superblock, &super::tiers::simulated(), (0, 0), time(0));
    made.expect("the region is large enough")
}

/// Mounts a file system with these containers.
pub fn open<M: Memory>(
    memory: M,
    durability: Durability,
    containers: Option<&SimulatedContainers>,
) -> weir_fs::error::Result<FileSystem<M>> {
    let port = containers.cloned().map(|port| Arc::new(port) as Arc<dyn Containers>);
    let port = port.unwrap_or_else(|| Arc::new(NoContainers));
    let mut fs = FileSystem::open_with(memory, durability, |_, _| Ok(port))?;
    fs.defer_removals();
    Ok(fs)
}

/// The first page of a small file's data, and the number of pages.
pub type Run = (Page, u32);

impl<M: Memory> Pair<M> {
    /// Mounts formatted memory.
    pub fn new(memory: M, durability: Durability) -> Self {
        Self::with_containers(memory, durability, None)
    }

    /// Mounts formatted memory, with tiers below it if there are containers.
    pub fn with_containers(
        memory: M,
        durability: Durability,
        containers: Option<SimulatedContainers>,
    ) -> Self {
        let fs = open(memory, durability, containers.as_ref()).expect("a formatted region");
        let model = Model::new();
        let states = vec![State::of(&model)];
        let inos = BTreeMap::from([(ROOT, Ino::ROOT)]);
        Self {
            fs: Some(fs),
            model,
            states,
            durability,
            inos,
            open: Vec::new(),
            containers,
            evictions: Vec::new(),
            passthrough: BTreeMap::new(),
            behind: Behind::new(),
            is_synced: false,
            created: BTreeSet::new(),
            has_changed_tiers: false,
            now: 0,
        }
    }

    pub fn fs(&mut self) -> &mut FileSystem<M> {
        self.fs.as_mut().expect("it is mounted")
    }

    /// Runs an operation on both. Returns whether everything up to now is durable.
    ///
    /// # Errors
    /// Returns how the results differ.
    pub fn run(&mut self, operation: &Operation) -> Result<bool, String> {
        self.now += 1;
        self.containers.iter().for_each(|containers| containers.set_now(time(self.now)));
        let found = self.run_on_fs(operation);
        let mut model = self.model.clone();
        let expected = self.run_on_model(&mut model, operation, found.as_ref().copied().unwrap_or(0));
        let errno = found.as_ref().map_err(Error::errno).map(|_| ());
        match (errno, expected) {
            (Ok(()), Ok(())) => self.model = model,
            (Err(libc::ENOSPC), Ok(())) => {
                // Of these, the first step has happened.
                if let Operation::Allocate { file, from, to, how: Allocate::Zero { .. } } = operation {
                    self.model.zero(*file, *from, *to, self.now);
                }
            }
            (Err(found), Err(expected)) if found == expected => {}
            (_, expected) => return Err(format!("expected {expected:?}, found {found:?}")),
        }
        self.states.push(State::of(&self.model));
        self.note_behind();
        self.is_synced = matches!(operation, Operation::Sync) && found.is_ok();
        // A mount does so after a sync, and now and then.
        if self.is_synced || self.now % 4 == 0 {
            self.fs().clear_garbage();
        }
        if matches!(operation, Operation::Sync) && self.containers.is_some() && self.evictions.is_empty() {
            every_container_has_a_file(self.fs())?;
        }
        let is_uncommitted = matches!(
            operation,
            Operation::Write { .. }
                | Operation::Copy { .. }
                | Operation::CloseUnnamed { .. }
                | Operation::WriteBehind { .. }
                | Operation::Count { .. }
        );
        let is_move = operation.is_move();
        let is_each = self.durability == Durability::EachOperation && !is_uncommitted && !is_move;
        let is_committed = match operation {
            Operation::Sync | Operation::Remount | Operation::SetLimit { .. } => true,
            Operation::AddTier | Operation::SetLeaving { .. } => self.has_changed_tiers,
            // A first opening to write makes everything durable.
            Operation::OpenPassthrough { .. } => matches!(found, Ok(1)),
            _ => false,
        };
        Ok(found.is_ok() && (is_each || is_committed))
    }

    /// Returns where small files are in the region.
    pub fn runs(&self) -> BTreeMap<u64, Run> {
        let Self { fs: Some(fs), inos, .. } = self else { return BTreeMap::new() };
        let run = |(id, ino): (&u64, &Ino)| match fs.inode(*ino).ok()?.form {
            Form::Run { first, pages } => Some((*id, (first, pages))),
            _ => None,
        };
        inos.iter().filter_map(run).collect()
    }

    /// Notes that everything up to now is durable.
    pub fn is_durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
        self.containers.iter().for_each(SimulatedContainers::event);
        if std::mem::take(&mut self.is_synced) {
            let Self { fs: Some(fs), behind, passthrough, inos, .. } = self else { return };
            let is_flagged = |id: &u64| fs.inode(inos[id]).is_ok_and(|inode| inode.is_passthrough);
            behind.retain(|id, _| passthrough.contains_key(id) || is_flagged(id));
            behind.values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
        }
    }

    /// Compares what the file system has with the model.
    ///
    /// # Errors
    /// Returns the first difference.
    pub fn compare(&mut self) -> Result<(), String> {
        let report = check(self.fs());
        if !report.is_clean() {
            return Err(format!("check: {:#?}", report.findings));
        }
        let (counted, usage) = (self.fs().owner_usages().clone(), self.fs().count_owners());
        if self.fs().counting() == Counting::Complete && counted != usage {
            return Err(format!("counted {counted:?}, but inodes have {usage:?}"));
        }
        self.compare_unnamed()?;
        let (found, _) = snapshot::of_file_system(self.fs()).map_err(|error| error.to_string())?;
        snapshot::compare(&found, &self.states[self.states.len() - 1..], &self.present())
    }

    /// Compares the files that no snapshot has, because they have no path.
    fn compare_unnamed(&mut self) -> Result<(), String> {
        for id in self.model.unnamed.clone() {
            let ino = self.ino(id);
            let inode = self.fs().inode(ino).map_err(|error| format!("unnamed file {id}: {error}"))?;
            let mut data = vec![0; inode.size as usize];
            self.fs().read(ino, 0, &mut data).map_err(|error| error.to_string())?;
            let node = self.model.get(id);
            let found = (inode.links, inode.mode & 0o7777, inode.uid, inode.gid);
            if found != (node.links, node.permissions, node.uid, node.gid) || data != node.data {
                return Err(format!("unnamed file {id}: found {inode:?}, expected {node:?}"));
            }
        }
        Ok(())
    }

    /// Returns which of the states a file system that was mounted after a power loss has.
    ///
    /// # Errors
    /// Returns how it differs from each of them.
    pub fn recovered<N: Memory>(&self, fs: &FileSystem<N>) -> Result<usize, String> {
        let report = check(fs);
        if !report.is_clean() || report.orphans > 0 {
            return Err(format!("check: {} orphans, {:#?}", report.orphans, report.findings));
        }
        if self.containers.is_some() {
            sweep(fs);
            every_container_has_a_file(fs)?;
        }
        let (found, _) = snapshot::of_file_system(fs).map_err(|error| error.to_string())?;
        let mut differences = String::new();
        for first in 0..self.states.len() {
            match snapshot::compare(&found, &self.states[first..], &self.behind) {
                Ok(()) => return Ok(first),
                Err(difference) => differences += &format!("\nstate {first}: {difference}"),
            }
        }
        Err(differences)
    }

    /// Notes what the files are that the kernel may have written.
    fn note_behind(&mut self) {
        let Self { behind, model, .. } = self;
        behind.iter_mut().for_each(|(id, versions)| versions.push(Rc::clone(&model.nodes[id])));
    }

    /// Returns the present state of the files that the kernel may have written.
    fn present(&self) -> Behind {
        self.behind.keys().map(|id| (*id, vec![Rc::clone(&self.model.nodes[id])])).collect()
    }

    /// Has the kernel access a file in a container without the server; returns whether all is durable then.
    fn open_passthrough(&mut self, id: u64, writes: bool) -> Result<bool, Error> {
        let ino = self.inos[&id];
        let fs = self.fs.as_mut().expect("it is mounted");
        if !self.passthrough.contains_key(&id) {
            ignore(fs.evict_now(ino))?;
            if fs.passthrough_container(ino)?.is_none() {
                return Ok(false);
            }
            fs.refer(ino);
            fs.set_passthrough(ino, true);
        }
        let may_write = self.passthrough.entry(id).or_default();
        let is_ready = fs.is_ready_for_passthrough(ino, writes)?;
        if !is_ready {
            fs.prepare_passthrough(ino, writes)?;
        }
        if !is_ready && writes {
            fs.sync()?;
        }
        *may_write |= writes;
        // Also what is open to read only is flagged when its size changes.
        self.behind.entry(id).or_default();
        Ok(!is_ready && writes)
    }

    fn nth_passthrough(&self, nth: usize) -> Option<(u64, bool)> {
        let len = self.passthrough.len().max(1);
        self.passthrough.iter().nth(nth % len).map(|(id, writes)| (*id, *writes))
    }

    /// Writes to a container without the server; returns the file, if one is open so.
    fn write_behind(&mut self, nth: usize, offset: usize, bytes: &[u8]) -> Option<u64> {
        let (id, _) = self.nth_passthrough(nth).filter(|(_, writes)| *writes)?;
        let ino = self.ino(id);
        let inode = self.fs().inode(ino).expect("it is open");
        let Form::Container(container) = inode.form else { panic!("an open file has moved") };
        self.fs().containers().write(container, offset as u64, bytes).ok().map(|()| id)
    }

    fn ino(&self, id: u64) -> Ino {
        self.inos[&id]
    }

    /// Returns the number of bytes written or copied.
    fn run_on_fs(&mut self, operation: &Operation) -> Result<u64, Error> {
        let now = time(self.now);
        if let Operation::Unlink { parent, name } = operation {
            self.maybe_open(*parent, name);
        }
        let ino = |id: &u64| self.inos[id];
        let fs = self.fs.as_mut().expect("it is mounted");
        match operation {
            Operation::Create { parent, name, kind, permissions, target } => {
                let device = if *kind == Kind::CharDevice { 259 } else { 0 };
                let (permissions, attributes) = (*permissions, &[][..]);
                let new = New { kind: *kind, permissions, uid: 0, gid: 0, device, target, attributes };
                let created = fs.create_file(ino(parent), name, &new, now)?;
                self.note_created(created)?;
            }
            Operation::CreateUnnamed { parent, permissions, is_linkable } => {
                let (kind, permissions, target, attributes) = (Kind::File, *permissions, &[], &[]);
                let new = New { kind, permissions, uid: 0, gid: 0, device: 0, target, attributes };
                let created = fs.create_unnamed(ino(parent), &new, *is_linkable, now)?;
                fs.refer(created.0);
                self.note_created(created)?;
            }
            Operation::CloseUnnamed { file } => fs.forget(ino(file), 1)?,
            Operation::Link { file, parent, name } => {
                fs.link(ino(file), ino(parent), name, now)?;
            }
            Operation::Unlink { parent, name } => fs.unlink(ino(parent), name, now)?,
            Operation::RemoveDirectory { parent, name } => fs.remove_directory(ino(parent), name, now)?,
            Operation::Rename { from, to, how } => {
                fs.rename((ino(&from.0), &from.1), (ino(&to.0), &to.1), *how, now)?;
            }
            Operation::Write { file, offset, bytes } => {
                return Ok(super::tiers::write(fs, ino(file), *offset as u64, bytes, now)? as u64);
            }
            Operation::Truncate { file, size } => fs.truncate(ino(file), *size as u64, now)?,
            Operation::Allocate { file, from, to, how } => {
                fs.allocate(ino(file), *from as u64..*to as u64, *how, now)?;
            }
            Operation::Copy { from, to, len } => {
                let (from, to) = ((ino(&from.0), from.1 as u64), (ino(&to.0), to.1 as u64));
                return fs.copy_range(from, to, *len as u64, now);
            }
            Operation::SetPermissions { file, permissions, uid, gid } => {
                let (uid, gid) = (Some(*uid), Some(*gid));
                let change = Change { permissions: Some(*permissions), uid, gid, ..Change::default() };
                fs.set_attributes(ino(file), &change, now)?;
            }
            Operation::SetAttribute { file, name, value } => {
                fs.set_attribute(ino(file), name, value, SetAttribute::Always, now)?;
            }
            Operation::RemoveAttribute { file, name } => fs.remove_attribute(ino(file), name, now)?,
            Operation::SetLimit { owner, limit } => fs.set_limit(*owner, *limit)?,
            Operation::Count { max } => drop(fs.count_inodes(*max)),
            Operation::Trim => fs.trim_all()?,
            Operation::MakeNullFiles => while fs.make_null_files()? {},
            Operation::Level => fs.plan_levelling(0).map_or(Ok(false), |plan| fs.level(&plan)).map(drop)?,
            Operation::OpenPassthrough { .. }
            | Operation::WriteBehind { .. }
            | Operation::ClosePassthrough { .. }
            | Operation::EndPassthrough => return self.run_passthrough(operation),
            Operation::Sync => {
                for container in fs.flagged_containers() {
                    fs.containers().sync_written_by_others(container).map_err(Error::Container)?;
                }
                for ino in self.open.drain(..) {
                    fs.forget(ino, 1)?;
                }
                fs.sync()?;
            }
            Operation::Remount => self.remount()?,
            Operation::Evict { .. }
            | Operation::BeginEviction { .. }
            | Operation::FinishEvictions
            | Operation::Promote { .. } => self.run_move(operation)?,
            Operation::Pin { file, is_pinned } => fs.pin(ino(file), *is_pinned, now)?,
            Operation::Sweep => sweep(fs),
            of_tiers => ignore(self.change_tiers(of_tiers))?,
        }
        Ok(0)
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.open.clear();
        self.passthrough.clear();
        self.fs().sync()?;
        let memory = self.fs.take().expect("it is mounted").into_memory();
        self.evictions.clear();
        self.fs = Some(open(memory, self.durability, self.containers.as_ref())?);
        // Evictions in progress have left garbage.
        sweep(self.fs());
        Ok(())
    }

    fn run_move(&mut self, operation: &Operation) -> Result<(), Error> {
        match operation {
            Operation::Evict { file, at_once: true } => {
                let ino = self.ino(*file);
                ignore(self.fs().evict_now(ino))
            }
            Operation::Evict { file, .. } => {
                let ino = self.ino(*file);
                ignore(evict(self.fs(), ino))
            }
            Operation::BeginEviction { file } => {
                let ino = self.ino(*file);
                ignore(self.begin_eviction(ino))
            }
            Operation::Promote { file } => {
                let ino = self.ino(*file);
                ignore(self.fs().promote(ino))
            }
            _ => {
                for eviction in std::mem::take(&mut self.evictions) {
                    ignore(super::tiers::finish(self.fs(), &eviction))?;
                }
                Ok(())
            }
        }
    }

    fn run_passthrough(&mut self, operation: &Operation) -> Result<u64, Error> {
        match operation {
            Operation::OpenPassthrough { file, writes } => {
                return Ok(self.open_passthrough(*file, *writes)?.into());
            }
            Operation::WriteBehind { nth, offset, bytes } => {
                return Ok(self.write_behind(*nth, *offset, bytes).map_or(0, |id| id + 1));
            }
            Operation::ClosePassthrough { nth } => {
                if let Some((id, _)) = self.nth_passthrough(*nth) {
                    self.passthrough.remove(&id);
                    let ino = self.ino(id);
                    self.fs().set_passthrough(ino, false);
                    self.fs().forget(ino, 1)?;
                }
            }
            _ => {
                for (id, _) in std::mem::take(&mut self.passthrough) {
                    let ino = self.ino(id);
                    self.fs().set_passthrough(ino, false);
                    self.fs().forget(ino, 1)?;
                }
                for (ino, _) in self.fs().unsettled() {
                    self.fs().end_passthrough(ino)?;
                }
            }
        }
        Ok(0)
    }

    fn change_tiers(&mut self, operation: &Operation) -> weir_fs::error::Result<()> {
        let number = self.now as u8;
        let fs = self.fs();
        let changed = match operation {
            Operation::AddTier => super::tiers::add_tier(fs, number),
            Operation::SetLeaving { tier, is_leaving } => fs.set_leaving(TierNumber(*tier), *is_leaving),
            Operation::EmptyTier { tier, remove } => super::tiers::empty_tier(fs, TierNumber(*tier), *remove),
            _ => Ok(()),
        };
        self.has_changed_tiers = changed.is_ok();
        changed
    }

    fn begin_eviction(&mut self, ino: Ino) -> weir_fs::error::Result<()> {
        let eviction = super::tiers::begin(self.fs(), ino)?;
        self.evictions.push(eviction);
        Ok(())
    }

    /// Notes a new file, which no other one was mistaken for.
    fn note_created(&mut self, (ino, inode): (Ino, Inode)) -> Result<(), Error> {
        if !self.created.insert((ino.0, inode.generation)) {
            let text = format!("inode {} repeats generation {}", ino.0, inode.generation);
            return Err(Error::Damaged(text));
        }
        let id = self.model.next_id();
        self.inos.insert(id, ino);
        Ok(())
    }

    /// Keeps some of the files open that are about to lose a name.
    fn maybe_open(&mut self, parent: u64, name: &[u8]) {
        let Some(id) = self.model.find(parent, name).filter(|_| self.now % 3 == 0) else { return };
        let ino = self.ino(id);
        if self.open.len() < OPEN_MAX && !self.open.contains(&ino) {
            self.fs().refer(ino);
            self.open.push(ino);
        }
    }

    fn run_on_model(&mut self, model: &mut Model, operation: &Operation, done: u64) -> Result<(), Errno> {
        let now = self.now;
        match operation {
            Operation::Create { parent, name, kind, permissions, target } => {
                let device = if *kind == Kind::CharDevice { 259 } else { 0 };
                model.create(*parent, name, (*kind, *permissions, device), target, now)?;
            }
            Operation::CreateUnnamed { parent, permissions, is_linkable } => {
                model.create_unnamed(*parent, *permissions, *is_linkable, now);
            }
            Operation::CloseUnnamed { file } => drop(model.unnamed.remove(file)),
            Operation::Link { file, parent, name } => model.link(*file, *parent, name, now)?,
            Operation::Unlink { parent, name } => model.unlink(*parent, name, now)?,
            Operation::RemoveDirectory { parent, name } => model.remove_directory(*parent, name, now)?,
            Operation::Rename { from, to, how } => {
                let how = (*how == RenameHow::NoReplace, *how == RenameHow::Exchange);
                model.rename((from.0, &from.1), (to.0, &to.1), how, now)?;
            }
            Operation::Write { file, offset, bytes } => {
                self.write_model(model, *file, *offset, &bytes[..done as usize]);
            }
            Operation::Truncate { file, size } => model.truncate(*file, *size, now),
            Operation::Allocate { file, from, to, how } => match how {
                Allocate::Space { keep_size } => model.grow(*file, *to, *keep_size, now),
                Allocate::PunchHole => model.zero(*file, *from, *to, now),
                Allocate::Zero { keep_size } => {
                    model.zero(*file, *from, *to, now);
                    self.states.push(State::of(model));
                    model.grow(*file, *to, *keep_size, now);
                }
            },
            Operation::Copy { from, to, len } => {
                let source = &model.get(from.0).data;
                let len = (*len).min(source.len().saturating_sub(from.1));
                if from.0 == to.0 && from.1.abs_diff(to.1) < len {
                    return Err(libc::EINVAL);
                }
                let bytes =
                    source[from.1.min(source.len())..(from.1 + done as usize).min(source.len())].to_vec();
                self.write_model(model, to.0, to.1, &bytes);
            }
            Operation::SetPermissions { file, permissions, uid, gid } => {
                let node = model.change(*file);
                (node.permissions, node.uid, node.gid, node.changed) = (*permissions, *uid, *gid, now);
            }
            Operation::SetAttribute { file, name, value } => {
                let node = model.change(*file);
                node.attributes.insert(name.clone(), value.clone());
                node.changed = now;
            }
            Operation::RemoveAttribute { file, name } => {
                let node = model.change(*file);
                node.attributes.remove(name).ok_or(libc::ENODATA)?;
                node.changed = now;
            }
            Operation::SetLimit { owner, limit } => {
                if limit.is_none() {
                    model.limits.remove(owner);
                } else {
                    model.limits.insert(*owner, *limit);
                }
            }
            Operation::WriteBehind { offset, bytes, .. } if done > 0 => {
                model.write(done - 1, *offset, bytes, now);
            }
            Operation::WriteBehind { .. } => {}
            Operation::Pin { file, .. } => model.change(*file).changed = now,
            Operation::Remount => model.unnamed.clear(),
            Operation::Sync | Operation::Count { .. } | Operation::Trim | Operation::Level => {}
            moves => debug_assert!(moves.is_move()),
        }
        Ok(())
    }

    /// Writes to the model in the steps that the file system takes: a power loss may come between them.
    fn write_model(&mut self, model: &mut Model, file: u64, offset: usize, bytes: &[u8]) {
        for (number, step) in bytes.chunks(Geometry::CHUNK_BYTES_MIN as usize).enumerate() {
            if number > 0 {
                self.states.push(State::of(model));
            }
            let at = offset + number * Geometry::CHUNK_BYTES_MIN as usize;
            model.write(file, at, step, self.now);
            if let Some(versions) = self.behind.get_mut(&file) {
                versions.push(Rc::clone(&model.nodes[&file]));
            }
        }
    }
}

/// Moves are tried on any file; those that are not possible are no failure.
fn ignore(result: weir_fs::error::Result<()>) -> weir_fs::error::Result<()> {
    match result {
        Err(Error::Pinned | Error::Invalid | Error::Changing | Error::NotFound | Error::NoSpace) => Ok(()),
        Err(Error::NoTier | Error::TooLarge | Error::InUse) => Ok(()),
        result => result,
    }
}
