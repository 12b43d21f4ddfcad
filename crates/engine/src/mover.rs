//! The mover: it makes, refreshes, moves and drops copies, as policies request.
//!
//! A move proceeds in runs of at most one scratch buffer: it reads the blocks from their places, writes them
//! to the new place, and updates the map. It locks no blocks: blocks that a client locks between the read and
//! the end of the write are left out and stay valid where they were written; the rest counts. So no request
//! waits for a move, with one exception: a write to the very location of a mover's write in flight waits for
//! that one write. After the last run a move, unlike a copy, drops the blocks from all other places
//! ([`drops`]). Emptied places are released when the extent is idle.
//!
//! While clients use a device, moves have a bounded share of its time ([`crate::device::pacing`]).
//!
//! A power loss loses only the runs in flight: the map names a copy only when it is durable and so is its
//! source, and drops follow copies in the order of the extent's versions.

pub(crate) mod drops;
pub(crate) mod piggyback;
mod queue;
mod transfer;

use crate::DataPath;
use crate::core::Core;
use crate::flight::{Flight, MoverIo, NewIo, Purpose};
use crate::ids::{MoveId, PieceId};
use crate::lookup::{self, Address};
use crate::mover::piggyback::PiggybackRead;
use crate::mover::transfer::{CopyRun, Destination, Move, Stage, Writing};
use crate::policy::route;
use crate::request::Requests;
use crate::request::piece::WaitsFor;
use crate::units::Percent;
use slab::Slab;
use weir_map::{BlockSet, Chunk, CopyOutcome, ExtentState, Location, Needs, Record, Slot};
use weir_model::{
    BLOCK, BlockRange, Buffer, DeviceId, ExtentKey, IoError, IoKind, Mutant, Nanos, PlaceId, PlaceKind,
    VolumeId,
};

/// The number of commits that a move waits for permission to write before it gives up.
const COMMITS_MAX: u8 = 8;

/// The moves in flight, and counters.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    moves: Slab<Move>,
    share: Share,
    /// The number of moves that wait for the bytes of a client's read.
    piggybacked: usize,
    counts: MoverStatus,
}

/// The default share of each device's time that moves may use while clients use the device.
pub const MOVER_SHARE: Percent = Percent(20);

#[derive(Clone, Copy, Debug)]
struct Share(Percent);

impl Default for Share {
    fn default() -> Self {
        Self(MOVER_SHARE)
    }
}

/// The mover's counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoverStatus {
    /// Moves, copies and refreshes in flight.
    pub in_flight: usize,
    /// Blocks copied.
    pub copied: u64,
    /// Blocks dropped from a place.
    pub dropped: u64,
    /// Blocks left out because a client wrote them during the move.
    pub skipped: u64,
    /// Blocks piggybacked on a client's read.
    pub piggybacked: u64,
}

impl Mover {
    /// Returns the share of each device's time that moves may use while clients use the device.
    #[inline]
    pub(crate) fn share(&self) -> Percent {
        self.share.0
    }

    /// Sets that share.
    pub(crate) fn set_share(&mut self, share: Percent) {
        self.share = Share(share);
    }
}

impl Mover {
    /// Whether a move is in flight in the volume.
    pub(crate) fn is_moving_in(&self, volume: VolumeId) -> bool {
        self.moves.iter().any(|(_, m)| m.key.volume == volume)
    }

    /// Whether a move waits for the bytes of a client's read.
    #[inline]
    pub(crate) fn awaits_client_reads(&self) -> bool {
        self.piggybacked > 0
    }

    /// Takes the move that waits for the bytes of this read, its run, and its buffer.
    pub(crate) fn take_piggybacked(&mut self, piece: PieceId) -> Option<(MoveId, BlockRange, Buffer)> {
        let mut piggybacked = self
            .moves
            .iter_mut()
            .filter_map(|(id, m)| Some((id, m.stage.take_piggybacked(piece)?, m.buffer)));
        let (id, run, buffer) = piggybacked.next()?;
        self.piggybacked -= 1;
        Some((MoveId(id), run, buffer.part(0, u32::from(run.count) * BLOCK as u32)))
    }

    /// Counts the blocks that a client's read delivered to a move.
    pub(crate) fn note_piggybacked(&mut self, blocks: u16) {
        self.counts.piggybacked += u64::from(blocks);
    }

