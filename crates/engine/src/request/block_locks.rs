//! Block locks: at most one piece that changes data has a given block range at a time.
//!
//! TRIM, write-zeroes and read-modify-write lock the same ranges as writes. Waiting pieces are granted in
//! order of arrival; no piece overtakes one that it overlaps.
//!
//! The mover locks no blocks. It learns which ones others have locked in the meantime, and leaves them out.
//! While it works in an extent, no place of the extent is released.

use crate::ids::PieceId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, OccupiedEntry};
use weir_map::BlockSet;
use weir_model::{BlockRange, ExtentIndex, ExtentKey, Mutant, Planted};

/// The lock state of an extent. It is created and dropped with nearly every write, so rare fields are in a
/// box.
#[derive(Debug, Default)]
struct Lock {
    locked: SmallVec<[BlockRange; 4]>,
    extras: Option<Box<LockExtras>>,
}

#[derive(Debug, Default)]
struct LockExtras {
    waiting: VecDeque<(PieceId, BlockRange)>,
    /// Whether emptied places may be left, to be released when the extent is idle.
    needs_tidying: bool,
    /// The blocks locked since the mover last asked; `None` if it is not at work here.
    touched: Option<BlockSet>,
}

impl Lock {
    fn is_idle(&self) -> bool {
        self.locked.is_empty()
            && self.extras.as_ref().is_none_or(|r| r.waiting.is_empty() && r.touched.is_none())
    }

    fn is_in_use(&self) -> bool {
        !self.locked.is_empty() || self.extras.as_ref().is_some_and(|r| !r.waiting.is_empty())
    }

    fn extras(&mut self) -> &mut LockExtras {
        self.extras.get_or_insert_default()
    }

    fn touched(&self) -> Option<&BlockSet> {
        self.extras.as_ref()?.touched.as_ref()
    }

    fn is_free(&self, range: BlockRange) -> bool {
        !self.locked.iter().any(|h| h.overlaps(range))
    }

    /// Grants its range to the first waiting piece that waits for no other any more.
    fn grant(&mut self) -> Option<PieceId> {
        let rare = self.extras.as_mut()?;
        let overlaps_earlier =
            |i: usize, range: BlockRange| rare.waiting.iter().take(i).any(|(_, w)| w.overlaps(range));
        let first = (0..rare.waiting.len()).find(|i| {
            let (_, range) = rare.waiting[*i];
            !self.locked.iter().any(|h| h.overlaps(range)) && !overlaps_earlier(*i, range)
        })?;
        let (piece, range) = rare.waiting.remove(first)?;
        self.locked.push(range);
        Some(piece)
    }
}

/// The locked block ranges, by extent.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    extents: FxHashMap<ExtentKey, Lock>,
    planted: Planted,
}

impl Locks {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { planted, ..Self::default() }
    }

    /// Locks the range for `piece`. Returns `false` if the piece must wait; [`Self::release`] grants it
    /// later.
    #[must_use]
    pub(crate) fn lock(&mut self, key: ExtentKey, range: BlockRange, piece: PieceId) -> bool {
        let lock = self.extents.entry(key).or_default();
        let mut free = lock.is_free(range);
        if self.planted.is(Mutant::PartialOverlapNotLocked) {
            free = !lock.locked.contains(&range);
        }
        if let Some(rare) = &mut lock.extras {
            if let Some(touched) = &mut rare.touched
                && !self.planted.is(Mutant::MoveNotToldOfWriters)
            {
                touched.insert(range);
            }
            free &= self.planted.is(Mutant::LockOvertaken)
                || !rare.waiting.iter().any(|(_, w)| w.overlaps(range));
        }
        if free {
            lock.locked.push(range);
        } else {
            lock.extras().waiting.push_back((piece, range));
        }
        free
    }

    /// Asks that [`weir_map::Map::release_empty_places`] release the extent's empty places once the extent is
    /// idle. Returns `false` if it is idle now: the caller may release them itself.
    pub(crate) fn request_tidying(&mut self, key: ExtentKey) -> bool {
        let lock = self.extents.get_mut(&key);
        lock.is_some_and(|lock| {
            lock.extras().needs_tidying = true;
            true
        })
    }

    /// Unlocks the range. The pieces granted their range go to `granted`, in order of arrival. Returns
    /// whether the extent must be tidied: it is idle, and [`Self::request_tidying`] was called.
    pub(crate) fn release(
        &mut self,
        key: ExtentKey,
        range: BlockRange,
        granted: &mut SmallVec<[PieceId; 2]>,
    ) -> bool {
        let Entry::Occupied(mut entry) = self.extents.entry(key) else { return false };
        let lock = entry.get_mut();
        if let Some(i) = lock.locked.iter().position(|h| *h == range) {
            lock.locked.swap_remove(i);
        }
        while let Some(piece) = lock.grant() {
            granted.push(piece);
        }
        tidy_if_idle(entry)
    }

    /// Splits a locked range in two: its first blocks and the rest.
    pub(crate) fn split(&mut self, key: ExtentKey, range: BlockRange, first: u16) {
        let Some(lock) = self.extents.get_mut(&key) else { return };
        if let Some(held) = lock.locked.iter_mut().find(|h| **h == range) {
            held.count = first;
            lock.locked.push(BlockRange { first: range.first + first, count: range.count - first });
        }
    }

    /// Begins the mover's work in an extent of `blocks`. Returns `false` if it is at work there already.
    #[must_use]
    pub(crate) fn begin_move(&mut self, key: ExtentKey, blocks: u16) -> bool {
        let rare = self.extents.entry(key).or_default().extras();
        let free = rare.touched.is_none();
        if free {
            rare.touched = Some(BlockSet::none(blocks));
        }
        free
    }

    /// Whether a piece has locked, or waits for, blocks of the extent.
    pub(crate) fn is_in_use(&self, key: ExtentKey) -> bool {
        self.extents.get(&key).is_some_and(Lock::is_in_use)
    }

    /// Returns the next extent of the volume after this one in which a piece has locked, or waits for,
    /// blocks.
    pub(crate) fn next_in_use(&self, after: ExtentKey) -> Option<ExtentIndex> {
        let all = self.extents.iter().filter(|(key, lock)| key.volume == after.volume && lock.is_in_use());
        all.map(|(key, _)| key.index).filter(|index| *index > after.index).min()
    }

    /// Whether the mover is at work in the extent.
    pub(crate) fn has_mover(&self, key: ExtentKey) -> bool {
        self.extents.get(&key).is_some_and(|lock| lock.touched().is_some())
    }

    /// Starts recording for the mover which blocks are locked. Returns those locked now.
    pub(crate) fn begin_tracking(&mut self, key: ExtentKey) -> BlockSet {
        let Some(lock) = self.extents.get_mut(&key) else { return BlockSet::none(0) };
        let Some(LockExtras { waiting, touched: Some(touched), .. }) = lock.extras.as_deref_mut() else {
            return BlockSet::none(0);
        };
        *touched = touched.empty_like();
        if !self.planted.is(Mutant::MoveReadsHeldBlocks) {
            lock.locked.iter().for_each(|held| touched.insert(*held));
        }
        waiting.iter().for_each(|(_, range)| touched.insert(*range));
        touched.clone()
    }

    /// Returns the blocks locked since [`Self::begin_tracking`].
    pub(crate) fn touched(&self, key: ExtentKey) -> Option<&BlockSet> {
        self.extents.get(&key)?.touched()
    }

    /// Ends the mover's work in the extent. Returns whether the extent must be tidied.
    pub(crate) fn end_move(&mut self, key: ExtentKey) -> bool {
        let Entry::Occupied(mut entry) = self.extents.entry(key) else { return false };
        entry.get_mut().extras().touched = None;
        tidy_if_idle(entry)
    }
}

