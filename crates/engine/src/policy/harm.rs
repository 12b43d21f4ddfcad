//! The guard that stops harmful moves: a policy whose moves make requests slower stops moving, and tries
//! again later. [`weir_policy::harm`] explains the estimate.
//!
//! Every command of a client or of the mover adds to the latency curves of its device; commands to sampled
//! extents are priced. A device that currently serves none of the requests that it would serve without moves
//! is probed with a read of the missing size now and then, so that its curve stays current: at most one read
//! per second in the whole pool, while the device is idle.
//!
//! A stop affects the moves and copies that a policy requests, and its redirected writes. Actions of other
//! origin continue: second copies, removal, clients' requests. Of the policy's actions, write-backs of blocks
//! that are in slots alone continue, and drops of blocks that are valid elsewhere.

use crate::Base;
use crate::core::Core;
use crate::flight::{NewIo, Purpose};
use crate::ids::PieceId;
use crate::notice::Notice;
use crate::policy::Host;
use crate::policy::advice::places_of_found;
use crate::policy::index::PolicyIndex;
use crate::request::Requests;
use crate::task::Task;
use weir_map::{ExtentState, Map, Whole};
use weir_model::{
    BLOCK, BlockRange, Buffer, Bytes, DeviceExtent, DeviceId, ExtentKey, IoKind, Memory, Nanos, PlaceKind,
    VolumeId,
};
use weir_policy::harm::{
    Curves, DeviceUse, Estimate, Judge, MoveControl, ReviewOutcome, SampledCommand, Verdict,
};
use weir_policy::placement::{Action, MeasuredCommand, PlaceView, SizeClass};

/// The interval of reviews, and the minimum interval of probes.
const REVIEW_INTERVAL: Nanos = Nanos::secs(1);
/// The age at which a curve without new samples is stale.
const CURVE_MAX_AGE: Nanos = Nanos::secs(10);

/// The devices' curves, and the rules for judging policies.
#[derive(Debug)]
pub(crate) struct Harm {
    moves: MoveControl,
    curves: Vec<Curves>,
    /// The device of the last new extent: the counterfactual first place of blocks that are in slots alone.
    last_new_device: Option<DeviceId>,
    reviewed_at: Nanos,
    /// The number of probes so far, and the buffer of the one in flight.
    probes: u64,
    probe_buffer: Option<Buffer>,
}

impl Harm {
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            moves: MoveControl::default(),
            curves: vec![Curves::default(); devices],
            last_new_device: None,
            reviewed_at: Nanos(0),
            probes: 0,
            probe_buffer: None,
        }
    }

    /// Returns whether policies' moves are judged, and by which rules.
    pub(crate) const fn moves(&self) -> MoveControl {
        self.moves
    }
}

/// A policy's judge, and its current window.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) judge: Judge,
    window_start: Nanos,
    /// The devices' counters at the start of the window.
    usage_at_start: Vec<DeviceUse>,
}

impl Evaluation {
    pub(crate) fn new(now: Nanos, moves: MoveControl) -> Self {
        Self { judge: Judge::new(moves), window_start: now, usage_at_start: Vec::new() }
    }
}

/// The measured effect of a policy's moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovesStatus {
    /// The remaining time of the stop, if moves are stopped.
    pub stopped: Option<Nanos>,
    /// The number of stops.
    pub stops: u32,
    /// The last window judged.
    pub last_window: Option<Estimate>,
    /// The sum of all windows since the policy began.
    pub total: Estimate,
}

impl Task for Harm {
    type On = Base;

    /// Judges windows that have ended, and probes stale curves that are needed.
    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        let is_due = base.core.now.since(base.host.harm.reviewed_at) >= REVIEW_INTERVAL;
        if !base.host.policies.any_may_move || !is_due || base.core.stopped_changes.is_some() {
            return;
        }
        base.host.harm.reviewed_at = base.core.now;
        base.probe_stale_curve();
        for at in 0..base.host.policies.all.len() {
            base.host.review_moves(&mut base.core, at);
        }
    }
}

impl Host {
    /// Returns the measured effect of a policy's moves.
    pub(crate) fn moves_status(&self, core: &Core, policy_index: PolicyIndex) -> MovesStatus {
        let judge = &self.policies.all[policy_index.0].evaluation.judge;
        let stopped = judge.paused_until().map(|until| until.since(core.now));
        MovesStatus { stopped, stops: judge.stops(), last_window: judge.last(), total: judge.total() }
    }

