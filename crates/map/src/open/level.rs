//! Bringing the metadata members level when a pool is opened, and going on without one that fails.
//! See `docs/reference/format.md`, Members and generations.

use crate::format::page::PageNumber;
use crate::format::root::Root;
use crate::format::superblock::ROOT_AT;
use crate::map::Map;
use crate::open::members::{Assembly, raise};
use crate::open::reader::Repair;
use crate::{MapError, PAGE, Superblock, create};
use weir_model::{DeviceId, DeviceOffset, DeviceSet, Mutant, Store};

/// Makes the superblocks durable from which it was decided who is current: both copies of each device
/// found, the same bytes. One may have been read from a cache after its flush had failed; and where one
/// copy could not be read, it may be newer than the other, a decision that was cut short and must not
/// come to light after another one was made. A current member may only be left behind once this has
/// been done: till then nobody knows what it will say of the other. Those left behind already have no
/// say.
fn affirm(store: &mut dyn Store, assembly: &Assembly) -> Result<(), MapError> {
    let mut heard = assembly.found.iter().filter(|sb| !assembly.stale.contains(&sb.device));
    heard.try_for_each(|sb| create::write_superblock(store, sb))
}

/// Pages copied at once, at most.
const COPY_PAGES: u64 = 256;

impl Map {
    /// Makes the map loaded from `root` the one that is served: records what the pool goes on without,
    /// mends what was damaged on one member, writes members that were left behind anew, and gives the map
    /// a new journal, durable in both roots of every member. Says which members were written anew.
    ///
    /// # Errors
    /// If a device fails without which it cannot go on.
    pub(crate) fn take_over(
        &mut self,
        store: &mut dyn Store,
        assembly: &Assembly,
        root: &Root,
        repairs: Vec<Repair>,
        used: &[PageNumber],
    ) -> Result<DeviceSet, MapError> {
        self.make_read_durable(store, root)?;
        affirm(store, assembly)?;
        if assembly.unwritten {
            self.record(store)?;
        }
        let repairs = repairs.into_iter().filter(|_| !self.planted.is(Mutant::RepairNotWritten));
        for (device, number, bytes) in repairs.collect::<Vec<_>>() {
            let mended = create::write(store, device, self.page_address(number), &bytes[..]);
            self.or_leave_behind(store, device, mended)?;
        }
        for &device in &assembly.stale {
            // One that fails stays behind.
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
            raise(&mut self.devices);
            // First on those that have gone on without the others. One that does not durably know that
            // they are back would do so again, by itself, and so must not be left behind for them.
            let survivors = self.members.iter().filter(|device| !levelled.contains(**device));
            for device in survivors {
                create::write_superblock(store, &self.devices[device.index()])?;
            }
            self.record(store)?;
        }
        Ok(levelled)
    }

    /// What a killed server left in the devices' caches becomes durable before anything builds on it, with
    /// the very first flush: a device tells of lost writes once. A member left behind has data too.
    fn make_read_durable(&self, store: &mut dyn Store, root: &Root) -> Result<(), MapError> {
        let skipped = self.planted.is(Mutant::CachesNotFlushedWhenOpening);
        for device in self.present.iter().filter(|_| !skipped) {
            // Whom it told may have ended with it. No flush makes such a root durable then, and what the
            // root before it reaches is about to be overwritten: it is written again, as it is. Nothing
            // else needs that: its pages were durable before it was written, and frames that are not
            // were never acknowledged.
            let rewritten = match self.members.contains(&device) {
                true => create::write(store, device, ROOT_AT[root.slot()], &root.encode(self.pool)[..]),
                false => Ok(()),
            };
            create::flush(store, device).and(rewritten)?;
        }
        Ok(())
    }

    /// Writes a stale member's metadata anew from a current one's, roots and journal aside. Its own is
    /// gone from the first write on.
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

    /// Writes a checkpoint, waiting for it: when opening, and for offline commands.
    ///
    /// # Errors
    /// If the last metadata member fails, or the metadata area has no room.
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
            self.checkpoint_durable(root);
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
            self.or_leave_behind(store, device, written)?;
        }
        Ok(())
    }

    fn flush_members(&mut self, store: &mut dyn Store) -> Result<(), MapError> {
        for device in self.members.clone() {
            let flushed = create::flush(store, device);
            self.or_leave_behind(store, device, flushed)?;
        }
        Ok(())
    }

    /// A member that failed is left behind if another one is current.
    fn or_leave_behind(
        &mut self,
        store: &mut dyn Store,
        device: DeviceId,
        result: Result<(), MapError>,
    ) -> Result<(), MapError> {
        match result {
            Err(_) if self.leave_behind(device) => self.record(store),
            other => other,
        }
    }

    /// The pool goes on without the metadata on this member: raises the generation, and says so in the
    /// superblocks ([`Self::devices`]). They must be durable on every device left before anything is
    /// acknowledged that the member does not know. `false`, changing nothing, if it is no member or
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
            raise(&mut self.devices);
        }
        true
    }

    /// Writes the superblocks to every device that is there, the members first; but not to an outdated one:
    /// as long as the map that does not count on it is not durable, it must be known for what it is.
    pub(super) fn record(&mut self, store: &mut dyn Store) -> Result<(), MapError> {
        loop {
            match self.record_once(store) {
                Err((device, _)) if self.leave_behind(device) => {}
                other => return other.map_err(|(_, error)| error),
            }
        }
    }

    fn record_once(&self, store: &mut dyn Store) -> Result<(), (DeviceId, MapError)> {
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
            // One that was left behind may well fail.
            if let (Err(error), false) = (written, self.missing().contains(device)) {
                return Err((device, error));
            }
        }
        Ok(())
    }

    /// The metadata members that are written, each with a copy of everything: one or two.
    pub fn members(&self) -> &[DeviceId] {
        &self.members
    }

    /// Whether the pool's metadata is kept on two devices, even if one of them has been left behind.
    pub fn is_mirrored(&self) -> bool {
        !self.devices[0].members.is_empty()
    }

    /// Devices the pool has gone on without.
    pub fn missing(&self) -> DeviceSet {
        self.devices[0].missing
    }

    /// Metadata members whose copy is no longer written.
    pub fn left_behind(&self) -> DeviceSet {
        self.devices[0].members.and(self.missing())
    }

    /// Devices that were not there when the pool was opened.
    pub fn absent(&self) -> DeviceSet {
        self.devices.iter().map(|sb| sb.device).filter(|device| !self.present.contains(*device)).collect()
    }

    /// What a device that is absent is called: no superblock says it.
    pub fn name_absent(&mut self, device: DeviceId, name: &str) {
        if !self.present.contains(device) {
            name.clone_into(&mut self.devices[device.index()].device_name);
        }
    }

    /// The superblock of a member: all have their metadata at the same places.
    pub(crate) fn layout(&self) -> &Superblock {
        &self.devices[self.members[0].index()]
    }
}