/// Removes the lock if the extent is idle. Returns whether the extent must be tidied.
#[inline]
fn tidy_if_idle(entry: OccupiedEntry<'_, ExtentKey, Lock>) -> bool {
    entry.get().is_idle() && entry.remove().extras.is_some_and(|rare| rare.needs_tidying)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16, count: u16) -> BlockRange {
        BlockRange { first, count }
    }

    #[test]
    fn overlapping_pieces_lock_in_arrival_order() {
        let mut locks = Locks::new(Planted::for_tests());
        let key = ExtentKey::default();
        let mut granted = SmallVec::new();
        assert!(locks.lock(key, range(0, 4), PieceId(0)));
        assert!(locks.lock(key, range(4, 4), PieceId(1)), "no overlap, no wait");
        assert!(!locks.lock(key, range(2, 4), PieceId(2)));
        assert!(!locks.lock(key, range(5, 1), PieceId(3)), "would overtake piece 2");
        assert!(!locks.release(key, range(0, 4), &mut granted));
        assert!(granted.is_empty(), "piece 2 still overlaps piece 1");
        locks.request_tidying(key);
        assert!(!locks.release(key, range(4, 4), &mut granted));
        assert_eq!(granted[..], [PieceId(2)]);
        granted.clear();
        assert!(!locks.release(key, range(2, 4), &mut granted));
        assert_eq!(granted[..], [PieceId(3)]);
        assert!(locks.release(key, range(5, 1), &mut granted), "now it can be tidied");
        assert!(locks.extents.is_empty());
    }

    #[test]
    fn waiting_piece_is_not_overtaken() {
        let mut locks = Locks::new(Planted::for_tests());
        let key = ExtentKey::default();
        let mut granted = SmallVec::new();
        assert!(locks.lock(key, range(0, 4), PieceId(0)));
        assert!(!locks.lock(key, range(2, 6), PieceId(1)));
        assert!(!locks.lock(key, range(6, 1), PieceId(2)), "nobody holds it, but piece 1 waits for it");
        assert!(!locks.release(key, range(0, 4), &mut granted));
        assert_eq!(granted[..], [PieceId(1)]);
    }

    #[test]
    fn mover_sees_locked_blocks_and_defers_tidying() {
        let mut locks = Locks::new(Planted::for_tests());
        let key = ExtentKey::default();
        let mut granted = SmallVec::new();
        assert!(locks.lock(key, range(0, 4), PieceId(0)));
        assert!(!locks.lock(key, range(3, 2), PieceId(1)));
        assert!(locks.begin_move(key, 32) && !locks.begin_move(key, 32));
        assert_eq!(locks.begin_tracking(key).iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        locks.split(key, range(0, 4), 1);
        assert!(!locks.release(key, range(0, 1), &mut granted));
        assert!(!locks.release(key, range(1, 3), &mut granted));
        assert_eq!(granted[..], [PieceId(1)]);
        locks.request_tidying(key);
        assert!(!locks.release(key, range(3, 2), &mut granted), "the mover is still there");
        assert!(locks.begin_tracking(key).is_empty());
        assert!(locks.lock(key, range(9, 1), PieceId(2)));
        assert!(locks.touched(key).is_some_and(|t| t.contains(9) && t.count() == 1));
        assert!(!locks.end_move(key), "a piece is still there");
        assert!(locks.release(key, range(9, 1), &mut granted));
        assert!(locks.extents.is_empty());
    }
}
