//! Synchronizing the metadata members when a pool is opened, and continuing without one that fails. See
//! `docs/reference/format.md`, Members and generations.

use crate::format::page::PageNumber;
use crate::format::root::Root;
use crate::format::superblock::ROOT_AT;
use crate::map::Map;
use crate::open::members::{Assembly, increment_generation};
use crate::open::reader::Repair;
use crate::{MapError, PAGE, Superblock, create};
use weir_model::{DeviceId, DeviceOffset, DeviceSet, Mutant, Store};

/// Makes the superblocks durable that decided which members are current: both copies of each device found,
/// with the same bytes. A copy may have been read from a cache after its flush had failed. If one copy was
/// unreadable, it may be newer than the other: an interrupted decision that must not appear after another one
/// was made. A current member may be left behind only after this: until then nobody knows what its superblock
/// will say about the other. Members already left behind are ignored.
fn rewrite_superblocks(store: &mut dyn Store, assembly: &Assembly) -> Result<(), MapError> {
    let mut heard = assembly.found.iter().filter(|sb| !assembly.stale.contains(&sb.device));
    heard.try_for_each(|sb| create::write_superblock(store, sb))
}

/// The maximum number of pages copied at once.
const COPY_PAGES: u64 = 256;

impl Map {
    /// Makes the map loaded from `root` the one that is served: records the devices that the pool continues
    /// without, repairs pages that were damaged on one member, rewrites members that were left behind, and
    /// gives the map a new journal, durable in both roots of every member. Returns the members that were
    /// rewritten.
    ///
    /// # Errors
    /// Fails if a device fails without which the pool cannot continue.
    pub(crate) fn activate(
        &mut self,
        store: &mut dyn Store,
        assembly: &Assembly,
        root: &Root,
        repairs: Vec<Repair>,
        used: &[PageNumber],
    ) -> Result<DeviceSet, MapError> {
        self.flush_recovered_state(store, root)?;
        rewrite_superblocks(store, assembly)?;
        if assembly.unwritten {
            self.write_superblocks(store)?;
        }
        let repairs = repairs.into_iter().filter(|_| !self.planted.is(Mutant::RepairNotWritten));
        for (device, number, bytes) in repairs.collect::<Vec<_>>() {
            let mended = create::write(store, device, self.page_address(number), &bytes[..]);
            self.leave_behind_on_error(store, device, mended)?;
        }
        for &device in &assembly.stale {
            // A member that fails stays behind.
            if self.copy_metadata(store, device, used).is_ok() {
                self.members.push(device);
            }
        }
        self.checkpoint_now(store)?;
        if !self.planted.is(Mutant::SecondRootNotWritten) {
            self.checkpoint_now(store)?;
        }
        let levelled: DeviceSet =
            assembly.stale.iter().copied().filter(|device| self.members.contains(device)).collect();
        if !levelled.is_empty() || !assembly.outdated.is_empty() {
            for sb in &mut self.devices {
                sb.missing = sb.missing.without(levelled);
                sb.damaged = sb.damaged.without(assembly.outdated);
                sb.incarnation += u32::from(levelled.contains(sb.device));
            }
            increment_generation(&mut self.devices);
            // The members that have continued without the others come first. One that does not durably know
            // that they are back would continue without them again, by itself, and so must not be left behind
            // for them.
            let survivors = self.members.iter().filter(|device| !levelled.contains(**device));
            for device in survivors {
                create::write_superblock(store, &self.devices[device.index()])?;
            }
            self.write_superblocks(store)?;
        }
        Ok(levelled)
    }

    /// Makes everything that a killed server left in the devices' caches durable before anything builds on
    /// it, with the very first flush, because a device reports lost writes once. A member left behind has
    /// data too.
    fn flush_recovered_state(&self, store: &mut dyn Store, root: &Root) -> Result<(), MapError> {
        let skipped = self.planted.is(Mutant::CachesNotFlushedWhenOpening);
        for device in self.present.iter().filter(|_| !skipped) {
            // The loss may have been reported to a server that has ended. No flush then makes such a root
            // durable, and the pages that the root before it reaches are about to be overwritten: so it is
            // rewritten unchanged. Nothing else needs that: the root's pages were durable before it was
            // written, and frames that are not durable were never acknowledged.
            let rewritten = match self.members.contains(&device) {
                true => create::write(store, device, ROOT_AT[root.slot()], &root.encode(self.pool)[..]),
                false => Ok(()),
            };
            create::flush(store, device).and(rewritten)?;
        }
        Ok(())
    }

    /// Rewrites a stale member's metadata, without roots and journal, from a current one's. Its own is lost
    /// from the first write on.
    fn copy_metadata(
        &self,
        store: &mut dyn Store,
        to: DeviceId,
        used: &[PageNumber],
    ) -> Result<(), MapError> {
        let from = self.members[0];
        for at in ROOT_AT {
            create::write(store, to, at, &[0; PAGE])?;
        }
        create::flush(store, to)?;
        if self.planted.is(Mutant::StaleMemberNotCopied) {
            return Ok(());
        }
        let mut used: Vec<u64> = used.iter().map(|number| number.0).collect();
        used.sort_unstable();
        let mut bytes = Vec::new();
        for run in used.chunk_by(|a, b| a + 1 == *b) {
            for part in run.chunks(COPY_PAGES as usize) {
                let at = self.page_address(PageNumber(part[0]));
                bytes.resize(part.len() * PAGE, 0);
                create::read(store, from, at, &mut bytes)?;
                create::write(store, to, at, &bytes)?;
            }
        }
        create::flush(store, to)
    }

