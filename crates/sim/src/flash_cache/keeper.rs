//! Decides what the cleaner of the log keeps, and writes back what is dirty before it is dropped.

use super::plan::Drop;
use crate::cache::Dirty;
use weir_flash::{Content, Erase, Place, Port, Valid};
use weir_policy::eviction::Block;
use weir_policy::reclaim::Segment;

/// A container, while a trace is played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// Number of valid blocks that the cleaner leaves.
    pub(super) guarantee: u64,
    /// Number of valid blocks; of the only container the log knows it.
    pub(super) valid: u64,
}

/// Which blocks of the log are whose, if there are several containers.
#[derive(Debug)]
struct Shared {
    /// Owner of each block.
    owner_of: Vec<u8>,
    /// Segment of each block.
    segment_of: Vec<u32>,
    /// Number of valid blocks by segment and owner.
    by_segment: Vec<u32>,
}

/// The segment of a block that is not in the log.
const NOWHERE: u32 = u32::MAX;

/// The port of the log: knows to whom each page belongs.
#[derive(Debug)]
pub(super) struct Keeper<'t> {
    /// What the cleaner drops; `None`: nothing, because the cache evicts.
    drop: Option<Drop>,
    /// Pages for data in a segment.
    pages: u32,
    owners: Vec<Owner>,
    /// `None` with one container, of which the log knows all numbers.
    shared: Option<Shared>,
    /// Home of each block.
    homes: &'t [u64],
    /// The dirty blocks; `None` without write-back.
    pub(super) dirty: Option<Dirty>,
    /// Whether the victim is dropped as a whole.
    drops_victim: bool,
    /// Dirty blocks of the victim: home, block, and whether it will be dropped.
    dirty_of_victim: Vec<(u64, Block, bool)>,
    /// Blocks that were written back before they were dropped, or beside one that was.
    pub(super) written_back: u64,
    /// These, in the order in which they were written.
    #[cfg(test)]
    pub(super) all_written_back: Vec<Block>,
}

impl<'t> Keeper<'t> {
    pub(super) fn new(
        (segments, pages): (u32, u32),
        drop: Option<Drop>,
        (owners, owner_of): (Vec<Owner>, Vec<u8>),
        homes: &'t [u64],
        dirty: Option<Dirty>,
    ) -> Self {
        let shared = (owners.len() > 1).then(|| Shared {
            owner_of,
            segment_of: vec![NOWHERE; homes.len()],
            by_segment: vec![0; segments as usize * owners.len()],
        });
        Self {
            drop,
            pages,
            owners,
            shared,
            homes,
            dirty,
            drops_victim: false,
            dirty_of_victim: Vec::new(),
            written_back: 0,
            #[cfg(test)]
            all_written_back: Vec::new(),
        }
    }

    /// Returns the owner of a block.
    #[inline]
    pub(super) fn owner(&self, block: Block) -> usize {
        self.shared.as_ref().map_or(0, |shared| usize::from(shared.owner_of[block.index()]))
    }

    /// Forgets a block that is no longer in the log.
    #[inline]
    pub(super) fn forget(&mut self, block: Block) {
        let owners = self.owners.len();
        let Some(Shared { owner_of, segment_of, by_segment }) = &mut self.shared else { return };
        let segment = std::mem::replace(&mut segment_of[block.index()], NOWHERE);
        if segment != NOWHERE {
            let owner = usize::from(owner_of[block.index()]);
            by_segment[segment as usize * owners + owner] -= 1;
            self.owners[owner].valid -= 1;
        }
    }

    /// Returns an owner, when so many blocks are valid in the log.
    #[inline]
    fn owner_at(&self, owner: usize, in_log: u64) -> Owner {
        let known = self.owners[owner];
        Owner { valid: if self.shared.is_some() { known.valid } else { in_log }, ..known }
    }

    /// Returns the owners, when so many blocks are valid in the log.
    pub(super) fn owners_at(&self, in_log: u64) -> Vec<Owner> {
        (0..self.owners.len()).map(|owner| self.owner_at(owner, in_log)).collect()
    }

