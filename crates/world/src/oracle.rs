//! The oracle: decides which data a read may return. It models all between a client and the devices.
//!
//! For every sector it keeps the writes that may be its content, and drops one when a rule excludes it:
//!
//! - A write that was acknowledged before another one was submitted is overwritten once that one is
//!   acknowledged, or a read has returned it. Of writes that overlap in time, either may be the last.
//! - A read fixes what it has returned: a write acknowledged before the read was submitted, and not returned
//!   by it, is over. So a sector never changes without a write, nor does it revert.
//! - A crash may undo a write unless it was acknowledged with FUA, or before the submission of a flush that
//!   was acknowledged. It may bring back anything written since the last such write.
//! - TRIM may take effect at any time between its submission and the next flush, for whole blocks only.
//! - A failed flush withdraws the guarantee of later ones for everything acknowledged by then.
//! - A failed write may have taken effect or not. Once a read has returned it, it counts as acknowledged at
//!   that moment: a later flush covers it.
//! - A write that its client [abandoned](Oracle::abandon_change) may have taken effect, or may still, but not
//!   after one that was submitted later and acknowledged.
//! - If a volume guarantees it, the first write to a block is durable when it is acknowledged.
//!
//! Contents are stamps: 512 bytes that only one request can write to one place: stale bytes are recognized.
//!
//! A device follows the same rules (as if it were a volume); so the simulated devices are tested this way.

use crate::{DamagedSectors, StopKind};
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use weir_model::{BLOCK, Bytes, SECTOR, VolumeOffset};

mod candidates;
mod disconnects;
mod doubt;
mod stamp;

use candidates::{acknowledge, harden, overwrite, pin, prune};
use doubt::failed_write_visible;
pub use stamp::Found;

/// A request registered with the oracle. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("the beginning") } else { write!(f, "request {}", self.0) }
    }
}

/// A range of a volume, which is given by its index in the oracle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The volume.
    pub volume: usize,
    /// Offset; a multiple of 512.
    pub offset: VolumeOffset,
    /// Length; a multiple of 512.
    pub len: Bytes,
}

impl Place {
    fn sectors(self) -> Range<usize> {
        let first = self.offset.0 / SECTOR;
        first as usize..(first + self.len.0 / SECTOR) as usize
    }

    fn overlaps(self, other: Self) -> bool {
        let (mine, others) = (self.sectors(), other.sectors());
        self.volume == other.volume && mine.start < others.end && others.start < mine.end
    }

    fn touched_blocks(self) -> Self {
        let start = self.offset.0 / BLOCK * BLOCK;
        let end = (self.offset.0 + self.len.0).next_multiple_of(BLOCK);
        Self { offset: VolumeOffset(start), len: Bytes(end - start), ..self }
    }

    fn whole_blocks(self) -> Self {
        let start = self.offset.0.next_multiple_of(BLOCK);
        let end = (self.offset.0 + self.len.0) / BLOCK * BLOCK;
        match end.checked_sub(start) {
            Some(len) => Self { offset: VolumeOffset(start), len: Bytes(len), ..self },
            // The next block may begin behind the volume's end.
            None => Self { len: Bytes(0), ..self },
        }
    }
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Writes stamps: see [`Oracle::fill`].
    Write,
    /// Writes zeros.
    Zero,
    /// Turns whole blocks into zeros by the next flush.
    Trim,
}

/// The data returned by a read.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Only zeros.
    Zeros,
}

