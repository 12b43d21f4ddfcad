//! The worth of the parts of extents, and the parts that are on the fast device.

use super::super::DeviceView;
use crate::Lru;
use std::collections::BTreeSet;
use std::ops::Bound;
use weir_model::{BlockRange, Bytes, ExtentIndex, ExtentKey};

/// The number of parts of an extent: for extents of 128 KiB, its blocks.
pub(super) const PARTS: u16 = 32;
/// The worth of an access that saves the time of one read of the slow device.
pub(super) const UNIT_WORTH: u16 = 256;

/// The histogram of worth has this many buckets per power of two, from `WORTH_MIN` on.
const OCTAVE: usize = 4;
const WORTH_MIN: u16 = 8;
const BUCKETS: usize = 13 * OCTAVE;

/// Returns the bucket of this worth; `None` for a negligible one. Half the worth is [`OCTAVE`] buckets lower.
fn bucket(worth: u16) -> Option<usize> {
    let octave = (worth / WORTH_MIN).checked_ilog2()? as usize;
    Some(octave * OCTAVE + usize::from(worth >> (octave + 1)) % OCTAVE)
}

/// Returns the minimum worth of a bucket.
fn bucket_min(bucket: usize) -> u16 {
    let worth = (OCTAVE + bucket % OCTAVE) << (bucket / OCTAVE + 1);
    worth.min(usize::from(u16::MAX)) as u16
}

/// An extent's parts, one bit each.
pub(super) type Mask = u32;

/// Returns the number of parts. Usually it is one, and counting is slow where the processor has no
/// instruction for it.
#[inline(always)]
pub(super) fn count(parts: Mask) -> u32 {
    if parts.is_power_of_two() { 1 } else { count_several(parts) }
}

#[cold]
#[inline(never)]
fn count_several(parts: Mask) -> u32 {
    parts.count_ones()
}

/// The number of extents of a region: 4 MiB, for extents of 128 KiB.
pub(super) const REGION_EXTENTS: u64 = 32;

/// Returns the first extent of a region.
pub(super) fn region_start(key: ExtentKey) -> ExtentKey {
    ExtentKey { index: ExtentIndex(key.index.0 / REGION_EXTENTS * REGION_EXTENTS), ..key }
}

/// Returns the last extent of the region that begins with this one.
pub(super) fn region_end(first: ExtentKey) -> ExtentKey {
    ExtentKey { index: ExtentIndex(first.index.0 + REGION_EXTENTS - 1), ..first }
}

/// The state of an extent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heat {
    /// The sum of the worth of accesses by part, halved with every epoch.
    worth: [u16; PARTS as usize],
    /// Parts on the fast device, as far as known.
    pub(super) resident: Mask,
    /// Parts written in this epoch or the last.
    pub(super) written: Mask,
    written_this_epoch: Mask,
    /// Parts read in this epoch, and those of them read again.
    read: Mask,
    reread: Mask,
    /// Whether the extent has a whole place on the fast device.
    pub(super) whole: bool,
    epoch: u32,
}

impl Heat {
    /// Halves the state for each epoch that has passed.
    #[inline(always)]
    fn age(&mut self, epoch: u32) {
        if self.epoch != epoch {
            self.forget(epoch);
        }
    }

    #[inline(never)]
    fn forget(&mut self, epoch: u32) {
        let epochs = (epoch - self.epoch).min(15);
        self.epoch = epoch;
        self.written = if epochs == 1 { self.written_this_epoch } else { 0 };
        (self.written_this_epoch, self.read, self.reread) = (0, 0, 0);
        self.worth.iter_mut().for_each(|worth| *worth >>= epochs);
    }

    /// Returns the maximum worth of these parts.
    pub(super) fn max_worth(&self, parts: Mask) -> u16 {
        bits(parts).map(|part| self.worth[part as usize]).max().unwrap_or(0)
    }

    /// Returns the mean worth of a part.
    pub(super) fn mean_worth(&self) -> u16 {
        (self.worth.iter().map(|worth| u32::from(*worth)).sum::<u32>() / u32::from(PARTS)) as u16
    }