    /// Returns the numbers of valid blocks of a segment by owner.
    fn of_segment(&self, segment: Segment, valid: Valid) -> impl Iterator<Item = (Owner, u64)> + '_ {
        let owners = self.owners.len();
        (0..owners).map(move |owner| {
            let of_segment = match &self.shared {
                Some(shared) => shared.by_segment[segment.0 as usize * owners + owner],
                None => valid.in_segment,
            };
            (self.owner_at(owner, valid.in_log), u64::from(of_segment))
        })
    }

    /// Collects the dirty blocks of the victim, and whether each will be dropped.
    fn collect_dirty(&mut self, addresses: impl Iterator<Item = u64>, drop: Drop, in_log: u64) {
        self.dirty_of_victim.clear();
        let mut valid: Vec<u64> = self.owners_at(in_log).into_iter().map(|owner| owner.valid).collect();
        for block in addresses.map(|address| Block(address as u32)) {
            let owner = self.owner(block);
            let is_dropped = match drop {
                Drop::Page => valid[owner] > self.owners[owner].guarantee,
                Drop::Segment => self.drops_victim,
            };
            valid[owner] -= u64::from(is_dropped);
            if self.dirty.as_mut().is_some_and(|dirty| dirty.contains(block)) {
                self.dirty_of_victim.push((self.homes[block.index()], block, is_dropped));
            }
        }
    }

    /// Writes back the dirty blocks of the victim that will be dropped, and their dirty neighbours, in the
    /// order of addresses.
    fn write_back(&mut self) {
        self.dirty_of_victim.sort_unstable_by_key(|(home, ..)| *home);
        let Some(dirty) = &mut self.dirty else { return };
        let runs = self.dirty_of_victim.chunk_by(|(home, ..), (next, ..)| home + 1 == *next);
        for run in runs.filter(|run| run.iter().any(|(.., is_dropped)| *is_dropped)) {
            for (_, block, _) in run {
                dirty.mark_clean(*block);
                self.written_back += 1;
                #[cfg(test)]
                self.all_written_back.push(*block);
            }
        }
    }
}

impl Port for Keeper<'_> {
    #[inline]
    fn program(&mut self, place: Place, content: Content) {
        let (Content::User { address } | Content::Copy { address, .. }) = content else { return };
        let owners = self.owners.len();
        let Some(Shared { owner_of, segment_of, by_segment }) = &mut self.shared else { return };
        let block = Block(address as u32);
        let owner = usize::from(owner_of[block.index()]);
        let before = std::mem::replace(&mut segment_of[block.index()], place.segment.0);
        if before == NOWHERE {
            self.owners[owner].valid += 1;
        } else {
            by_segment[before as usize * owners + owner] -= 1;
        }
        by_segment[place.segment.0 as usize * owners + owner] += 1;
    }

    #[inline]
    fn erase(&mut self, _: Segment) -> Erase {
        Erase::Done
    }

    fn cleans(&mut self, victim: Segment, valid: Valid, addresses: impl Iterator<Item = u64>) {
        let Some(drop) = self.drop else { return };
        let is_free =
            |(owner, of_victim): (Owner, u64)| of_victim == 0 || owner.valid >= owner.guarantee + of_victim;
        self.drops_victim = drop == Drop::Segment && self.of_segment(victim, valid).all(is_free);
        if self.dirty.is_some() {
            self.collect_dirty(addresses, drop, valid.in_log);
            self.write_back();
        }
    }

    fn excess(&self, segment: Segment, valid: Valid) -> f64 {
        let droppable = self.of_segment(segment, valid).map(|(owner, count)| {
            let above = owner.valid.saturating_sub(owner.guarantee);
            count as f64 * above as f64 / owner.valid.max(1) as f64
        });
        droppable.sum::<f64>() / f64::from(self.pages)
    }

    #[inline]
    fn keeps(&mut self, address: u64, in_log: u64) -> bool {
        let block = Block(address as u32);
        let owner = self.owner_at(self.owner(block), in_log);
        let is_dropped = match self.drop {
            None => false,
            Some(Drop::Page) => owner.valid > owner.guarantee,
            Some(Drop::Segment) => self.drops_victim,
        };
        if is_dropped {
            let is_dirty = self.dirty.as_mut().is_some_and(|dirty| dirty.contains(block));
            assert!(!is_dirty, "the cleaner drops block {} although it is dirty", block.0);
            self.forget(block);
        }
        !is_dropped
    }
}
