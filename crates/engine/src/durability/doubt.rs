//! Exact doubt: what a failed flush, or a device that is lost, puts in question.
//!
//! Per device the engine keeps which blocks were written and not flushed since ([`Unflushed`]), by
//! writes that failed too: a part of them may be there. Bounded, because it asks for a commit when
//! there are many. When a flush fails (the operating
//! system tells of a lost write once, so a later flush says nothing about them):
//!
//! - map changes that need those writes are withdrawn ([`weir_map::Map::withdraw`]);
//! - the blocks are *in doubt*: they read as EIO until they are wholly rewritten, trimmed or zeroed,
//!   or the pool is opened again, whatever is on the device. The opening makes durable what it finds of them
//!   ([`Durability::put_in_doubt`]);
//! - every FLUSH under way of a volume that has such blocks fails, and so does a change of such blocks that
//!   promises durability, or of which a part was already written; if no FLUSH is under way, the volume's next
//!   one fails. A FLUSH after that can succeed, since nothing is pretended about those blocks. Who serves
//!   several clients tells each of them ([`crate::Engine::last_loss`]).

use crate::Base;
use crate::core::Core;
use crate::device::unflushed::{UNFLUSHED_MAX, Unflushed, Wrote};
use crate::durability::Durability;
use crate::ids::{ActiveId, PieceId};
use crate::notice::Notice;
use crate::request::Requests;
use crate::request::active::Answer;
use crate::request::piece::{Piece, Work};
use std::collections::BTreeMap;
use weir_map::{BlockSet, Found};
use weir_model::{BlockRange, DeviceId, ExtentIndex, ExtentKey, Mutant, Op, RequestError, VolumeId};

/// The doubtful blocks of one extent.
#[derive(Debug)]
struct Doubtful {
    device: DeviceId,
    blocks: BlockSet,
}

/// All doubtful blocks, and which volumes have still to be told. Empty in a pool that is well.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    extents: BTreeMap<ExtentKey, Doubtful>,
    /// Volumes whose next FLUSH fails, because of a device.
    owed: BTreeMap<VolumeId, DeviceId>,
    losses: BTreeMap<VolumeId, Loss>,
}

/// Acknowledged writes of a volume that were lost, by a flush that failed or with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The how manieth time since the start.
    pub number: u64,
    /// The device that lost them.
    pub device: DeviceId,
}

impl Doubt {
    /// Nothing is in doubt.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Whether the extent has doubtful blocks.
    #[inline]
    pub(crate) fn has(&self, key: ExtentKey) -> bool {
        !self.extents.is_empty() && self.extents.contains_key(&key)
    }

    /// The device that lost one of these blocks.
    #[inline]
    pub(crate) fn about(&self, key: ExtentKey, range: BlockRange) -> Option<DeviceId> {
        if self.extents.is_empty() {
            return None;
        }
        self.extents.get(&key).filter(|d| d.blocks.contains_any(range)).map(|d| d.device)
    }

    /// The blocks are known again: rewritten, or zeros.
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

    /// The first extent at or after this one, in its volume, with doubtful blocks.
    pub(crate) fn next(&self, from: ExtentKey) -> Option<ExtentIndex> {
        self.extents.range(from..).next().filter(|(k, _)| k.volume == from.volume).map(|(k, _)| k.index)
    }

    /// The last time that acknowledged writes of the volume were lost.
    pub(crate) fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        if self.losses.is_empty() { None } else { self.losses.get(&volume).copied() }
    }

    /// The volume's next FLUSH fails because of the device.
    pub(crate) fn owe(&mut self, volume: VolumeId, device: DeviceId) {
        self.owed.insert(volume, device);
    }

    /// Doubtful blocks because of a device.
    pub(crate) fn blocks(&self, device: DeviceId) -> u64 {
        let of_device = self.extents.values().filter(|d| d.device == device);
        of_device.map(|d| u64::from(d.blocks.count())).sum()
    }

    /// The volume is gone.
    pub(crate) fn forget_volume(&mut self, volume: VolumeId) {
        self.extents.retain(|key, _| key.volume != volume);
        self.owed.remove(&volume);
        self.losses.remove(&volume);
    }

    fn add(&mut self, device: DeviceId, key: ExtentKey, blocks: BlockSet) {
        let doubtful = self.extents.entry(key).or_insert(Doubtful { device, blocks: blocks.clone() });
        doubtful.device = device;
        for block in blocks.iter() {
            doubtful.blocks.insert(BlockRange { first: block, count: 1 });
        }
    }
}

