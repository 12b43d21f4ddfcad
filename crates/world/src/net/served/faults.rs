//! Devices fail behind the server, and the clock jumps.

use super::{ANSWERED_WITHIN, CHANGED_WITHIN, Served};
use crate::driver::{Crash, Failure, rot};
use crate::net::operator::{Asked, Operator};
use crate::{Fault, Moment, Strike};
use serde_json::Value;
use weir_engine::Activity;
use weir_map::check::Report;
use weir_model::{Bytes, DeviceId, Nanos};
use weir_session::Server;

impl Served {
    /// From now on something is wrong with a device, until the next power cut.
    pub(super) fn break_device(&mut self, device: usize, fault: &Fault) {
        let device = DeviceId((device % self.world.devices()) as u8);
        let fault = match fault {
            Fault::Astray { further, chance, times, .. } => {
                return self.go_astray(device, *further, *chance, *times);
            }
            // Truncation is tried without a server.
            Fault::Truncate { .. } => Fault::Vanish { at: Nanos(0) },
            fault => fault.clone(),
        };
        // Of a device that fails while another one deceives nothing could be promised.
        if self.deceives() {
            return;
        }
        if matches!(fault, Fault::Hang { .. } | Fault::Slow { .. }) {
            // The engine waits so long for it, and then no more.
            self.faults.delay += self.setup.deadline;
        }
        self.world.break_device(device, fault);
        self.faults.is_broken = true;
        self.kept.forget_all();
    }

    /// Writes to a device go elsewhere or nowhere, where the map is on another one as well.
    fn go_astray(&mut self, device: DeviceId, further: Option<Bytes>, chance: f64, times: u64) {
        if !self.setup.mirrored || self.faults.is_broken {
            return;
        }
        let range = rot::astray_range(&self.layout[device.index()], true);
        self.world.break_device(device, Fault::Astray { range, further, chance, times });
        (self.faults.astray, self.faults.deceived) = (true, true);
        self.kept.forget_all();
    }

    /// A bit changes while the power is off, where the map is on another device as well.
    pub(super) fn rot(&mut self, pick: u64) {
        if !self.setup.mirrored || self.faults.is_broken {
            return;
        }
        if let Some(rotten) = rot::rot(&mut self.world, &self.layout, true, pick) {
            self.faults.deceived = true;
            self.kept.forget_all();
            self.note_strike(if rotten.of_metadata { Strike::MetadataRot } else { Strike::DataRot });
        }
    }

    /// Whether metadata is not what was written.
    pub(super) fn is_damaged(&mut self) -> bool {
        self.faults.deceived && !rot::spoilt_metadata(&mut self.world, &self.layout).is_empty()
    }

    /// Whether a device may deceive, or has, so that metadata is not what was written.
    pub(super) fn deceives(&mut self) -> bool {
        self.faults.astray || self.is_damaged()
    }

    /// What the offline check says of metadata that was struck.
    pub(super) fn foretell(&mut self) -> Option<Box<Report>> {
        if self.faults.is_broken || !self.is_damaged() {
            return None;
        }
        let sizes: Vec<_> = self.setup.devices.iter().map(|device| Some(device.size)).collect();
        Some(Box::new(weir_map::check(&mut self.world, &sizes)))
    }

    /// The pool does not open. That is in order where both copies of a superblock were struck; what is
    /// left then is to begin anew.
    pub(super) fn refused_to_open(&mut self, failure: Failure) -> Result<(), Failure> {
        let is_nameless = self.faults.deceived && rot::has_nameless_device(&mut self.world, &self.layout);
        if !is_nameless || !rot::is_of_damage(&failure) {
            return Err(failure);
        }
        self.statistics.noticed += 1;
        let (statistics, digest) = (std::mem::take(&mut self.statistics), self.world.digest());
        let (copies, armed) = (std::mem::take(&mut self.copies), std::mem::take(&mut self.armed));
        *self = Self::new(&self.setup)?;
        (self.statistics, self.copies, self.armed) = (statistics, copies, armed);
        self.world.note(digest);
        Ok(())
    }

    /// Within this time whoever asks at the control socket is answered.
    pub(super) fn ordered_within(&self) -> Nanos {
        if self.faults.is_broken { CHANGED_WITHIN + self.faults.delay } else { ANSWERED_WITHIN }
    }

    /// What has struck commands.
    pub(super) fn note_strikes(&mut self) {
        if self.faults.is_broken || self.faults.astray {
            for (device, strike) in self.world.struck() {
                if !strike.is_silent() {
                    self.faults.failing.insert(device);
                }
                self.note_strike(strike);
            }
        }
    }

    /// Something happened to the pool at this moment.
    pub(super) fn note_strike(&mut self, strike: Strike) {
        let Some(engine) = self.server.as_ref().map(Server::volumes) else { return };
        let doing: Vec<_> = Activity::ALL.into_iter().filter(|activity| engine.is_doing(*activity)).collect();
        let idle = doing.is_empty().then_some(Moment::Idle);
        for moment in doing.into_iter().map(Moment::Doing).chain(idle) {
            *self.statistics.hits.entry((strike, moment)).or_default() += 1;
        }
    }

    /// The clock jumps ahead. Clients and the operator slept as well: what they wait for counts from now
    /// on. Whoever was in a handshake, or silent, may be closed for it.
    pub(super) fn jump(&mut self, time: Nanos) {
        self.note_strike(Strike::TimeJump);
        self.world.jump(time);
        let now = self.world.now();
        self.clients.iter_mut().flatten().for_each(|client| client.wakes_up(now));
        self.operator.wakes_up(now);
        self.aides.iter_mut().for_each(|aide| aide.wakes_up(now));
        self.recording.iter_mut().for_each(|recording| recording.may_fail = true);
    }

    /// Nothing is wrong with any device any more.
    pub(super) fn mend(&mut self) {
        self.world.mend_devices();
        let deceived = self.faults.deceived;
        self.faults = super::super::judge::Faults { deceived, ..Default::default() };
    }

    /// What the operator asked failed: in order where a device does. Then the power is cut, and it is seen
    /// what came of it.
    pub(super) fn change_failed(&mut self, asked: &Asked, answer: &Value) -> Failure {
        if !self.faults.failing.is_empty() || self.operator.may_be_cut_off() {
            return self.armed.now(&Crash::at_once());
        }
        Failure::Server(format!("at the control socket: {asked:?} is answered with {answer}"))
    }

    /// The operator's connection ended, and nobody knows what became of what was asked: in order where the
    /// server may have closed it for its silence. Then the power is cut, too.
    pub(super) fn operator_cut_off(&mut self, what: &str) -> Failure {
        if self.operator.may_be_cut_off() {
            return self.armed.now(&Crash::at_once());
        }
        Failure::Server(format!("at the control socket: {what}; asked was {:?}", self.operator.asked()))
    }

    /// The operator, or an aide, waits for longer than anything may take.
    pub(super) fn not_answered(&self, who: &Operator) -> Failure {
        Failure::Server(format!(
            "{:?} is not answered within {}, nor were {:?}: {}",
            who.asked(),
            self.ordered_within(),
            self.faults,
            self.what_is_due()
        ))
    }
}
