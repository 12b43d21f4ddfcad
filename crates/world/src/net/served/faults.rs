//! Device failures behind the server, and jumps of the clock.

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
    /// Makes a device fail until the next power loss.
    pub(super) fn break_device(&mut self, device: usize, fault: &Fault) {
        let device = DeviceId((device % self.world.devices()) as u8);
        let fault = match fault {
            Fault::Astray { further, chance, times, .. } => {
                return self.go_astray(device, *further, *chance, *times);
            }
            // Truncation is only for pools without a server.
            Fault::Truncate { .. } => Fault::Vanish { at: Nanos(0) },
            fault => fault.clone(),
        };
        // If a device failed while another one may have damaged metadata, no guarantee could be checked.
        if self.deceives() {
            return;
        }
        if matches!(fault, Fault::Hang { .. } | Fault::Slow { .. }) {
            // The engine waits this long for it before it gives it up.
            self.faults.delay += self.setup.deadline;
        }
        self.world.break_device(device, fault);
        self.faults.is_broken = true;
        self.kept.forget_all();
    }

    /// Misdirects or drops writes to a device, if the map is on another one as well.
    fn go_astray(&mut self, device: DeviceId, further: Option<Bytes>, chance: f64, times: u64) {
        if !self.setup.mirrored || self.faults.is_broken {
            return;
        }
        let range = rot::astray_range(&self.layout[device.index()], true);
        self.world.break_device(device, Fault::Astray { range, further, chance, times });
        (self.faults.astray, self.faults.deceived) = (true, true);
        self.kept.forget_all();
    }

    /// Flips a bit while the power is off, if the map is on another device as well.
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

    /// Reports whether metadata differs from what was written.
    pub(super) fn is_damaged(&mut self) -> bool {
        self.faults.deceived && !rot::spoilt_metadata(&mut self.world, &self.layout).is_empty()
    }

    /// Reports whether writes may be misdirected, or metadata has been damaged silently.
    pub(super) fn deceives(&mut self) -> bool {
        self.faults.astray || self.is_damaged()
    }

    /// Runs the offline check on damaged metadata, to predict what opening finds.
    pub(super) fn foretell(&mut self) -> Option<Box<Report>> {
        if self.faults.is_broken || !self.is_damaged() {
            return None;
        }
        let sizes: Vec<_> = self.setup.devices.iter().map(|device| Some(device.size)).collect();
        Some(Box::new(weir_map::check(&mut self.world, &sizes)))
    }

    /// Handles a pool that does not open. That is correct if both copies of a superblock were damaged; the
    /// pool is then created anew.
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

    /// Returns the time limit for control requests.
    pub(super) fn ordered_within(&self) -> Nanos {
        if self.faults.is_broken { CHANGED_WITHIN + self.faults.delay } else { ANSWERED_WITHIN }
    }

    /// Records the faults that have struck commands.
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

    /// Records what the pool was doing when a fault struck.
    pub(super) fn note_strike(&mut self, strike: Strike) {
        let Some(engine) = self.server.as_ref().map(Server::volumes) else { return };
        let doing: Vec<_> = Activity::ALL.into_iter().filter(|activity| engine.is_doing(*activity)).collect();
        let idle = doing.is_empty().then_some(Moment::Idle);
        for moment in doing.into_iter().map(Moment::Doing).chain(idle) {
            *self.statistics.hits.entry((strike, moment)).or_default() += 1;
        }
    }

    /// Makes the clock jump. Clients and the operator slept as well: their time limits restart now. Clients
    /// in a handshake, and silent ones, may be closed because of it.
    pub(super) fn jump(&mut self, time: Nanos) {
        self.note_strike(Strike::TimeJump);
        self.world.jump(time);
        let now = self.world.now();
        self.clients.iter_mut().flatten().for_each(|client| client.wakes_up(now));
        self.operator.wakes_up(now);
        self.aides.iter_mut().for_each(|aide| aide.wakes_up(now));
        self.recording.iter_mut().for_each(|recording| recording.may_fail = true);
    }

    /// Repairs all devices.
    pub(super) fn mend(&mut self) {
        self.world.mend_devices();
        let deceived = self.faults.deceived;
        self.faults = super::super::judge::Faults { deceived, ..Default::default() };
    }

    /// Handles an operator's change that failed, which is correct if a device fails. The power is then cut to
    /// see the outcome.
    pub(super) fn change_failed(&mut self, asked: &Asked, answer: &Value) -> Failure {
        if !self.faults.failing.is_empty() || self.operator.may_be_cut_off() {
            return self.armed.now(&Crash::at_once());
        }
        Failure::Server(format!("at the control socket: {asked:?} is answered with {answer}"))
    }

    /// Handles the end of the operator's connection, after which the outcome of its request is unknown. That
    /// is correct if the server may have considered it silent; the power is then cut as well.
    pub(super) fn operator_cut_off(&mut self, what: &str) -> Failure {
        if self.operator.may_be_cut_off() {
            return self.armed.now(&Crash::at_once());
        }
        Failure::Server(format!("at the control socket: {what}; asked was {:?}", self.operator.asked()))
    }

    /// Makes the failure of an operator or aide whose request exceeds its time limit.
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
