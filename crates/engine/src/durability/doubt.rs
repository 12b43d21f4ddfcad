//! Blocks in doubt: the exact set of blocks whose writes a failed flush or a lost device may have lost.
//!
//! For each device the engine records the blocks written since the last flush ([`UnflushedWrite`]), including
//! those of failed writes, part of which may be on the device. The records are bounded: a large number of
//! them starts a commit. The operating system reports a lost write once, so a later flush says nothing about
//! these writes. When a flush fails:
//!
//! - map changes that need those writes are withdrawn ([`weir_map::Map::withdraw`]);
//! - the blocks are *in doubt*: they read as EIO until they are rewritten as whole blocks, trimmed or zeroed,
//!   or the pool is opened again, whatever is on the device. The opening makes the content that it finds
//!   durable ([`Durability::put_in_doubt`]);
//! - every FLUSH in flight of a volume with such blocks fails. So does a change of such blocks that promises
//!   durability, or that was already written in part. If no FLUSH is in flight, the volume's next one fails.
//!   A FLUSH after that can succeed, because it makes no claim about those blocks. A server with several
//!   clients reports the loss to each of them ([`crate::Engine::last_loss`]).

use crate::Base;
use crate::core::Core;
use crate::device::unflushed::{UNFLUSHED_MAX, UnflushedWrite, WriteEffect};
use crate::durability::Durability;
use crate::ids::{ActiveId, PieceId};
use crate::notice::Notice;
use crate::request::Requests;
use crate::request::active::Answer;
use crate::request::piece::{Piece, Work};
use std::collections::BTreeMap;
use weir_map::{BlockSet, ExtentState};
use weir_model::{
    BlockRange, DeviceId, ExtentIndex, ExtentKey, ExtentSize, Mutant, Op, RequestError, VolumeId,
};

/// The blocks in doubt of one extent.
#[derive(Debug)]
struct DoubtfulBlocks {
    device: DeviceId,
    blocks: BlockSet,
}

/// All blocks in doubt, and the volumes that still owe a client an error. Empty in a healthy pool.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    extents: BTreeMap<ExtentKey, DoubtfulBlocks>,
    /// Volumes whose next FLUSH fails, each with the device that caused it.
    pending_errors: BTreeMap<VolumeId, DeviceId>,
    losses: BTreeMap<VolumeId, Loss>,
}

/// A loss of acknowledged writes of a volume, by a failed flush or with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The ordinal of the loss since the start.
    pub number: u64,
    /// The device that lost them.
    pub device: DeviceId,
}

impl Doubt {
    /// Whether nothing is in doubt.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Whether the extent has blocks in doubt.
    #[inline]
    pub(crate) fn contains(&self, key: ExtentKey) -> bool {
        !self.extents.is_empty() && self.extents.contains_key(&key)
    }

    /// Returns the device that lost one of these blocks.
    #[inline]
    pub(crate) fn losing_device(&self, key: ExtentKey, range: BlockRange) -> Option<DeviceId> {
        if self.extents.is_empty() {
            return None;
        }
        self.extents.get(&key).filter(|d| d.blocks.contains_any(range)).map(|d| d.device)
    }

    /// Ends the doubt about the blocks: they were rewritten, or are zeros.
    #[inline]
    pub(crate) fn settle(&mut self, key: ExtentKey, range: BlockRange) {
        if !self.extents.is_empty() {
            self.settle_some(key, range);
        }
    }

    #[cold]
    fn settle_some(&mut self, key: ExtentKey, range: BlockRange) {
        if let Some(doubtful) = self.extents.get_mut(&key) {
            doubtful.blocks.remove(range);
            if doubtful.blocks.is_empty() {
                self.extents.remove(&key);
            }
        }
    }

    /// Returns the first extent at or after this one, in its volume, with blocks in doubt.
    pub(crate) fn next(&self, from: ExtentKey) -> Option<ExtentIndex> {
        self.extents.range(from..).next().filter(|(k, _)| k.volume == from.volume).map(|(k, _)| k.index)
    }