/// A read returned data that no order of the requests explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The read.
    pub read: Ticket,
    /// The volume.
    pub volume: usize,
    /// Offset of the sector.
    pub offset: VolumeOffset,
    /// The data that was read.
    pub found: Found,
    /// The admissible contents, in words.
    pub admissible: Vec<String>,
    /// Facts about the data found that explain why it is wrong.
    pub known: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read, volume, offset, found, admissible, known } = self;
        write!(
            f,
            "{read} of volume {volume} found at {offset} {found}; admissible: {}",
            admissible.join(", ")
        )?;
        if !known.is_empty() {
            write!(f, "; also known: {}", known.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Difference {}

/// The oracle.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Counts submissions and answers, which orders any two of them.
    moment: u64,
    volumes: Vec<Vec<Sector>>,
    /// By volume: whether the first write to a block is durable when it is acknowledged.
    first_writes_durable: Vec<bool>,
    changes: BTreeMap<Ticket, OpenChange>,
    reads: BTreeMap<Ticket, Place>,
    flushes: BTreeSet<(Ticket, usize)>,
    /// Acknowledged changes that no acknowledged flush has covered.
    unflushed: Vec<Unflushed>,
    /// Acknowledged changes that a failed flush should have covered, since the last crash.
    failed_flush_changes: Vec<Unflushed>,
    /// Volumes with changes since the last flush after which nothing was outstanding.
    unsettled: BTreeSet<usize>,
    /// Volumes of several clients with a failed flush since the last crash, and when it was last reported.
    failed_flush_volumes: BTreeMap<usize, Ticket>,
    /// Volumes with a flush whose client disconnected: a loss may have been reported to nobody. The ticket is
    /// that of the flush from which on flushes guarantee something again, once it is known.
    unseen_flushes: BTreeMap<usize, Option<Ticket>>,
    /// Whether, since the last crash, a client has flushed whose replies nobody reads.
    has_unread_flushes: bool,
    /// Changes that failed since the last crash: nobody knows what they left in a device's cache, even if a
    /// read has returned the previous contents.
    failed: Vec<Place>,
}

/// Rarely more than one change since the last durable one.
type Sector = SmallVec<[Candidate; 2]>;

#[derive(Clone, Debug)]
struct OpenChange {
    place: Place,
    fua: bool,
    trim: bool,
    /// True if a flush failed while it was in flight, which may have lost the part executed by then.
    flush_failed: bool,
    /// Sectors that are durable when it is acknowledged: first writes of a volume that guarantees this.
    first_write_sectors: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Unflushed {
    ticket: Ticket,
    acked: u64,
    place: Place,
    trim: bool,
}

/// One write that may be a sector's content.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Also the time of its submission.
    ticket: Ticket,
    /// When it was acknowledged; `NEVER` while it is in flight.
    acked: u64,
    /// When its client gave it up; `NEVER` otherwise.
    abandoned: u64,
    /// Reads submitted later than this do not see it.
    superseded: u64,
    zero: bool,
    /// Zeros for a part of a block: the other parts keep the block stored, or did when these were written.
    is_partial: bool,
    /// A failed write that no read has returned since.
    failed: bool,
    /// A trim that no flush has covered: it may take effect at any time.
    pending_trim: bool,
    /// No crash undoes it.
    durable: bool,
    /// No crash brings it back.
    is_unrecoverable: bool,
}

const NEVER: u64 = u64::MAX;

impl Candidate {
    const BLANK: Self = Self {
        ticket: Ticket(0),
        acked: 0,
        abandoned: NEVER,
        superseded: NEVER,
        zero: true,
        is_partial: false,
        failed: false,
        pending_trim: false,
        durable: true,
        is_unrecoverable: false,
    };

    /// Reports whether a change submitted as this ticket comes after it, once acknowledged.
    fn is_before(&self, later: Ticket) -> bool {
        self.acked.min(self.abandoned) < later.0
    }

    fn is(&self, found: &Found) -> bool {
        match *found {
            Found::Zeros => self.zero,
            Found::Written(by) => !self.zero && self.ticket == by,
            Found::Misplaced { .. } | Found::Torn => false,
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.zero { "zeros" } else { "data" };
        write!(f, "{what} of {}", self.ticket)?;
        if self.acked == NEVER {
            f.write_str(if self.abandoned == NEVER { " under way" } else { " given up" })?;
        } else {
            write!(f, " answered at {}", self.acked)?;
        }
        if self.superseded != NEVER {
            write!(f, " over at {}", self.superseded)?;
        }
        for (flag, word) in
            [(self.durable, " durable"), (self.pending_trim, " trim"), (self.is_unrecoverable, " never back")]
        {
            f.write_str(if flag { word } else { "" })?;
        }
        Ok(())
    }
}

impl Oracle {
    /// Creates an oracle for volumes of these sizes, all zeros.
    #[must_use]
    pub fn new(sizes: &[Bytes]) -> Self {
        let blank = |size: &Bytes| vec![smallvec![Candidate::BLANK]; (size.0 / SECTOR) as usize];
        let first_writes_durable = vec![false; sizes.len()];
        Self { volumes: sizes.iter().map(blank).collect(), first_writes_durable, ..Self::default() }
    }

    /// Makes a volume guarantee more than a disk from now on: the first write to a block is durable when it
    /// is acknowledged (hardening `write`).
    pub fn first_writes_are_durable(&mut self, volume: usize) {
        self.first_writes_durable[volume] = true;
    }

    /// Limits a volume's guarantee to a disk's from now on, also for changes in flight.
    pub fn first_writes_are_not_durable(&mut self, volume: usize) {
        self.first_writes_durable[volume] = false;
        self.changes
            .values_mut()
            .filter(|change| change.place.volume == volume)
            .for_each(|c| c.first_write_sectors.clear());
    }

    /// Returns the latest ticket so far: requests submitted from now on have greater ones.
    #[must_use]
    pub const fn latest(&self) -> Ticket {
        Ticket(self.moment)
    }

    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn next_ticket(&mut self) -> Ticket {
        Ticket(self.next_moment())
    }

    /// Registers the submission of a change. The place must be within its volume.
    pub fn change(&mut self, place: Place, change: Change, fua: bool) -> Ticket {
        let ticket = self.next_ticket();
        let trim = change == Change::Trim;
        let place = if trim { place.whole_blocks() } else { place };
        let oldest = self.oldest();
        let first = change == Change::Write && self.first_writes_durable[place.volume];
        let first = if first { self.blank_sectors(place) } else { Vec::new() };
        self.note_concurrent_change(place);
        if !trim {
            self.unsettled.insert(place.volume);
        }
        let whole = place.whole_blocks().sectors();
        for (index, sector) in place.sectors().zip(&mut self.volumes[place.volume][place.sectors()]) {
            prune(sector, oldest);
            sector.push(Candidate {
                ticket,
                acked: NEVER,
                abandoned: NEVER,
                superseded: NEVER,
                zero: change != Change::Write,
                is_partial: change == Change::Zero && !whole.contains(&index),
                failed: false,
                pending_trim: trim,
                durable: false,
                is_unrecoverable: false,
            });
        }
        self.changes
            .insert(ticket, OpenChange { place, fua, trim, flush_failed: false, first_write_sectors: first });
        ticket
    }

    /// Returns the sectors of a place that are in blocks never written to.
    fn blank_sectors(&self, place: Place) -> Vec<usize> {
        const SECTORS: usize = (BLOCK / SECTOR) as usize;
        let volume = &self.volumes[place.volume];
        let is_blank = |sector: &usize| {
            let first = sector / SECTORS * SECTORS;
            let block = &volume[first..volume.len().min(first + SECTORS)];
            block.iter().flatten().all(|candidate| candidate.ticket == Ticket(0))
        };
        place.sectors().filter(is_blank).collect()
    }

    /// Handles a change of blocks that others in flight write to for the first time: it may be first instead.
    fn note_concurrent_change(&mut self, place: Place) {
        let blocks = place.touched_blocks().sectors();
        for change in self.changes.values_mut().filter(|change| change.place.volume == place.volume) {
            change.first_write_sectors.retain(|sector| !blocks.contains(sector));
        }
    }

    /// Fills the data of a write with its stamps.
    pub fn fill(&self, ticket: Ticket, place: Place, bytes: &mut [u8]) {
        for (index, sector) in place.sectors().zip(bytes.chunks_exact_mut(SECTOR as usize)) {
            stamp::fill(ticket, place.volume, index, sector);
        }
    }

    /// Registers the acknowledgement of a change. Unknown tickets (from before a crash) are ignored.
    pub fn changed(&mut self, ticket: Ticket) {
        let Some(change) = self.changes.remove(&ticket) else { return };
        let OpenChange { place, fua, trim, flush_failed: forsaken, first_write_sectors: first } = change;
        let now = self.next_moment();
        for sector in &mut self.volumes[place.volume][place.sectors()] {
            acknowledge(sector, ticket, now);
            if !trim || fua {
                overwrite(sector, ticket, now);
            }
            if fua {
                harden(sector, ticket);
            }
        }
        for index in first {
            harden(&mut self.volumes[place.volume][index], ticket);
        }
        if !fua {
            let owed = if forsaken { &mut self.failed_flush_changes } else { &mut self.unflushed };
            owed.push(Unflushed { ticket, acked: now, place, trim });
        }
    }

    /// Registers the failure of a change: each of its sectors may have been changed or not.
    pub fn change_failed(&mut self, ticket: Ticket) {
        let Some(OpenChange { place, .. }) = self.changes.remove(&ticket) else { return };
        self.failed.push(place);
        let now = self.next_moment();
        for sector in &mut self.volumes[place.volume][place.sectors()] {
            acknowledge(sector, ticket, now);
            sector.iter_mut().filter(|c| c.ticket == ticket && !c.zero).for_each(|c| c.failed = true);
        }
    }

    /// Registers the submission of a read. The place must be within its volume.
    pub fn read(&mut self, place: Place) -> Ticket {
        let ticket = self.next_ticket();
        self.reads.insert(ticket, place);
        ticket
    }

    /// Registers the failure of a read. It excludes no candidates.
    pub fn read_failed(&mut self, ticket: Ticket) {
        self.reads.remove(&ticket);
    }

    /// Checks the answer to a read. Unknown tickets (from before a crash) are ignored.
    pub fn read_done(&mut self, ticket: Ticket, answer: Answer<'_>) -> Result<(), Box<Difference>> {
        self.read_done_except(ticket, answer, &DamagedSectors::default())
    }

    /// Checks the answer to a read, except for sectors, counted from its start, that the devices have
    /// damaged: those are not judged, and keep all their candidates.
    pub fn read_done_except(
        &mut self,
        ticket: Ticket,
        answer: Answer<'_>,
        spoilt: &DamagedSectors,
    ) -> Result<(), Box<Difference>> {
        let Some(place) = self.reads.remove(&ticket) else { return Ok(()) };
        let now = self.next_moment();
        for (position, index) in place.sectors().enumerate() {
            if !spoilt.is_empty() && spoilt.contains(position as u64) {
                continue;
            }
            let found = match answer {
                Answer::Zeros => Found::Zeros,
                Answer::Bytes(bytes) => {
                    let at = position * SECTOR as usize;
                    stamp::identify(place.volume, index, &bytes[at..at + SECTOR as usize])
                }
            };
            let sector = &mut self.volumes[place.volume][index];
            if !sector.iter().any(|c| c.is(&found) && c.superseded > ticket.0) {
                return Err(Box::new(difference(ticket, place.volume, index, found, sector)));
            }
            if sector.len() > 1 {
                pin(sector, &found, ticket, now);
                let visible = failed_write_visible(sector, &found, ticket, now, place.volume, index);
                // The answer may be older than the loss, of which another client has heard already.
                let since = self.failed_flush_volumes.get(&place.volume);
                let may_be_lost = since.is_some_and(|failed| ticket <= *failed);
                if may_be_lost { &mut self.failed_flush_changes } else { &mut self.unflushed }
                    .extend(visible);
            }
        }
        Ok(())
    }

    /// Registers the submission of a flush of one volume.
    pub fn flush(&mut self, volume: usize) -> Ticket {
        let ticket = self.next_ticket();
        self.flushes.insert((ticket, volume));
        ticket
    }

    /// Registers the acknowledgement of a flush: everything acknowledged before its submission is durable.
    pub fn flushed(&mut self, ticket: Ticket) {
        let Some(&(_, volume)) = self.flushes.range((ticket, 0)..=(ticket, usize::MAX)).next() else {
            return;
        };
        self.flushes.remove(&(ticket, volume));
        let now = self.next_moment();
        let oldest = self.oldest();
        let volumes = &mut self.volumes;
        self.unflushed.retain(|change| {
            let covered = change.place.volume == volume && change.acked < ticket.0;
            if covered {
                for sector in &mut volumes[volume][change.place.sectors()] {
                    if change.trim {
                        overwrite(sector, change.ticket, now);
                    }
                    harden(sector, change.ticket);
                    prune(sector, oldest);
                }
            }
            !covered
        });
        self.note_settled(volume, ticket);
    }

    /// Registers the failure of a flush: it guarantees nothing. The writes it covers may be lost,
    /// and a later flush guarantees nothing about it either.
    pub fn flush_failed(&mut self, ticket: Ticket) {
        for (_, volume) in self.flushes.extract_if(.., |(open, _)| *open == ticket) {
            self.failed_flush_changes
                .extend(self.unflushed.extract_if(.., |change| change.place.volume == volume));
        }
    }

    /// Registers a crash. Requests in flight are never answered, and volatile data may be lost or not, sector
    /// by sector. After a power loss everything that remains is durable; after a kill it may still be
    /// lost to a power loss, until it is written again or [settled](Self::make_all_durable).
    pub fn crash(&mut self, how: StopKind) {
        let now = self.next_moment();
        self.changes.clear();
        self.reads.clear();
        self.flushes.clear();
        self.unflushed.clear();
        self.failed_flush_changes.clear();
        self.unsettled.clear();
        self.failed_flush_volumes.clear();
        self.unseen_flushes.clear();
        self.has_unread_flushes = false;
        self.failed.clear();
        for sector in self.volumes.iter_mut().flatten() {
            if let [only] = sector.as_slice()
                && only.durable
            {
                continue;
            }
            sector.retain(|c| !c.is_unrecoverable);
            for candidate in sector.iter_mut() {
                let Candidate { ticket, zero, is_partial: part, durable, .. } = *candidate;
                let durable = durable || how == StopKind::PowerLoss;
                *candidate =
                    Candidate { ticket, zero, is_partial: part, durable, acked: now, ..Candidate::BLANK };
            }
        }
    }

    /// Makes everything that exists durable, without a flush: a pool ensures that before it opens. Nothing
    /// may have been submitted since the crash.
    pub fn make_all_durable(&mut self) {
        for candidate in self.volumes.iter_mut().flatten().flatten() {
            candidate.durable = true;
        }
    }

    /// Returns the submission time of the oldest request in flight.
    fn oldest(&self) -> u64 {
        let read = self.reads.first_key_value().map(|(ticket, _)| ticket.0);
        let change = self.changes.first_key_value().map(|(ticket, _)| ticket.0);
        read.into_iter().chain(change).min().unwrap_or(NEVER)
    }

    /// Resets a volume that was created anew: zeros, and nothing older comes back. Nothing may be in flight
    /// there.
    pub fn reset_volume(&mut self, volume: usize) {
        self.volumes[volume].fill(smallvec![Candidate::BLANK]);
        for changes in [&mut self.unflushed, &mut self.failed_flush_changes] {
            changes.retain(|change| change.place.volume != volume);
        }
    }

    /// Reports whether this place may, at some time since this request was submitted, or after a crash, hold
    /// anything but whole blocks of zeros: an upper bound on what had to be stored. Call it when the request
    /// ends.
    #[must_use]
    pub fn may_hold_data(&self, place: Place, since: Ticket) -> bool {
        let over = |c: &Candidate| c.is_unrecoverable && c.superseded < since.0;
        self.volumes[place.volume][place.sectors()]
            .iter()
            .flatten()
            .any(|c| (!c.zero || c.is_partial) && !over(c))
    }
}

fn difference(read: Ticket, volume: usize, index: usize, found: Found, sector: &Sector) -> Difference {
    let (right, other): (Vec<_>, Vec<_>) = sector.iter().partition(|c| c.superseded > read.0);
    let words = |candidates: Vec<&Candidate>| candidates.into_iter().map(ToString::to_string).collect();
    Difference {
        read,
        volume,
        offset: VolumeOffset(index as u64 * SECTOR),
        found,
        admissible: words(right),
        known: words(other),
    }
}

#[cfg(test)]
mod tests;