    /// Writes a checkpoint synchronously: when opening, and for offline commands.
    ///
    /// # Errors
    /// Fails if the last metadata member fails, or if the metadata area is full.
    pub fn checkpoint_now(&mut self, store: &mut dyn Store) -> Result<(), MapError> {
        self.begin_checkpoint()?;
        let mut bytes = Vec::new();
        while let Some(at) = self.next_pages(crate::log::journal::FRAME_MAX, &mut bytes) {
            self.write_members(store, at, &bytes)?;
        }
        self.flush_members(store)?;
        if let Some((root, page, at)) = self.finished_root() {
            self.write_members(store, at, &page[..])?;
            self.flush_members(store)?;
            self.finish_checkpoint(root);
        }
        Ok(())
    }

    fn write_members(
        &mut self,
        store: &mut dyn Store,
        at: DeviceOffset,
        bytes: &[u8],
    ) -> Result<(), MapError> {
        for device in self.members.clone() {
            let written = create::write(store, device, at, bytes);
            self.leave_behind_on_error(store, device, written)?;
        }
        Ok(())
    }

    fn flush_members(&mut self, store: &mut dyn Store) -> Result<(), MapError> {
        for device in self.members.clone() {
            let flushed = create::flush(store, device);
            self.leave_behind_on_error(store, device, flushed)?;
        }
        Ok(())
    }

    /// Leaves a failed member behind if another one is current; otherwise returns the error.
    fn leave_behind_on_error(
        &mut self,
        store: &mut dyn Store,
        device: DeviceId,
        result: Result<(), MapError>,
    ) -> Result<(), MapError> {
        match result {
            Err(_) if self.leave_behind(device) => self.write_superblocks(store),
            other => other,
        }
    }

    /// Continues without the metadata on this member: increments the generation, and records it in the
    /// superblocks ([`Self::devices`]). They must be durable on every remaining device before anything is
    /// acknowledged that the member does not know. Returns `false`, changing nothing, if it is no member or
    /// there is no other one.
    pub fn leave_behind(&mut self, device: DeviceId) -> bool {
        let missing = self.missing();
        let others = self.members.iter().any(|m| *m != device && !missing.contains(*m));
        if !others || !self.members.contains(&device) {
            return false;
        }
        self.members.retain(|member| *member != device);
        for sb in &mut self.devices {
            sb.missing.insert(device);
        }
        if !self.planted.is(Mutant::GenerationNotRaised) {
            increment_generation(&mut self.devices);
        }
        true
    }

    /// Writes the superblocks to every present device, the members first; but not to an outdated one: until
    /// the map that does not rely on it is durable, it must be recognizable as outdated.
    pub(super) fn write_superblocks(&mut self, store: &mut dyn Store) -> Result<(), MapError> {
        loop {
            match self.write_superblocks_once(store) {
                Err((device, _)) if self.leave_behind(device) => {}
                other => return other.map_err(|(_, error)| error),
            }
        }
    }

    fn write_superblocks_once(&self, store: &mut dyn Store) -> Result<(), (DeviceId, MapError)> {
        let members = self.members.iter().copied();
        let others = self.present.iter().filter(|device| !self.members.contains(device));
        let outdated = self.damaged_devices();
        for device in members.chain(others).filter(|device| !outdated.contains(*device)) {
            let sb = &self.devices[device.index()];
            let written = if self.planted.is(Mutant::SuperblockCopiesUnordered) {
                create::write_superblock_unordered(store, sb)
            } else if self.planted.is(Mutant::SecondSuperblockNotWritten) {
                create::write_first_superblock(store, sb)
            } else {
                create::write_superblock(store, sb)
            };
            // A device that was left behind may well fail.
            if let (Err(error), false) = (written, self.missing().contains(device)) {
                return Err((device, error));
            }
        }
        Ok(())
    }

    /// Returns the metadata members in use, each with a copy of everything: one or two.
    pub fn members(&self) -> &[DeviceId] {
        &self.members
    }

    /// Whether the pool's metadata is kept on two devices, even if one of them has been left behind.
    pub fn is_mirrored(&self) -> bool {
        !self.devices[0].members.is_empty()
    }

    /// Returns the devices that the pool has continued without.
    pub fn missing(&self) -> DeviceSet {
        self.devices[0].missing
    }

    /// Returns the metadata members whose copy is no longer written.
    pub fn left_behind(&self) -> DeviceSet {
        self.devices[0].members.and(self.missing())
    }

    /// Returns the devices that were absent when the pool was opened.
    pub fn absent(&self) -> DeviceSet {
        self.devices.iter().map(|sb| sb.device).filter(|device| !self.present.contains(*device)).collect()
    }

    /// Sets the name of an absent device, which no superblock contains.
    pub fn set_absent_name(&mut self, device: DeviceId, name: &str) {
        if !self.present.contains(device) {
            name.clone_into(&mut self.devices[device.index()].device_name);
        }
    }

    /// Returns the superblock of a member: all members have the same metadata layout.
    pub(crate) fn layout(&self) -> &Superblock {
        &self.devices[self.members[0].index()]
    }
}