    /// Returns the last loss of acknowledged writes of the volume.
    pub(crate) fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        if self.losses.is_empty() { None } else { self.losses.get(&volume).copied() }
    }

    /// Makes the volume's next FLUSH fail because of the device.
    pub(crate) fn fail_next_flush(&mut self, volume: VolumeId, device: DeviceId) {
        self.pending_errors.insert(volume, device);
    }

    /// Returns the number of blocks in doubt because of a device.
    pub(crate) fn block_count(&self, device: DeviceId) -> u64 {
        let of_device = self.extents.values().filter(|d| d.device == device);
        of_device.map(|d| u64::from(d.blocks.count())).sum()
    }

    /// Forgets a removed volume.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        self.extents.retain(|key, _| key.volume != volume);
        self.pending_errors.remove(&volume);
        self.losses.remove(&volume);
    }

    fn add(&mut self, device: DeviceId, key: ExtentKey, blocks: BlockSet) {
        let doubtful = self.extents.entry(key).or_insert(DoubtfulBlocks { device, blocks: blocks.clone() });
        doubtful.device = device;
        for block in blocks.iter() {
            doubtful.blocks.insert(BlockRange { first: block, count: 1 });
        }
    }
}

impl Durability {
    /// Records a write that completed on `device` and needs a flush to be durable.
    #[inline]
    pub(crate) fn note_unflushed(&mut self, core: &mut Core, device: DeviceId, unflushed: UnflushedWrite) {
        if core.devices[device.index()].epochs.note_unflushed(unflushed) > UNFLUSHED_MAX {
            self.request_commit();
        }
    }

    /// Puts the blocks in doubt because of a device, and opens write intents for them if metadata space
    /// permits: the next opening rewrites the content that it finds. Otherwise data that is in the device's
    /// cache but never reaches the medium could be copied, and a power loss would leave two places that
    /// differ.
    pub(crate) fn put_in_doubt(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        key: ExtentKey,
        blocks: BlockSet,
    ) {
        if !blocks.is_empty() && core.map.has_metadata_space() {
            let mut at = 0;
            while let Some(run) = blocks.next_run(at, core.map.extent().blocks()) {
                core.map.open_intent(key, run);
                at = run.end();
                if core.is_planted(Mutant::FirstDoubtfulRunIntended) {
                    break;
                }
            }
            self.request_commit();
        }
        self.doubt.add(device, key, blocks);
    }

    /// Takes the error that the volume's next FLUSH must return.
    pub(crate) fn take_pending_error(&mut self, volume: VolumeId) -> Option<RequestError> {
        self.doubt.pending_errors.remove(&volume).map(RequestError::FlushFailed)
    }
}

impl Durability {
    /// Fails the requests that claim, or would claim, that blocks in doubt are durable.
    fn fail_affected_requests(
        &mut self,
        core: &Core,
        requests: &mut Requests,
        device: DeviceId,
        volumes: &[VolumeId],
    ) {
        let failed: Vec<_> = (requests.active.iter())
            .filter(|(_, a)| volumes.contains(&a.request.volume) && a.answer != Answer::None)
            .filter(|(id, a)| match a.request.op {
                Op::Flush => !core.is_planted(Mutant::FlushWaitersNotTold),
                op => op.changes() && self.claims_doubtful_durable(core, requests, ActiveId(*id), &a.request),
            })
            .map(|(id, a)| (ActiveId(id), a.request.op, a.request.volume))
            .collect();
        for volume in volumes.iter().filter(|_| !core.map.planted().is(Mutant::NextFlushNotFailed)) {
            self.doubt.pending_errors.insert(*volume, device);
        }
        for volume in volumes {
            let loss = self.doubt.losses.entry(*volume).or_insert(Loss { number: 0, device });
            *loss = Loss { number: loss.number + 1, device };
        }
        for (id, op, volume) in failed {
            requests.active[id.0].error.get_or_insert(RequestError::FlushFailed(device));
            if op == Op::Flush {
                self.doubt.pending_errors.remove(&volume);
            }
        }
    }

    /// Whether acknowledging the request would claim that blocks in doubt are durable, or that the next FLUSH
    /// makes them so: the failed flush was requested before.
    fn claims_doubtful_durable(
        &self,
        core: &Core,
        requests: &Requests,
        id: ActiveId,
        request: &weir_model::Request,
    ) -> bool {
        let extent = core.map.extent();
        let end = request.offset.0 + request.len.0;
        let key = |index| ExtentKey { volume: request.volume, index };
        let first = extent.index(request.offset);
        let last = extent.index(weir_model::VolumeOffset(end - 1));
        let is_durable = core.needs_durable_map(request.volume, request.fua);
        self.doubt.extents.range(key(first)..=key(last)).any(|(key, doubtful)| {
            let Some(touched) = touched_blocks(extent, request, *key) else { return false };
            let still_comes = |block| {
                requests
                    .pieces
                    .iter()
                    .any(|(_, p)| p.request == id && p.key == *key && p.range.contains(block))
            };
            let mut blocks = (touched.first..touched.end()).filter(|block| doubtful.blocks.contains(*block));
            blocks.any(|block| is_durable || !still_comes(block))
        })
    }

