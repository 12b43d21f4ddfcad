//! What opening the pool as it is would have to read.

use crate::{Map, PAGE};
use weir_model::Bytes;

/// What recovery would have to do if the power went now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedRecovery {
    /// Bytes read: the newest root's pages and the journal's ring, which is read as a whole.
    pub read: Bytes,
    /// Of the ring, frames to be replayed.
    pub replay: Bytes,
}

impl Map {
    /// What recovery would have to do if the power went now. Record pages are counted as if every
    /// group were full, up to what the metadata area holds.
    pub fn expected_recovery(&self) -> ExpectedRecovery {
        let (pages, free) = self.store.room();
        let objects = self.pages.live() + self.records.group_count() * self.pages_per_group();
        let reached = (objects + objects / 100 + 2).min((pages - free) as usize);
        ExpectedRecovery {
            // All members are read: what rots unseen on one would be lost with the other.
            read: Bytes(((reached * PAGE) as u64 + self.journal.ring()) * self.members.len() as u64),
            replay: Bytes(self.journal.since_root()),
        }
    }
}
