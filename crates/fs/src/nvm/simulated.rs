//! Simulated persistent memory that loses stores which no fence covers.

use super::{LINE_BYTES, Memory};
use crate::tiers::SimulatedContainers;
use std::collections::BTreeMap;
use std::io;

/// The unit that survives a power loss as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// Aligned stores of 8 bytes, as on persistent memory; flushes take cache lines of 64 bytes.
    Word,
    /// Sectors of 512 bytes, as in a mapped file; flushes take pages of 4 KiB.
    Sector,
}

impl Granule {
    const fn bytes(self) -> u64 {
        match self {
            Self::Word => 8,
            Self::Sector => 512,
        }
    }

    const fn flush_bytes(self) -> u64 {
        match self {
            Self::Word => LINE_BYTES,
            Self::Sector => 4096,
        }
    }
}

/// Contents of a granule since the last fence: what is durable, and every later content in order.
#[derive(Clone, Debug)]
struct History {
    versions: Vec<Vec<u8>>,
    /// Version that the last flush covered.
    flushed: usize,
}

/// Power losses to try, and what the memory is after them.
#[derive(Clone, Debug)]
struct Losses {
    random: SplitMix,
    per_event: u32,
    /// Losses are tried before one in this many events.
    one_in: u64,
    images: Vec<(u64, Simulated)>,
}

/// Memory that keeps, for each [`Granule`] with stores that are not durable, all of its contents since the
/// last fence. After a power loss each granule has one of them, independently of all others.
#[derive(Clone, Debug)]
pub struct Simulated {
    granule: Granule,
    bytes: Vec<u8>,
    pending: BTreeMap<u64, History>,
    /// Number of stores, flushes and fences so far.
    events: u64,
    losses: Option<Losses>,
    fences_fail: bool,
    /// Containers that lose power together with the memory.
    containers: Option<SimulatedContainers>,
}

impl Simulated {
    /// Returns zeroed memory of `size` bytes.
    pub fn new(size: u64, granule: Granule) -> Self {
        Self::of(vec![0; size as usize], granule)
    }

    const fn of(bytes: Vec<u8>, granule: Granule) -> Self {
        let pending = BTreeMap::new();
        Self { granule, bytes, pending, events: 0, losses: None, fences_fail: false, containers: None }
    }

    /// Returns the number of stores, flushes and fences so far.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// From now on, tries `per_event` power losses before each store, flush and fence, at random by `seed`.
    pub fn try_power_losses(&mut self, seed: u64, per_event: u32) {
        self.losses = Some(Losses { random: SplitMix(seed), per_event, one_in: 1, images: Vec::new() });
    }

    /// From now on, tries a power loss before one in `one_in` stores, flushes and fences, at random by
    /// `seed`.
    pub fn try_few_power_losses(&mut self, seed: u64, one_in: u64) {
        self.losses = Some(Losses { random: SplitMix(seed), per_event: 1, one_in, images: Vec::new() });
    }

    /// Takes what the memory is after the power losses tried since the last call: each with the number of the
    /// event that it prevented.
    pub fn take_losses(&mut self) -> Vec<(u64, Self)> {
        self.losses.as_mut().map(|losses| std::mem::take(&mut losses.images)).unwrap_or_default()
    }

    /// Makes these containers lose power together with the memory, at every change of theirs, too.
    pub fn join(&mut self, containers: SimulatedContainers) {
        containers.remember_states();
        self.containers = Some(containers);
    }

    /// Returns the containers that lose, or lost, power together with the memory.
    pub const fn containers(&self) -> Option<&SimulatedContainers> {
        self.containers.as_ref()
    }

    /// Makes every fence from now on fail, as a broken device does.
    pub fn fail_fences(&mut self) {
        self.fences_fail = true;
    }

    /// Returns the memory after a power loss. `choose` is called for each granule with stores that are not
    /// durable; it gets the number of possible contents, oldest first, and returns the index of one.
    #[must_use]
    pub fn after_power_loss(&self, mut choose: impl FnMut(usize) -> usize) -> Self {
        let mut bytes = self.bytes.clone();
        for (at, history) in &self.pending {
            let kept = &history.versions[choose(history.versions.len())];
            bytes[*at as usize..][..kept.len()].copy_from_slice(kept);
        }
        Self::of(bytes, self.granule)
    }