    /// Returns the error for a piece that reads, or needs the old content of, blocks in doubt.
    #[inline]
    pub(crate) fn doubt_error(&self, core: &Core, requests: &Requests, id: PieceId) -> Option<RequestError> {
        if self.doubt.is_empty() { None } else { self.find_doubt_error(core, requests, id) }
    }

    #[cold]
    fn find_doubt_error(&self, core: &Core, requests: &Requests, id: PieceId) -> Option<RequestError> {
        let piece = &requests.pieces[id.0 as usize];
        let about = |range| self.doubt.losing_device(piece.key, range);
        let device = match piece.work {
            Work::Read => about(piece.range),
            Work::Write { .. } => {
                let (touched, mut covered) = (piece.span.touched(), piece.span.covered());
                if core.is_planted(Mutant::PartWriteClearsDoubt) {
                    covered = touched;
                }
                let edge = |block| BlockRange { first: block, count: 1 };
                let partly = (touched.first..touched.end()).filter(|b| !covered.contains(*b));
                partly.map(edge).find_map(about)
            }
            Work::Clear(_) => None,
        };
        device.map(|device| RequestError::InDoubt { device })
    }
}

/// Returns the blocks of the extent that the request touches; `None` if there are none.
fn touched_blocks(extent: ExtentSize, request: &weir_model::Request, key: ExtentKey) -> Option<BlockRange> {
    let start = extent.start(key.index).0;
    let from = request.offset.0.max(start);
    let end = (request.offset.0 + request.len.0).min(start + extent.bytes().0);
    let span = || weir_model::Span { start: (from - start) as u32, len: (end - from) as u32 };
    (request.volume == key.volume && from < end).then(|| span().touched())
}

/// Restarts the reads in flight on the device: they may return data older than the lost writes. The restarted
/// read finds the blocks in doubt, or elsewhere.
fn restart_reads(core: &Core, requests: &mut Requests, device: DeviceId) {
    let reads = core.commands.iter().filter(|flight| flight.device == device && flight.kind.is_read());
    for piece in reads.filter_map(|flight| flight.purpose.piece()) {
        requests.pieces[piece.0 as usize].restart(None);
    }
}

/// Restarts or fails reads that have already read lost blocks of the extent, while other parts of them are in
/// flight. A reply would return data that no later flush makes durable: its loss is reported before.
fn revoke_partial_reads(
    core: &Core,
    requests: &mut Requests,
    key: ExtentKey,
    lost: &BlockSet,
    device: DeviceId,
) {
    let extent = core.map.extent();
    let meets = |range: BlockRange| lost.next_run(range.first, range.end()).is_some();
    let mut unfinished: Vec<ActiveId> = Vec::new();
    for (_, piece) in requests.pieces.iter_mut().filter(|(_, piece)| piece.key == key) {
        unfinished.push(piece.request);
        if piece.is_reading(key, piece.range) && meets(piece.range) {
            piece.restart(None);
        }
    }
    let reads = requests.active.iter_mut().filter(|(_, active)| {
        active.request.op == Op::Read && touched_blocks(extent, &active.request, key).is_some_and(meets)
    });
    for (id, active) in reads {
        if !unfinished.contains(&ActiveId(id)) {
            active.error.get_or_insert(RequestError::InDoubt { device });
        }
    }
}

/// Returns the blocks of writes in flight to the device: no later flush reports what these writes left there.
fn writes_in_flight(
    core: &Core,
    requests: &Requests,
    device: DeviceId,
) -> impl Iterator<Item = UnflushedWrite> {
    let flights = core.commands.iter().filter(move |f| f.device == device);
    flights.filter_map(|flight| {
        let id = flight.purpose.written()?;
        let Piece { key, range, .. } = requests.pieces[id.0 as usize];
        Some(UnflushedWrite::volatile(key, range))
    })
}

