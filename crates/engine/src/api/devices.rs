//! Lost devices: unresponsive, gone, or absent from the start.
//!
//! A lost device gets no more commands. Requests that need it fail with EIO; all others continue. It stays
//! lost until the pool is opened again, even if it answers, because nobody knows which writes it missed.
//!
//! A command that it has not answered may still read or fill its buffer and change its location (rule 2 of
//! docs/internals/invariants.md). Such a command is *abandoned*: its request is answered, but the buffer is
//! kept and the location is quarantined until the command really ends.

use crate::Engine;
use crate::device::Availability;
use crate::device::abandoned::AbandonedCommands;
use crate::notice::{LossReason, Notice};
use crate::task::Task;
use weir_model::{DeviceId, IoError, IoId, Memory, Nanos};

/// An event of a device, reported by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device is gone: it does not answer, or answers with errors only.
    Lost,
    /// The driver has measured a round trip over the network in front of the device: a message without data
    /// and its reply.
    RoundTrip(Nanos),
}

/// The task that checks whether devices answer in time ([`crate::device::deadline`]).
#[derive(Debug)]
pub(crate) struct Deadlines;

impl Task for Deadlines {
    type On = Engine;

    /// Returns the time at which the next command becomes overdue.
    fn due(engine: &Engine) -> Option<Nanos> {
        engine.data.base.core.devices.iter().filter_map(|d| d.next_overdue_check()).min()
    }

    /// Gives up devices that have not answered a command within their deadline.
    fn run<M: Memory>(engine: &mut Engine, memory: &mut M) {
        for i in 0..engine.data.base.core.devices.len() {
            let device = DeviceId(i as u8);
            if !engine.data.base.core.devices[i].is_overdue_check_due(engine.data.base.core.now) {
                continue;
            }
            let outstanding = engine.data.base.core.commands.iter().filter(|flight| flight.device == device);
            let oldest = outstanding.map(|flight| flight.started).min();
            if engine.data.base.core.devices[i].is_overdue(engine.data.base.core.now, oldest) {
                engine.lose(device, LossReason::Hung, memory);
            }
        }
    }
}

impl Engine {
    /// Handles an event of a device.
    pub fn device_event<M: Memory>(
        &mut self,
        now: Nanos,
        device: DeviceId,
        event: DeviceEvent,
        memory: &mut M,
    ) {
        self.data.base.core.now = now;
        match event {
            DeviceEvent::Lost => self.lose(device, LossReason::Disconnected, memory),
            DeviceEvent::RoundTrip(time) => self.data.base.core.views.measure_round_trip(device, time),
        }
        self.run_ready(memory);
    }

    /// Stops using the device.
    pub(crate) fn lose<M: Memory>(&mut self, device: DeviceId, reason: LossReason, memory: &mut M) {
        if self.data.base.core.is_lost(device) {
            return;
        }
        self.data.base.core.devices[device.index()].state =
            Availability::Lost { reason, since: self.data.base.core.now };
        self.data.base.verification.device_lost(device, reason);
        self.data.base.core.views.device_changed();
        self.data.base.core.notices.push(Notice::Lost { device, reason });
        self.data.base.mark_in_doubt(device);
        self.data.base.member_failed(device, IoError::Lost);
        if reason.is_damage() {
            self.data.base.record_damage(device);
        }
        self.data.base.durability.missing_copies.begin_scan(&self.data.base.core);
        self.background.unreachable.restart_walk(self.data.base.core.now, &self.data.base.core.map);
        let (ids, unsent) = self.data.base.core.commands.drop_queued(device);
        for id in ids {
            if unsent.contains(&id) {
                let flight = self.data.base.core.commands.remove(id);
                let origin = flight.purpose.origin();
                self.end_at_device(&flight, origin);
                self.end_flight(&flight, Err(IoError::Lost), memory);
            } else {
                self.abandon(id, memory);
            }
        }
        AbandonedCommands::run(&mut self.data.base, memory);
        self.data.base.space.retry_waiting_space(&mut self.data.base.requests);
    }

    /// Ends the command for its waiters, although the device has not answered it.
    fn abandon<M: Memory>(&mut self, id: IoId, memory: &mut M) {
        let ended = self.data.base.core.commands.abandon(id);
        self.data.base.core.abandoned.add(id, ended.buffer);
        self.end_flight(&ended, Err(IoError::Lost), memory);
    }
}
