//! Commits: FLUSH and FUA wait for them.
//!
//! Commits run one at a time, each for all waiting parties (group commit):
//!
//! 1. every device with completed writes that are not durable is flushed;
//! 2. the map's changes whose data is durable go into journal frames, each of which is written durably and
//!    then applied to the durable map;
//! 3. the waiting parties are answered, once every device has been verified ([`crate::verify`]).
//!
//! A party that arrives during a commit waits for the next one: its writes may have completed after the
//! flushes of this one began.
//!
//! A disk takes seconds to flush its cache. A commit that no client waits for does not wait for slow devices:
//! they are flushed in parallel, and changes that need such a flush go into a later commit.

use crate::Base;
use crate::core::Core;
use crate::durability::Durability;
use crate::durability::commit_waiters::{CommitOutcome, CommitWaiter, LostExtents};
use crate::effect::Effect;
use crate::flight::{MetadataIo, NewIo, Purpose};
use crate::ids::{PieceId, Waiter};
use crate::notice::Notice;
use crate::request::Requests;
use crate::request::piece::WaitsFor;
use crate::space::Space;
use crate::task::Task;
use crate::verify::Round;
use crate::verify::Verification;
use weir_map::Epoch;
use weir_model::{DeviceId, ExtentKey, IoError, Memory, Mutant, Nanos, RequestError, VolumeId};

/// The time within which changes become durable without a request.
const COMMIT_DELAY_MAX: Nanos = Nanos::secs(5);
/// The number of extents with pending changes that starts a commit.
const PENDING_MAX: usize = 16_384;

/// The rules for flushes that no client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushRules {
    /// A device whose mean flush time exceeds this is slow: it is flushed in parallel with commits, which do
    /// not wait for it.
    pub slow_threshold: Nanos,
    /// The minimum time between flushes of a slow device while clients use it.
    pub slow_flush_interval: Nanos,
}

impl Default for FlushRules {
    /// Returns the default rules. 20 ms exceeds the flush time of an SSD and of an idle disk; 30 s is as long
    /// as Linux keeps dirty data in memory by default.
    fn default() -> Self {
        Self { slow_threshold: Nanos::millis(20), slow_flush_interval: Nanos::secs(30) }
    }
}

/// The phase of a commit: `Idle`, `Flushing`, then `NextFrame` and `Frame` in turn, then `Idle` again. A tick
/// makes every step, except that `frame_ended` applies a durable frame at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// This many device flushes are in flight.
    Flushing(usize),
    /// The next frame is to be written.
    NextFrame,
    /// A frame is being written; this many members have not answered.
    Frame(usize),
}

/// The commit in progress, and the parties that wait. It has thirteen fields, because five lists distinguish
/// the waiting parties by the event that continues them, and each list is emptied at another point of a
/// commit.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    phase: Phase,
    /// Parties that wait for the next commit.
    next_waiters: Vec<CommitWaiter>,
    /// Parties that wait for the current commit.
    waiters: Vec<CommitWaiter>,
    /// Whether a commit must begin although no party waits.
    requested: bool,
    /// The time of the oldest change that no commit has begun for.
    oldest_change: Option<Nanos>,
    /// Devices with a flush in flight that no commit waits for.
    background_flushes: Vec<DeviceId>,
    rules: FlushRules,
    frame: Vec<u8>,
    /// The verification round that the current commit's parties wait for.
    verification_round: Round,
    /// Extents whose writes were lost by devices during this commit.
    lost_extents: LostExtents,
    /// Pieces that may overwrite their blocks once the pending state is durable.
    waiting_pieces: Vec<PieceId>,
    /// Extents with moves that continue then.
    waiting_moves: Vec<ExtentKey>,
    /// Whether nothing can be made durable any more.
    pub(super) metadata_failed: bool,
}

impl Commits {
    /// Replaces the rules for flushes that no client requests.
    pub(crate) fn set_rules(&mut self, rules: FlushRules) {
        self.rules = rules;
    }

