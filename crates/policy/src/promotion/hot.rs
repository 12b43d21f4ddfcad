//! `hot`: an item returns that was accessed repeatedly since it left and would not be the next to leave.
//!
//! Source: TridentFS, section 5.3, which proposes it and did not build it: the score of equation (1) for
//! evicted data too, and promotion where it exceeds a threshold.
//!
//! Rule: count the accesses to items outside the fast tier. At an access, the item's rank is what it would be
//! if it were inserted now with that count; it is promoted if it was accessed [`ACCESSES_MIN`] times or more
//! and its rank is above that of the item that would leave next, the threshold. With the rank of the eviction
//! policy itself, an item is not promoted only to leave again.
//!
//! Constants (ours; the paper has none): two accesses, so that a scan promotes nothing; 65,536 remembered
//! items, the oldest of which are forgotten (about 4 MB).
//!
//! When not: where every file is read twice and never again.

use super::Promotion;
use crate::Lru;
use crate::eviction::items::{Item, ItemEviction};
use weir_model::Bytes;

/// The number of accesses from which on an item may be promoted.
pub const ACCESSES_MIN: u64 = 2;
/// The number of items whose accesses are remembered.
const REMEMBERED: usize = 1 << 16;

/// Promotion by rank.
#[derive(Debug)]
pub struct Hot {
    accesses: Lru<Item, u64>,
}

impl Promotion for Hot {
    fn accessed(&mut self, item: Item, size: Bytes, resident: &mut ItemEviction) -> bool {
        let accesses = self.accesses.get(&item).copied().unwrap_or(0) + 1;
        let is_hot = accesses >= ACCESSES_MIN
            && resident.lowest_rank().is_none_or(|lowest| resident.rank_now(accesses, size) > lowest);
        if is_hot {
            self.accesses.remove(&item);
        } else {
            self.accesses.insert(item, accesses);
        }
        is_hot
    }

    fn removed(&mut self, item: Item) {
        self.accesses.remove(&item);
    }
}

pub(super) fn promotion() -> Box<dyn Promotion> {
    Box::new(Hot { accesses: Lru::new(REMEMBERED) })
}
