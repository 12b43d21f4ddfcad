//! Runs an experiment: the pool is filled, the load begins, its first third (or as much as the plan says)
//! warms up, and the rest is measured.

use super::clients::Clients;
use super::endurance::{DeviceEndurance, DeviceWrite, FlashRating};
use super::machine::Machine;
use super::meter::Meter;
use super::outcome::{
    Commands, DeviceOutcome, DeviceWindow, DirectionOutcome, EstimateOutcome, Outcome, Window, loads, shares,
    shares_of,
};
use super::phases::{Due, Length, Phases};
use crate::load::ramp::{Ramp, RampArrivals, RampRecorder};
use crate::load::{ClientAction, Transferred};
use crate::responses::ResponseHistogram;
use crate::{Arrival, Client, Load, PoolSpec, SimError, VolumeData};
use slab::Slab;
use std::collections::VecDeque;
use weir_model::{BLOCK, Bytes, DeviceId, DeviceSet, Nanos, Op, RequestId, Seed};
use weir_policy::harm::Estimate;
use weir_policy::placement::Placement;

/// When requests are made.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// At the load's own times, whether or not earlier requests have been answered.
    Open,
    /// By a number of clients, each after the reply to its last request. The pairs give the number of clients
    /// from a time on, in ascending order; the first time is zero.
    Closed(Vec<(Nanos, usize)>),
    /// At the rates of a ramp, whatever the load's own times, and whether or not earlier requests have been
    /// answered.
    Ramp(Ramp),
}

/// Parameters of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// When requests are made.
    pub mode: Mode,
    /// Duration of the load. A shorter load is repeated, a longer one is cut off.
    pub duration: Nanos,
    /// Maximum number of requests; the load ends when it is reached.
    pub requests: u64,
    /// Duration of the warm-up; a third of the load by default.
    pub warm_up: Option<Nanos>,
    /// Number of time windows that are reported separately.
    pub windows: u32,
    /// Random seed.
    pub seed: Seed,
}

/// Minimum duration of loads.
pub const DURATION_MIN: Nanos = Nanos::secs(600);

/// Runs a load over a pool under a policy.
///
/// # Errors
/// Fails if the pool is invalid for the load, or on an internal error.
pub fn place(
    pool: &PoolSpec,
    policy: Box<dyn Placement>,
    load: &mut dyn Load,
    plan: &Plan,
) -> Result<Outcome, SimError> {
    place_and_record(pool, policy, load, plan, None)
}

/// Like [`place`]; also records the requests in the order in which the engine accepted them.
///
/// # Errors
/// As [`place`].
pub fn place_and_record(
    pool: &PoolSpec,
    policy: Box<dyn Placement>,
    load: &mut dyn Load,
    plan: &Plan,
    record: Option<&mut Vec<Arrival>>,
) -> Result<Outcome, SimError> {
    let name = policy.name().to_owned();
    let spaces: Vec<VolumeData> = load.volumes(pool.extent);
    let machine = Machine::new(pool, policy, &spaces, plan.seed)?;
    let mut run = PlaceRun::new(machine, plan);
    run.record = record;
    while let Some(next) = run.settle(load)? {
        run.machine.advance(next)?;
    }
    Ok(run.outcome(name, pool, load))
}

/// Like [`place`]; also says how long the flash of the pool's devices lasts.
///
/// # Errors
/// As [`place`], and if the rating is impossible.
pub fn place_with_endurance(
    pool: &PoolSpec,
    policy: Box<dyn Placement>,
    load: &mut dyn Load,
    plan: &Plan,
    rating: FlashRating,
) -> Result<Outcome, SimError> {
    let name = policy.name().to_owned();
    let spaces: Vec<VolumeData> = load.volumes(pool.extent);
    let machine = Machine::new(pool, policy, &spaces, plan.seed)?;
    let mut run = PlaceRun::new(machine, plan);
    run.flash = pool.flash();
    while let Some(next) = run.settle(load)? {
        run.machine.advance(next)?;
    }
    let sizes: Vec<Bytes> =
        run.machine.environment.superblocks.iter().map(|superblock| superblock.size).collect();
    let written = std::mem::take(&mut run.written);
    let mut outcome = run.outcome(name, pool, load);
    let seconds = outcome.measured.as_secs_f64();
    for (device, (writes, size)) in outcome.devices.iter_mut().zip(written.into_iter().zip(sizes)) {
        let endurance = |writes: Vec<_>| DeviceEndurance::new(rating, size, &writes, seconds);
        device.endurance = writes.map(endurance).transpose()?;
    }
    Ok(outcome)
}

