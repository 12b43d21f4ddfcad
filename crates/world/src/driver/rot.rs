//! Silent faults of devices: bit rot and misdirected writes.
//!
//! In user data they cannot be noticed; the world knows which sectors were damaged, and they are counted
//! separately. In metadata they must be noticed: the pool opens as if nothing had happened (from the mirror,
//! from the older root, or because nothing relevant was damaged), or refuses to open. The last frame of an
//! unmirrored journal is the exception: a lost frame looks like one that was never written.

use super::lifecycle::{POOL, open_pool};
use super::{Driver, Failure, Health};
use crate::{FaultKind, Rng, Seed, StopKind, Storage, World};
use std::ops::Range;
use weir_map::check::{Report, Severity};
use weir_map::journal::{FRAME_MAX, Frame};
use weir_map::root::{JournalPosition, Root};
use weir_map::superblock::{JOURNAL_AT, ROOT_AT};
use weir_map::{MapError, PAGE, Superblock};
use weir_model::{BLOCK, Bytes, DeviceId, DeviceOffset, DeviceSet};

impl Driver {
    /// Flips a bit while the power is off. If the pool does not open then, the bit is restored.
    pub(super) fn rot(&mut self, pick: u64) -> Result<(), Failure> {
        let rotten = rot(&mut self.world, &self.layout, self.setup.mirrored, pick);
        let Some(BitFlip { device, at, bits, in_metadata: of_metadata }) = rotten else { return Ok(()) };
        self.had_silent_failure = true;
        if self.is_tail_damaged() {
            self.restore_bits(device, at, bits);
            return Ok(());
        }
        self.record_fault(if of_metadata { FaultKind::MetadataRot } else { FaultKind::DataRot });
        if of_metadata { self.open_damaged(device, at, bits) } else { Ok(()) }
    }

    fn restore_bits(&mut self, device: DeviceId, at: DeviceOffset, bits: u8) {
        if let Some(storage) = self.world.storage(device) {
            storage.restore_bits(at, bits);
        }
    }

    fn open_damaged(&mut self, device: DeviceId, at: DeviceOffset, bits: u8) -> Result<(), Failure> {
        let foretold = self.predict_open();
        let opened = open_pool(&mut self.world, &self.setup, false, self.absence);
        foretold.map_or(Ok(()), |report| check_prediction(report, opened.is_ok()))?;
        match opened {
            Ok(_) => {
                self.audit_roots()?;
                self.statistics.damage_tolerated += 1;
            }
            Err(failure) if self.may_refuse(&failure) => {
                self.statistics.damage_detected += 1;
                self.restore_bits(device, at, bits);
            }
            Err(failure) => return Err(failure),
        }
        self.world.stop(StopKind::PowerLoss);
        Ok(())
    }

    /// Runs the offline check on damaged metadata, to predict what opening finds.
    pub(super) fn predict_open(&mut self) -> Option<Box<Report>> {
        if self.health != Health::Healthy || self.damaged_metadata().is_empty() {
            return None;
        }
        let sizes: Vec<_> = self.setup.devices.iter().map(|device| Some(device.size)).collect();
        Some(Box::new(weir_map::check(&mut self.world, &sizes)))
    }

    /// Handles a pool that does not open. That is correct if metadata without a second copy was damaged; the
    /// pool is then created anew.
    pub(super) fn handle_refused_open(&mut self, failure: Failure) -> Result<(), Failure> {
        if !self.may_refuse(&failure) {
            return Err(failure);
        }
        self.statistics.damage_detected += 1;
        self.recreate_pool()
    }

    fn may_refuse(&mut self, failure: &Failure) -> bool {
        let says_so = is_damage_error(failure);
        let spoilt = self.damaged_metadata();
        let unharmed = self.members().find(|member| !spoilt.contains(*member));
        says_so && (!spoilt.is_empty() && unharmed.is_none() || self.has_unidentified_device())
    }

    /// Reports whether some device, not necessarily one that holds the map, has both copies of its superblock
    /// damaged.
    fn has_unidentified_device(&mut self) -> bool {
        has_unidentified_device(&mut self.world, &self.layout)
    }

