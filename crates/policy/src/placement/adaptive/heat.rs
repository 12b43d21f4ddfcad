//! How hot the parts of extents are, and which of them are on the fast device.

use super::super::DeviceView;
use crate::Lru;
use std::collections::BTreeSet;
use std::ops::Bound;
use weir_model::{BlockRange, Bytes, ExtentKey};

/// Parts of an extent that are told apart: of 128 KiB, its blocks.
pub(super) const PARTS: u16 = 32;
/// What one access is worth that saves as much as a read of the slow device takes.
pub(super) const ONE: u16 = 256;

/// Worths are counted in buckets, of which so many are from one to twice as much, from this on.
const OCTAVE: usize = 4;
const WORTH_MIN: u16 = 8;
const BUCKETS: usize = 13 * OCTAVE;

/// The bucket of what is worth so much; none of next to nothing. What is worth half as much is [`OCTAVE`] below.
fn bucket(worth: u16) -> Option<usize> {
    let octave = (worth / WORTH_MIN).checked_ilog2()? as usize;
    Some(octave * OCTAVE + usize::from(worth >> (octave + 1)) % OCTAVE)
}

/// The least worth in a bucket.
fn least(bucket: usize) -> u16 {
    let worth = (OCTAVE + bucket % OCTAVE) << (bucket / OCTAVE + 1);
    worth.min(usize::from(u16::MAX)) as u16
}

/// An extent's parts, one bit each.
pub(super) type Mask = u32;

/// How many parts there are. Mostly there is one, and to count is long where the processor has no instruction for it.
#[inline(always)]
pub(super) fn count(parts: Mask) -> u32 {
    if parts.is_power_of_two() { 1 } else { count_several(parts) }
}

#[cold]
#[inline(never)]
fn count_several(parts: Mask) -> u32 {
    parts.count_ones()
}

/// What is known of an extent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heat {
    /// By part: what its accesses were worth, halved with every epoch.
    worth: [u16; PARTS as usize],
    /// Parts on the fast device, as far as is known.
    pub(super) resident: Mask,
    /// Parts that have been written in this epoch or the last.
    pub(super) written: Mask,
    written_now: Mask,
    /// Parts that have been read in this epoch, and those that have been read again.
    read: Mask,
    reread: Mask,
    /// All of it is there in a whole place.
    pub(super) whole: bool,
    epoch: u32,
}

impl Heat {
    /// Forgets by halves what was before this epoch.
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
        self.written = if epochs == 1 { self.written_now } else { 0 };
        (self.written_now, self.read, self.reread) = (0, 0, 0);
        self.worth.iter_mut().for_each(|worth| *worth >>= epochs);
    }

    /// What the hottest of these parts is worth.
    pub(super) fn most(&self, parts: Mask) -> u16 {
        bits(parts).map(|part| self.worth[part as usize]).max().unwrap_or(0)
    }

    /// What a part is worth on average.
    pub(super) fn mean(&self) -> u16 {
        (self.worth.iter().map(|worth| u32::from(*worth)).sum::<u32>() / u32::from(PARTS)) as u16
    }

    /// Those of these parts that are worth no more than `price`.
    pub(super) fn cheap(&self, parts: Mask, price: u16) -> Mask {
        bits(parts).filter(|part| self.worth[*part as usize] <= price).fold(0, |mask, part| mask | 1 << part)
    }
}

/// The parts of a mask, ascending.
fn bits(mask: Mask) -> impl Iterator<Item = u32> {
    let left = |mask: &Mask| Some(mask & (mask - 1)).filter(|left| *left != 0);
    std::iter::successors(Some(mask).filter(|mask| *mask != 0), left).map(Mask::trailing_zeros)
}

/// Bytes one takes in the set of those on the fast device: a B-tree's nodes are half full at least.
const RESIDENT: usize = 40;
/// Bytes an extent that is known takes at most.
const EACH: usize = Lru::<ExtentKey, Heat>::BYTES_MOST + RESIDENT;
/// Extents on the fast device that are passed over at a time when something is to be forgotten.
const CHANCES: usize = 16;