/// A request in flight.
struct Pending {
    arrived: Nanos,
    op: Op,
    len: Bytes,
    pieces: u32,
    measured: bool,
    client: Option<Client>,
}

pub(super) struct PlaceRun<'p> {
    pub(super) machine: Machine,
    plan: &'p Plan,
    /// Start of the load.
    start: Nanos,
    phases: Phases,
    /// Start of the measurement.
    measurement_start: Option<Nanos>,
    measurement_end: Option<Nanos>,
    pending: Slab<Pending>,
    /// Requests that have arrived and that the engine has not accepted yet.
    waiting: VecDeque<(Arrival, Option<Client>)>,
    /// Recording of the requests that the engine accepted.
    record: Option<&'p mut Vec<Arrival>>,
    /// Next arrival of an open loop.
    next: Option<Arrival>,
    /// The arrivals of a ramp, and their responses.
    ramp: Option<(RampArrivals, RampRecorder)>,
    clients: Clients,
    arrived: u64,
    /// Measured requests that have not been answered.
    unanswered: u64,
    measured: u64,
    answered: u64,
    bytes: Bytes,
    reads: ResponseHistogram,
    writes: ResponseHistogram,
    all: ResponseHistogram,
    window: ResponseHistogram,
    windows: Vec<Window>,
    /// The load's own count of its work.
    work_done: Option<u64>,
    transferred: Option<Transferred>,
    /// The devices whose writes are recorded.
    flash: DeviceSet,
    /// The writes to each of them in the measurement.
    written: Vec<Option<Vec<DeviceWrite>>>,
    at_start: Mark,
    at_warm: Mark,
    at_end: Mark,
    at_window: Mark,
}

/// Counts at a point in time.
#[derive(Clone, Default)]
struct Mark {
    meters: Vec<Meter>,
    /// Clients' commands that each device has completed.
    served: Vec<u64>,
    moved: Bytes,
    estimate: Estimate,
    work_done: u64,
    transferred: Transferred,
    at: Nanos,
}

impl<'p> PlaceRun<'p> {
    pub(super) fn new(machine: Machine, plan: &'p Plan) -> Self {
        let ramp = match &plan.mode {
            Mode::Ramp(ramp) => {
                Some((RampArrivals::new(ramp.clone(), plan.seed.0), RampRecorder::new(ramp.clone())))
            }
            Mode::Open | Mode::Closed(_) => None,
        };
        let Plan { duration, warm_up, requests, windows, .. } = *plan;
        let length = Length { duration, warm_up, requests, windows };
        let mut run = Self {
            start: machine.now(),
            phases: Phases::new(length, machine.now()),
            machine,
            plan,
            measurement_start: None,
            measurement_end: None,
            pending: Slab::new(),
            waiting: VecDeque::new(),
            record: None,
            next: None,
            ramp,
            clients: Clients::default(),
            arrived: 0,
            unanswered: 0,
            measured: 0,
            answered: 0,
            bytes: Bytes(0),
            reads: ResponseHistogram::new(),
            writes: ResponseHistogram::new(),
            all: ResponseHistogram::new(),
            window: ResponseHistogram::new(),
            windows: Vec::new(),
            work_done: None,
            transferred: None,
            flash: DeviceSet::default(),
            written: Vec::new(),
            at_start: Mark::default(),
            at_warm: Mark::default(),
            at_end: Mark::default(),
            at_window: Mark::default(),
        };
        run.at_start = run.mark();
        run.at_window = run.at_start.clone();
        run
    }

    fn since_start(&self) -> Nanos {
        self.machine.now() - self.start
    }

    /// Whether a phase has ended.
    fn is_past(&self, due: Due) -> bool {
        due.is_past(self.machine.now(), self.arrived)
    }