/// Collects, per extent, the blocks whose writes may be lost.
fn blocks_by_extent(core: &Core, unflushed: &[UnflushedWrite]) -> BTreeMap<ExtentKey, BlockSet> {
    let none = || BlockSet::none(core.map.extent().blocks());
    let mut written = BTreeMap::new();
    for UnflushedWrite { key, range, effect: wrote } in unflushed {
        let blocks = written.entry(*key).or_insert_with(none);
        match wrote {
            WriteEffect::Volatile => blocks.insert(*range),
            WriteEffect::Durable => blocks.remove(*range),
        }
    }
    written
}

/// Records copies, made before the loss, of the data that `device` lost and that are not durable either. If
/// such a copy is lost too, it has nothing to fall back on, so its device answers for it like for a write.
fn note_copies(core: &mut Core, device: DeviceId, written: &BTreeMap<ExtentKey, BlockSet>) {
    let end = core.map.extent().blocks();
    for (key, written) in written {
        for (i, other) in core.devices.iter_mut().enumerate().filter(|(i, _)| *i != device.index()) {
            if i < device.index() && core.map.planted().is(Mutant::CopiesNotedOnLaterDevices) {
                continue;
            }
            let unsure = core.map.withdrawable_blocks(*key, DeviceId(i as u8), other.epochs.flushed());
            let Some((mut blocks, epoch)) = unsure else { continue };
            blocks.intersect(written);
            let mut at = 0;
            while let Some(range) = blocks.next_run(at, end) {
                at = range.end();
                other.epochs.note_earlier_write(UnflushedWrite::volatile(*key, range), epoch);
            }
        }
    }
}

/// Returns, per extent, the blocks whose only copy is lost, and the blocks that another device has too.
fn lost_blocks(
    core: &Core,
    device: DeviceId,
    written: &BTreeMap<ExtentKey, BlockSet>,
) -> BTreeMap<ExtentKey, (BlockSet, BlockSet)> {
    let none = || BlockSet::none(core.map.extent().blocks());
    let mut lost = BTreeMap::new();
    for (key, blocks) in written {
        let (mut doubtful, mut elsewhere) = (none(), none());
        let found = core.map.find(*key);
        for block in blocks.iter() {
            let (here, there) = valid_here_and_elsewhere(core, &found, block, device);
            let one = BlockRange { first: block, count: 1 };
            match (here, there) {
                (true, false) => doubtful.insert(one),
                (true, true) => elsewhere.insert(one),
                // The block was trimmed, zeroed or written elsewhere since.
                (false, _) => {}
            }
        }
        if !(doubtful.is_empty() && elsewhere.is_empty()) {
            lost.insert(*key, (doubtful, elsewhere));
        }
    }
    lost
}

/// Whether the block is valid on the device, and whether it is on another one that is not lost.
fn valid_here_and_elsewhere(
    core: &Core,
    found: &ExtentState<'_>,
    block: u16,
    device: DeviceId,
) -> (bool, bool) {
    match found {
        ExtentState::Empty => (false, false),
        ExtentState::Direct(whole) => (whole.device == device, whole.device != device),
        ExtentState::Record(record) => {
            let holding = record.places.iter().filter(|p| p.valid.contains(block));
            holding.fold((false, false), |(here, there), place| match place.device() {
                d if d == device => (true, there),
                d => (here, there || !core.devices[d.index()].is_lost()),
            })
        }
    }
}

/// Adapts the extent's writes in flight to the loss of blocks: writes to other devices now make valid what
/// they write, whatever was valid when they began. A place may be left without valid blocks.
fn review_writes(core: &mut Core, requests: &mut Requests, key: ExtentKey) {
    let skipped = core.is_planted(Mutant::WritesInFlightNotReviewed);
    for (_, piece) in requests.pieces.iter_mut().filter(|(_, p)| p.key == key && !skipped) {
        if let Some(writing) = piece.writing() {
            writing.target.makes_valid = true;
        }
    }
    if !requests.locks.request_tidying(key) {
        core.map.release_empty_places(key);
    }
}

