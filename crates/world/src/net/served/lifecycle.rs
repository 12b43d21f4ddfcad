//! Start, stop and crash of the server.

use super::ServedPool;
use crate::driver::lifecycle::{is_device_error, open_pool};
use crate::driver::{Absence, Crash, Failure, RecoveryCrash, Volume, VolumeSpec, rot};
use crate::net::operator::{Operator, OperatorRequest};
use crate::net::sockets::Sockets;
use crate::{Driver, FaultKind, Rng, Seed, StopKind};
use serde_json::json;
use weir_engine::{Activity, AdminCommand, AdminId, Engine};
use weir_model::{Memory, Nanos};
use weir_policy::placement::for_tests;
use weir_session::{ClientCounts, Server, ServerOutcome};

/// Number of failed starts after which the failing devices are repaired.
const OPEN_ATTEMPTS: usize = 5;

impl ServedPool {
    /// Opens the pool and serves it; creates its volumes first if it has none. With failing devices this may
    /// take several attempts, or the devices have to be repaired first.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        let mut attempts = 0;
        loop {
            let how = match self.try_to_start() {
                Err(Failure::Open(error)) if self.faults.is_broken && is_device_error(&error) => {
                    StopKind::Kill
                }
                Err(Failure::Admin { .. }) if !self.faults.failing.is_empty() => StopKind::PowerLoss,
                Err(failure @ Failure::Open(_)) => return self.handle_refused_open(failure),
                other => return other,
            };
            attempts += 1;
            // The server is started again: data that could not be flushed can still be read.
            self.stop(if attempts < OPEN_ATTEMPTS { how } else { StopKind::PowerLoss })?;
        }
    }

    fn try_to_start(&mut self) -> Result<(), Failure> {
        self.all_free = self.world.memory.free();
        let foretold = self.predict_open();
        let opened = open_pool(&mut self.world, &self.setup, self.faults.is_broken, Absence::default());
        self.record_faults();
        foretold.map_or(Ok(()), |report| rot::check_prediction(report, opened.is_ok()))?;
        let mut engine = opened?;
        // A device that lost what a failed flush should have kept cannot be used to verify it.
        if !self.faults.is_broken {
            self.oracle.make_all_durable();
        }
        self.was_damaged = false;
        self.settle_request(&engine)?;
        self.settle_side_volumes(&engine)?;
        for number in 0..self.volumes.len() {
            if engine.volumes().all(|volume| volume.name != self.volumes[number].name) {
                self.create(&mut engine, number)?;
            }
            let volume = &self.volumes[number];
            let choice = volume.spec.policy.and_then(for_tests);
            engine.set_volume_policy(self.world.now(), &volume.name, choice);
        }
        self.check_volumes(&engine)?;
        let describe = Box::new(|engine: &Engine, _: &Sockets, counts: &ClientCounts| {
            let names: Vec<String> = engine.volumes().map(|volume| volume.name).collect();
            json!({ "volumes": names, "clients": counts.clients })
        });
        let now = self.world.now();
        self.at_rest = self.world.memory.free();
        self.sockets = Sockets::new(Seed(self.world.fork_rng().word()), now);
        self.server = Some(Server::new(engine, &self.front.limits, now, describe));
        self.operator = Operator::default();
        self.side_operators = Default::default();
        self.client_requests.clear();
        self.has_recorded = false;
        self.is_stopping = false;
        self.admission_times.fill(0);
        self.with_server(Server::turn);
        Ok(())
    }

    /// Creates a volume, before any client is served.
    fn create(&mut self, engine: &mut Engine, number: usize) -> Result<(), Failure> {
        let volume = &self.volumes[number];
        let (name, VolumeSpec { size, hardening, copies, .. }) = (volume.name.clone(), volume.spec);
        let command = AdminCommand::CreateVolume { name, size, hardening, copies };
        let what = format!("{command:?}");
        engine.admin(self.world.now(), AdminId(u64::MAX), command);
        let mut done = Vec::new();
        loop {
            engine.pump(&mut self.world);
            self.record_faults();
            if let Some(reply) = engine.next_admin_reply() {
                return reply.result.map(drop).map_err(|error| Failure::Admin { command: what, error });
            }
            let next = [self.world.next_event(), engine.deadline()].into_iter().flatten().min();
            let Some(next) = next else { return Err(Failure::NeverDone(what)) };
            self.world.advance(next, &mut done);
            for answer in done.drain(..) {
                engine.complete(self.world.now(), answer, &mut self.world.memory);
            }
        }
    }

    /// Checks that the pool has the volumes it should have.
    fn check_volumes(&self, engine: &Engine) -> Result<(), Failure> {
        let volumes = engine.volumes().filter(|volume| !self.side_volumes.contains_key(&volume.name));
        let mut found: Vec<_> = volumes.map(|v| (v.name, v.size, v.hardening as u8)).collect();
        let named = |v: &super::Volume| (v.name.clone(), v.spec.size, v.spec.hardening as u8);
        let mut expected: Vec<_> = self.volumes.iter().map(named).collect();
        found.sort();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        Err(Failure::Volumes { found: format!("{found:?}"), expected: format!("{expected:?}") })
    }

    /// Stops everything abruptly, including connections; then opens the pool, possibly in several attempts.
    pub(super) fn crash(&mut self, crash: &Crash) -> Result<(), Failure> {
        self.note_moment(crash.kind);
        self.count_crash();
        self.stop(crash.kind)?;
        if let Some(pick) = crash.rot.filter(|_| crash.kind == StopKind::PowerLoss) {
            self.rot(pick);
        }
        for RecoveryCrash { write, kind: how } in &crash.recovery_crashes {
            self.was_damaged |= self.is_damaged();
            self.world.stop_at_store_write(Some(*write), *how);
            let is_broken = self.faults.is_broken;
            let opened = open_pool(&mut self.world, &self.setup, is_broken, Absence::default());
            self.world.stop_at_store_write(None, *how);
            self.record_faults();
            match opened {
                Err(failure) if !self.world.has_stopped() && !is_broken => {
                    return self.handle_refused_open(failure);
                }
                _ => {}
            }
            self.statistics.in_recovery += u64::from(self.world.has_stopped());
            self.count_crash();
            self.stop(*how)?;
        }
        self.start()
    }

    /// Crashes the copies of the pool that are due, and checks them without a server. It skips them while an
    /// operator's request is pending, or an operator has created a volume beside those of the clients,
    /// because only the server can tell the outcome; once an operator's request may have failed with a
    /// device; and once devices may have damaged data silently.
    pub(super) fn crash_copies(&mut self) -> Result<(), Failure> {
        while let Some(crash) = self.copies.take_due() {
            let is_deceived = self.has_silent_faults();
            let Some(engine) = self.server.as_ref().map(Server::volumes) else { continue };
            let found: Vec<_> = engine.volumes().collect();
            let is_asked = self.operator.is_waiting() || self.side_operators.iter().any(Operator::is_waiting);
            let is_undecided = self.faults.is_broken && !self.side_volumes.is_empty();
            let is_plain = found.len() == self.volumes.len() && self.replacing.is_none();
            if is_asked || is_undecided || !is_plain || is_deceived {
                continue;
            }
            let volumes = self.volumes.iter().filter_map(|volume| {
                let id = found.iter().find(|found| found.name == volume.name)?.id;
                Some(Volume { id, name: volume.name.clone(), spec: volume.spec })
            });
            let volumes = volumes.collect();
            self.note_moment(StopKind::PowerLoss);
            let seed = self.copies.seed(self.world.digest());
            let buffers = self.copies.buffers(self.setup.memory);
            let world = self.world.copy_without_power(seed, buffers, &self.setup.devices)?;
            let (setup, oracle, layout) = (self.setup.clone(), self.oracle.clone(), self.layout.clone());
            let copy = Driver::new_unopened(setup, world, oracle, volumes, layout);
            self.copies.check_recovery(copy, &crash, &mut self.statistics)?;
        }
        Ok(())
    }

    fn note_moment(&mut self, how: StopKind) {
        self.record_fault(if how == StopKind::Kill { FaultKind::Kill } else { FaultKind::PowerLoss });
        let Some(engine) = self.server.as_ref().map(Server::volumes) else { return };
        self.statistics.after_wrap += u64::from(engine.is_doing(Activity::JournalWrapped));
        let checkpoint = [Activity::CheckpointPages, Activity::CheckpointFlush, Activity::CheckpointRoot];
        self.statistics.in_checkpoint +=
            u64::from(checkpoint.into_iter().any(|activity| engine.is_doing(activity)));
    }

    fn count_crash(&mut self) {
        self.statistics.crashes += 1;
        *self.statistics.gaps.entry(self.answered_since_crash).or_default() += 1;
        self.answered_since_crash = 0;
    }

    fn stop(&mut self, how: StopKind) -> Result<(), Failure> {
        self.note_interrupted_removal();
        // As without a server: the knowledge of failed flushes that is lost with a server is not tested here.
        let is_settled = self.server.as_ref().is_some_and(|server| server.volumes().is_settled());
        self.server = None;
        self.world.stop(how);
        if how == StopKind::Kill && !is_settled {
            self.world.requeue_failed_writes();
        }
        self.oracle.crash(how);
        self.space_guarantees.crash();
        self.clients.iter_mut().for_each(|client| *client = None);
        self.half_closed.fill(0);
        self.lost_changes.clear();
        self.unseen_flushes.clear();
        self.hostile_clients.clear();
        self.jump = None;
        self.recording = None;
        if how == StopKind::PowerLoss {
            // An operator who investigates a power loss also replaces cables.
            self.repair_devices();
        }
        // Opening may overwrite damaged pages of the newest root before it writes a root of its own, and
        // thereby invalidate the newest root.
        self.was_damaged |= self.is_damaged();
        if self.faults.is_broken || self.was_damaged {
            return Ok(());
        }
        let sizes: Vec<_> = self.setup.devices.iter().map(|device| Some(device.size)).collect();
        let report = weir_map::check(&mut self.world, &sizes);
        if report.is_clean() { Ok(()) } else { Err(Failure::Check(Box::new(report))) }
    }

    /// Stops gracefully, with requests in flight, and opens again. The devices lose everything not flushed: a
    /// stop must have left nothing unflushed, and must have released all memory.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.operator.orders.clear();
        self.end_orders(Rng::new(Seed(self.world.digest())).chance(0.5))?;
        self.is_stopping = true;
        self.recording.iter_mut().for_each(|recording| recording.note_stop());
        // The stop is requested at the control socket, or by a signal.
        if self.world.fork_rng().chance(0.5) {
            self.operator.orders.push_back(OperatorRequest::Stop);
            self.end_orders(false)?;
        } else {
            self.with_server(|server, outside| server.begin_stop(outside));
        }
        self.operator.disconnect(&mut self.sockets);
        let at_rest = |end| matches!(end, Some(Some(ServerOutcome::Graceful | ServerOutcome::Damaged(_))));
        while !at_rest(self.with_server(Server::advance_stop)) || self.has_sessions() {
            if self.advance(Nanos::MAX)? {
                continue;
            }
            // A recording that began after the stop ends when its client wants it to.
            let recording = self.recording.as_mut().filter(|recording| recording.can_end());
            recording.ok_or(Failure::NeverStops)?.end(&mut self.sockets);
        }
        let Some(server) = self.server.take() else { return Err(Failure::NeverStops) };
        server.into_volumes().release_memory(&mut self.world.memory);
        let (free, all) = (self.world.memory.free(), self.all_free);
        if free != all && !self.faults.is_broken {
            return Err(Failure::Server(format!("of {all} only {free} are free once it has stopped")));
        }
        // Data that the server sent before it closed is still received.
        let is_heard =
            |served: &Self| served.clients.iter().all(Option::is_none) && served.recording.is_none();
        while !is_heard(self) && self.advance(Nanos::MAX)? {}
        for number in 0..self.clients.len() {
            self.forget(number);
        }
        let is_whole = !self.faults.is_broken;
        for volume in (0..self.volumes.len()).filter(|_| is_whole) {
            let promised = self.oracle.flush(volume);
            self.oracle.flushed(promised);
            self.space_guarantees.flushed(volume, promised);
        }
        self.lost_changes.clear();
        self.unseen_flushes.clear();
        self.hostile_clients.clear();
        self.stop(StopKind::PowerLoss)?;
        self.start()
    }

    fn has_sessions(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.counts().sessions > 0)
    }
}
