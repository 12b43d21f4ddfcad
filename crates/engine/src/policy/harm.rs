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
use crate::policy::advice::places_found;
use crate::policy::which::Which;
use crate::request::Requests;
use crate::task::Task;
use weir_map::{Found, Map, Whole};
use weir_model::{
    BLOCK, BlockRange, Buffer, Bytes, DeviceExtent, DeviceId, ExtentKey, IoKind, Memory, Nanos, PlaceKind,
    VolumeId,
};
use weir_policy::harm::{Curves, Done, Estimate, Judge, Moves, Reviewed, Use, Verdict};
use weir_policy::placement::{Action, MeasuredCommand, PlaceView, SizeClass};

/// The interval of reviews, and the minimum interval of probes.
const LOOK: Nanos = Nanos::secs(1);
/// The age at which a curve without new samples is stale.
const OLD: Nanos = Nanos::secs(10);

/// The devices' curves, and the rules for judging policies.
#[derive(Debug)]
pub(crate) struct Harm {
    moves: Moves,
    curves: Vec<Curves>,
    /// The device of the last new extent: the counterfactual first place of blocks that are in slots alone.
    home: Option<DeviceId>,
    looked: Nanos,
    /// The number of probes so far, and the buffer of the one in flight.
    probes: u64,
    probing: Option<Buffer>,
}

impl Harm {
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            moves: Moves::default(),
            curves: vec![Curves::default(); devices],
            home: None,
            looked: Nanos(0),
            probes: 0,
            probing: None,
        }
    }

    /// Returns whether policies' moves are judged, and by which rules.
    pub(crate) const fn moves(&self) -> Moves {
        self.moves
    }
}

/// A policy's judge, and its current window.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) judge: Judge,
    began: Nanos,
    /// The devices' counters at the start of the window.
    then: Vec<Use>,
}

impl Judged {
    pub(crate) fn new(now: Nanos, moves: Moves) -> Self {
        Self { judge: Judge::new(moves), began: now, then: Vec::new() }
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
    pub last: Option<Estimate>,
    /// The sum of all windows since the policy began.
    pub all: Estimate,
}

impl Task for Harm {
    type On = Base;

    /// Judges windows that have ended, and probes stale curves that are needed.
    fn run<M: Memory>(base: &mut Base, _: &mut M) {
        let is_due = base.core.now.since(base.host.harm.looked) >= LOOK;
        if !base.host.policies.moving || !is_due || base.core.stopped_changes.is_some() {
            return;
        }
        base.host.harm.looked = base.core.now;
        base.probe_old_curve();
        for at in 0..base.host.policies.all.len() {
            base.host.review_moves(&mut base.core, at);
        }
    }
}

impl Host {
    /// Returns the measured effect of a policy's moves.
    pub(crate) fn moves_status(&self, core: &Core, which: Which) -> MovesStatus {
        let judge = &self.policies.all[which.0].judged.judge;
        let stopped = judge.until().map(|until| until.since(core.now));
        MovesStatus { stopped, stops: judge.stops(), last: judge.last(), all: judge.all() }
    }

    /// Whether the policy's moves are stopped.
    #[inline]
    pub(crate) fn has_stopped_moves(&self, which: Which) -> bool {
        self.policies.all[which.0].judged.judge.has_stopped()
    }

    /// Notes that an extent gets its first space on a device.
    pub(crate) fn note_begin(&mut self, core: &Core, key: ExtentKey, device: DeviceId) {
        if !self.policies.moving || !matches!(core.map.find(key), Found::Empty) {
            return;
        }
        self.harm.home = Some(device);
        if self.harm.moves.samples(key) {
            let which = self.policies.of(key.volume);
            self.policies.all[which.0].judged.judge.begins_at(key, device);
        }
    }

    /// Returns a size of reads whose curve the judges use for a device, and that is stale.
    fn old_size(&self, core: &Core, device: DeviceId) -> Option<SizeClass> {
        let asked = self.policies.all.iter().flat_map(|instance| instance.judged.judge.asks_about(device));
        // Larger sizes are extrapolated from the largest with a buffer.
        let mut sizes = asked.map(|size| size.min(SizeClass::of(Bytes::kib(64))));
        sizes.find(|size| {
            let age = self.harm.curves[device.index()].age(*size, core.now);
            age.is_none_or(|age| age >= OLD)
        })
    }
}

impl Host {
    /// Replaces the rules for judging policies' moves, or stops judging them. This resets all estimates.
    pub(crate) fn judge_moves(&mut self, core: &mut Core, moves: Moves) {
        core.fill_in_views();
        let moves = moves.in_pool_of(core.views.all().iter().map(|device| u64::from(device.extents)).sum());
        self.harm.moves = moves;
        let now = core.now;
        self.policies.all.iter_mut().for_each(|instance| instance.judged = Judged::new(now, moves));
    }