    /// Handles everything that is due now. Returns the time of the next event; `None` at the end of the run.
    pub(super) fn settle(&mut self, load: &mut dyn Load) -> Result<Option<Nanos>, SimError> {
        loop {
            self.update_phase();
            match self.reply_deadline() {
                Some(patience) if self.unanswered == 0 || self.machine.now() >= patience => return Ok(None),
                Some(_) => {}
                None => self.take_arrivals(load),
            }
            self.submit_waiting();
            self.machine.pump();
            if !self.collect()? || self.next_arrives_later() {
                return self.next_wake_up().ok_or(SimError::Stuck(self.machine.now())).map(Some);
            }
        }
    }

    /// Whether replies lead to no request: only clients send their next one after a reply.
    fn next_arrives_later(&self) -> bool {
        !matches!(self.plan.mode, Mode::Closed(_))
            && self.waiting.is_empty()
            && self.reply_deadline().is_none()
    }

    /// Begins and ends the measurement and the windows when they are due.
    fn update_phase(&mut self) {
        if self.measurement_start.is_none() && self.is_past(self.phases.warm_up) {
            self.at_warm = self.mark();
            self.measurement_start = Some(self.machine.now());
            let recorded = (0..).map(DeviceId).zip(&mut self.machine.environment.written);
            recorded.for_each(|(id, writes)| *writes = self.flash.contains(id).then(Vec::new));
        }
        if self.measurement_end.is_none() && self.is_past(self.phases.window) {
            self.end_window();
        }
        if self.measurement_end.is_none() && self.is_past(self.phases.run) {
            self.at_end = self.mark();
            self.measurement_end = Some(self.machine.now());
            self.written = self.machine.environment.written.iter_mut().map(Option::take).collect();
        }
    }

    /// Returns the time until which it waits for measured requests.
    fn reply_deadline(&self) -> Option<Nanos> {
        let (end, warm) = (self.measurement_end?, self.measurement_start?);
        Some(end + (end - warm))
    }

    /// Returns the time by which the run must be advanced.
    fn next_wake_up(&self) -> Option<Nanos> {
        let now = self.machine.now();
        let later = |at: &Nanos| *at > now;
        let mut until = self.machine.next().into_iter().chain(self.reply_deadline()).min();
        let mut no_later_than = |at: Option<Nanos>| until = until.into_iter().chain(at).min();
        if self.measurement_end.is_none() {
            no_later_than(self.phases.next(now));
            no_later_than(match &self.plan.mode {
                Mode::Open => self.next.map(|next| self.start + next.at),
                Mode::Closed(steps) => {
                    let thought = self.clients.next_due().map(|at| self.start + at);
                    let step = steps.iter().map(|(at, _)| self.start + *at).find(later);
                    thought.into_iter().chain(step).min()
                }
                Mode::Ramp(_) => self.ramp.as_ref().map(|(arrivals, _)| self.start + arrivals.next()),
            });
        }
        until
    }

    /// Takes the arrivals that are due from the load.
    fn take_arrivals(&mut self, load: &mut dyn Load) {
        let now = self.since_start();
        match &self.plan.mode {
            Mode::Open => {
                let mut next = self.next.take().unwrap_or_else(|| load.next_arrival(Nanos(0)));
                while next.at <= now && self.arrived < self.plan.requests {
                    self.enqueue(next, None);
                    next = load.next_arrival(next.at);
                }
                self.next = Some(next);
            }
            Mode::Closed(steps) => {
                let depth =
                    steps.iter().take_while(|(at, _)| *at <= now).last().map_or(0, |(_, depth)| *depth);
                self.poll_clients(load, depth);
            }
            Mode::Ramp(_) => self.take_ramp_arrivals(load),
        }
    }

    /// Takes the arrivals of the ramp that are due.
    fn take_ramp_arrivals(&mut self, load: &mut dyn Load) {
        let now = self.since_start();
        while let Some(at) = self.ramp.as_ref().map(|(arrivals, _)| arrivals.next()).filter(|at| *at <= now)
            && self.arrived < self.plan.requests
        {
            self.enqueue(Arrival { at, ..load.next_arrival(at) }, None);
            if let Some((arrivals, _)) = &mut self.ramp {
                arrivals.advance();
            }
        }
    }