    /// Returns those of these parts that are worth no more than `price`.
    pub(super) fn parts_below(&self, parts: Mask, price: u16) -> Mask {
        bits(parts).filter(|part| self.worth[*part as usize] <= price).fold(0, |mask, part| mask | 1 << part)
    }
}

/// Iterates over the parts of a mask, ascending.
fn bits(mask: Mask) -> impl Iterator<Item = u32> {
    let left = |mask: &Mask| Some(mask & (mask - 1)).filter(|left| *left != 0);
    std::iter::successors(Some(mask).filter(|mask| *mask != 0), left).map(Mask::trailing_zeros)
}

/// The memory of an entry in the set of extents on the fast device, in bytes: a B-tree's nodes are at least
/// half full.
const RESIDENT_MEMORY: usize = 40;
/// The maximum memory of a known extent, in bytes.
const EXTENT_MEMORY: usize = Lru::<ExtentKey, Heat>::ENTRY_BYTES_MAX + RESIDENT_MEMORY;
/// The maximum number of extents on the fast device that are passed over when an extent must be forgotten.
const SKIP_MAX: usize = 16;

/// The division of extents into parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLayout {
    /// The blocks of a part: a power of two.
    pub(super) part_blocks: u16,
    /// The blocks of an extent.
    extent_blocks: u16,
}

impl PartLayout {
    #[inline]
    pub(super) fn new(blocks: u16) -> Self {
        Self { part_blocks: blocks.div_ceil(PARTS).next_power_of_two(), extent_blocks: blocks }
    }

    /// Returns the number of parts of an extent.
    pub(super) fn count(self) -> u16 {
        self.extent_blocks.div_ceil(self.part_blocks)
    }

    /// Returns the fraction of the devices' space in use, 0 to 1.
    pub(super) fn fill<'d>(self, devices: impl IntoIterator<Item = &'d DeviceView>) -> f64 {
        let blocks = |extents: u32| f64::from(extents) * f64::from(self.extent_blocks);
        let (mut free, mut all) = (0.0, 0.0);
        for device in devices {
            free += blocks(device.free) + f64::from(device.slots);
            all += blocks(device.extents);
        }
        1.0 - free / f64::max(all, 1.0)
    }

    /// Returns the parts that these blocks are in.
    #[inline]
    pub(super) fn parts(self, blocks: BlockRange) -> Mask {
        let part = |block: u16| (block >> self.part_blocks.trailing_zeros()).min(PARTS - 1);
        if blocks.count <= 1 {
            return Mask::from(blocks.count) << part(blocks.first);
        }
        let (first, last) = (part(blocks.first), part(blocks.end() - 1));
        Mask::MAX >> (PARTS - 1 - last) & Mask::MAX << first
    }

    /// Returns the parts all of whose blocks are among these.
    pub(super) fn parts_within(self, blocks: BlockRange) -> Mask {
        let outside =
            |first: u16, end: u16| self.parts(BlockRange { first, count: end.saturating_sub(first) });
        self.parts(blocks) & !outside(0, blocks.first) & !outside(blocks.end(), self.extent_blocks)
    }

    /// Returns all parts of an extent.
    pub(super) fn all(self) -> Mask {
        self.parts(BlockRange { first: 0, count: self.extent_blocks })
    }

    /// Returns the blocks of the first run of adjacent parts in a mask, and the mask of these parts.
    pub(super) fn first_run(self, parts: Mask) -> Option<(BlockRange, Mask)> {
        let first = bits(parts).next()?;
        let count = (parts >> first).trailing_ones();
        let from = first as u16 * self.part_blocks;
        let to = ((first + count) as u16 * self.part_blocks).min(self.extent_blocks);
        let blocks = BlockRange { first: from, count: to.saturating_sub(from) };
        (blocks.count > 0).then(|| (blocks, self.parts(blocks)))
    }
}

/// The state of all known extents: the most recently accessed, as many as memory permits, with preference to
/// those on the fast device.
#[derive(Clone, Debug)]
pub(super) struct HeatTable {
    heat: Lru<ExtentKey, Heat>,
    /// Extents with parts on the fast device, in home order.
    resident: BTreeSet<ExtentKey>,
    epoch: u32,
    /// The number of accesses in this epoch.
    accesses: u64,
    /// The histogram of parts by worth ([`bucket`]).
    worths: [u32; BUCKETS],
    /// Parts read for the first time in an epoch, and those of them read again in it; earlier epochs count
    /// half.
    first_reads: f64,
    rereads: f64,
}