    fn event(&mut self) {
        if let Some(mut losses) = self.losses.take() {
            let is_tried = losses.one_in == 1 || losses.random.below(losses.one_in) == 0;
            for _ in 0..if is_tried { losses.per_event } else { 0 } {
                // Of the stores that are not durable, few, about half or most survive.
                let lost_of_8 = 1 + losses.random.below(7);
                let mut image = self.after_power_loss(|count| match losses.random.below(8) {
                    fate if fate < lost_of_8 => 0,
                    _ => losses.random.below(count as u64) as usize,
                });
                let below = &mut |limit| losses.random.below(limit);
                image.containers =
                    self.containers.as_ref().map(|containers| containers.after_power_loss(below));
                losses.images.push((self.events, image));
            }
            self.losses = Some(losses);
        }
        self.containers.iter().for_each(SimulatedContainers::event);
        self.events += 1;
    }

    /// Calls `change` on the bytes of the range and notes the new contents of its granules.
    fn change(&mut self, at: u64, len: u64, change: impl FnOnce(&mut [u8])) {
        self.event();
        let unit = self.granule.bytes();
        let starts = || (at / unit * unit..at + len).step_by(unit as usize);
        for start in starts() {
            let now = self.bytes[start as usize..].iter().take(unit as usize).copied().collect();
            let new = || History { versions: vec![now], flushed: 0 };
            self.pending.entry(start).or_insert_with(new);
        }
        change(&mut self.bytes[at as usize..(at + len) as usize]);
        for start in starts() {
            let now: Vec<u8> = self.bytes[start as usize..].iter().take(unit as usize).copied().collect();
            let history = self.pending.get_mut(&start).expect("inserted above");
            if history.versions.last() != Some(&now) {
                history.versions.push(now);
            }
        }
    }
}

impl Memory for Simulated {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn load(&self, at: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[at as usize..][..out.len()]);
    }

    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        &self.bytes[at as usize..][..len]
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        self.change(at, bytes.len() as u64, |to| to.copy_from_slice(bytes));
    }

    fn zero(&mut self, at: u64, len: u64) {
        self.change(at, len, |to| to.fill(0));
    }

    fn flush(&mut self, at: u64, len: u64) {
        self.event();
        if len == 0 {
            return;
        }
        let unit = self.granule.flush_bytes();
        let (from, to) = (at / unit * unit, (at + len).next_multiple_of(unit));
        for (_, history) in self.pending.range_mut(from..to) {
            history.flushed = history.versions.len() - 1;
        }
    }

    fn fence(&mut self) -> io::Result<()> {
        self.event();
        if self.fences_fail {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.pending.retain(|_, history| {
            history.versions.drain(..history.flushed);
            history.flushed = 0;
            history.versions.len() > 1
        });
        Ok(())
    }
}

/// A small generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    /// Returns a number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_and_last(memory: &Simulated, at: u64) -> (u8, u8) {
        let byte = |memory: Simulated| {
            let mut out = [0];
            memory.load(at, &mut out);
            out[0]
        };
        (byte(memory.after_power_loss(|_| 0)), byte(memory.after_power_loss(|count| count - 1)))
    }

    #[test]
    fn only_flushed_and_fenced_stores_are_durable() {
        let mut memory = Simulated::new(8192, Granule::Word);
        memory.store(3, &[7]);
        assert_eq!(first_and_last(&memory, 3), (0, 7));
        memory.fence().expect("no failure");
        assert_eq!(first_and_last(&memory, 3), (0, 7), "a fence alone makes nothing durable");
        memory.flush(0, 4);
        assert_eq!(first_and_last(&memory, 3), (0, 7), "a flush alone makes nothing durable");
        memory.store(3, &[8]);
        memory.fence().expect("no failure");
        assert_eq!(first_and_last(&memory, 3), (7, 8), "the store after the flush is not covered");
    }

    #[test]
    fn a_flush_covers_the_lines_of_its_range_alone() {
        for (granule, unit) in [(Granule::Word, 64), (Granule::Sector, 4096)] {
            let mut memory = Simulated::new(5 * unit, granule);
            (0..5).for_each(|number| memory.store(number * unit + unit / 2, &[7]));
            memory.flush(unit + unit / 2, unit);
            memory.fence().expect("no failure");
            let durable = |number| first_and_last(&memory, number * unit + unit / 2).0 == 7;
            assert_eq!([0, 1, 2, 3, 4].map(durable), [false, true, true, false, false], "{granule:?}");
        }
    }

    #[test]
    fn granules_survive_independently() {
        let mut memory = Simulated::new(8192, Granule::Sector);
        memory.store(500, &[1; 24]);
        let mut number = 0;
        let after = memory.after_power_loss(|_| {
            number += 1;
            number - 1
        });
        let mut out = [9; 24];
        after.load(500, &mut out);
        assert_eq!(out, [[0; 12], [1; 12]].concat()[..], "the first sector is old, the second new");
    }
}
