//! Modelled devices with meters on their commands.

use super::endurance::DeviceWrite;
use super::meter::Meter;
use weir_engine::Driver;
use weir_map::Superblock;
use weir_model::{Bytes, DeviceId, Io, IoCompletion, IoError, IoKind, Nanos};
use weir_world::{World, WorldMemory};

/// A simulated world and the meters of its devices.
pub(crate) struct MeteredWorld {
    pub(super) world: World,
    pub(super) superblocks: Vec<Superblock>,
    /// Meters by device.
    pub(crate) meters: Vec<Meter>,
    /// Writes by device, for the devices whose writes are recorded.
    pub(super) written: Vec<Option<Vec<DeviceWrite>>>,
    /// Commands in flight, by command number.
    in_flight: Vec<InFlight>,
}

#[derive(Clone, Copy)]
struct InFlight {
    device: DeviceId,
    kind: IoKind,
    len: Bytes,
    started_at: Nanos,
    metadata: bool,
}

impl MeteredWorld {
    /// Creates meters at zero for devices with these superblocks.
    pub(super) fn new(world: World, superblocks: Vec<Superblock>) -> Self {
        let meters = vec![Meter::default(); superblocks.len()];
        let written = vec![None; superblocks.len()];
        Self { world, superblocks, meters, written, in_flight: Vec::new() }
    }

    /// Advances the time to `to`; completions due by then are appended to `done`.
    pub(super) fn advance(&mut self, to: Nanos, done: &mut Vec<IoCompletion>) {
        self.world.advance(to, done);
        let now = self.world.now();
        for answer in done.iter() {
            if let Some(command) = self.in_flight.get(answer.id.0 as usize) {
                let InFlight { device, kind, len, started_at: since, metadata } = *command;
                self.meters[device.index()].end(now, kind, len, now - since, metadata);
            }
        }
    }
}

impl Driver for MeteredWorld {
    type Memory = WorldMemory;

    fn now(&self) -> Nanos {
        self.world.now()
    }

    fn memory(&mut self) -> &mut WorldMemory {
        &mut self.world.memory
    }

    fn start(&mut self, io: Io) -> Option<Result<(), IoError>> {
        if let (IoKind::Write { .. }, Some(writes)) = (io.kind, &mut self.written[io.device.index()]) {
            writes.push(DeviceWrite { at: io.at, len: io.len() });
        }
        let index = io.id.0 as usize;
        let metadata = io.at < self.superblocks[io.device.index()].data_at;
        let since = self.world.now();
        let command =
            InFlight { device: io.device, kind: io.kind, len: io.len(), started_at: since, metadata };
        if index >= self.in_flight.len() {
            self.in_flight.resize(index + 1, command);
        }
        self.in_flight[index] = command;
        self.meters[io.device.index()].begin(since);
        self.world.start(io);
        None
    }
}
