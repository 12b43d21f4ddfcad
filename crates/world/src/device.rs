//! A simulated device: the port of the engine's commands, and a disk that implements it.

use crate::storage::{Mark, Write};
use crate::{DamagedSectors, FaultKind, Rng, Storage, WorldMemory};
use std::collections::BTreeMap;
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceOffset, Io, IoCompletion, IoError, IoId, IoKind, Memory, Nanos, SECTOR,
};
use weir_timing::Timing;

/// A device of the simulated world, or a fault wrapped around one. It keeps the contract of
/// [`weir_model::io`]: any order, every command completes once (unless [stopped](Self::stop)).
pub trait Device {
    /// Starts a command. The device owns `io.buffer` until it completes.
    fn submit(&mut self, now: Nanos, io: Io, memory: &mut WorldMemory);

    /// Returns when the next completion is due; `None` if nothing will complete without a new command.
    fn next(&self) -> Option<Nanos>;

    /// Returns a completion due at `now` or earlier; call it until there is none.
    fn pop(&mut self, now: Nanos, memory: &mut WorldMemory) -> Option<IoCompletion>;

    /// Ends everything in flight without completion. Time continues.
    fn stop(&mut self, how: StopKind);

    /// Returns the underlying bytes, for inspection and for faults.
    fn storage(&mut self) -> &mut Storage;

    /// Returns the bytes that a power loss at this moment would leave, decided by `rng`. The device
    /// continues.
    fn after_power_loss(&self, rng: &mut Rng) -> Storage;

    /// Appends what faults have done since the last call.
    fn take_faults(&mut self, all: &mut Vec<FaultKind>) {
        let _nothing = all;
    }

    /// Reports whether a command submitted at `now` or later may fail, hang or be falsified.
    fn may_fail(&self, now: Nanos) -> bool {
        let _at_any_time = now;
        false
    }

    /// Returns the device without its faults. Nothing may be in flight.
    fn into_healthy(self: Box<Self>) -> Box<dyn Device>;
}

/// Why commands in flight never complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopKind {
    /// The power failed: any subset of the sectors that were not durable survives.
    PowerLoss,
    /// The user of the device was killed: completed writes are still there, and any subset of the writes in
    /// flight is executed.
    Kill,
}

/// Storage with a timing: the plain device, without faults.
///
/// A read or write takes effect partly at submission, partly at completion (a seeded choice for each), so
/// that commands overlapping in time mix in every way that the port allows.
pub struct Disk {
    storage: Storage,
    timing: Box<dyn Timing>,
    rng: Rng,
    /// Commands in flight by their name in the timing model, so that completions it still returns after a
    /// [stop](Device::stop) are not mistaken for those of later commands with the same id.
    in_flight: BTreeMap<IoId, InFlightCommand>,
    submitted: u64,
}

/// What a device panics with when the buffer of a write changed while the device owned it. The contract of
/// [`weir_model::io`] forbids that in every build, so it is a verdict, unlike the panics of assertions.
#[derive(Clone, Copy, Debug)]
pub struct BufferChanged(pub Io);

#[derive(Clone)]
struct InFlightCommand {
    io: Io,
    /// Number of the buffer's bytes that took effect at submission.
    early: u32,
    /// The rest of a write's bytes as of its submission, and its damaged sectors.
    late: Box<[u8]>,
    late_damaged: DamagedSectors,
    /// The writes that a flush covers.
    mark: Mark,
    result: Result<(), IoError>,
}

impl InFlightCommand {
    fn late_at(&self) -> DeviceOffset {
        DeviceOffset(self.io.at.0 + u64::from(self.early))
    }

    /// Returns the part of a write that has not taken effect.
    fn rest(self) -> Option<Write> {
        let at = self.late_at();
        (!self.late.is_empty()).then(|| Write::in_flight(at, self.late, self.late_damaged))
    }

    fn late_buffer(&self) -> Buffer {
        self.io.buffer.part(self.early, self.io.buffer.len - self.early)
    }
}

impl Disk {
    /// Creates a disk with this timing, which draws its choices from `rng`.
    #[must_use]
    pub fn new(storage: Storage, timing: Box<dyn Timing>, rng: Rng) -> Self {
        Self { storage, timing, rng, in_flight: BTreeMap::new(), submitted: 0 }
    }

