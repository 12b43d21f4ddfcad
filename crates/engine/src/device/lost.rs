//! Devices that are lost: given up because they do not answer, gone, or absent from the start.
//!
//! A lost device gets no more commands; whatever needs it fails with EIO, everything else goes on. It
//! stays lost until the pool is opened again, even if it answers: what it missed nobody knows.
//!
//! A command it has not answered may still read or fill its buffer and change its location (rule 2 of
//! docs/invariants.md). So the command is *abandoned*: its request is answered, but the buffer is kept back
//! and the location rests until the command really ends.

use crate::Engine;
use crate::device::State;
use crate::device::abandoned::Abandoned;
use crate::notice::{LostWhy, Notice};
use crate::task::Task;
use weir_model::{DeviceId, IoError, IoId, Memory, Nanos};

/// Something that happened to a device, told by whoever drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// It is gone, and will not answer or answers with errors only.
    Lost,
}

impl Engine {
    /// Something happened to a device.
    pub fn device_event<M: Memory>(
        &mut self,
        now: Nanos,
        device: DeviceId,
        event: DeviceEvent,
        memory: &mut M,
    ) {
        self.core.now = now;
        match event {
            DeviceEvent::Lost => self.lose(device, LostWhy::Gone, memory),
        }
        self.run_ready(memory);
    }

    /// The device is no longer used.
    pub(crate) fn lose<M: Memory>(&mut self, device: DeviceId, why: LostWhy, memory: &mut M) {
        if self.core.is_lost(device) {
            return;
        }
        self.core.devices[device.index()].state = State::Lost { why, since: self.core.now };
        self.verification.lost(device, why);
        self.core.views.device_changed();
        self.core.notices.push(Notice::Lost { device, why });
        self.doubt(device);
        self.member_failed(device, IoError::Lost);
        if why.is_damage() {
            self.record_damage(device);
        }
        self.background.look_for_lacking(&self.core);
        self.background.unreachable.look(self.core.now, &self.core.map);
        let (ids, unsent) = self.core.commands.give_up(device);
        for id in ids {
            if unsent.contains(&id) {
                let flight = self.core.commands.remove(id);
                let whose = flight.purpose.whose();
                self.end_at_device(&flight, whose);
                self.end_flight(&flight, Err(IoError::Lost), memory);
            } else {
                self.abandon(id, memory);
            }
        }
        Abandoned::run(self, memory);
        self.space.retry_waiting_space(&mut self.requests);
    }

    /// Ends the command for whoever waits for it, though the device still has it.
    fn abandon<M: Memory>(&mut self, id: IoId, memory: &mut M) {
        let ended = self.core.commands.abandon(id);
        self.core.abandoned.add(id, ended.buffer);
        self.end_flight(&ended, Err(IoError::Lost), memory);
    }
}