    /// Makes the piece wait for the next commit, and requests one.
    pub(crate) fn wait(&mut self, id: PieceId) {
        self.waiting_pieces.push(id);
        self.requested = true;
    }

    /// Makes a move of the extent wait for the next commit, and requests one.
    pub(crate) fn wait_to_move(&mut self, key: ExtentKey) {
        self.waiting_moves.push(key);
        self.requested = true;
    }

    /// Takes the pieces that wait for a commit; waiting moves are cleared from the list.
    fn take_waiting(&mut self) -> Vec<PieceId> {
        self.waiting_moves.clear();
        std::mem::take(&mut self.waiting_pieces)
    }
}

impl Task for Commits {
    type On = Base;

    /// Returns when a commit is due: now if parties wait, otherwise some time after the oldest change.
    fn due(base: &Base) -> Option<Nanos> {
        let commits = &base.durability.commits;
        if commits.metadata_failed {
            return (!commits.next_waiters.is_empty()).then_some(base.core.now);
        }
        if commits.phase != Phase::Idle {
            return None;
        }
        let many = commits.oldest_change.is_some() && base.core.map.pending_extents() > PENDING_MAX;
        let requested = commits.requested && !base.awaits_only_background_flushes();
        let due = match !commits.next_waiters.is_empty()
            || requested
            || many
            || base.durability.stop_needs_a_step(&base.core, &base.requests)
        {
            true => Some(base.core.now),
            false => commits.oldest_change.map(|at| at + COMMIT_DELAY_MAX),
        };
        // A commit that must flush all devices waits for flushes in flight, and then flushes those devices
        // again.
        due.filter(|_| {
            commits.background_flushes.is_empty()
                || !is_urgent(&base.core, &base.space, &commits.next_waiters)
        })
    }

    /// Whether the commit in progress has nothing left to wait for. The event may have come after a tick
    /// checked for it, as with commands refused by a lost device.
    fn can_run(base: &Base) -> bool {
        if base.durability.commits.metadata_failed || base.durability.members.is_recording() {
            return false;
        }
        match base.durability.commits.phase {
            Phase::Flushing(0) | Phase::Frame(0) => true,
            Phase::NextFrame => {
                base.core.map.has_journal_space() || !base.durability.is_checkpoint_in_progress()
            }
            Phase::Idle | Phase::Flushing(_) | Phase::Frame(_) => false,
        }
    }

    /// Begins a commit if one is due, and advances the one in progress.
    fn run<M: Memory>(base: &mut Base, memory: &mut M) {
        if base.durability.commits.metadata_failed {
            return base.fail_commit_waiters(RequestError::ReadOnly);
        }
        let is_due = <Self as Task>::due(base).is_some_and(|due| due <= base.core.now);
        if base.durability.commits.phase == Phase::Idle && is_due {
            if base.durability.is_stopping(&base.core) && base.durability.commits_are_settled(&base.core) {
                // The changes came to nothing: no later commit is due for them either.
                base.durability.commits.oldest_change = None;
            } else if base.durability.has_nothing_to_commit(&base.core) {
                base.durability.commits.waiters = std::mem::take(&mut base.durability.commits.next_waiters);
                base.durability.verify_for_waiters(&mut base.core, &mut base.verification);
                base.end_commit();
            } else {
                base.begin_flushes();
            }
        }
        if base.durability.commits.phase == Phase::Flushing(0) {
            base.core.map.begin_commit();
            base.durability.commits.phase = Phase::NextFrame;
            if base.core.is_planted(Mutant::WaiterJoinsLate) {
                let late = std::mem::take(&mut base.durability.commits.next_waiters);
                base.durability.commits.waiters.extend(late);
            }
        }
        // Nothing is acknowledged that a member left behind may not know before its loss is recorded.
        if base.durability.members.is_recording() && !base.core.is_planted(Mutant::RecordNotAwaited) {
            return;
        }
        if base.durability.commits.phase == Phase::Frame(0) {
            base.frame_is_durable();
        }
        if base.durability.commits.phase == Phase::NextFrame {
            base.write_frame(memory);
        }
    }