    /// Returns until when a move must wait for time of its devices, if it must.
    fn must_wait_until(&mut self, core: &mut Core, key: ExtentKey, devices: [DeviceId; 2]) -> Option<Nanos> {
        if core.is_mirrored(key) {
            return None;
        }
        let (now, share) = (core.now, self.share());
        let free = devices.map(|device| core.devices[device.index()].pacing.available_at(now, share));
        let [source, to] = free;
        Some(source.max(to)).filter(|at| *at > now)
    }

    /// Whether a mover's write to some of these blocks of a place is in flight.
    pub(crate) fn is_writing(&mut self, key: ExtentKey, place: PlaceId, run: BlockRange) -> bool {
        self.moves.iter_mut().any(|(_, m)| m.writes(key, place, run).is_some())
    }
}

impl Mover {
    /// Whether the piece must wait, because a mover's write is in flight to the very blocks of a whole place
    /// that it would write.
    pub(crate) fn waits_for_mover(
        &mut self,
        core: &Core,
        requests: &mut Requests,
        piece: PieceId,
        place: PlaceId,
        run: BlockRange,
    ) -> bool {
        if core.is_planted(Mutant::WriteBesideMove) {
            return false;
        }
        let key = requests.pieces[piece.0 as usize].key;
        let mut moves = self.moves.iter_mut();
        let Some(busy) = moves.find_map(|(_, m)| m.writes(key, place, run)) else { return false };
        busy.waiting.push(piece);
        requests.wait(piece, WaitsFor::Mover);
        true
    }
}

/// Returns the part of a range within the extent, or `None` if that is empty or the device does not exist.
pub(crate) fn clamp_range(core: &Core, blocks: BlockRange, place: PlaceId) -> Option<BlockRange> {
    let end = blocks.end().min(core.map.extent().blocks());
    let count = end.checked_sub(blocks.first).filter(|count| *count > 0)?;
    (place.device.index() < core.devices.len()).then_some(BlockRange { first: blocks.first, count })
}

/// Whether the metadata area has space for what a move adds to it. A whole place that is there takes no more,
/// whatever its blocks; each slot does. For whole places of an extent that has a record there always is,
/// because a write-back must not wait for space that only it can free; a second copy is always allowed as
/// well.
fn has_space_for_move(core: &Core, key: ExtentKey, to: PlaceId) -> bool {
    if to.kind == PlaceKind::Fine {
        return core.map.has_space_for_places();
    }
    match core.map.find(key) {
        ExtentState::Record(record) => record.place(to).is_some() || core.map.has_metadata_space(),
        _ if core.is_mirrored(key) => core.map.has_metadata_space(),
        _ => core.map.has_space_for_places(),
    }
}

/// Returns how often devices have lost writes.
fn loss_count(core: &Core) -> u32 {
    core.devices.iter().map(|device| device.epochs.loss_count()).sum()
}

impl DataPath {
    /// Returns the mover's counters.
    pub(crate) fn mover_status(&self) -> MoverStatus {
        MoverStatus {
            in_flight: self.mover.moves.len(),
            dropped: self.base.space.dropped,
            ..self.mover.counts
        }
    }

    /// Ends the mover's work in the extent; empty places are released when it is idle.
    fn leave_extent(&mut self, key: ExtentKey) {
        self.base.requests.locks.request_tidying(key);
        if self.base.requests.locks.end_move(key) {
            self.base.core.map.release_empty_places(key);
            self.base.durability.note_change(&self.base.core);
        }
    }

    fn begin_move(
        &mut self,
        key: ExtentKey,
        blocks: BlockRange,
        to: PlaceId,
        alone: bool,
        client_read: Option<PiggybackRead>,
    ) {
        let Some(blocks) = clamp_range(&self.base.core, blocks, to) else { return };
        let all = self.base.core.map.extent().blocks();
        // Volumes with two copies have whole places only, and keep both.
        if self.base.core.is_mirrored(key) && (alone || to.kind == PlaceKind::Fine) {
            return;
        }
        if matches!(self.base.core.map.find(key), ExtentState::Empty)
            || !self.base.requests.locks.begin_move(key, all)
        {
            return;
        }
        let Some(buffer) = self.base.space.scratch.take_move_buffer(blocks, client_read.is_some()) else {
            return self.leave_extent(key);
        };
        let mut left = BlockSet::none(all);
        left.insert(blocks);
        let id = MoveId(self.mover.moves.insert(Move {
            key,
            to,
            blocks,
            exclusive: alone,
            remaining: left,
            buffer,
            stage: Stage::Starting,
            commits: 0,
            failed: false,
        }));
        self.next_run(id, client_read);
    }

