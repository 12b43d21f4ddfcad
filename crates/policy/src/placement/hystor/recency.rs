//! The extents of both areas, each area's in the order of their last use.
//!
//! An area has a log of uses, and an extent notes the position of its last one; entries before it are stale.
//! So a use is two stores, and a period, which touches most extents, finds those of a sub-region together.
//! Links between neighbours in the order would be loads and stores in several places of memory for each.

use super::areas::Extent;
use rustc_hash::FxHashMap;
use weir_model::{ExtentIndex, ExtentKey, VolumeId};

/// The area that an extent is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    /// The remap area.
    Remap,
    /// The write-back area.
    WriteBack,
}

impl Area {
    const ALL: [Self; 2] = [Self::Remap, Self::WriteBack];
}

/// The number of consecutive extents that are stored together.
const GROUP: usize = 16;
/// The most groups that 64 consecutive extents are in.
const RUN_GROUPS: usize = 64 / GROUP + 1;
/// No group.
const NONE: u32 = u32::MAX;
/// The number of stale entries that are no reason to compact a log.
const STALE_MIN: usize = 64;

/// Consecutive extents.
#[derive(Clone, Debug)]
struct Group {
    volume: VolumeId,
    number: u64,
    /// The extents in each area, a bit each.
    members: [u16; Area::ALL.len()],
    /// The position of each extent's last use in the log of its area.
    last_uses: [u32; GROUP],
    extents: [Extent; GROUP],
}

const _: () = assert!(GROUP == u16::BITS as usize);

impl Group {
    fn area(&self, at: usize) -> Option<Area> {
        Area::ALL.into_iter().find(|area| self.members[*area as usize] >> at & 1 != 0)
    }
}

/// The uses of the extents of an area, the oldest first. An entry is the number of a group, and the extent's
/// position in it.
#[derive(Clone, Debug, Default)]
struct UseLog {
    entries: Vec<u32>,
    /// The number of entries at the beginning that are known to be stale.
    start: usize,
    /// The length at which it is compacted.
    compaction_len: usize,
}

/// The extents of both areas.
#[derive(Clone, Debug, Default)]
pub(super) struct Recency {
    index: FxHashMap<(VolumeId, u64), u32>,
    groups: Vec<Group>,
    /// Numbers of groups without extents.
    free: Vec<u32>,
    logs: [UseLog; Area::ALL.len()],
}

const fn locate(key: ExtentKey) -> ((VolumeId, u64), usize) {
    let group = GROUP as u64;
    ((key.volume, key.index.0 / group), (key.index.0 % group) as usize)
}

impl Recency {
    #[inline]
    fn find(&self, key: ExtentKey) -> Option<(u32, usize)> {
        let (group, at) = locate(key);
        Some((*self.index.get(&group)?, at))
    }

    /// Returns the area that an extent is in, and its counts.
    #[inline]
    pub(super) fn get(&self, key: ExtentKey) -> Option<(Area, Extent)> {
        let (group, at) = self.find(key)?;
        let group = &self.groups[group as usize];
        Some((group.area(at)?, group.extents[at]))
    }

    /// Returns the counts of an extent of this area, without noting a use.
    #[inline]
    pub(super) fn get_mut(&mut self, area: Area, key: ExtentKey) -> Option<&mut Extent> {
        let (group, at) = self.find(key)?;
        let group = &mut self.groups[group as usize];
        (group.area(at) == Some(area)).then(|| &mut group.extents[at])
    }

    /// Reads what noting a use will need. Changes nothing.
    #[inline]
    pub(super) fn prefetch(&self, key: ExtentKey) {
        if let Some((group, at)) = self.find(key) {
            let group = &self.groups[group as usize];
            // Only the loads count.
            std::hint::black_box((group.members, group.last_uses[at]));
        }
    }

    /// Notes a use of an extent, whichever area it is in.
    #[inline]
    pub(super) fn touch(&mut self, key: ExtentKey) {
        if let Some((group, at)) = self.find(key) {
            self.touch_at(group, at);
        }
    }

    #[inline]
    fn touch_at(&mut self, group: u32, at: usize) {
        let found = &self.groups[group as usize];
        if let Some(area) = found.area(at)
            && found.last_uses[at] as usize + 1 != self.logs[area as usize].entries.len()
        {
            self.note_use(area, group, at);
        }
    }

    #[inline]
    fn note_use(&mut self, area: Area, group: u32, at: usize) {
        let log = &mut self.logs[area as usize];
        if log.entries.len() >= log.compaction_len {
            self.compact(area);
        }
        let log = &mut self.logs[area as usize];
        self.groups[group as usize].last_uses[at] = log.entries.len() as u32;
        log.entries.push(group * GROUP as u32 + at as u32);
    }