    fn is_idle(base: &Base) -> bool {
        base.durability.commits.metadata_failed || base.durability.commits_are_settled(&base.core)
    }
}

impl Durability {
    /// Notes a change that is not durable.
    #[inline]
    pub(crate) fn note_change(&mut self, core: &Core) {
        self.commits.oldest_change.get_or_insert(core.now);
    }

    /// Requests a commit for which no party waits.
    pub(crate) fn request_commit(&mut self) {
        self.commits.requested = true;
    }

    pub(crate) fn wait_for_commit(&mut self, waiter: Waiter) {
        self.commits.next_waiters.push(CommitWaiter::new(waiter));
    }

    /// Notes that the device lost writes to the extent: the map must durably record this, or the blocks'
    /// other place, before the engine reports the data durable to a waiter.
    pub(crate) fn note_lost_writes(&mut self, key: ExtentKey, device: DeviceId) {
        self.commits.lost_extents.note(key, device);
    }

    /// Whether the waiting parties can be answered without a commit: every write acknowledged before, to any
    /// client, is in a commit that has succeeded, and no device owes a flush. A device owes a flush until
    /// that flush counts; if it fails, the debt is withdrawn together with the map's changes that need it. So
    /// this function ignores flushes in flight. A write in flight was not acknowledged. As with a commit,
    /// recording members delays every party.
    fn has_nothing_to_commit(&self, core: &Core) -> bool {
        let owes = |(sb, device): (&weir_map::Superblock, &crate::device::Device)| {
            device.epochs.needed_flush(sb.device).is_some()
        };
        let any_owes = core.map.devices().iter().zip(&core.devices).any(owes);
        !(self.commits.next_waiters.is_empty() || self.commits.requested)
            && self.commits.background_flushes.is_empty()
            && (!any_owes || core.is_planted(Mutant::FlushAnsweredEarly))
            && core.map.pending_extents() == 0
            && !core.map.has_uncommitted_changes()
            && self.commits.waiting_pieces.is_empty()
            && !self.members.is_recording()
            && core.stopped_changes.is_none()
    }

    fn is_stopping(&self, core: &Core) -> bool {
        core.stopped_changes.is_some() && self.commits.next_waiters.is_empty() && !self.commits.requested
    }

    /// Handles the end of a device's flush. After a failure the commit continues without that device's
    /// changes: `Base::doubt` has set errors on the FLUSHes of the volumes that lost blocks, which
    /// `end_commit` returns. Only the loss of the last metadata member fails every waiting party
    /// (`metadata_failed`).
    pub(crate) fn data_flush_ended(
        &mut self,
        core: &mut Core,
        device: DeviceId,
        covered: Epoch,
        result: Result<(), IoError>,
    ) {
        if result.is_ok() {
            core.devices[device.index()].epochs.flush_succeeded(covered);
        }
        if let Some(at) = self.commits.background_flushes.iter().position(|id| *id == device) {
            self.commits.background_flushes.swap_remove(at);
            return self.request_commit();
        }
        if let Phase::Flushing(left) = &mut self.commits.phase {
            *left -= 1;
        }
    }

    /// Whether no commit is in progress or needed.
    pub(crate) fn commits_are_settled(&self, core: &Core) -> bool {
        self.commits.phase == Phase::Idle
            && self.commits.next_waiters.is_empty()
            && self.commits.background_flushes.is_empty()
            && !core.map.has_uncommitted_changes()
            && !core.devices.iter().any(|d| d.epochs.is_dirty())
    }

    /// Whether the complete state is durable.
    pub(crate) fn is_settled(&self, core: &Core) -> bool {
        !self.commits.metadata_failed && self.commits_are_settled(core)
    }

    /// Whether the durable map may be checkpointed: not while a frame is being written.
    pub(crate) fn is_between_frames(&self) -> bool {
        !matches!(self.commits.phase, Phase::Frame(_))
    }
}