    /// Begins the next run, or ends the move if there is none. The read of a client that has just begun may
    /// deliver it.
    fn next_run(&mut self, id: MoveId, client_read: Option<PiggybackRead>) {
        let task = &self.mover.moves[id.0];
        let (key, to, most) = (task.key, task.to, (u64::from(task.buffer.len) / BLOCK) as u16);
        let gone = self.base.requests.is_being_removed(key.volume);
        let stopped = self.base.core.stopped_changes.is_some()
            || gone
            || task.failed
            || !self.base.core.is_usable(to.device);
        let Some(record) = lookup::record(&self.base.core.map, key).filter(|_| !stopped) else {
            return self.end_move(id);
        };
        let taken = self.base.requests.locks.begin_tracking(key);
        let mut todo = taken.empty_like();
        record.places.iter().for_each(|p| todo.union(&p.valid));
        todo.intersect(&task.remaining);
        todo.subtract(&taken);
        if let Some(there) = record.place(to) {
            todo.subtract(&there.valid);
        }
        let Some(run) = todo.next_run(0, self.base.core.map.extent().blocks()) else {
            return self.end_move(id);
        };
        let run = BlockRange { count: run.count.min(most), ..run };
        let route = route::route(&self.base.core, &self.base.host, key.volume, &record, run);
        let (run, Some(source)) = lookup::run(&self.base.core.map, &record, &route, run) else {
            return self.end_move(id);
        };
        if !self.base.core.is_usable(source.device)
            || !self.base.core.map.may_add_place(key, to)
            || !has_space_for_move(&self.base.core, key, to)
        {
            return self.end_move(id);
        }
        // The data read here may come from a cache whose writes are already lost. It must never be written
        // where a block could become valid again in that case.
        let may_return = |core: &Core| {
            core.map.may_become_valid_again(key, to, run) && !core.is_planted(Mutant::MoveOverReturningPlace)
        };
        let is_free = || self.base.core.map.may_overwrite(key, to, run) && !may_return(&self.base.core);
        if to.kind == PlaceKind::Whole && !is_free() {
            return self.wait_to_move(id);
        }
        // A read by a client costs the move no device time.
        let client_read = client_read.filter(|client_read| client_read.covers(run, source));
        let reads_from = if client_read.is_some() { to.device } else { source.device };
        if let Some(until) = self.mover.must_wait_until(&mut self.base.core, key, [reads_from, to.device]) {
            self.mover.moves[id.0].stage = Stage::Paced(until);
            return;
        }
        let Some((destination, count)) = self.destination(id, &record, run.count) else {
            return self.end_move(id);
        };
        let run = CopyRun {
            blocks: BlockRange { count, ..run },
            destination,
            source: self.base.core.devices[source.device.index()].epochs.needed_flush(source.device),
            loss_count: loss_count(&self.base.core),
        };
        let task = &mut self.mover.moves[id.0];
        let buffer = task.buffer.part(0, u32::from(count) * BLOCK as u32);
        task.stage = Stage::Reading { run, client_read: client_read.map(|client_read| client_read.piece) };
        if client_read.is_some() {
            self.mover.piggybacked += 1;
            return;
        }
        let io = NewIo { device: source.device, kind: IoKind::Read, at: source.at, buffer };
        self.base.core.launch(io, Purpose::Mover(MoverIo::Read(id)));
    }

    /// Makes the move wait for the next commit, unless it has waited too often.
    fn wait_to_move(&mut self, id: MoveId) {
        let task = &mut self.mover.moves[id.0];
        task.commits += 1;
        if task.commits > COMMITS_MAX {
            return self.end_move(id);
        }
        task.stage = Stage::WaitingForCommit;
        let key = task.key;
        self.base.durability.commits.wait_to_move(key);
    }

