//! Device failures behind the server, and jumps of the clock.

use super::{CHANGE_TIMEOUT, REPLY_TIMEOUT, ServedPool};
use crate::driver::audit::has_continued_without_device;
use crate::driver::{Crash, Failure, rot};
use crate::net::operator::{Operator, SentRequest};
use crate::{Fault, FaultKind, Moment};
use serde_json::Value;
use weir_engine::Activity;
use weir_map::check::Report;
use weir_model::{Bytes, DeviceId, Nanos};
use weir_session::Server;

impl ServedPool {
    /// Makes a device fail until the next power loss.
    pub(super) fn break_device(&mut self, device: usize, fault: &Fault) {
        let device = DeviceId((device % self.world.devices()) as u8);
        let fault = match fault {
            Fault::Misdirect { shift: further, chance, times, .. } => {
                return self.misdirect_writes(device, *further, *chance, *times);
            }
            // Truncation is only for pools without a server.
            Fault::Truncate { .. } => Fault::Vanish { at: Nanos(0) },
            fault => fault.clone(),
        };
        // If a device failed while another one may have damaged metadata, no guarantee could be checked.
        if self.has_silent_faults() {
            return;
        }
        if matches!(fault, Fault::Hang { .. } | Fault::Slow { .. }) {
            // The engine waits this long for it before it gives it up.
            self.faults.delay += self.setup.deadline;
        }
        self.world.break_device(device, fault);
        self.faults.is_broken = true;
        self.space_guarantees.forget_all();
    }

    /// Misdirects or drops writes to a device, if the map is on another one as well.
    fn misdirect_writes(&mut self, device: DeviceId, further: Option<Bytes>, chance: f64, times: u64) {
        if !self.setup.mirrored || self.faults.is_broken {
            return;
        }
        let range = rot::misdirection_range(&self.layout[device.index()], true);
        self.world.break_device(device, Fault::Misdirect { range, shift: further, chance, times });
        (self.faults.may_misdirect, self.faults.had_silent_failure) = (true, true);
        self.space_guarantees.forget_all();
    }

    /// Flips a bit while the power is off, if another device has the current map, too.
    pub(super) fn rot(&mut self, pick: u64) {
        let is_alone = has_continued_without_device(&mut self.world, &self.setup);
        if !self.setup.mirrored || self.faults.is_broken || is_alone {
            return;
        }
        if let Some(rotten) = rot::rot(&mut self.world, &self.layout, true, pick) {
            self.faults.had_silent_failure = true;
            self.space_guarantees.forget_all();
            self.record_fault(if rotten.in_metadata { FaultKind::MetadataRot } else { FaultKind::DataRot });
        }
    }

    /// Reports whether metadata differs from what was written.
    pub(super) fn is_damaged(&mut self) -> bool {
        self.faults.had_silent_failure && !rot::damaged_metadata(&mut self.world, &self.layout).is_empty()
    }

    /// Reports whether writes may be misdirected, or metadata has been damaged silently.
    pub(super) fn has_silent_faults(&mut self) -> bool {
        self.faults.may_misdirect || self.is_damaged()
    }

    /// Runs the offline check on damaged metadata, to predict what opening finds.
    pub(super) fn predict_open(&mut self) -> Option<Box<Report>> {
        if self.faults.is_broken || !self.is_damaged() {
            return None;
        }
        let sizes: Vec<_> = self.setup.devices.iter().map(|device| Some(device.size)).collect();
        Some(Box::new(weir_map::check(&mut self.world, &sizes)))
    }

    /// Handles a pool that does not open. That is correct if both copies of a superblock were damaged; the
    /// pool is then created anew.
    pub(super) fn handle_refused_open(&mut self, failure: Failure) -> Result<(), Failure> {
        let is_nameless =
            self.faults.had_silent_failure && rot::has_unidentified_device(&mut self.world, &self.layout);
        if !is_nameless || !rot::is_damage_error(&failure) {
            return Err(failure);
        }
        self.statistics.damage_detected += 1;
        let (statistics, digest) = (std::mem::take(&mut self.statistics), self.world.digest());
        let (copies, armed) = (std::mem::take(&mut self.copies), std::mem::take(&mut self.pending_crash));
        *self = Self::new(&self.setup)?;
        (self.statistics, self.copies, self.pending_crash) = (statistics, copies, armed);
        self.world.add_to_digest(digest);
        Ok(())
    }

    /// Returns the time limit for control requests.
    pub(super) fn control_timeout(&self) -> Nanos {
        if self.faults.is_broken { CHANGE_TIMEOUT + self.faults.delay } else { REPLY_TIMEOUT }
    }

    /// Records the faults that have struck commands.
    pub(super) fn record_faults(&mut self) {
        if self.faults.is_broken || self.faults.may_misdirect {
            for (device, strike) in self.world.take_faults() {
                if !strike.is_silent() {
                    self.faults.failing.insert(device);
                }
                self.record_fault(strike);
            }
        }
    }

    /// Records what the pool was doing when a fault struck.
    pub(super) fn record_fault(&mut self, strike: FaultKind) {
        let Some(engine) = self.server.as_ref().map(Server::volumes) else { return };
        let doing: Vec<_> = Activity::ALL.into_iter().filter(|activity| engine.is_doing(*activity)).collect();
        let idle = doing.is_empty().then_some(Moment::Idle);
        for moment in doing.into_iter().map(Moment::During).chain(idle) {
            *self.statistics.hits.entry((strike, moment)).or_default() += 1;
        }
    }

    /// Makes the clock jump. Clients and the operator slept as well: their time limits restart now. Clients
    /// in a handshake, and silent ones, may be closed because of it.
    pub(super) fn jump(&mut self, time: Nanos) {
        self.record_fault(FaultKind::TimeJump);
        self.world.jump(time);
        let now = self.world.now();
        self.clients.iter_mut().flatten().for_each(|client| client.note_clock_jump(now));
        self.operator.note_clock_jump(now);
        self.side_operators.iter_mut().for_each(|aide| aide.note_clock_jump(now));
        self.recording.iter_mut().for_each(|recording| recording.may_fail = true);
    }

    /// Repairs all devices.
    pub(super) fn repair_devices(&mut self) {
        self.world.repair_devices();
        let deceived = self.faults.had_silent_failure;
        self.faults = super::super::judge::Faults { had_silent_failure: deceived, ..Default::default() };
    }

    /// Handles an operator's change that failed, which is correct if a device fails. The power is then cut to
    /// see the outcome.
    pub(super) fn change_failed(&mut self, asked: &SentRequest, answer: &Value) -> Failure {
        if !self.faults.failing.is_empty() || self.operator.may_be_disconnected() {
            return self.pending_crash.crash_now(&Crash::power_loss_now());
        }
        Failure::Server(format!("at the control socket: {asked:?} is answered with {answer}"))
    }

    /// Handles the end of the operator's connection, after which the outcome of its request is unknown. That
    /// is correct if the server may have considered it silent; the power is then cut as well.
    pub(super) fn operator_disconnected(&mut self, what: &str) -> Failure {
        if self.operator.may_be_disconnected() {
            return self.pending_crash.crash_now(&Crash::power_loss_now());
        }
        Failure::Server(format!("at the control socket: {what}; asked was {:?}", self.operator.sent()))
    }

    /// Makes the failure of an operator or aide whose request exceeds its time limit.
    pub(super) fn timeout_failure(&self, who: &Operator) -> Failure {
        Failure::Server(format!(
            "{:?} is not answered within {}, nor were {:?}: {}",
            who.sent(),
            self.control_timeout(),
            self.faults,
            self.describe_pending()
        ))
    }
}