impl Durability {
    /// Whether all requests have ended, and a stop only needs to commit or to begin the last checkpoint.
    fn stop_needs_a_step(&self, core: &Core, requests: &Requests) -> bool {
        core.stopped_changes.is_some()
            && requests.active.is_empty()
            && !(self.commits_are_settled(core)
                && (self.checkpoint_is_settled(core) || self.is_checkpoint_in_progress()))
    }

    /// Requests verification of the devices for the parties of this commit, if there are any.
    fn verify_for_waiters(&mut self, core: &mut Core, verification: &mut Verification) {
        if !self.commits.waiters.is_empty() {
            self.commits.verification_round = verification.verify_devices(core);
        }
    }

    /// Whether the device's measured flush time makes it slow.
    fn is_slow(&self, core: &Core, id: DeviceId) -> bool {
        core.views.device(id).flush.get().is_some_and(|mean| mean > self.commits.rules.slow_threshold)
    }

    /// Makes the piece retry after the next commit.
    pub(crate) fn wait_to_overwrite(&mut self, requests: &mut Requests, id: PieceId) {
        requests.wait(id, WaitsFor::Commit);
        self.commits.wait(id);
    }
}

/// Whether a commit is urgent: a client waits for it, or it frees space.
fn is_urgent(core: &Core, space: &Space, waiters: &[CommitWaiter]) -> bool {
    let many = core.map.pending_extents() > PENDING_MAX;
    !waiters.is_empty() || many || space.state.has_waiters() || core.stopped_changes.is_some()
}

impl Base {
    /// Whether all pieces and moves that wait for a commit need a flush that is already in flight.
    fn awaits_only_background_flushes(&self) -> bool {
        let beside = |key| {
            self.core
                .map
                .needs(key)
                .any(|needs| self.durability.commits.background_flushes.contains(&needs.device))
        };
        !self.durability.commits.background_flushes.is_empty()
            && self.extents_waiting_for_commit().all(beside)
    }

    /// Begins a commit: takes its parties and flushes the devices. [`weir_map::Map::begin_commit`] follows
    /// when the flushes have ended.
    fn begin_flushes(&mut self) {
        let commits = &mut self.durability.commits;
        commits.waiters = std::mem::take(&mut commits.next_waiters);
        commits.requested = false;
        commits.oldest_change = None;
        commits.lost_extents.begin_commit();
        let dirty: Vec<DeviceId> = (self.core.map.devices().iter().zip(&self.core.devices))
            .filter(|(_, device)| device.epochs.is_dirty() && !device.is_lost())
            .map(|(sb, _)| sb.device)
            .collect();
        // Verification runs in parallel with the flushes: every waiting party was submitted before.
        self.durability.verify_for_waiters(&mut self.core, &mut self.verification);
        let hurried = is_urgent(&self.core, &self.space, &self.durability.commits.waiters);
        let (later, to_flush): (Vec<_>, Vec<_>) =
            dirty.into_iter().partition(|id| !hurried && self.can_defer_flush(*id));
        if !later.is_empty() && self.core.map.has_uncommitted_changes() {
            // The changes of devices flushed later need another commit.
            self.durability.note_change(&self.core);
        }
        let beside: Vec<_> = to_flush
            .iter()
            .copied()
            .filter(|id| !hurried && self.durability.is_slow(&self.core, *id))
            .collect();
        self.durability.commits.phase = Phase::Flushing(to_flush.len() - beside.len());
        self.durability.commits.background_flushes.extend(beside);
        for id in to_flush {
            let covered = self.core.devices[id.index()].epochs.begin_flush(self.core.now);
            if self.durability.commits.background_flushes.contains(&id)
                && self.core.is_planted(Mutant::FlushBesideNotAwaited)
            {
                self.core.devices[id.index()].epochs.flush_succeeded(covered);
            }
            let other = !self.core.map.members().contains(&id);
            let others_skipped = other && self.core.is_planted(Mutant::OtherDevicesNotFlushed);
            if others_skipped || self.core.is_planted(Mutant::FlushSkipped) {
                self.durability.data_flush_ended(&mut self.core, id, covered, Ok(()));
                continue;
            }
            self.core.launch(NewIo::flush(id), Purpose::DataFlush(covered));
        }
    }

