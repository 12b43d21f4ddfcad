//! A device that keeps its metadata and discards its data: millions of requests need not copy user data that
//! nothing reads.

use rustc_hash::FxHashMap;
use std::ops::Range;
use weir_model::{DeviceOffset, Io, IoCompletion, IoId, IoKind, Memory as _, Nanos};
use weir_timing::Timing;
use weir_world::{Device, Rng, StopKind, Storage, WorldMemory};

/// A modelled drive without faults. Reads of its data area leave the buffer unchanged.
pub(crate) struct DatalessDevice {
    /// Contents outside the data area.
    storage: Storage,
    data: Range<DeviceOffset>,
    timing: Box<dyn Timing>,
    in_flight: FxHashMap<IoId, Io>,
}

impl DatalessDevice {
    pub(crate) fn new(storage: Storage, data: Range<DeviceOffset>, timing: Box<dyn Timing>) -> Self {
        Self { storage, data, timing, in_flight: FxHashMap::default() }
    }

    fn execute(&mut self, io: &Io, memory: &mut WorldMemory) {
        if self.data.contains(&io.at) {
            return;
        }
        match io.kind {
            IoKind::Read => self.storage.read(io.at, memory.bytes_mut(io.buffer)),
            IoKind::Write { fua } => self.storage.write(io.at, memory.bytes(io.buffer), fua),
            IoKind::Flush => {}
        }
    }
}

impl Device for DatalessDevice {
    fn submit(&mut self, now: Nanos, io: Io, _: &mut WorldMemory) {
        self.timing.submit(now, io.id, io.kind, io.at, io.len());
        self.in_flight.insert(io.id, io);
    }

    fn next(&self) -> Option<Nanos> {
        self.timing.next()
    }

    fn pop(&mut self, now: Nanos, memory: &mut WorldMemory) -> Option<IoCompletion> {
        let io = std::iter::from_fn(|| self.timing.pop(now)).find_map(|id| self.in_flight.remove(&id))?;
        let result = self.storage.check(io.at, io.len());
        if result.is_ok() {
            self.execute(&io, memory);
        }
        Some(IoCompletion { id: io.id, result })
    }

    fn stop(&mut self, _: StopKind) {
        self.in_flight.clear();
    }

    fn storage(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// No write cache is modelled for the metadata, so it survives as it is.
    fn after_power_loss(&self, _: &mut Rng) -> Storage {
        self.storage.clone()
    }

    fn into_healthy(self: Box<Self>) -> Box<dyn Device> {
        self
    }
}