    /// Whether the policy's moves are stopped.
    #[inline]
    pub(crate) fn has_stopped_moves(&self, policy_index: PolicyIndex) -> bool {
        self.policies.all[policy_index.0].evaluation.judge.is_paused()
    }

    /// Notes that an extent gets its first space on a device.
    pub(crate) fn note_first_space(&mut self, core: &Core, key: ExtentKey, device: DeviceId) {
        if !self.policies.any_may_move || !matches!(core.map.find(key), ExtentState::Empty) {
            return;
        }
        self.harm.last_new_device = Some(device);
        if self.harm.moves.samples(key) {
            let policy_index = self.policies.index_of(key.volume);
            self.policies.all[policy_index.0].evaluation.judge.note_first_device(key, device);
        }
    }

    /// Returns a size of reads whose curve the judges use for a device, and that is stale.
    fn stale_size(&self, core: &Core, device: DeviceId) -> Option<SizeClass> {
        let asked =
            self.policies.all.iter().flat_map(|instance| instance.evaluation.judge.needed_read_sizes(device));
        // Larger sizes are extrapolated from the largest with a buffer.
        let mut sizes = asked.map(|size| size.min(SizeClass::of(Bytes::kib(64))));
        sizes.find(|size| {
            let age = self.harm.curves[device.index()].age(*size, core.now);
            age.is_none_or(|age| age >= CURVE_MAX_AGE)
        })
    }
}

impl Host {
    /// Replaces the rules for judging policies' moves, or stops judging them. This resets all estimates.
    pub(crate) fn judge_moves(&mut self, core: &mut Core, moves: MoveControl) {
        core.fill_in_views();
        let moves = moves.for_pool_of(core.views.all().iter().map(|device| u64::from(device.extents)).sum());
        self.harm.moves = moves;
        let now = core.now;
        self.policies.all.iter_mut().for_each(|instance| instance.evaluation = Evaluation::new(now, moves));
    }

    /// Judges a policy, if its window has ended.
    fn review_moves(&mut self, core: &mut Core, at: usize) {
        let Some(rules) = self.harm.moves.rules().copied() else { return };
        let totals: Vec<_> = core.devices.iter().map(|device| device.usage(core.now)).collect();
        let instance = &mut self.policies.all[at];
        let (judged, policy) = (&mut instance.evaluation, instance.policy.name());
        if judged.usage_at_start.is_empty() {
            // The use of devices before the first window is not the policy's.
            (judged.window_start, judged.usage_at_start) = (core.now, totals);
            return;
        }
        let over = match judged.judge.paused_until() {
            Some(until) => core.now >= until,
            None => core.now.since(judged.window_start) >= rules.window,
        };
        if !over {
            return;
        }
        let since = |(now, then): (&DeviceUse, &DeviceUse)| DeviceUse {
            busy: now.busy - then.busy,
            mover_busy: now.mover_busy - then.mover_busy,
        };
        let uses: Vec<_> = totals.iter().zip(&judged.usage_at_start).map(since).collect();
        let ReviewOutcome::Finished(verdict) =
            judged.judge.review(core.now, judged.window_start, &uses, &self.harm.curves)
        else {
            return;
        };
        (judged.window_start, judged.usage_at_start) = (core.now, totals);
        let volume = self.policies.volume_of(PolicyIndex(at));
        report_verdict(core, volume, policy, verdict);
    }
}

/// Returns how many bytes of the extent a piece's request covers.
fn request_bytes_in(core: &Core, requests: &Requests, id: PieceId, key: ExtentKey) -> Bytes {
    let request = &requests.active[requests.pieces[id.0 as usize].request.0].request;
    let extent = core.map.extent();
    let (from, to) = (extent.start(key.index).0, extent.start(key.index).0 + extent.bytes().0);
    Bytes((request.offset.0 + request.len.0).min(to).saturating_sub(request.offset.0.max(from)))
}

fn report_verdict(core: &mut Core, volume: Option<VolumeId>, policy: &'static str, verdict: Option<Verdict>) {
    match verdict {
        Some(Verdict::Stopped { estimate, pause }) => {
            core.notices.push(Notice::MovesStopped { volume, policy, estimate, pause });
        }
        Some(Verdict::Resumed) => core.notices.push(Notice::MovesResumed { volume, policy }),
        None => {}
    }
}