    /// Returns the devices that hold the map.
    pub(super) fn members(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..if self.setup.mirrored { 2 } else { 1 }).map(DeviceId)
    }

    /// Returns the devices whose metadata, including superblocks, differs from what was written.
    pub(super) fn damaged_metadata(&mut self) -> DeviceSet {
        damaged_metadata(&mut self.world, &self.layout)
    }

    /// Reports whether the next frame of the only journal may have existed, and been damaged.
    pub(super) fn is_tail_damaged(&mut self) -> bool {
        if self.setup.mirrored || self.damaged_metadata().is_empty() {
            return false;
        }
        let superblock = &self.layout[0];
        let (device, ring) = (superblock.device, JOURNAL_AT.0..superblock.pages_at().0);
        let Some(storage) = self.world.storage(device) else { return false };
        let mut bytes = vec![0; (ring.end - ring.start) as usize];
        storage.read(JOURNAL_AT, &mut bytes);
        let Some(root) = newest_root(storage) else { return false };
        let blocks = self.setup.extent.blocks();
        let next = last_frame_end(&bytes, root.journal, blocks);
        // A frame is written when the one before it is durable, so a missing frame with later ones is
        // noticed.
        let is_later = |frame: &Frame| {
            (frame.journal, frame.incarnation) == (next.journal, next.incarnation)
                && frame.sequence > next.sequence
        };
        let mut pages = bytes.chunks_exact(PAGE).enumerate();
        if pages.any(|(page, _)| {
            Frame::decode(&bytes[page * PAGE..], POOL, blocks).as_ref().is_some_and(is_later)
        }) {
            return false;
        }
        let is_spoilt = |range: Range<u64>| {
            storage.is_damaged(JOURNAL_AT + Bytes(range.start)..JOURNAL_AT + Bytes(range.end))
        };
        // A frame that did not fit before the end is at the start.
        [next.offset, 0].into_iter().any(|at| is_spoilt(frame_range(&bytes, at)))
    }

    /// Replaces a pool that is known to be lost by a new one.
    pub(super) fn recreate_pool(&mut self) -> Result<(), Failure> {
        let (statistics, digest) = (std::mem::take(&mut self.statistics), self.world.digest());
        let copies = std::mem::take(&mut self.copies);
        *self = Self::new(self.setup.clone())?;
        (self.statistics, self.copies) = (statistics, copies);
        self.world.add_to_digest(digest);
        Ok(())
    }
}

/// A flipped bit.
pub(crate) struct BitFlip {
    device: DeviceId,
    at: DeviceOffset,
    bits: u8,
    pub(crate) in_metadata: bool,
}

/// Flips a bit on a device: in its metadata, or in its data. Returns `None` if nothing was written there.
pub(crate) fn rot(world: &mut World, layout: &[Superblock], mirrored: bool, pick: u64) -> Option<BitFlip> {
    let mut rng = Rng::new(Seed(pick));
    let of_metadata = rng.chance(0.5);
    let device = match of_metadata {
        // The first of two members stays intact, for when the second one is damaged.
        true => DeviceId(mirrored.into()),
        false => DeviceId(rng.below(layout.len() as u64) as u8),
    };
    let superblock = &layout[device.index()];
    let range = if of_metadata {
        DeviceOffset(0)..superblock.data_at
    } else {
        superblock.data_at..Superblock::second_at(superblock.size)
    };
    let storage = world.storage(device)?;
    let range = if of_metadata { part_of_metadata(&mut rng, superblock, range) } else { range };
    let mut pages = storage.written_pages(range);
    pages.retain(|page| !storage.is_damaged(*page..*page + Bytes(BLOCK)));
    if pages.is_empty() {
        return None;
    }
    let page = pages[rng.below(pages.len() as u64) as usize];
    let (at, bits) = (page + Bytes(rng.below(BLOCK)), 1 << rng.below(8));
    storage.rot(at, bits);
    Some(BitFlip { device, at, bits, in_metadata: of_metadata })
}

/// Picks a part of the metadata: superblock and roots, journal, and map are equally likely, however long they
/// are.
fn part_of_metadata(rng: &mut Rng, superblock: &Superblock, all: Range<DeviceOffset>) -> Range<DeviceOffset> {
    match rng.below(4) {
        0 => all.start..JOURNAL_AT,
        1 => JOURNAL_AT..superblock.pages_at(),
        2 => superblock.pages_at()..all.end,
        _ => all,
    }
}

/// Returns the range of a device in which writes may be misdirected.
pub(crate) fn misdirection_range(superblock: &Superblock, mirrored: bool) -> Range<DeviceOffset> {
    // One of two members stays intact: the pool opens whatever happens to the other one.
    if mirrored && superblock.device == DeviceId(0) {
        superblock.data_at..Superblock::second_at(superblock.size)
    } else {
        DeviceOffset(0)..DeviceOffset(superblock.size.0)
    }
}