    /// Whether the flush of a device can be left to a later commit. It can if a flush is already in flight.
    /// It also can if the device is slow, in use by clients and was flushed recently, and no piece or move
    /// waits for the data that the flush makes durable.
    fn can_defer_flush(&self, id: DeviceId) -> bool {
        if self.durability.commits.background_flushes.contains(&id) {
            return true;
        }
        let device = &self.core.devices[id.index()];
        let may_wait = !device.is_idle(self.core.now)
            && device.epochs.time_since_flush(self.core.now)
                < self.durability.commits.rules.slow_flush_interval;
        let waits_for_it = |key| self.core.map.needs(key).any(|needs| needs.device == id);
        self.durability.is_slow(&self.core, id)
            && may_wait
            && !device.epochs.needs_commit()
            && !self.extents_waiting_for_commit().any(waits_for_it)
    }

    /// Returns the extents of pieces and moves that wait for a commit.
    fn extents_waiting_for_commit(&self) -> impl Iterator<Item = ExtentKey> {
        let pieces =
            self.durability.commits.waiting_pieces.iter().map(|id| self.requests.pieces[id.0 as usize].key);
        pieces.chain(self.durability.commits.waiting_moves.iter().copied())
    }

    /// Handles a failed flush or durable write of the device. The operating system reports a lost write once:
    /// no later flush of the device says anything about earlier writes. If the device is a metadata member,
    /// checkpoint pages may be among the lost writes, so no root may be written over them.
    pub(crate) fn flush_failed(&mut self, device: DeviceId, error: IoError) {
        if self.core.is_lost(device) {
            return;
        }
        self.mark_in_doubt(device);
        self.member_failed(device, error);
    }

    /// Handles an unrecoverable failure of the engine's metadata: the map can no longer be made durable.
    /// Changes are refused from now on; reads continue.
    pub(crate) fn metadata_failed(&mut self, error: IoError) {
        self.core.notices.push(Notice::ReadOnly { error });
        self.core.stopped_changes = Some(crate::StoppedChanges::MetadataFailed);
        self.durability.commits.metadata_failed = true;
        self.fail_commit_waiters(RequestError::ReadOnly);
        if !self.core.is_planted(Mutant::DrainingRemovalForgotten) {
            self.effects.push(Effect::MetadataFailed);
        }
        // Waiting pieces retry, and fail then.
        self.space.retry_waiting_space(&mut self.requests);
        while let Some(id) = self.space.scratch.next_waiting() {
            self.requests.make_ready(id);
        }
        self.retry_waiting_commit();
    }

    /// Writes the next frame, or ends the commit if there is none.
    fn write_frame<M: Memory>(&mut self, memory: &mut M) {
        if !self.core.map.has_journal_space() {
            // The commit continues once the checkpoint has freed journal space.
            return self.durability.request_checkpoint();
        }
        let devices = &self.core.devices;
        let flushed = |id: DeviceId| devices[id.index()].epochs.flushed();
        let mut bytes = std::mem::take(&mut self.durability.commits.frame);
        match self.core.map.next_frame(flushed, &mut bytes) {
            Some(at) => {
                if self.core.is_planted(Mutant::JournalAfterAcknowledgement) {
                    let waiters = std::mem::take(&mut self.durability.commits.waiters);
                    let (early, rest) =
                        waiters.into_iter().partition(|w| matches!(w.waiter, Waiter::Request(_)));
                    self.durability.commits.waiters = rest;
                    <Vec<_>>::into_iter(early).for_each(|waiting| self.answer(waiting.waiter, None));
                }
                self.durability.commits.phase = Phase::Frame(self.durability.write_to_members(
                    &mut self.core,
                    MetadataIo::Frame,
                    at,
                    &bytes,
                    memory,
                ));
            }
            None => {
                self.apply_durable_frames();
                self.end_commit();
            }
        }
        self.durability.commits.frame = bytes;
    }