impl Durability {
    /// A write completed on `device`, and a flush must follow before it is durable.
    #[inline]
    pub(crate) fn note_unflushed(&mut self, core: &mut Core, device: DeviceId, unflushed: Unflushed) {
        if core.devices[device.index()].epochs.note_unflushed(unflushed) > UNFLUSHED_MAX {
            self.request_commit();
        }
    }

    /// Puts the blocks in doubt because of a device, and opens write intents for them where there is metadata
    /// room: the next opening writes again what it finds there. Without that, what is in the device's cache
    /// but is not written any more could be copied, and a power loss would leave two places that differ.
    pub(crate) fn put_in_doubt(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        key: ExtentKey,
        blocks: BlockSet,
    ) {
        if !blocks.is_empty() && core.map.has_metadata_room() {
            let mut at = 0;
            while let Some(run) = blocks.next_run(at, core.map.extent().blocks()) {
                core.map.intend(key, run);
                at = run.end();
                if core.is_planted(Mutant::FirstDoubtfulRunIntended) {
                    break;
                }
            }
            self.request_commit();
        }
        self.doubt.add(device, key, blocks);
    }

    /// The error the volume's next FLUSH is owed.
    pub(crate) fn owed(&mut self, volume: VolumeId) -> Option<RequestError> {
        self.doubt.owed.remove(&volume).map(RequestError::FlushFailed)
    }
}

impl Durability {
    /// Fails what claimed, or was to claim, that doubtful blocks are durable.
    fn fail_waiting(&mut self, core: &Core, requests: &mut Requests, device: DeviceId, volumes: &[VolumeId]) {
        let failed: Vec<_> = (requests.active.iter())
            .filter(|(_, a)| volumes.contains(&a.request.volume) && a.answer != Answer::None)
            .filter(|(id, a)| match a.request.op {
                Op::Flush => !core.is_planted(Mutant::FlushWaitersNotTold),
                op => op.changes() && self.vouches_for_doubtful(core, requests, ActiveId(*id), &a.request),
            })
            .map(|(id, a)| (ActiveId(id), a.request.op, a.request.volume))
            .collect();
        for volume in volumes.iter().filter(|_| !core.map.planted().is(Mutant::NextFlushNotFailed)) {
            self.doubt.owed.insert(*volume, device);
        }
        for volume in volumes {
            let loss = self.doubt.losses.entry(*volume).or_insert(Loss { number: 0, device });
            *loss = Loss { number: loss.number + 1, device };
        }
        for (id, op, volume) in failed {
            requests.active[id.0].error.get_or_insert(RequestError::FlushFailed(device));
            if op == Op::Flush {
                self.doubt.owed.remove(&volume);
            }
        }
    }

