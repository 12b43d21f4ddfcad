//! What changes, reads and flushes mean for the candidates of a sector.

use super::{Found, Sector, Ticket};

/// Drops candidates that neither a crash nor a request in flight, the oldest of which was submitted at
/// `oldest`, can return.
pub(super) fn prune(sector: &mut Sector, oldest: u64) {
    if sector.len() > 1 {
        sector.retain(|c| !(c.is_unrecoverable && c.superseded < oldest));
    }
}

pub(super) fn acknowledge(sector: &mut Sector, ticket: Ticket, now: u64) {
    if let Some(own) = sector.iter_mut().find(|c| c.ticket == ticket) {
        own.acked = now;
    }
}

/// Handles that the change `ticket` has taken effect: candidates that were over before it began do not come
/// back.
pub(super) fn overwrite(sector: &mut Sector, ticket: Ticket, now: u64) {
    for candidate in sector.iter_mut().filter(|c| c.is_before(ticket)) {
        candidate.superseded = candidate.superseded.min(now);
    }
}

/// Handles that the change `ticket` is durable: no crash brings back candidates that were over before it
/// began.
pub(super) fn harden(sector: &mut Sector, ticket: Ticket) {
    if let Some(own) = sector.iter_mut().find(|c| c.ticket == ticket) {
        own.durable = true;
        own.pending_trim = false;
        for candidate in sector.iter_mut().filter(|c| c.is_before(ticket)) {
            candidate.is_unrecoverable = true;
        }
    }
}

/// Handles that a read submitted at `ticket` has returned `found`: every other candidate completed by then is
/// over. So is what the change that it returned has overwritten, if only one can be it.
pub(super) fn pin(sector: &mut Sector, found: &Found, ticket: Ticket, now: u64) {
    let durable = sector.iter().filter(|c| c.is(found)).all(|c| c.durable);
    for candidate in sector.iter_mut() {
        if !candidate.is(found) && !candidate.pending_trim && candidate.acked < ticket.0 {
            candidate.superseded = candidate.superseded.min(now);
            candidate.is_unrecoverable |= durable;
        }
    }
    let mut returned = sector.iter().filter(|c| c.is(found));
    if let (Some(only), None) = (returned.next().map(|c| c.ticket), returned.next()) {
        overwrite(sector, only, now);
    }
}
