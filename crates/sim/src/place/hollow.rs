//! A device that keeps its metadata and discards its data: millions of requests need not copy user data that
//! nothing reads.

use rustc_hash::FxHashMap;
use std::ops::Range;
use weir_model::{DeviceOffset, Io, IoDone, IoId, IoKind, Memory as _, Nanos};
use weir_timing::Timing;
use weir_world::{Device, Rng, Stop, Storage, WorldMemory};

/// A modelled drive without faults. Reads of its data area leave the buffer unchanged.
pub(crate) struct Hollow {
    /// Contents outside the data area.
    storage: Storage,
    data: Range<DeviceOffset>,
    timing: Box<dyn Timing>,
    under_way: FxHashMap<IoId, Io>,
}

impl Hollow {
    pub(crate) fn new(storage: Storage, data: Range<DeviceOffset>, timing: Box<dyn Timing>) -> Self {
        Self { storage, data, timing, under_way: FxHashMap::default() }
    }

    fn carry_out(&mut self, io: &Io, memory: &mut WorldMemory) {
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

impl Device for Hollow {
    fn submit(&mut self, now: Nanos, io: Io, _: &mut WorldMemory) {
        self.timing.submit(now, io.id, io.kind, io.at, io.len());
        self.under_way.insert(io.id, io);
    }

    fn next(&self) -> Option<Nanos> {
        self.timing.next()
    }

    fn pop(&mut self, now: Nanos, memory: &mut WorldMemory) -> Option<IoDone> {
        let io = std::iter::from_fn(|| self.timing.pop(now)).find_map(|id| self.under_way.remove(&id))?;
        let result = self.storage.check(io.at, io.len());
        if result.is_ok() {
            self.carry_out(&io, memory);
        }
        Some(IoDone { id: io.id, result })
    }

    fn stop(&mut self, _: Stop) {
        self.under_way.clear();
    }

    fn storage(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// No write cache is modelled for the metadata, so it survives as it is.
    fn after_power_loss(&self, _: &mut Rng) -> Storage {
        self.storage.clone()
    }

    fn mended(self: Box<Self>) -> Box<dyn Device> {
        self
    }
}