    /// Lets the first `depth` clients send requests, unless they have one in flight or are thinking.
    fn poll_clients(&mut self, load: &mut dyn Load, depth: usize) {
        let now = self.since_start();
        let Clients { count: known, idle, .. } = &mut self.clients;
        idle.extend((*known..depth).map(Client));
        *known = depth.max(*known);
        let mut waited = true;
        while waited {
            let idle = &mut self.clients.idle;
            let asking: Vec<Client> = idle.extract_if(.., |client| client.0 < depth).collect();
            for client in asking {
                self.clients.think(client, load.next_action(client, now));
            }
            waited = self.wake_clients(now);
        }
        self.work_done = load.work_done();
        self.transferred = load.transferred();
    }

    /// Lets clients whose think time has passed continue; returns whether some only waited and must be asked
    /// again.
    fn wake_clients(&mut self, now: Nanos) -> bool {
        let mut waited = false;
        for (client, next) in self.clients.take_due(now) {
            match next {
                ClientAction::Send(arrival) if self.arrived < self.plan.requests => {
                    self.enqueue(arrival, Some(client));
                }
                ClientAction::Send(_) => {}
                ClientAction::Wait(_) => {
                    self.clients.idle.push(client);
                    waited = true;
                }
            }
        }
        waited
    }

    fn enqueue(&mut self, arrival: Arrival, client: Option<Client>) {
        self.arrived += 1;
        let measured = u64::from(self.is_measured(arrival.at));
        self.measured += measured;
        self.unanswered += measured;
        self.waiting.push_back((arrival, client));
    }

    fn is_measured(&self, at: Nanos) -> bool {
        self.measurement_start.is_some_and(|warm| self.start + at >= warm)
    }

    fn submit_waiting(&mut self) {
        while let Some((arrival, client)) = self.waiting.front() {
            let (Arrival { at, op, len, .. }, client) = (*arrival, *client);
            let id = RequestId(self.pending.vacant_key() as u64);
            let Some(pieces) = self.machine.submit(id, arrival) else { return };
            if let Some(record) = &mut self.record {
                record.push(*arrival);
            }
            let measured = self.is_measured(at);
            self.pending.insert(Pending { arrived: self.start + at, op, len, pieces, measured, client });
            self.waiting.pop_front();
        }
    }

    /// Takes replies; returns whether there were any.
    fn collect(&mut self) -> Result<bool, SimError> {
        let mut any = false;
        while let Some(reply) = self.machine.reply() {
            any = true;
            let now = self.machine.now();
            reply.result.map_err(|error| SimError::Request(error, now - self.start))?;
            let pending = &mut self.pending[reply.id.0 as usize];
            pending.pieces -= 1;
            if pending.pieces == 0 {
                let pending = self.pending.remove(reply.id.0 as usize);
                self.answered(&pending, now - pending.arrived);
            }
        }
        Ok(any)
    }

    fn answered(&mut self, request: &Pending, response: Nanos) {
        self.clients.idle.extend(request.client);
        if let Some((_, recorder)) = &mut self.ramp {
            let arrived = request.arrived - self.start;
            recorder.note(arrived, arrived + response);
        }
        if self.measurement_end.is_none() {
            self.window.add(response);
            if self.measurement_start.is_some() {
                self.answered += 1;
                self.bytes += request.len;
            }
        }
        if request.measured {
            self.unanswered -= 1;
            self.all.add(response);
            let direction = if request.op == Op::Read { &mut self.reads } else { &mut self.writes };
            direction.add(response);
        }
    }

    fn mark(&mut self) -> Mark {
        let at = self.machine.now();
        self.machine.environment.meters.iter_mut().for_each(|meter| meter.advance(at));
        let moved = Bytes(self.machine.engine().mover_status().copied * BLOCK);
        let served = self.machine.engine().client_commands_completed().collect();
        let judged = self.machine.engine().total_estimate();
        let done = self.work_done.unwrap_or(0);
        Mark {
            meters: self.machine.environment.meters.clone(),
            served,
            moved,
            estimate: judged,
            work_done: done,
            transferred: self.transferred.unwrap_or_default(),
            at,
        }
    }