    pub(crate) fn frame_ended(&mut self, device: DeviceId, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.member_failed(device, error);
        }
        if let Phase::Frame(left) = &mut self.durability.commits.phase {
            *left -= 1;
            let ended = *left == 0;
            let recording =
                self.durability.members.is_recording() && !self.core.is_planted(Mutant::RecordNotAwaited);
            if ended && !self.durability.commits.metadata_failed && !recording {
                self.frame_is_durable();
            }
        }
    }

    /// Applies the frame that every member has, and goes on to the next one.
    fn frame_is_durable(&mut self) {
        self.apply_durable_frames();
        self.durability.durable_map_changed();
        self.durability.commits.phase = Phase::NextFrame;
    }

    /// Applies the changes of frames that are durable, quarantines the space they release, and continues the
    /// pieces and moves that wait for this.
    fn apply_durable_frames(&mut self) {
        let mut released = Vec::new();
        self.core.map.finish_commit(&mut released);
        for chunk in released {
            self.quarantine(chunk);
        }
        self.retry_waiting_commit();
    }

    /// Continues the pieces and moves that waited for something to become durable, or for the certainty that
    /// it never will.
    fn retry_waiting_commit(&mut self) {
        self.space.reset_second_places();
        let waiting = self.durability.commits.take_waiting();
        waiting.into_iter().for_each(|id| self.requests.make_ready(id));
        self.effects.push(Effect::Committed);
    }

    fn end_commit(&mut self) {
        self.durability.commits.phase = Phase::Idle;
        let waiters = std::mem::take(&mut self.durability.commits.waiters);
        let forgets = self.core.is_planted(Mutant::ClearedNotCommitted);
        let is_pending = |key| !forgets && self.core.map.has_pending(key);
        let mut missed = self.durability.commits.lost_extents.end_commit(is_pending);
        if self.core.is_planted(Mutant::LossAwaitedOnce) {
            missed.clear_repeated();
        }
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        for mut waiting in waiters {
            let volume = self.volume_of(waiting.waiter);
            match waiting.outcome(&missed, volume) {
                CommitOutcome::Complete => ended.push((waiting.waiter, None)),
                CommitOutcome::WaitAgain => again.push(waiting),
                CommitOutcome::Failed(device) => {
                    ended.push((waiting.waiter, Some(RequestError::FlushFailed(device))));
                }
            }
        }
        self.durability.commits.next_waiters.splice(0..0, again);
        ended.into_iter().for_each(|(who, error)| self.answer(who, error));
        self.space.retry_waiting_space(&mut self.requests);
    }

    /// Returns the volume of a waiting request.
    fn volume_of(&self, waiter: Waiter) -> Option<VolumeId> {
        match waiter {
            Waiter::Request(id) => Some(self.requests.active[id.0].request.volume),
            Waiter::Admin(_) | Waiter::Resync => None,
        }
    }

    fn answer(&mut self, waiter: Waiter, error: Option<RequestError>) {
        match waiter {
            Waiter::Request(id) => {
                let active = &mut self.requests.active[id.0];
                active.error = active.error.or(error);
                match active.error {
                    Some(_) => self.reply(id),
                    None => self.acknowledge(waiter, self.durability.commits.verification_round),
                }
            }
            Waiter::Admin(step) if error.is_some() => self.effects.push(Effect::StepEnded(step, error)),
            Waiter::Resync if error.is_some() => {}
            Waiter::Admin(_) | Waiter::Resync => {
                self.acknowledge(waiter, self.durability.commits.verification_round);
            }
        }
    }

    pub(crate) fn fail_commit_waiters(&mut self, error: RequestError) {
        let mut waiters = std::mem::take(&mut self.durability.commits.waiters);
        waiters.append(&mut self.durability.commits.next_waiters);
        for waiting in waiters {
            self.answer(waiting.waiter, Some(error));
        }
    }
}