impl Base {
    /// Handles a failed flush or durable write of the device, or its loss: the blocks written there since its
    /// last successful flush are in doubt, and so are those being written.
    pub(crate) fn mark_in_doubt(&mut self, device: DeviceId) {
        self.fail_flushes(device);
        let mut unflushed = self.core.devices[device.index()].flush_failed();
        if !self.core.is_planted(Mutant::WritesInFlightNotDoubted) {
            unflushed.extend(writes_in_flight(&self.core, &self.requests, device));
        }
        self.fail_writes(device);
        let written = blocks_by_extent(&self.core, &unflushed);
        note_copies(&mut self.core, device, &written);
        // A later write elsewhere, or a clear, covers the lost data only once it is durable too.
        let skipped = self.core.is_planted(Mutant::CoveringWriteNotAwaited);
        let written_here = written.iter().filter(|(_, blocks)| !blocks.is_empty() && !skipped);
        written_here.for_each(|(key, _)| self.durability.note_lost_writes(*key, device));
        let lost = lost_blocks(&self.core, device, &written);
        let flushed = self.core.devices[device.index()].epochs.flushed();
        let all = BlockRange { first: 0, count: self.core.map.extent().blocks() };
        for key in self.core.map.withdraw(device, flushed) {
            if !self.core.is_planted(Mutant::CacheKeepsDoubtful) {
                self.cache.invalidate(key, all);
            }
            review_writes(&mut self.core, &mut self.requests, key);
            // Data moved off the device may be recorded only in a later change, which may need another flush.
            self.durability.note_lost_writes(key, device);
            if self.core.is_mirrored(key) && !self.core.is_planted(Mutant::WithdrawnCopyNotNoted) {
                // The withdrawal may have undone recently made second copies, which no list of writes
                // contains.
                self.durability.missing_copies.note(&self.core, key);
            }
        }
        let skipped = self.core.is_planted(Mutant::PendingNotDistrusted);
        for (key, blocks) in written.iter().filter(|_| !skipped) {
            // Pending changes before the visible state may claim that the device and another one have the
            // same data.
            self.core.map.invalidate_doubtful_pending(*key, device, blocks);
        }
        let mut blocks = 0;
        let mut volumes = Vec::new();
        for (key, (doubtful, elsewhere)) in lost {
            if !self.core.is_planted(Mutant::CacheKeepsDoubtful) {
                self.cache.invalidate(key, all);
            }
            if !elsewhere.is_empty() {
                self.core.map.invalidate_doubtful(key, device, &elsewhere);
                self.durability.missing_copies.note(&self.core, key);
                review_writes(&mut self.core, &mut self.requests, key);
            }
            if doubtful.is_empty() {
                continue;
            }
            blocks += u64::from(doubtful.count());
            if volumes.last() != Some(&key.volume) {
                volumes.push(key.volume);
            }
            if !self.core.is_planted(Mutant::ReadNotRepeatedAfterLoss) {
                revoke_partial_reads(&self.core, &mut self.requests, key, &doubtful, device);
            }
            self.durability.put_in_doubt(&mut self.core, device, key, doubtful);
        }
        if !self.core.is_planted(Mutant::ReadNotRepeatedAfterLoss) {
            restart_reads(&self.core, &mut self.requests, device);
        }
        self.durability.fail_affected_requests(&self.core, &mut self.requests, device, &volumes);
        self.durability.note_change(&self.core);
        if blocks > 0 {
            self.core.notices.push(Notice::WritesInDoubt { device, blocks });
        }
    }

    /// Fails the flushes that wait for a flush or durable write of the device which failed. They are queued,
    /// and `run_ready` ends each with an error.
    pub(crate) fn fail_flushes(&mut self, device: DeviceId) {
        let deferred: Vec<_> = self.core.devices[device.index()].durability_order.take_deferred().collect();
        for flush in deferred {
            if let Some(piece) = flush.purpose.written() {
                // This flush is the second step of a durable write.
                self.durability.note_failed_write(&mut self.core, &self.requests, piece, device);
            }
            self.core.abandoned.refuse(flush);
        }
    }

    /// Fails writes in flight to the device: their completion proves nothing, and their location may be given
    /// up.
    fn fail_writes(&mut self, device: DeviceId) {
        for piece in self.requests.pieces.iter_mut().map(|(_, piece)| piece) {
            let Some(writing) = piece.writing() else { continue };
            if let Some(copies) = &mut writing.copies {
                copies.fail(device);
            } else if writing.target.address.place().device == device {
                piece.error.get_or_insert(RequestError::FlushFailed(device));
            }
        }
    }
}
