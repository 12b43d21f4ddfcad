//! What a failing device can put in doubt: an upper bound, for errors that name a reason.

use super::{Candidate, Oracle, Place};
use weir_model::{BLOCK, Bytes, VolumeOffset};

impl Oracle {
    /// Whether a block that the place touches holds a change nobody was promised for good: under way,
    /// not flushed, or failed.
    #[must_use]
    pub fn may_be_in_doubt(&self, place: Place) -> bool {
        let start = place.offset.0 / BLOCK * BLOCK;
        let end = (place.offset.0 + place.len.0).next_multiple_of(BLOCK);
        let place = Place { offset: VolumeOffset(start), len: Bytes(end - start), ..place };
        if self.failed.iter().any(|failed| failed.overlaps(place)) {
            return true;
        }
        let volume = &self.volumes[place.volume];
        let sectors = place.sectors();
        let touched = &volume[sectors.start..sectors.end.min(volume.len())];
        touched.iter().flatten().any(|c: &Candidate| !c.durable && !c.buried)
    }

    /// Whether a flush of the volume may find that changes were lost: not if it has seen none since the
    /// last one that covered them all, and none has failed.
    #[must_use]
    pub fn may_owe(&self, volume: usize) -> bool {
        self.unsettled.contains(&volume) || self.failed.iter().any(|failed| failed.volume == volume)
    }

    /// A flush of the volume was acknowledged.
    pub(super) fn note_settled(&mut self, volume: usize) {
        let under_way = self.changes.values().any(|change| change.place.volume == volume && !change.trim);
        let unflushed = self.unflushed.iter().any(|change| change.place.volume == volume && !change.trim);
        if !under_way && !unflushed {
            self.unsettled.remove(&volume);
        }
    }
}