/// How extents are cut into parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Blocks of a part: a power of two.
    pub(super) each: u16,
    /// Blocks of an extent.
    all: u16,
}

impl Cut {
    #[inline]
    pub(super) fn new(blocks: u16) -> Self {
        Self { each: blocks.div_ceil(PARTS).next_power_of_two(), all: blocks }
    }

    /// The parts of an extent.
    pub(super) fn count(self) -> u16 {
        self.all.div_ceil(self.each)
    }

    /// What of devices' space is taken, 0 to 1.
    pub(super) fn fill<'d>(self, devices: impl IntoIterator<Item = &'d DeviceView>) -> f64 {
        let blocks = |extents: u32| f64::from(extents) * f64::from(self.all);
        let (mut free, mut all) = (0.0, 0.0);
        for device in devices {
            free += blocks(device.free) + f64::from(device.slots);
            all += blocks(device.extents);
        }
        1.0 - free / f64::max(all, 1.0)
    }

    /// The parts these blocks are in.
    #[inline]
    pub(super) fn parts(self, blocks: BlockRange) -> Mask {
        let part = |block: u16| (block >> self.each.trailing_zeros()).min(PARTS - 1);
        if blocks.count <= 1 {
            return Mask::from(blocks.count) << part(blocks.first);
        }
        let (first, last) = (part(blocks.first), part(blocks.end() - 1));
        Mask::MAX >> (PARTS - 1 - last) & Mask::MAX << first
    }

    /// The parts all of whose blocks are among these.
    pub(super) fn within(self, blocks: BlockRange) -> Mask {
        let outside =
            |first: u16, end: u16| self.parts(BlockRange { first, count: end.saturating_sub(first) });
        self.parts(blocks) & !outside(0, blocks.first) & !outside(blocks.end(), self.all)
    }

    /// All parts an extent has.
    pub(super) fn all(self) -> Mask {
        self.parts(BlockRange { first: 0, count: self.all })
    }

    /// The blocks of the first parts of a mask that lie side by side, and the mask of these parts.
    pub(super) fn first_run(self, parts: Mask) -> Option<(BlockRange, Mask)> {
        let first = bits(parts).next()?;
        let count = (parts >> first).trailing_ones();
        let from = first as u16 * self.each;
        let to = ((first + count) as u16 * self.each).min(self.all);
        let blocks = BlockRange { first: from, count: to.saturating_sub(from) };
        (blocks.count > 0).then(|| (blocks, self.parts(blocks)))
    }
}

/// What is known of all extents: of the latest accessed, as many as there is memory for, and of those on the fast device in
/// preference.
#[derive(Clone, Debug)]
pub(super) struct Table {
    heat: Lru<ExtentKey, Heat>,
    /// Extents with parts on the fast device, in home order.
    resident: BTreeSet<ExtentKey>,
    epoch: u32,
    /// What has been accessed in this epoch.
    accesses: u64,
    /// How many parts are worth how much, by [`bucket`].
    worths: [u32; BUCKETS],
    /// Parts that were read for the first time in an epoch, and those of them that were read again in it; what
    /// was before this epoch counts half.
    read_once: f64,
    read_again: f64,
}

impl Table {
    pub(super) fn new(extents: usize) -> Self {
        let (heat, resident) = (Lru::new(extents), BTreeSet::new());
        Self { heat, resident, epoch: 0, accesses: 0, worths: [0; BUCKETS], read_once: 0.0, read_again: 0.0 }
    }

    /// Takes no more memory than this from now on, or what so many extents need.
    pub(super) fn set_memory(&mut self, memory: Bytes, least: usize) {
        let most = (memory.0 as usize / EACH).max(least);
        if most != self.heat.most() {
            for (key, heat) in self.heat.set_most(most) {
                self.forget(key, heat);
            }
        }
    }

    /// Bytes of memory it has taken, at most.
    #[cfg(test)]
    pub(super) fn memory(&self) -> Bytes {
        Bytes(self.heat.memory().0 + (self.resident.len() * RESIDENT) as u64)
    }

