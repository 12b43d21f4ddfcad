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
use crate::inspect::notice::Notice;
use crate::request::piece::{Flight, Purpose};
use std::fmt;
use weir_model::{BLOCK, Buffer, Bytes, DeviceId, IoError, IoId, Memory, Mutant, Nanos};

/// Something that happened to a device, told by whoever drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// It is gone, and will not answer or answers with errors only.
    Lost,
}

/// Why a device is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostWhy {
    /// It did not answer a command within its deadline.
    Hung,
    /// It is gone.
    Gone,
    /// It was not there when the pool was opened.
    Absent,
    /// It has become shorter than its superblock says: a file that was truncated.
    CutShort,
    /// Its last page no longer holds its superblock: a file that was truncated and has grown again, or
    /// something else wrote there.
    Replaced,
}

impl LostWhy {
    /// Whether data that was durable is gone with it, or may be.
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::CutShort | Self::Replaced)
    }
}

impl fmt::Display for LostWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hung => "it did not answer in time",
            Self::Gone => "it is gone",
            Self::Absent => "it was not there when the pool was opened",
            Self::CutShort => "it has become shorter than its superblock says",
            Self::Replaced => {
                "the superblock in its last page is gone: it was truncated and has grown again, or something else wrote to it"
            }
        })
    }
}

/// Commands no longer waited for, and the buffers they keep.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    commands: Vec<(IoId, Buffer)>,
    /// Buffers to be given back to the memory once no abandoned command uses them.
    kept: Vec<Buffer>,
    /// For how much of them, at most, the memory has made up.
    made_up: Bytes,
    /// Commands that come to nothing, to be ended in turn: refused because their device is lost, or flushes
    /// that do not count.
    refused: std::collections::VecDeque<Flight>,
}

/// Whether they have bytes in common; an empty one has none.
fn overlap(a: Buffer, b: Buffer) -> bool {
    a.at < b.at + u64::from(b.len) && b.at < a.at + u64::from(a.len)
}

impl Abandoned {
    /// How many commands are abandoned and have not ended.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether an abandoned command may still use the buffer.
    #[inline]
    pub(crate) fn uses(&self, buffer: Buffer) -> bool {
        !self.commands.is_empty() && self.commands.iter().any(|(_, b)| overlap(*b, buffer))
    }

    /// The buffer is to be given to the memory as soon as nothing uses it.
    pub(crate) fn keep(&mut self, buffer: Buffer) {
        self.kept.push(buffer);
    }

    /// How much is kept back that the memory has not made up for.
    fn lacking(&self) -> Bytes {
        let kept = self.kept.iter().map(|buffer| u64::from(buffer.len)).sum::<u64>();
        Bytes(kept.saturating_sub(self.made_up.0))
    }

    /// Whether the memory is to make up for what is kept back.
    pub(crate) fn is_lacking(&self) -> bool {
        !self.kept.is_empty() && self.lacking() > Bytes(0)
    }

    /// The buffer goes back to the memory, now or as soon as nothing uses it.
    pub(crate) fn let_go<M: Memory>(&mut self, buffer: Buffer, memory: &mut M) {
        if self.uses(buffer) {
            self.keep(buffer);
        } else {
            memory.give(buffer);
        }
    }