    fn end_window(&mut self) {
        let mark = self.mark();
        let time = mark.at - self.at_window.at;
        let meters: Vec<_> =
            mark.meters.iter().zip(&self.at_window.meters).map(|(m, e)| m.since(e)).collect();
        let responses = self.window.take();
        self.windows.push(Window {
            start: self.at_window.at - self.start,
            rate: responses.count as f64 / time.as_secs_f64().max(1e-9),
            work: (mark.work_done - self.at_window.work_done) as f64 / time.as_secs_f64().max(1e-9),
            mean: responses.mean,
            p99: responses.p99,
            moved: mark.moved - self.at_window.moved,
            loads: loads(&meters, time),
            shares: shares(&meters),
            devices: self.device_windows(&meters),
        });
        self.at_window = mark;
        self.phases.begin_window(self.windows.len());
    }

    fn device_windows(&self, meters: &[Meter]) -> Vec<DeviceWindow> {
        let one = |(meter, (total, free)): (&Meter, (Bytes, Bytes))| DeviceWindow {
            read: meter.reads.bytes,
            written: meter.writes.bytes,
            used: total - free,
        };
        meters.iter().zip(self.machine.engine().device_space()).map(one).collect()
    }

    pub(super) fn outcome(mut self, policy: String, pool: &PoolSpec, load: &dyn Load) -> Outcome {
        let meters = self.mark().meters.into_iter().zip(&self.at_start.meters);
        let commands = meters.map(|(now, start)| Commands::of(&now.since(start))).collect();
        let time = self.at_end.at - self.at_warm.at;
        let marks = self.at_end.meters.iter().zip(&self.at_warm.meters);
        let meters: Vec<_> = marks.map(|(end, warm)| end.since(warm)).collect();
        let (shares, loads) = (shares(&meters), loads(&meters, time));
        let served: Vec<_> =
            self.at_end.served.iter().zip(&self.at_warm.served).map(|(e, w)| e - w).collect();
        let served = shares_of(&served);
        let status = self.machine.engine().status();
        let device = |(i, meter): (usize, &Meter)| DeviceOutcome {
            name: pool.devices[i].name.clone(),
            model: pool.devices[i].model.clone(),
            room: status.devices[i].total,
            used: status.devices[i].total - status.devices[i].free,
            share: shares[i],
            served: served[i],
            load: loads[i],
            queue: meter.queued as f64 / time.0.max(1) as f64,
            reads: direction(meter.reads),
            writes: direction(meter.writes),
            metadata: meter.metadata(),
            endurance: None,
        };
        let seconds = time.as_secs_f64().max(1e-9);
        Outcome {
            policy,
            write_budget_bytes: None,
            measured: time,
            requests: self.measured,
            unanswered: self.unanswered,
            rate: self.answered as f64 / seconds,
            bytes_rate: self.bytes.0 as f64 / seconds,
            work_rate: self
                .work_done
                .map(|_| (self.at_end.work_done - self.at_warm.work_done) as f64 / seconds),
            transfer_rates: self.transferred.map(|_| {
                let (end, warm) = (self.at_end.transferred, self.at_warm.transferred);
                [end.read - warm.read, end.written - warm.written].map(|bytes| bytes.0 as f64 / seconds)
            }),
            all: self.all.responses(),
            reads: self.reads.responses(),
            writes: self.writes.responses(),
            devices: meters.iter().enumerate().map(device).collect(),
            moved: self.at_end.moved - self.at_warm.moved,
            estimate: estimate(self.at_end.estimate.since(self.at_warm.estimate)),
            spread: status.spread,
            stops: status.moves.stops,
            windows: self.windows,
            ramp: self.ramp.map_or_else(|| load.ramp_steps(), |(_, recorder)| recorder.steps()),
            start: self.start,
            commands,
            digest: self.machine.digest(),
        }
    }
}

fn estimate(judged: Estimate) -> Option<EstimateOutcome> {
    let (mean, without) = judged.mean();
    (judged.commands > 0).then_some(EstimateOutcome { commands: judged.commands, mean, without })
}

fn direction(direction: crate::place::meter::Direction) -> DirectionOutcome {
    DirectionOutcome { count: direction.count, bytes: direction.bytes, mean: direction.mean() }
}
