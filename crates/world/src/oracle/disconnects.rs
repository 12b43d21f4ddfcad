//! Requests whose client has lost its connection, and replies that report only which sectors are zeros.

use super::{Difference, Found, Oracle, Ticket, difference, pin};
use std::ops::Range;

impl Oracle {
    /// Handles a change whose client has lost its connection and reconnected: the change has taken effect or
    /// not, or will, but not after one that is submitted from now on and acknowledged. Before the client
    /// reconnects, it may take effect at any time; do not call this then.
    pub fn abandon_change(&mut self, ticket: Ticket) {
        let Some(change) = self.changes.remove(&ticket) else { return };
        let now = self.next_moment();
        let place = change.place;
        // Nobody knows what it leaves in a device's cache.
        self.failed.push(place);
        for sector in &mut self.volumes[place.volume][place.sectors()] {
            if let Some(own) = sector.iter_mut().find(|c| c.ticket == ticket) {
                own.abandoned = now;
            }
        }
    }

    /// Limits a volume's guarantee to a disk's from now on, also for changes in flight.
    pub fn first_writes_need_a_flush(&mut self, volume: usize) {
        self.first_writes_durable[volume] = false;
        let under_way = self.changes.values_mut().filter(|change| change.place.volume == volume);
        under_way.for_each(|change| change.first_write_sectors.clear());
    }

    /// Handles a failed flush of a client that is one of several and has the changes `own` in flight. Changes
    /// of other clients in flight may have been answered before, and be lost with the rest: a later flush
    /// does not guarantee them either, nor a failed write that a read in flight returns. Changes of the
    /// client itself that are answered after this are not lost.
    pub fn flush_failed_concurrently(&mut self, ticket: Ticket, own: &[Ticket]) {
        let volumes = self.flushes.iter().filter(|(open, _)| *open == ticket).map(|(_, volume)| *volume);
        for volume in volumes.collect::<Vec<_>>() {
            self.failed_flush_volumes.insert(volume, self.latest());
            let in_flight = self.changes.iter_mut().filter(|(_, change)| change.place.volume == volume);
            let of_others = in_flight.filter(|(change, _)| !own.contains(change));
            of_others.for_each(|(_, change)| change.flush_failed = true);
        }
        self.flush_failed(ticket);
    }

    /// Handles a client that flushes and reads no replies: a loss may be reported to it, and is then none for
    /// clients that connect later.
    pub fn note_unread_flushes(&mut self) {
        self.has_unread_flushes = true;
    }

    /// Reports whether a loss may have been reported to another flush of its volume, which has not been
    /// answered yet, whose reply nobody reads, or whose client has disconnected and is not known to have
    /// reconnected.
    pub fn has_concurrent_flush(&self, ticket: Ticket) -> bool {
        if self.has_unread_flushes {
            return true;
        }
        let found = self.flushes.iter().find(|(open, _)| *open == ticket);
        let Some((_, volume)) = found else { return false };
        let is_beside = self.flushes.iter().any(|(open, of)| *open != ticket && of == volume);
        let unheard = self.unseen_flushes.get(volume);
        is_beside || unheard.is_some_and(|until| until.is_none_or(|until| ticket <= until))
    }

    /// Handles a flush whose client has disconnected without having seen the reply.
    pub fn flush_unseen(&mut self, ticket: Ticket) {
        for (_, volume) in self.flushes.extract_if(.., |(open, _)| *open == ticket) {
            self.unseen_flushes.insert(volume, None);
        }
    }

    /// Handles the return of clients of the volume that had disconnected: losses that they may not have seen
    /// are reported to a flush from now on.
    pub fn flushes_seen(&mut self, volume: usize) {
        let latest = self.latest();
        self.unseen_flushes.entry(volume).and_modify(|until| *until = Some(latest));
    }

    /// Drops a flush whose reply nobody will see: it guarantees nothing.
    pub fn abandon_flush(&mut self, ticket: Ticket) {
        self.flushes.retain(|(open, _)| *open != ticket);
    }

    /// Handles a reply to a read that reports only which sectors are zeros, counted from its start.
    pub fn zeros_reported(&mut self, ticket: Ticket, zeros: &[Range<u64>]) -> Result<(), Box<Difference>> {
        let Some(place) = self.reads.remove(&ticket) else { return Ok(()) };
        let now = self.next_moment();
        let start = place.sectors().start;
        for index in zeros.iter().cloned().flatten().map(|sector| start + sector as usize) {
            let (found, sector) = (Found::Zeros, &mut self.volumes[place.volume][index]);
            if !sector.iter().any(|c| c.is(&found) && c.superseded > ticket.0) {
                return Err(Box::new(difference(ticket, place.volume, index, found, sector)));
            }
            if sector.len() > 1 {
                pin(sector, &found, ticket, now);
            }
        }
        Ok(())
    }
}