    /// Whether commands that come to nothing are to be ended.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    pub(crate) fn refuse(&mut self, flight: Flight) {
        self.refused.push_back(flight);
    }

    pub(crate) fn next_refused(&mut self) -> Option<Flight> {
        self.refused.pop_front()
    }

    fn ended<M: Memory>(&mut self, id: IoId, memory: &mut M) {
        self.commands.retain(|(i, _)| *i != id);
        let (commands, kept) = (&self.commands, &mut self.kept);
        kept.retain(|buffer| {
            let used = commands.iter().any(|(_, b)| overlap(*b, *buffer));
            if !used {
                memory.give(*buffer);
            }
            used
        });
    }
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
        self.now = now;
        match event {
            DeviceEvent::Lost => self.lose(device, LostWhy::Gone, memory),
        }
        self.run_ready(memory);
    }

    /// Whether the device is lost.
    #[inline]
    pub(crate) fn is_lost(&self, device: DeviceId) -> bool {
        self.devices[device.index()].is_lost()
    }

    /// Gives up devices that have not answered a command within their deadline.
    pub(crate) fn watch_devices<M: Memory>(&mut self, memory: &mut M) {
        for i in 0..self.devices.len() {
            let device = DeviceId(i as u8);
            if !self.devices[i].is_watch_due(self.now) {
                continue;
            }
            let outstanding = self.flights.iter().filter(|(_, f)| f.device == device);
            let oldest = outstanding.map(|(_, flight)| flight.started).min();
            if self.devices[i].is_overdue(self.now, oldest) {
                self.lose(device, LostWhy::Hung, memory);
            }
        }
    }

    /// When some command is overdue.
    pub(crate) fn watch_deadline(&self) -> Option<Nanos> {
        self.devices.iter().filter_map(|d| d.watch()).min()
    }

    /// The device is no longer used.
    pub(crate) fn lose<M: Memory>(&mut self, device: DeviceId, why: LostWhy, memory: &mut M) {
        if self.is_lost(device) {
            return;
        }
        self.devices[device.index()].state = State::Lost { why, since: self.now };
        self.verification.lost(device, why);
        self.advice.device_changed();
        self.notices.push(Notice::Lost { device, why });
        self.doubt(device);
        self.member_failed(device, IoError::Lost);
        if why.is_damage() {
            self.record_damage(device);
        }
        self.look_for_lacking();
        self.look_for_unreachable();
        let unsent: Vec<IoId> = self.ios.iter().filter(|io| io.device == device).map(|io| io.id).collect();
        self.ios.retain(|io| io.device != device);
        let of_device = self.flights.iter().filter(|(_, f)| f.device == device);
        let ids: Vec<_> = of_device.map(|(id, _)| id).collect();
        for id in ids {
            if unsent.contains(&IoId(id as u64)) {
                let flight = self.flights.remove(id);
                let whose = flight.purpose.whose();
                self.end_at_device(&flight, whose);
                self.end_flight(&flight, Err(IoError::Lost), memory);
            } else {
                self.abandon(id, memory);
            }
        }
        self.replace_kept(memory);
        self.retry_waiting_space();
    }

    /// Ends the command for whoever waits for it, though the device still has it.
    fn abandon<M: Memory>(&mut self, id: usize, memory: &mut M) {
        let flight = &mut self.flights[id];
        let purpose = std::mem::replace(&mut flight.purpose, Purpose::Abandoned);
        let ended = Flight { purpose, ..*flight };
        self.abandoned.commands.push((IoId(id as u64), flight.buffer));
        self.end_flight(&ended, Err(IoError::Lost), memory);
    }

    /// An abandoned command has ended after all.
    pub(crate) fn abandoned_ended<M: Memory>(&mut self, id: IoId, memory: &mut M) {
        self.abandoned.ended(id, memory);
    }

    /// What is kept back is made up for, so that requests still find memory, however many commands a device
    /// never ends; and scratch buffers that are kept back make way for others, as far as there is memory.
    /// (Where metadata is written from, each member has buffers of its own.)
    pub(crate) fn replace_kept<M: Memory>(&mut self, memory: &mut M) {
        if self.abandoned.is_lacking() {
            let lacking = self.abandoned.lacking();
            memory.make_up(lacking);
            self.abandoned.made_up.0 += lacking.0;
        }
        self.scratch.replace_runs(memory);
        while self.scratch.missing() > 0
            && let Some(block) = memory.take(Bytes(BLOCK))
        {
            self.scratch.add(block);
            self.ready.extend(self.waiting_scratch.pop_front());
        }
    }

    /// A buffer of the mover's is no longer needed; it is kept back if an abandoned command may still use it.
    pub(crate) fn put_back_run(&mut self, run: Buffer) {
        if self.abandoned.uses(run) && !self.is_planted(Mutant::AbandonedBufferReused) {
            self.abandoned.keep(run);
            self.scratch.miss_run();
        } else {
            self.scratch.runs.push(run);
        }
    }

    /// A scratch block is no longer needed; it is kept back if an abandoned command may still use it.
    pub(crate) fn put_back_block(&mut self, block: Buffer) {
        if self.abandoned.uses(block) && !self.is_planted(Mutant::AbandonedBufferReused) {
            self.abandoned.keep(block);
            self.scratch.miss();
        } else {
            self.scratch.put_back(block);
            self.ready.extend(self.waiting_scratch.pop_front());
        }
    }
}