    /// Judges a policy, if its window has ended.
    fn review_moves(&mut self, core: &mut Core, at: usize) {
        let Some(rules) = self.harm.moves.rules().copied() else { return };
        let totals: Vec<_> = core.devices.iter().map(|device| device.used(core.now)).collect();
        let instance = &mut self.policies.all[at];
        let (judged, policy) = (&mut instance.judged, instance.policy.name());
        if judged.then.is_empty() {
            // The use of devices before the first window is not the policy's.
            (judged.began, judged.then) = (core.now, totals);
            return;
        }
        let over = match judged.judge.until() {
            Some(until) => core.now >= until,
            None => core.now.since(judged.began) >= rules.window,
        };
        if !over {
            return;
        }
        let since =
            |(now, then): (&Use, &Use)| Use { busy: now.busy - then.busy, moved: now.moved - then.moved };
        let uses: Vec<_> = totals.iter().zip(&judged.then).map(since).collect();
        let Reviewed::Over(verdict) = judged.judge.review(core.now, judged.began, &uses, &self.harm.curves)
        else {
            return;
        };
        (judged.began, judged.then) = (core.now, totals);
        let volume = self.policies.volume_of(Which(at));
        report_verdict(core, volume, policy, verdict);
    }
}

/// Returns how many bytes of the extent a piece's request covers.
fn bytes_within(core: &Core, requests: &Requests, id: PieceId, key: ExtentKey) -> Bytes {
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
        Some(Verdict::Again) => core.notices.push(Notice::MovesAgain { volume, policy }),
        None => {}
    }
}

impl Base {
    /// Whether an action runs although moves are stopped: it writes back data that is nowhere else, or frees
    /// space.
    pub(crate) fn brings_home(&self, action: &Action) -> bool {
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
    pub(crate) fn weigh(&mut self, device: DeviceId, piece: Option<PieceId>, command: &MeasuredCommand) {
        if !self.host.policies.moving {
            return;
        }
        self.host.harm.curves[device.index()].note(self.core.now, command);
        let Some(id) = piece else { return };
        let key = self.requests.pieces[id.0 as usize].key;
        if self.host.harm.moves.samples(key) {
            self.weigh_sampled(id, key, device, *command);
        }
    }

    #[inline(never)]
    fn weigh_sampled(&mut self, id: PieceId, key: ExtentKey, device: DeviceId, command: MeasuredCommand) {
        let which = self.host.policies.of(key.volume);
        if self.core.is_mirrored(key) || self.host.has_stopped_moves(which) {
            return;
        }
        let under_way = 1 + self.core.devices.iter().map(|device| device.in_flight()).sum::<u32>();
        let done = Done { device, command, of: bytes_within(&self.core, &self.requests, id, key), under_way };
        let Self { core, host: Host { policies, harm, .. }, .. } = self;
        policies.all[which.0].judged.judge.note(key, &done, || first_place(&core.map, key).or(harm.home));
    }

    /// Reads from an idle device whose curve is stale.
    fn probe_old_curve(&mut self) {
        if self.host.harm.probing.is_some() {
            return;
        }
        let is_idle =
            |id: &DeviceId| self.core.is_usable(*id) && self.core.devices[id.index()].in_flight() == 0;
        let mut idle = (0..self.core.devices.len()).map(|i| DeviceId(i as u8)).filter(is_idle);
        let Some((device, size)) = idle.find_map(|id| Some((id, self.host.old_size(&self.core, id)?))) else {
            return;
        };
        let Some(buffer) = self.take_probe_buffer(size) else { return };
        self.host.harm.probing = Some(buffer);
        self.host.harm.probes += 1;
        let extents = u64::from(self.core.map.space(device).extents());
        // The multiplication spreads the probes over the device.
        let part = self.host.harm.probes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let whole = Whole { device, extent: DeviceExtent(((part * extents) >> 32) as u32) };
        let at = self.core.map.address(whole, 0);
        let len = size.most().map_or(buffer.len, |most| buffer.len.min(most.0 as u32));
        let io = NewIo { device, kind: IoKind::Read, at, buffer: buffer.part(0, len) };
        self.core.launch(io, Purpose::CurveProbe);
    }

    /// Takes a buffer for a probe of that size, unless the mover or requests need them all.
    fn take_probe_buffer(&mut self, size: SizeClass) -> Option<Buffer> {
        if size.most() == Some(Bytes(BLOCK)) {
            return self.space.scratch.blocks(1)?[0];
        }
        self.space.scratch.take_spare_run()
    }

    /// Handles the end of a probe.
    pub(crate) fn curve_probe_ended(&mut self) {
        let Some(buffer) = self.host.harm.probing.take() else { return };
        if u64::from(buffer.len) == BLOCK { self.put_back_block(buffer) } else { self.put_back_run(buffer) }
    }
}

/// Returns the device of an extent's counterfactual place without moves: the whole place it has when first
/// seen.
fn first_place(map: &Map, key: ExtentKey) -> Option<DeviceId> {
    let blocks = map.extent().blocks();
    let places = places_found(&map.find(key), BlockRange { first: 0, count: blocks }, blocks);
    places.whole(|_| true).map(|place| place.id.device)
}
