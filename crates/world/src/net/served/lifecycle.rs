//! The server starts, stops and is killed.

use super::Served;
use crate::driver::lifecycle::open_pool;
use crate::driver::{Absence, Again, Crash, Failure, Volume, VolumeSpec};
use crate::net::operator::Operator;
use crate::net::sockets::Sockets;
use crate::{Driver, Moment, Seed, Stop, Strike};
use serde_json::json;
use weir_engine::{Activity, AdminId, Command, Engine};
use weir_model::{Memory, Nanos};
use weir_policy::placement::for_tests;
use weir_session::{ClientCounts, End, Server, Volumes};

impl Served {
    /// Opens the pool and serves it; makes its volumes first if it has none.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.all_free = self.world.memory.free();
        let mut engine = open_pool(&mut self.world, &self.setup, false, Absence::default())?;
        self.oracle.settled();
        self.settle_order(&engine)?;
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
        self.is_stopping = false;
        self.entered.fill(0);
        self.with_server(Server::turn);
        Ok(())
    }

    /// Makes a volume, before anybody is served.
    fn create(&mut self, engine: &mut Engine, number: usize) -> Result<(), Failure> {
        let volume = &self.volumes[number];
        let (name, VolumeSpec { size, hardening, copies, .. }) = (volume.name.clone(), volume.spec);
        let command = Command::CreateVolume { name, size, hardening, copies };
        let what = format!("{command:?}");
        engine.admin(self.world.now(), AdminId(u64::MAX), command);
        let mut done = Vec::new();
        loop {
            engine.tick(self.world.now(), &mut self.world.memory);
            while let Some(io) = Volumes::next_io(engine) {
                self.world.start(io);
            }
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

    /// The pool has the volumes it should have.
    fn check_volumes(&self, engine: &Engine) -> Result<(), Failure> {
        let mut found: Vec<_> = engine.volumes().map(|v| (v.name, v.size, v.hardening as u8)).collect();
        let named = |v: &super::Volume| (v.name.clone(), v.spec.size, v.spec.hardening as u8);
        let mut expected: Vec<_> = self.volumes.iter().map(named).collect();
        found.sort();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        Err(Failure::Volumes { found: format!("{found:?}"), expected: format!("{expected:?}") })
    }

    /// Everything stops in the middle, connections included; then the pool is opened, perhaps in several attempts.
    pub(super) fn crash(&mut self, crash: &Crash) -> Result<(), Failure> {
        self.note_moment(crash.how);
        self.stop(crash.how)?;
        for Again { write, how } in &crash.again {
            self.world.stop_at_store_write(Some(*write), *how);
            let opened = open_pool(&mut self.world, &self.setup, false, Absence::default());
            self.world.stop_at_store_write(None, *how);
            match opened {
                Err(failure) if !self.world.is_dark() => return Err(failure),
                _ => {}
            }
            self.statistics.in_recovery += u64::from(self.world.is_dark());
            self.stop(*how)?;
        }
        self.start()
    }

    /// Copies of the pool crash whose turn it is, and are looked at without a server. Not while the operator
    /// waits for something: what became of that the server has to say.
    pub(super) fn crash_copies(&mut self) -> Result<(), Failure> {
        while let Some(crash) = self.copies.due() {
            let Some(engine) = self.server.as_ref().map(Server::volumes) else { continue };
            if self.operator.is_asking() || self.replacing.is_some() {
                continue;
            }
            let found: Vec<_> = engine.volumes().collect();
            let volumes = self.volumes.iter().filter_map(|volume| {
                let id = found.iter().find(|found| found.name == volume.name)?.id;
                Some(Volume { id, name: volume.name.clone(), spec: volume.spec })
            });
            let volumes = volumes.collect();
            self.note_moment(Stop::PowerCut);
            let seed = self.copies.seed(self.world.digest());
            let world = self.world.copy_without_power(seed, self.setup.memory, &self.setup.devices)?;
            let (setup, oracle, layout) = (self.setup.clone(), self.oracle.clone(), self.layout.clone());
            let copy = Driver::unopened(setup, world, oracle, volumes, layout);
            self.copies.try_out(copy, &crash, &mut self.statistics)?;
        }
        Ok(())
    }

    fn note_moment(&mut self, how: Stop) {
        let strike = if how == Stop::Kill { Strike::Kill } else { Strike::PowerCut };
        let Some(engine) = self.server.as_ref().map(Server::volumes) else { return };
        let doing: Vec<_> = Activity::ALL.into_iter().filter(|activity| engine.is_doing(*activity)).collect();
        self.statistics.after_wrap += u64::from(engine.is_doing(Activity::JournalWrapped));
        let checkpoint = [Activity::CheckpointPages, Activity::CheckpointFlush, Activity::CheckpointRoot];
        self.statistics.in_checkpoint +=
            u64::from(checkpoint.iter().any(|activity| doing.contains(activity)));
        let idle = doing.is_empty().then_some(Moment::Idle);
        for moment in doing.into_iter().map(Moment::Doing).chain(idle) {
            *self.statistics.hits.entry((strike, moment)).or_default() += 1;
        }
    }

    fn stop(&mut self, how: Stop) -> Result<(), Failure> {
        self.server = None;
        self.world.stop(how);
        self.oracle.crash(how);
        self.clients.iter_mut().for_each(|client| *client = None);
        self.half_closed.fill(0);
        self.lost.clear();
        self.visitors.clear();
        self.statistics.crashes += 1;
        *self.statistics.gaps.entry(self.answered_since_crash).or_default() += 1;
        self.answered_since_crash = 0;
        let sizes: Vec<_> = self.setup.devices.iter().map(|device| Some(device.size)).collect();
        let report = weir_map::check(&mut self.world, &sizes);
        if report.is_clean() { Ok(()) } else { Err(Failure::Check(Box::new(report))) }
    }

    /// Stops in good order, with whatever is under way, and opens again. The devices lose what was not flushed: a stop must
    /// have left nothing behind. Nor is any of the memory.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.operator.orders.clear();
        while self.operator.is_asking() {
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::Server("the operator is never answered".to_owned()));
            }
        }
        self.operator.leave(&mut self.sockets);
        self.is_stopping = true;
        self.with_server(|server, outside| server.begin_stop(outside));
        while self.with_server(Server::advance_stop) != Some(Some(End::Graceful)) || self.has_sessions() {
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::NeverStops);
            }
        }
        let Some(server) = self.server.take() else { return Err(Failure::NeverStops) };
        server.into_volumes().release_memory(&mut self.world.memory);
        let (free, all) = (self.world.memory.free(), self.all_free);
        if free != all {
            return Err(Failure::Server(format!("of {all} only {free} are free once it has stopped")));
        }
        // What the server had said before it closed is still received.
        while self.clients.iter().any(Option::is_some) && self.advance(Nanos::MAX)? {}
        for number in 0..self.clients.len() {
            self.forget(number);
        }
        for volume in 0..self.volumes.len() {
            let promised = self.oracle.flush(volume);
            self.oracle.flushed(promised);
        }
        self.lost.clear();
        self.visitors.clear();
        self.world.stop(Stop::PowerCut);
        self.oracle.crash(Stop::PowerCut);
        self.start()
    }

    fn has_sessions(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.counts().sessions > 0)
    }
}