    /// Removes stale entries from a log. Cost: its length, after at least half as many uses.
    #[inline(never)]
    fn compact(&mut self, area: Area) {
        let mut entries = std::mem::take(&mut self.logs[area as usize].entries);
        let mut kept = 0;
        for position in self.logs[area as usize].start..entries.len() {
            let entry = entries[position];
            if self.is_last_use(area, position, entry) {
                self.groups[entry as usize / GROUP].last_uses[entry as usize % GROUP] = kept as u32;
                entries[kept] = entry;
                kept += 1;
            }
        }
        entries.truncate(kept);
        self.logs[area as usize] = UseLog { entries, start: 0, compaction_len: 2 * kept + STALE_MIN };
    }

    /// Whether the entry is not stale.
    #[inline]
    fn is_last_use(&self, area: Area, position: usize, entry: u32) -> bool {
        let (group, at) = (&self.groups[entry as usize / GROUP], entry as usize % GROUP);
        group.members[area as usize] >> at & 1 != 0 && group.last_uses[at] as usize == position
    }

    /// Returns these extents, up to 64 consecutive ones, to note uses of them.
    pub(super) fn run(&mut self, first: ExtentKey, count: u64) -> Run<'_> {
        let (mut groups, start) = ([NONE; RUN_GROUPS], locate(first).1);
        let spanned = (start + count as usize).div_ceil(GROUP);
        for (group, number) in groups.iter_mut().zip(first.index.0 / GROUP as u64..).take(spanned) {
            *group = self.index.get(&(first.volume, number)).copied().unwrap_or(NONE);
        }
        Run { recency: self, groups, start }
    }

    /// Sets the counts of an extent and notes a use; if it is in the other area it leaves that.
    pub(super) fn insert(&mut self, area: Area, key: ExtentKey, extent: Extent) {
        let ((volume, number), at) = locate(key);
        let group = match self.index.get(&(volume, number)) {
            Some(group) => *group,
            None => self.create_group(volume, number),
        };
        let found = &mut self.groups[group as usize];
        found.members.iter_mut().for_each(|members| *members &= !(1 << at));
        found.members[area as usize] |= 1 << at;
        found.extents[at] = extent;
        self.note_use(area, group, at);
    }

    fn create_group(&mut self, volume: VolumeId, number: u64) -> u32 {
        let (members, last_uses, extents) = ([0; 2], [0; GROUP], [Extent::default(); GROUP]);
        let created = Group { volume, number, members, last_uses, extents };
        let group = match self.free.pop() {
            Some(group) => {
                self.groups[group as usize] = created;
                group
            }
            None => {
                self.groups.push(created);
                self.groups.len() as u32 - 1
            }
        };
        self.index.insert((volume, number), group);
        group
    }

    /// Removes an extent. Returns its area and counts.
    pub(super) fn remove(&mut self, key: ExtentKey) -> Option<(Area, Extent)> {
        let (group, at) = self.find(key)?;
        let found = &mut self.groups[group as usize];
        let (area, extent) = (found.area(at)?, found.extents[at]);
        found.members[area as usize] &= !(1 << at);
        if found.members == [0; 2] {
            self.index.remove(&(found.volume, found.number));
            self.free.push(group);
        }
        Some((area, extent))
    }

    /// Iterates over the extents of an area, the least recently used first. Cost: that of stale entries too,
    /// except those at the beginning, which are skipped once.
    pub(super) fn iter_oldest(&mut self, area: Area) -> impl Iterator<Item = (ExtentKey, Extent)> + '_ {
        let log = &self.logs[area as usize];
        let entries = log.entries.iter().copied().enumerate().skip(log.start);
        let stale =
            entries.take_while(|(position, entry)| !self.is_last_use(area, *position, *entry)).count();
        self.logs[area as usize].start += stale;
        let (this, log) = (&*self, &self.logs[area as usize]);
        let entries = log.entries.iter().copied().enumerate().skip(log.start);
        let live = entries.filter(move |(position, entry)| this.is_last_use(area, *position, *entry));
        live.map(move |(_, entry)| {
            let (group, at) = (&this.groups[entry as usize / GROUP], entry as usize % GROUP);
            let index = ExtentIndex(group.number * GROUP as u64 + at as u64);
            (ExtentKey { volume: group.volume, index }, group.extents[at])
        })
    }
}

/// Consecutive extents, found together.
pub(super) struct Run<'r> {
    recency: &'r mut Recency,
    groups: [u32; RUN_GROUPS],
    /// The position of the first extent in its group.
    start: usize,
}

impl Run<'_> {
    /// Notes a use of the extent, if it is in an area.
    #[inline]
    pub(super) fn touch(&mut self, nth: u8) {
        let at = self.start + usize::from(nth);
        let group = self.groups[at / GROUP];
        if group != NONE {
            self.recency.touch_at(group, at % GROUP);
        }
    }
}

#[cfg(test)]
mod tests;