    /// Whether the request's acknowledgement would say of doubtful blocks that they are durable, or that
    /// the next FLUSH makes them so: the one that failed was asked for before.
    fn vouches_for_doubtful(
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
        let is_durable = core.map_is_durable_when_acknowledged(request.volume, request.fua);
        self.doubt.extents.range(key(first)..=key(last)).any(|(key, doubtful)| {
            let start = extent.start(key.index).0;
            let from = request.offset.0.saturating_sub(start) as u32;
            let to = (end - start).min(extent.bytes().0) as u32;
            let touched = weir_model::Span { start: from, len: to - from }.touched();
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

    /// A read piece, or a write that needs what was there, meets doubtful blocks.
    #[inline]
    pub(crate) fn doubtful(&self, core: &Core, requests: &Requests, id: PieceId) -> Option<RequestError> {
        if self.doubt.is_empty() { None } else { self.doubtful_among(core, requests, id) }
    }

    #[cold]
    fn doubtful_among(&self, core: &Core, requests: &Requests, id: PieceId) -> Option<RequestError> {
        let piece = &requests.pieces[id.0 as usize];
        let about = |range| self.doubt.about(piece.key, range);
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

/// Commands under way may bring what the device had before what it has lost: what they read is read
/// again, and then is in doubt, or elsewhere.
fn read_anew(core: &Core, requests: &mut Requests, device: DeviceId) {
    let reads = core.commands.iter().filter(|flight| flight.device == device && flight.kind.is_read());
    for piece in reads.filter_map(|flight| flight.purpose.piece()) {
        requests.pieces[piece.0 as usize].begin_again(None);
    }
}

/// What writes under way to the device cover: what they leave there a flush no longer tells.
fn being_written(core: &Core, requests: &Requests, device: DeviceId) -> impl Iterator<Item = Unflushed> {
    let flights = core.commands.iter().filter(move |f| f.device == device);
    flights.filter_map(|flight| {
        let id = flight.purpose.written()?;
        let Piece { key, range, .. } = requests.pieces[id.0 as usize];
        Some(Unflushed::data(key, range))
    })
}

/// Per extent: the blocks of which writes may be lost.
fn blocks_of(core: &Core, unflushed: &[Unflushed]) -> BTreeMap<ExtentKey, BlockSet> {
    let none = || BlockSet::none(core.map.extent().blocks());
    let mut written = BTreeMap::new();
    for Unflushed { key, range, wrote } in unflushed {
        let blocks = written.entry(*key).or_insert_with(none);
        match wrote {
            Wrote::Data => blocks.insert(*range),
            Wrote::Durable => blocks.remove(*range),
        }
    }
    written
}

/// What `device` lost may have been copied to another one before, and the copy not be durable either.
/// If that is lost, too, it has nothing to fall back on: the other device answers for it from now on
/// as for what was written there.
fn note_copies(core: &mut Core, device: DeviceId, written: &BTreeMap<ExtentKey, BlockSet>) {
    let end = core.map.extent().blocks();
    for (key, written) in written {
        for (i, other) in core.devices.iter_mut().enumerate().filter(|(i, _)| *i != device.index()) {
            if i < device.index() && core.map.planted().is(Mutant::CopiesNotedOnLaterDevices) {
                continue;
            }
            let unsure = core.map.unsure(*key, DeviceId(i as u8), other.epochs.flushed());
            let Some((mut blocks, epoch)) = unsure else { continue };
            blocks.intersect(written);
            let mut at = 0;
            while let Some(range) = blocks.next_run(at, end) {
                at = range.end();
                other.epochs.note_earlier(Unflushed::data(*key, range), epoch);
            }
        }
    }
}

/// Per extent: the blocks whose only copy is lost, and those another device holds too.
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
            let (here, there) = holders(core, &found, block, device);
            let one = BlockRange { first: block, count: 1 };
            match (here, there) {
                (true, false) => doubtful.insert(one),
                (true, true) => elsewhere.insert(one),
                // Trimmed, zeroed or written elsewhere since.
                (false, _) => {}
            }
        }
        if !(doubtful.is_empty() && elsewhere.is_empty()) {
            lost.insert(*key, (doubtful, elsewhere));
        }
    }
    lost
}

/// Whether the block is valid on the device, and whether on another one that is not lost.
fn holders(core: &Core, found: &Found<'_>, block: u16, device: DeviceId) -> (bool, bool) {
    match found {
        Found::Empty => (false, false),
        Found::Direct(whole) => (whole.device == device, whole.device != device),
        Found::Record(record) => {
            let holding = record.places.iter().filter(|p| p.valid.contains(block));
            holding.fold((false, false), |(here, there), place| match place.device() {
                d if d == device => (true, there),
                d => (here, there || !core.devices[d.index()].is_lost()),
            })
        }
    }
}

/// The extent lost blocks: writes under way to other devices make valid what they write, whatever
/// was valid when they began; and a place may be left that holds nothing.
fn review_writes(core: &mut Core, requests: &mut Requests, key: ExtentKey) {
    let skipped = core.is_planted(Mutant::WritesInFlightNotReviewed);
    for (_, piece) in requests.pieces.iter_mut().filter(|(_, p)| p.key == key && !skipped) {
        if let Some(writing) = piece.writing() {
            writing.target.changes = true;
        }
    }
    if !requests.locks.tidy_later(key) {
        core.map.give_back(key);
    }
}

impl Base {
    /// A flush or a durable write of the device failed, or the device is lost: what was written there
    /// since its last good flush is in doubt, and so is what is being written.
    pub(crate) fn doubt(&mut self, device: DeviceId) {
        self.fail_flushes(device);
        let mut unflushed = self.core.devices[device.index()].doubt();
        if !self.core.is_planted(Mutant::WritesInFlightNotDoubted) {
            unflushed.extend(being_written(&self.core, &self.requests, device));
        }
        self.fail_writes(device);
        let written = blocks_of(&self.core, &unflushed);
        note_copies(&mut self.core, device, &written);
        // What was written elsewhere since, or cleared, covers what is lost here once that is durable, too.
        let skipped = self.core.is_planted(Mutant::CoveringWriteNotAwaited);
        let written_here = written.iter().filter(|(_, blocks)| !blocks.is_empty() && !skipped);
        written_here.for_each(|(key, _)| self.durability.note_missed(*key, device));
        let lost = lost_blocks(&self.core, device, &written);
        let flushed = self.core.devices[device.index()].epochs.flushed();
        let all = BlockRange { first: 0, count: self.core.map.extent().blocks() };
        for key in self.core.map.withdraw(device, flushed) {
            if !self.core.is_planted(Mutant::CacheKeepsDoubtful) {
                self.cache.forget(key, all);
            }
            review_writes(&mut self.core, &mut self.requests, key);
            // What was moved from there is in a later change alone, which may need another flush.
            self.durability.note_missed(key, device);
            if self.core.is_mirrored(key) && !self.core.is_planted(Mutant::WithdrawnCopyNotNoted) {
                // Second copies made of late may have been taken back: no list of writes has those.
                self.durability.lacking.note(&self.core, key);
            }
        }
        let skipped = self.core.is_planted(Mutant::PendingNotDistrusted);
        for (key, blocks) in written.iter().filter(|_| !skipped) {
            // Changes on the way to what is in effect may say that the device and another one have the same.
            self.core.map.doubt_pending(*key, device, blocks);
        }
        let mut blocks = 0;
        let mut volumes = Vec::new();
        for (key, (doubtful, elsewhere)) in lost {
            if !self.core.is_planted(Mutant::CacheKeepsDoubtful) {
                self.cache.forget(key, all);
            }
            if !elsewhere.is_empty() {
                self.core.map.doubt(key, device, &elsewhere);
                self.durability.lacking.note(&self.core, key);
                review_writes(&mut self.core, &mut self.requests, key);
            }
            if doubtful.is_empty() {
                continue;
            }
            blocks += u64::from(doubtful.count());
            if volumes.last() != Some(&key.volume) {
                volumes.push(key.volume);
            }
            self.durability.put_in_doubt(&mut self.core, device, key, doubtful);
        }
        if !self.core.is_planted(Mutant::ReadNotRepeatedAfterLoss) {
            read_anew(&self.core, &mut self.requests, device);
        }
        self.durability.fail_waiting(&self.core, &mut self.requests, device, &volumes);
        self.durability.note_change(&self.core);
        self.core.notices.push(Notice::Doubt { device, blocks });
    }

    /// A flush or durable write of the device failed. Flushes that wait fail with it: they are queued, and
    /// `run_ready` ends each with an error.
    pub(crate) fn fail_flushes(&mut self, device: DeviceId) {
        let deferred: Vec<_> = self.core.devices[device.index()].promises.take_deferred().collect();
        for flush in deferred {
            if let Some(piece) = flush.purpose.written() {
                // A durable write, of which the flush is the second step.
                self.durability.note_unfinished(&mut self.core, &self.requests, piece, device);
            }
            self.core.abandoned.refuse(flush);
        }
    }

    /// Writes under way to the device fail: it says nothing that they complete, and where they were to
    /// go may be given up.
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
