//! The expected cost of a recovery.

use crate::{Map, PAGE};
use weir_model::Bytes;

/// The cost of a recovery if the power failed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedRecovery {
    /// The bytes read: the newest root's pages and the journal's ring, which is read as a whole.
    pub bytes_read: Bytes,
    /// The bytes of frames to be replayed.
    pub bytes_to_replay: Bytes,
}

impl Map {
    /// Estimates the cost of a recovery if the power failed now. Record pages are counted as if every group
    /// were full, up to the capacity of the metadata area.
    pub fn expected_recovery(&self) -> ExpectedRecovery {
        let (pages, free) = self.store.page_counts();
        let objects = self.pages.live() + self.records.group_count() * self.pages_per_group();
        let reached = (objects + objects / 100 + 2).min((pages - free) as usize);
        ExpectedRecovery {
            // All members are read, because undetected damage on one would be lost with the other.
            bytes_read: Bytes(((reached * PAGE) as u64 + self.journal.ring()) * self.members.len() as u64),
            bytes_to_replay: Bytes(self.journal.since_root()),
        }
    }
}