impl Base {
    /// Whether an action runs although moves are stopped: it writes back data that is nowhere else, or frees
    /// space.
    pub(crate) fn is_exempt_from_stop(&self, action: &Action) -> bool {
        match *action {
            Action::Drop { .. } => true,
            Action::Refresh { .. } => false,
            Action::Copy { key, blocks, to } | Action::Move { key, blocks, to } => {
                let places = self.places_of_blocks(key, blocks);
                let dirty = |p: &PlaceView| p.blocks > 0 && p.dirty > 0;
                to.kind == PlaceKind::Whole && places.as_slice().iter().any(dirty)
            }
        }
    }

    /// Adds a command that succeeded to the curves, and prices it if it belongs to a client's piece in a
    /// sampled extent.
    #[inline(always)]
    pub(crate) fn price_command(
        &mut self,
        device: DeviceId,
        piece: Option<PieceId>,
        command: &MeasuredCommand,
    ) {
        if !self.host.policies.any_may_move {
            return;
        }
        self.host.harm.curves[device.index()].note(self.core.now, command);
        let Some(id) = piece else { return };
        let key = self.requests.pieces[id.0 as usize].key;
        if self.host.harm.moves.samples(key) {
            self.price_sampled(id, key, device, *command);
        }
    }

    #[inline(never)]
    fn price_sampled(&mut self, id: PieceId, key: ExtentKey, device: DeviceId, command: MeasuredCommand) {
        let policy_index = self.host.policies.index_of(key.volume);
        if self.core.is_mirrored(key) || self.host.has_stopped_moves(policy_index) {
            return;
        }
        let under_way = 1 + self.core.devices.iter().map(|device| device.in_flight()).sum::<u32>();
        let done = SampledCommand {
            device,
            command,
            access_bytes: request_bytes_in(&self.core, &self.requests, id, key),
            in_flight: under_way,
        };
        let Self { core, host: Host { policies, harm, .. }, .. } = self;
        policies.all[policy_index.0]
            .evaluation
            .judge
            .note(key, &done, || first_place(&core.map, key).or(harm.last_new_device));
    }

    /// Reads from an idle device whose curve is stale.
    fn probe_stale_curve(&mut self) {
        if self.host.harm.probe_buffer.is_some() {
            return;
        }
        let is_idle =
            |id: &DeviceId| self.core.is_usable(*id) && self.core.devices[id.index()].in_flight() == 0;
        let mut idle = (0..self.core.devices.len()).map(|i| DeviceId(i as u8)).filter(is_idle);
        let Some((device, size)) = idle.find_map(|id| Some((id, self.host.stale_size(&self.core, id)?)))
        else {
            return;
        };
        let Some(buffer) = self.take_probe_buffer(size) else { return };
        self.host.harm.probe_buffer = Some(buffer);
        self.host.harm.probes += 1;
        let extents = u64::from(self.core.map.space(device).extents());
        // The multiplication spreads the probes over the device.
        let part = self.host.harm.probes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let whole = Whole { device, extent: DeviceExtent(((part * extents) >> 32) as u32) };
        let at = self.core.map.address(whole, 0);
        let len = size.max_len().map_or(buffer.len, |most| buffer.len.min(most.0 as u32));
        let io = NewIo { device, kind: IoKind::Read, at, buffer: buffer.part(0, len) };
        self.core.launch(io, Purpose::CurveProbe);
    }

    /// Takes a buffer for a probe of that size, unless the mover or requests need them all.
    fn take_probe_buffer(&mut self, size: SizeClass) -> Option<Buffer> {
        if size.max_len() == Some(Bytes(BLOCK)) {
            return self.space.scratch.take_blocks(1)?[0];
        }
        self.space.scratch.take_spare_run()
    }

    /// Handles the end of a probe.
    pub(crate) fn curve_probe_ended(&mut self) {
        let Some(buffer) = self.host.harm.probe_buffer.take() else { return };
        if u64::from(buffer.len) == BLOCK { self.put_back_block(buffer) } else { self.put_back_run(buffer) }
    }
}

/// Returns the device of an extent's counterfactual place without moves: the whole place it has when first
/// seen.
fn first_place(map: &Map, key: ExtentKey) -> Option<DeviceId> {
    let blocks = map.extent().blocks();
    let places = places_of_found(&map.find(key), BlockRange { first: 0, count: blocks }, blocks);
    places.whole(|_| true).map(|place| place.id.device)
}