impl HeatTable {
    pub(super) fn new(extents: usize) -> Self {
        let (heat, resident) = (Lru::new(extents), BTreeSet::new());
        Self { heat, resident, epoch: 0, accesses: 0, worths: [0; BUCKETS], first_reads: 0.0, rereads: 0.0 }
    }

    /// Limits the memory to this, or to the need of `least` extents.
    pub(super) fn set_memory(&mut self, memory: Bytes, least: usize) {
        let most = (memory.0 as usize / EXTENT_MEMORY).max(least);
        if most != self.heat.capacity() {
            for (key, heat) in self.heat.set_capacity(most) {
                self.forget(key, heat);
            }
        }
    }

    /// Returns the maximum of memory it has used, in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> Bytes {
        Bytes(self.heat.memory().0 + (self.resident.len() * RESIDENT_MEMORY) as u64)
    }

    /// If the table is full, makes sure that the least recently accessed extent is one to forget: one on the
    /// fast device only if none of the next few is elsewhere.
    fn prefer_residents(&mut self) {
        for _ in 0..if self.heat.len() < self.heat.capacity() { 0 } else { SKIP_MAX } {
            let oldest = self.heat.iter_oldest().next().filter(|(key, _)| self.resident.contains(key));
            let Some((key, _)) = oldest else { return };
            self.heat.touch(key);
        }
    }

    /// Forgets an extent.
    fn forget(&mut self, key: ExtentKey, mut heat: Heat) {
        self.resident.remove(&key);
        heat.age(self.epoch);
        heat.worth.iter().filter_map(|worth| bucket(*worth)).for_each(|bucket| self.worths[bucket] -= 1);
    }

    /// Forgets which parts are on the fast device.
    pub(super) fn forget_residents(&mut self) {
        for key in std::mem::take(&mut self.resident) {
            if let Some(heat) = self.heat.get_mut(&key) {
                (heat.resident, heat.whole) = (0, false);
            }
        }
    }

    /// Begins a new epoch after this many accesses, if it `may`: the state counts half from then on. Returns
    /// whether it did.
    pub(super) fn advance_epoch(&mut self, accesses: u64, may: bool) -> bool {
        let over = may && self.accesses >= accesses;
        if over {
            self.epoch += 1;
            self.accesses = 0;
            self.worths.rotate_left(OCTAVE);
            self.worths[BUCKETS - OCTAVE..].fill(0);
            self.first_reads /= 2.0;
            self.rereads /= 2.0;
        }
        over
    }

    /// Returns the worth thresholds of this many worthiest parts: they are all those worth more than the
    /// second figure, and some of those worth at least the first. Both are 0 if fewer parts are worth
    /// anything.
    pub(super) fn worthiest(&self, parts: u32) -> (u16, u16) {
        let mut left = parts;
        for (bucket, count) in self.worths.iter().enumerate().rev() {
            if *count > left {
                return (bucket_min(bucket), bucket_min(bucket + 1) - 1);
            }
            left -= count;
        }
        (0, 0)
    }

    /// Returns the fraction of parts read once in an epoch that are read again in it.
    pub(super) fn reread_fraction(&self) -> f64 {
        self.rereads / self.first_reads.max(1.0)
    }

    /// Returns the up-to-date state of an extent, creating it if necessary.
    #[inline(always)]
    fn entry(&mut self, key: ExtentKey) -> &mut Heat {
        if self.heat.touch(key).is_none() {
            self.add(key);
        }
        let epoch = self.epoch;
        let heat = self.heat.newest_mut().unwrap_or_else(|| unreachable!("it is there now"));
        heat.age(epoch);
        heat
    }

    /// Adds an extent.
    #[inline(never)]
    fn add(&mut self, key: ExtentKey) {
        self.prefer_residents();
        let fresh = Heat { epoch: self.epoch, ..Heat::default() };
        if let Some((gone, heat)) = self.heat.insert(key, fresh) {
            self.forget(gone, heat);
        }
    }

    /// Notes an access to parts of an extent, each of this worth.
    pub(super) fn note(&mut self, key: ExtentKey, parts: Mask, worth: u16, write: bool) -> &Heat {
        self.accesses += u64::from(count(parts));
        self.entry(key);
        let Self { heat, worths, first_reads: read_once, rereads: read_again, .. } = self;
        let heat = heat.newest_mut().unwrap_or_else(|| unreachable!("it is there now"));
        for part in bits(if worth > 0 { parts } else { 0 }) {
            let all = &mut heat.worth[part as usize];
            let before = bucket(*all);
            *all = all.saturating_add(worth);
            let now = bucket(*all);
            if now != before {
                before.into_iter().for_each(|bucket| worths[bucket] -= 1);
                now.into_iter().for_each(|bucket| worths[bucket] += 1);
            }
        }
        if write {
            heat.written |= parts;
            heat.written_this_epoch |= parts;
        } else {
            let (once, again) = (parts & !heat.read, parts & heat.read & !heat.reread);
            if once | again != 0 {
                *read_once += f64::from(once.count_ones());
                *read_again += f64::from(again.count_ones());
                heat.reread |= again;
                heat.read |= once;
            }
        }
        heat
    }

    /// Returns a copy of an extent's up-to-date state without changing it.
    pub(super) fn peek(&self, key: ExtentKey) -> Option<Heat> {
        let mut heat = *self.heat.get(&key)?;
        heat.age(self.epoch);
        Some(heat)
    }

    /// Returns a copy of an extent's state.
    pub(super) fn get(&mut self, key: ExtentKey) -> Option<Heat> {
        self.latest(key).copied()
    }

    /// Returns a copy of an extent's state, creating it if necessary.
    pub(super) fn get_or_insert(&mut self, key: ExtentKey) -> Heat {
        *self.entry(key)
    }

    /// Returns the mean worth of a part of a region, among those on the fast device or among the others: what
    /// a part is expected to be worth that was not accessed itself. Small extents have fewer parts than a
    /// mask has bits.
    pub(super) fn region_worth(&self, layout: PartLayout, first: ExtentKey, resident: bool) -> u16 {
        let extents =
            (0..REGION_EXTENTS).map(|at| ExtentKey { index: ExtentIndex(first.index.0 + at), ..first });
        let all = layout.all();
        let (mut worth, mut parts) = (0, 0);
        for heat in extents.map(|key| self.peek(key).unwrap_or_default()) {
            let there = if heat.whole { all } else { heat.resident };
            let mask = all & if resident { there } else { !there };
            worth += bits(mask).map(|part| u64::from(heat.worth[part as usize])).sum::<u64>();
            parts += u64::from(mask.count_ones());
        }
        (worth / parts.max(1)) as u16
    }

    /// Borrows an extent's up-to-date state.
    #[inline]
    pub(super) fn latest(&mut self, key: ExtentKey) -> Option<&Heat> {
        let epoch = self.epoch;
        let heat = self.heat.get_mut(&key)?;
        heat.age(epoch);
        Some(heat)
    }

    /// Sets the parts of the extent on the fast device; `whole`: it has a whole place there.
    pub(super) fn set_resident(&mut self, key: ExtentKey, parts: Mask, whole: bool) {
        if parts == 0 && !whole && self.heat.get(&key).is_none() {
            return;
        }
        let heat = self.entry(key);
        let was = heat.resident != 0 || heat.whole;
        (heat.resident, heat.whole) = (parts, whole);
        debug_assert_eq!(was, self.resident.contains(&key), "{key}");
        match (was, parts != 0 || whole) {
            (false, true) => drop(self.resident.insert(key)),
            (true, false) => drop(self.resident.remove(&key)),
            _ => {}
        }
    }

    /// Returns the next extent after this one, in home order, with parts on the fast device; after the last
    /// one, the first.
    pub(super) fn next_resident(&self, after: ExtentKey) -> Option<ExtentKey> {
        let mut later = self.resident.range((Bound::Excluded(after), Bound::Unbounded));
        later.next().or_else(|| self.resident.first()).copied()
    }

    /// Returns the number of extents with parts on the fast device.
    pub(super) fn residents(&self) -> usize {
        self.resident.len()
    }
}