    /// Draws how much of a command takes effect at submission.
    fn early(&mut self, io: &Io) -> u32 {
        let sectors = u64::from(io.buffer.len) / SECTOR;
        match self.rng.below(8) {
            0..3 => 0,
            3..6 => io.buffer.len,
            _ => (self.rng.below(sectors + 1) * SECTOR) as u32,
        }
    }

    fn begin(&mut self, command: &mut InFlightCommand, memory: &mut WorldMemory) {
        let InFlightCommand { io, early, .. } = *command;
        let first = io.buffer.part(0, early);
        match io.kind {
            IoKind::Read => self.read(io.at, first, memory),
            IoKind::Write { fua } => {
                if early > 0 {
                    self.storage.write_damaged(
                        io.at,
                        memory.bytes(first),
                        &memory.damaged_sectors(first),
                        fua,
                    );
                }
                let late = command.late_buffer();
                command.late = memory.bytes(late).into();
                command.late_damaged = memory.damaged_sectors(late);
            }
            IoKind::Flush => {}
        }
    }

    fn read(&self, at: DeviceOffset, to: Buffer, memory: &mut WorldMemory) {
        self.storage.read(at, memory.bytes_mut(to));
        let spoilt = self.storage.damaged_sectors(at, Bytes(to.len.into()));
        if !spoilt.is_empty() {
            memory.set_damaged(to, &spoilt);
        }
    }

    fn finish(&mut self, command: InFlightCommand, memory: &mut WorldMemory) {
        match command.io.kind {
            IoKind::Read => self.read(command.late_at(), command.late_buffer(), memory),
            IoKind::Write { fua } => {
                if memory.bytes(command.late_buffer()) != &*command.late {
                    std::panic::panic_any(BufferChanged(command.io));
                }
                self.storage.write_owned(command.late_at(), command.late, command.late_damaged, fua);
            }
            IoKind::Flush => self.storage.flush(command.mark),
        }
    }
}

impl Device for Disk {
    fn submit(&mut self, now: Nanos, io: Io, memory: &mut WorldMemory) {
        let result = match io.kind {
            IoKind::Read => self.storage.check_read(io.at, io.len()),
            IoKind::Write { .. } | IoKind::Flush => self.storage.check(io.at, io.len()),
        };
        let (late, late_spoilt) = (Box::default(), DamagedSectors::default());
        let mut command = InFlightCommand {
            io,
            early: 0,
            late,
            late_damaged: late_spoilt,
            mark: self.storage.mark(),
            result,
        };
        if result.is_ok() {
            command.early = self.early(&io);
            self.begin(&mut command, memory);
        }
        self.submitted += 1;
        let number = IoId(self.submitted);
        self.timing.submit(now, number, io.kind, io.at, io.len());
        self.in_flight.insert(number, command);
    }

    fn next(&self) -> Option<Nanos> {
        self.timing.next()
    }

    /// Returns a completion that is due.
    ///
    /// # Panics
    /// Panics with a [`BufferChanged`] if the buffer of a write changed while the device owned it: an error
    /// of its owner.
    fn pop(&mut self, now: Nanos, memory: &mut WorldMemory) -> Option<IoCompletion> {
        let command =
            std::iter::from_fn(|| self.timing.pop(now)).find_map(|number| self.in_flight.remove(&number))?;
        let done = IoCompletion { id: command.io.id, result: command.result };
        if done.result.is_ok() {
            self.finish(command, memory);
        }
        Some(done)
    }

    fn stop(&mut self, how: StopKind) {
        let writes = std::mem::take(&mut self.in_flight).into_values().filter_map(InFlightCommand::rest);
        match how {
            StopKind::PowerLoss => self.storage.lose_power(writes.collect(), &mut self.rng),
            StopKind::Kill => {
                for part in writes.flat_map(|write| write.parts(BLOCK)) {
                    if self.rng.chance(0.5) {
                        self.storage.execute(&part);
                    }
                }
            }
        }
    }

    fn storage(&mut self) -> &mut Storage {
        &mut self.storage
    }

    fn after_power_loss(&self, rng: &mut Rng) -> Storage {
        let mut left = self.storage.clone();
        left.lose_power(self.in_flight.values().cloned().filter_map(InFlightCommand::rest).collect(), rng);
        left
    }

    fn into_healthy(self: Box<Self>) -> Box<dyn Device> {
        self
    }
}