/// Returns the devices whose metadata, including superblocks, differs from what was written.
pub(crate) fn damaged_metadata(world: &mut World, layout: &[Superblock]) -> DeviceSet {
    let mut spoilt = DeviceSet::default();
    for superblock in layout {
        let Superblock { device, data_at, size, .. } = *superblock;
        let Some(storage) = world.storage(device) else { continue };
        let second = Superblock::second_at(size)..DeviceOffset(size.0);
        if storage.is_damaged(DeviceOffset(0)..data_at) || storage.is_damaged(second) {
            spoilt.insert(device);
        }
    }
    spoilt
}

/// Reports whether some device, not necessarily one that holds the map, has both copies of its superblock
/// damaged.
pub(crate) fn has_unidentified_device(world: &mut World, layout: &[Superblock]) -> bool {
    layout.iter().any(|superblock| {
        let copies = [DeviceOffset(0), Superblock::second_at(superblock.size)];
        let storage = world.storage(superblock.device);
        storage.is_some_and(|s| copies.iter().all(|at| s.is_damaged(*at..*at + Bytes(BLOCK))))
    })
}

/// Reports whether this is an error with which a pool with damaged metadata may refuse to open.
pub(crate) const fn is_damage_error(failure: &Failure) -> bool {
    use MapError::{Damaged, MetadataAbsent, Mismatch, Unknown};
    matches!(failure, Failure::Open(Damaged { .. } | Unknown { .. } | MetadataAbsent { .. } | Mismatch(_)))
}

/// Checks that a pool opens if and only if the offline check found no damage without an intact copy.
pub(crate) fn check_prediction(report: Box<Report>, opened: bool) -> Result<(), Failure> {
    let is_damaged = report.worst_severity() == Some(Severity::Damage);
    if is_damaged == opened { Err(Failure::CheckMismatch { opened, report }) } else { Ok(()) }
}

/// Returns the root with which opening begins. One that was misdirected to the other slot does not count.
fn newest_root(storage: &Storage) -> Option<Root> {
    let mut page = [0; PAGE];
    let roots = ROOT_AT.into_iter().zip(0..).filter_map(|(at, slot)| {
        storage.read(at, &mut page);
        Root::decode(&page, POOL).filter(|root| root.slot() == slot)
    });
    roots.max_by_key(|root| root.sequence)
}

/// Returns the position after the last frame from a position on.
fn last_frame_end(ring: &[u8], mut at: JournalPosition, blocks: u16) -> JournalPosition {
    let follows = |frame: &Frame, at: &JournalPosition| {
        (frame.journal, frame.sequence, frame.chain) == (at.journal, at.sequence, at.chain)
    };
    loop {
        let frame = [at.offset, 0].into_iter().find_map(|offset| {
            let frame = Frame::decode(ring.get(offset as usize..)?, POOL, blocks)?;
            follows(&frame, &at).then_some((offset, frame))
        });
        let Some((offset, frame)) = frame else { return at };
        at.offset = (offset + frame.stored) % ring.len() as u64;
        (at.sequence, at.chain) = (at.sequence + 1, frame.crc);
    }
}

/// Returns the bytes of a frame at this position: as many as its header says, if that can be read.
fn frame_range(ring: &[u8], at: u64) -> Range<u64> {
    const MAGIC: &[u8] = b"wJF1";
    const LENGTH_AT: usize = 48;
    let page = &ring[at as usize..][..PAGE];
    let length = u32::from_le_bytes(std::array::from_fn(|i| page[LENGTH_AT + i]));
    let known = page.starts_with(MAGIC) && (1..=FRAME_MAX as u32).contains(&length);
    let length = if known { u64::from(length).next_multiple_of(PAGE as u64) } else { PAGE as u64 };
    at..(at + length).min(ring.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_in_the_other_slot_is_not_the_newest() {
        let mut storage = Storage::new(Bytes::mib(1), false);
        for (sequence, at) in [(4, ROOT_AT[0]), (6, ROOT_AT[1])] {
            storage.write(at, &Root::empty(sequence, 1).encode(POOL)[..], false);
        }
        assert_eq!(newest_root(&storage).map(|root| root.sequence), Some(4));
        storage.write(ROOT_AT[1], &Root::empty(5, 1).encode(POOL)[..], false);
        assert_eq!(newest_root(&storage).map(|root| root.sequence), Some(5));
    }
}
