//! Who has which blocks: a block range in flight is taken by one changing piece at a time.
//!
//! TRIM, write-zeroes and read-modify-write take the same ranges as writes. Waiting pieces go in
//! order of arrival, and nobody overtakes a piece it overlaps.

use crate::piece::PieceId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use weir_model::{BlockRange, ExtentKey};

#[derive(Debug, Default)]
struct Lock {
    held: SmallVec<[BlockRange; 4]>,
    waiting: VecDeque<(PieceId, BlockRange)>,
    /// Places may be left that hold nothing: to be looked at when nobody is in the extent.
    tidy: bool,
}

/// The block ranges taken, by extent.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    extents: FxHashMap<ExtentKey, Lock>,
}

impl Locks {
    /// Takes the range for `piece`; `false` if it has to wait, in which case [`Self::release`] will
    /// give it out.
    #[must_use]
    pub(crate) fn take(&mut self, key: ExtentKey, range: BlockRange, piece: PieceId) -> bool {
        let lock = self.extents.entry(key).or_default();
        let free = !lock.held.iter().any(|h| h.overlaps(range))
            && !lock.waiting.iter().any(|(_, w)| w.overlaps(range));
        if free {
            lock.held.push(range);
        } else {
            lock.waiting.push_back((piece, range));
        }
        free
    }

    /// The extent is to be tidied when nobody is in it any more; `false` if nobody is.
    pub(crate) fn tidy_later(&mut self, key: ExtentKey) -> bool {
        let lock = self.extents.get_mut(&key);
        lock.is_some_and(|lock| {
            lock.tidy = true;
            true
        })
    }

    /// Gives the range back. Pieces that have their range now go to `granted`, in order of arrival.
    /// Returns whether the extent is to be tidied: nobody is in it, and somebody asked for it.
    pub(crate) fn release(
        &mut self,
        key: ExtentKey,
        range: BlockRange,
        granted: &mut SmallVec<[PieceId; 2]>,
    ) -> bool {
        let Some(lock) = self.extents.get_mut(&key) else { return false };
        if let Some(i) = lock.held.iter().position(|h| *h == range) {
            lock.held.swap_remove(i);
        }
        let mut i = 0;
        while i < lock.waiting.len() {
            let (piece, range) = lock.waiting[i];
            let free = !lock.held.iter().any(|h| h.overlaps(range))
                && !lock.waiting.iter().take(i).any(|(_, w)| w.overlaps(range));
            if free {
                lock.waiting.remove(i);
                lock.held.push(range);
                granted.push(piece);
            } else {
                i += 1;
            }
        }
        if !lock.held.is_empty() || !lock.waiting.is_empty() {
            return false;
        }
        let tidy = lock.tidy;
        self.extents.remove(&key);
        tidy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16, count: u16) -> BlockRange {
        BlockRange { first, count }
    }

    #[test]
    fn overlapping_pieces_go_in_order_of_arrival() {
        let mut locks = Locks::default();
        let key = ExtentKey::default();
        let mut granted = SmallVec::new();
        assert!(locks.take(key, range(0, 4), PieceId(0)));
        assert!(locks.take(key, range(4, 4), PieceId(1)), "no overlap, no wait");
        assert!(!locks.take(key, range(2, 4), PieceId(2)));
        assert!(!locks.take(key, range(5, 1), PieceId(3)), "would overtake piece 2");
        assert!(!locks.release(key, range(0, 4), &mut granted));
        assert!(granted.is_empty(), "piece 2 still overlaps piece 1");
        locks.tidy_later(key);
        assert!(!locks.release(key, range(4, 4), &mut granted));
        assert_eq!(granted[..], [PieceId(2)]);
        granted.clear();
        assert!(!locks.release(key, range(2, 4), &mut granted));
        assert_eq!(granted[..], [PieceId(3)]);
        assert!(locks.release(key, range(5, 1), &mut granted), "now it can be tidied");
        assert!(locks.extents.is_empty());
    }
}