    /// Continues the moves that waited for something to become durable, or for the certainty that it never
    /// will.
    pub(crate) fn retry_waiting_moves(&mut self) {
        if self.mover.moves.is_empty() {
            return;
        }
        let waiting: Vec<_> =
            self.mover.moves.iter().filter(|(_, m)| m.stage.waits_for_commit()).map(|(id, _)| id).collect();
        for id in waiting {
            self.mover.moves[id].stage = Stage::Starting;
            self.next_run(MoveId(id), None);
        }
    }

    /// Selects the destination of the next run, and how many of its blocks have space there.
    fn destination(&mut self, id: MoveId, record: &Record, count: u16) -> Option<(Destination, u16)> {
        let task = &self.mover.moves[id.0];
        let (device, is_mirrored) = (task.to.device, record.copies > 1);
        let is_there = record.place(task.to).is_some() && task.to.kind == PlaceKind::Whole;
        // A move of a whole extent takes space for two places only while it lasts.
        let moves_all = task.exclusive
            && task.to.kind == PlaceKind::Whole
            && task.blocks.count == self.base.core.map.extent().blocks();
        if !is_there
            && !is_mirrored
            && !moves_all
            && !self.base.space.volume_may_take_extra(&self.base.core, &self.base.host, task.key.volume)
        {
            return None;
        }
        let task = &self.mover.moves[id.0];
        if task.to.kind == PlaceKind::Fine {
            let count = self.base.space.slots_for_copies(&self.base.core, device, count);
            let slots = self.base.core.adjacent_slots(device, count);
            let first = *slots.first()?;
            let address = Address::Slots { device, first, fresh: true };
            return Some((Destination { address, fresh: true }, slots.len() as u16));
        }
        if let Some(Location::Whole(whole)) = record.place(task.to).map(|p| &p.at) {
            return Some((Destination { address: Address::Whole(*whole), fresh: false }, count));
        }
        let wanted = record.copies > 1 && !self.base.space.state.has_waiters();
        let whole = (wanted || self.base.space.has_reserve(&self.base.core, device))
            .then(|| self.base.core.map.allocate(device))??;
        self.base.space.note_used(&mut self.base.core);
        self.base.space.note_second_place();
        Some((Destination { address: Address::Whole(whole), fresh: true }, count))
    }

    /// Handles the end of a move's read.
    pub(crate) fn move_read_ended(&mut self, id: MoveId, result: Result<(), IoError>) {
        let task = &mut self.mover.moves[id.0];
        let (key, to, buffer) = (task.key, task.to, task.buffer);
        task.failed |= result.is_err();
        let Some(run) = task.stage.take_read() else { return self.end_move(id) };
        let mut submitted = task.remaining.empty_like();
        submitted.insert(run.blocks);
        if let Some(touched) = self.base.requests.locks.touched(key) {
            submitted.subtract(touched);
        }
        let allowed = run.destination.fresh || self.base.core.map.may_overwrite(key, to, run.blocks);
        if task.failed || submitted.is_empty() || !allowed {
            return self.end_run(id, run, None, &BlockSet::none(self.base.core.map.extent().blocks()));
        }
        let (mut at, mut left) = (run.blocks.first, 0);
        while let Some(part) = submitted.next_run(at, run.blocks.end()) {
            at = part.end();
            let within = u32::from(part.first - run.blocks.first) * BLOCK as u32;
            let io = NewIo {
                device: to.device,
                kind: IoKind::Write { fua: false },
                at: lookup::device_offset(&self.base.core.map, run.destination.address, run.blocks, within),
                buffer: buffer.part(within, u32::from(part.count) * BLOCK as u32),
            };
            left += 1;
            self.base.core.launch(io, Purpose::Mover(MoverIo::Write(id)));
        }
        let writing = Writing { submitted, in_flight: left, needs: None, waiting: Vec::new() };
        self.mover.moves[id.0].stage = Stage::Writing(run, writing);
    }

    /// Handles the end of a command of a move.
    pub(crate) fn mover_io_ended(&mut self, io: MoverIo, flight: &Flight, result: Result<(), IoError>) {
        match io {
            MoverIo::Read(id) => self.move_read_ended(id, result),
            MoverIo::Write(id) => self.move_write_ended(id, flight, result),
        }
    }

