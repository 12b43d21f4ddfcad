//! Upper bounds on what a failing device can put in doubt, for errors that give a reason.

use super::{Candidate, Found, Oracle, Place, Sector, Ticket, Unflushed};
use weir_model::{BLOCK, Bytes, SECTOR, VolumeOffset};

impl Oracle {
    /// Reports whether a block of the place has, or had when the read `since` was submitted, a change without
    /// a durability guarantee: in flight, not flushed, or failed. Call it when the read ends.
    #[must_use]
    pub fn may_be_in_doubt(&self, place: Place, since: Ticket) -> bool {
        let start = place.offset.0 / BLOCK * BLOCK;
        let end = place.offset.0 + place.len.0;
        (start..end).step_by(BLOCK as usize).any(|start| {
            let block = Place { offset: VolumeOffset(start), len: Bytes(BLOCK), ..place };
            self.failed.iter().any(|failed| failed.overlaps(block)) || self.may_be_lost(block, since)
        })
    }

    /// Reports whether a block may be lost with a change that no flush has covered. Devices lose whole
    /// blocks: a durable change is lost together with an earlier one in other sectors, or in the same, unless
    /// it covers the block.
    fn may_be_lost(&self, block: Place, since: Ticket) -> bool {
        let (volume, sectors) = (&self.volumes[block.volume], block.sectors());
        let sectors = &volume[sectors.start..sectors.end.min(volume.len())];
        let over = |c: &Candidate| c.is_unrecoverable && c.superseded < since.0;
        if sectors.iter().flatten().any(|c| !c.durable && !over(c)) {
            return true;
        }
        let unflushed = self.unflushed.iter().chain(&self.failed_flush_changes);
        let last = unflushed.filter(|change| change.place.overlaps(block)).map(|change| change.acked).max();
        last.is_some_and(|last| {
            let later = |c: &&Candidate| c.durable && c.ticket.0 > last && c.acked < since.0;
            let covers = |change: &Candidate| {
                sectors.iter().all(|sector| sector.iter().any(|c| c.ticket == change.ticket))
            };
            !sectors.iter().take(1).flatten().filter(later).any(covers)
        })
    }

    /// Reports whether a place has been unchanged since a request was submitted: no change of it was
    /// submitted or ended since, nor is one in flight.
    #[must_use]
    pub fn is_unchanged(&self, place: Place, since: Ticket) -> bool {
        let volume = &self.volumes[place.volume];
        let sectors = place.sectors();
        let is_later = |c: &Candidate| c.ticket.0 > since.0 || (c.ticket.0 > 0 && c.acked >= since.0);
        !volume[sectors.start..sectors.end.min(volume.len())].iter().flatten().any(is_later)
    }

    /// Reports whether a flush of the volume may find that changes were lost: not if there were none since
    /// the last flush that covered them all, and none has failed.
    #[must_use]
    pub fn may_report_loss(&self, volume: usize) -> bool {
        self.failed_flush_volumes.contains_key(&volume)
            || self.unseen_flushes.contains_key(&volume)
            || self.unsettled.contains(&volume)
            || self.failed.iter().any(|failed| failed.volume == volume)
    }

    /// Handles the acknowledgement of a flush of the volume. Changes covered by another, failed flush may
    /// have been acknowledged after this one was submitted, and are still to be flushed.
    pub(super) fn note_settled(&mut self, volume: usize, flush: Ticket) {
        let under_way = self.changes.values().any(|change| change.place.volume == volume && !change.trim);
        let later = self.failed_flush_changes.iter().filter(|change| change.acked >= flush.0);
        let unflushed =
            self.unflushed.iter().chain(later).any(|change| change.place.volume == volume && !change.trim);
        if !under_way && !unflushed {
            self.unsettled.remove(&volume);
        }
    }
}

/// Handles a read, submitted at `read`, that has returned the data of a failed write: from now on a flush
/// covers that write.
pub(super) fn failed_write_visible(
    sector: &mut Sector,
    found: &Found,
    read: Ticket,
    now: u64,
    volume: usize,
    index: usize,
) -> Option<Unflushed> {
    let own = sector.iter_mut().find(|c| c.failed && c.acked < read.0 && c.is(found))?;
    own.failed = false;
    let place = Place { volume, offset: VolumeOffset(index as u64 * SECTOR), len: Bytes(SECTOR) };
    Some(Unflushed { ticket: own.ticket, acked: now, place, trim: false })
}