    /// If all that may be known is, what was accessed longest ago is forgotten next: what is on the fast device only if none
    /// of the next few is elsewhere.
    fn spare_residents(&mut self) {
        for _ in 0..if self.heat.len() < self.heat.most() { 0 } else { CHANCES } {
            let oldest = self.heat.iter_oldest().next().filter(|(key, _)| self.resident.contains(key));
            let Some((key, _)) = oldest else { return };
            self.heat.touch(key);
        }
    }

    /// An extent is known no longer.
    fn forget(&mut self, key: ExtentKey, mut heat: Heat) {
        self.resident.remove(&key);
        heat.age(self.epoch);
        heat.worth.iter().filter_map(|worth| bucket(*worth)).for_each(|bucket| self.worths[bucket] -= 1);
    }

    /// Nothing is known of what is on the fast device any more.
    pub(super) fn forget_residents(&mut self) {
        for key in std::mem::take(&mut self.resident) {
            if let Some(heat) = self.heat.get_mut(&key) {
                (heat.resident, heat.whole) = (0, false);
            }
        }
    }

    /// A new epoch begins after so many accesses, if `may`: what is known counts half.
    pub(super) fn pass(&mut self, accesses: u64, may: bool) -> bool {
        let over = may && self.accesses >= accesses;
        if over {
            self.epoch += 1;
            self.accesses = 0;
            self.worths.rotate_left(OCTAVE);
            self.worths[BUCKETS - OCTAVE..].fill(0);
            self.read_once /= 2.0;
            self.read_again /= 2.0;
        }
        over
    }

    /// So many parts are the worthiest: all that are worth more than the second figure, and some of those worth at
    /// least the first. Both are 0 if fewer are worth anything.
    pub(super) fn worthiest(&self, parts: u32) -> (u16, u16) {
        let mut left = parts;
        for (bucket, count) in self.worths.iter().enumerate().rev() {
            if *count > left {
                return (least(bucket), least(bucket + 1) - 1);
            }
            left -= count;
        }
        (0, 0)
    }

    /// Of what is read once in an epoch, what is read again in it.
    pub(super) fn reread(&self) -> f64 {
        self.read_again / self.read_once.max(1.0)
    }

    /// What is known of an extent, as of now; nothing at first.
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

    /// An extent is known from now on.
    #[inline(never)]
    fn add(&mut self, key: ExtentKey) {
        self.spare_residents();
        let fresh = Heat { epoch: self.epoch, ..Heat::default() };
        if let Some((gone, heat)) = self.heat.insert(key, fresh) {
            self.forget(gone, heat);
        }
    }

    /// An access to parts of an extent, each of which it is worth so much to.
    pub(super) fn note(&mut self, key: ExtentKey, parts: Mask, worth: u16, write: bool) -> &Heat {
        self.accesses += u64::from(count(parts));
        self.entry(key);
        let Self { heat, worths, read_once, read_again, .. } = self;
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
            heat.written_now |= parts;
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

    /// What is known of an extent, which stays as it is.
    pub(super) fn peek(&self, key: ExtentKey) -> Option<Heat> {
        let mut heat = *self.heat.get(&key)?;
        heat.age(self.epoch);
        Some(heat)
    }

    /// What is known of an extent.
    pub(super) fn get(&mut self, key: ExtentKey) -> Option<Heat> {
        self.latest(key).copied()
    }

    /// … lent.
    #[inline]
    pub(super) fn latest(&mut self, key: ExtentKey) -> Option<&Heat> {
        let epoch = self.epoch;
        let heat = self.heat.get_mut(&key)?;
        heat.age(epoch);
        Some(heat)
    }

    /// These parts of the extent are on the fast device, and no others; `whole`, in a whole place.
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

    /// The next extent after this one in home order that has parts on the fast device; after the last, the
    /// first.
    pub(super) fn next_resident(&self, after: ExtentKey) -> Option<ExtentKey> {
        let mut later = self.resident.range((Bound::Excluded(after), Bound::Unbounded));
        later.next().or_else(|| self.resident.first()).copied()
    }

    /// Extents that have parts on the fast device.
    pub(super) fn residents(&self) -> usize {
        self.resident.len()
    }
}