    /// Handles the end of one write of a move.
    fn move_write_ended(&mut self, id: MoveId, flight: &Flight, result: Result<(), IoError>) {
        let (doubts, planted) = (loss_count(&self.base.core), self.base.core.map.planted());
        let device = &mut self.base.core.devices[flight.device.index()];
        let Move { key, failed, stage, .. } = &mut self.mover.moves[id.0];
        let Stage::Writing(_, writing) = stage else { return };
        match result {
            // The epoch of the last write is that of all of them, or later.
            Ok(()) if planted.is(Mutant::MoveNeedsFirstWrite) => {
                let needs = device.epochs.write_completed(flight.device, false);
                writing.needs = writing.needs.or(needs);
            }
            Ok(()) => writing.needs = device.epochs.write_completed(flight.device, false),
            Err(_) => *failed = true,
        }
        writing.in_flight -= 1;
        if writing.in_flight > 0 {
            return;
        }
        let Stage::Writing(run, Writing { submitted, needs, waiting, .. }) = std::mem::take(stage) else {
            return;
        };
        // A flush that failed in the meantime may have lost the written data, and the epoch that the source
        // must be flushed for will never be durable. The data read may be in doubt.
        if !planted.is(Mutant::MoveIgnoresLostWrites) {
            *failed |= doubts != run.loss_count || self.base.durability.doubt.contains(*key);
        }
        let mut good = submitted;
        if *failed {
            good = good.empty_like();
        } else if let Some(touched) = self.base.requests.locks.touched(*key) {
            good.subtract(touched);
        }
        waiting.into_iter().for_each(|piece| self.base.requests.make_ready(piece));
        self.end_run(id, run, needs, &good);
    }

    /// Makes the `good` blocks of the run valid in the new place, and begins the next run.
    fn end_run(&mut self, id: MoveId, run: CopyRun, needs: Option<Needs>, good: &BlockSet) {
        let CopyRun { blocks: run, destination: Destination { address, mut fresh }, mut source, .. } = run;
        let task = &mut self.mover.moves[id.0];
        let key = task.key;
        task.remaining.remove(run);
        let before = lookup::record(&self.base.core.map, key);
        let mut at = run.first;
        let mut kept = BlockSet::none(self.base.core.map.extent().blocks());
        while let Some(part) = good.next_run(at, run.end()) {
            at = part.end();
            let location = address.location_of(run, part);
            match self.base.core.map.add_copy(key, location, part, source.take(), needs) {
                CopyOutcome::Added => kept.insert(part),
                CopyOutcome::Refused => break,
            }
        }
        self.mover.counts.copied += u64::from(kept.count());
        self.mover.counts.skipped += u64::from(run.count) - u64::from(kept.count());
        if !kept.is_empty() {
            fresh &= matches!(address, Address::Slots { .. });
            self.base.counts.note_new_place(&self.base.core, key, before.as_deref(), address.place());
            self.base.durability.note_change(&self.base.core);
        }
        if fresh {
            self.quarantine_unused(address, run, &kept);
        }
        self.next_run(id, None);
    }

    /// Quarantines the space taken for a run that the extent does not use.
    fn quarantine_unused(&mut self, address: Address, run: BlockRange, kept: &BlockSet) {
        match address {
            Address::Whole(whole) => self.base.quarantine(Chunk::Whole(whole)),
            Address::Slots { device, first, .. } => {
                for block in (run.first..run.end()).filter(|b| !kept.contains(*b)) {
                    let slot = Slot { block: first.block + (block - run.first), ..first };
                    if self.base.core.is_planted(Mutant::MovedSlotsReused) {
                        self.base.core.map.reuse(Chunk::Slot(device, slot));
                    } else {
                        self.base.quarantine(Chunk::Slot(device, slot));
                    }
                }
            }
        }
    }

    fn end_move(&mut self, id: MoveId) {
        let task = self.mover.moves.remove(id.0);
        if u64::from(task.buffer.len) == BLOCK {
            self.base.put_back_block(task.buffer);
        } else {
            self.base.put_back_run(task.buffer);
        }
        if task.exclusive && !task.failed && !self.base.core.changes_have_stopped() {
            self.drop_elsewhere(task.key, task.to, task.blocks);
        }
        self.leave_extent(task.key);
    }
}
