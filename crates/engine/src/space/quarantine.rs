//! Quarantined space: commands in flight may still read or write it (rule 2 of docs/internals/invariants.md).

use crate::Base;
use weir_map::Chunk;
use weir_model::{DeviceId, Mutant};

impl Base {
    #[inline]
    pub(crate) fn reuse_any_released(&mut self, device: DeviceId) {
        if self.core.devices[device.index()].quarantined.has_chunks() {
            self.reuse_released(device);
        }
    }

    /// Makes quarantined space available once the commands begun before have ended.
    pub(crate) fn reuse_released(&mut self, device: DeviceId) {
        while let Some(chunk) = self.core.devices[device.index()].next_released() {
            self.core.map.reuse(chunk);
            self.space.note_used(&mut self.core);
            self.space.retry_waiting_space(&mut self.requests);
        }
    }

    /// Quarantines space that nothing durable names, until every command begun so far on its device has
    /// ended.
    pub(crate) fn quarantine(&mut self, chunk: Chunk) {
        if self.core.is_planted(Mutant::ReusedWhileInUse) {
            return self.core.map.reuse(chunk);
        }
        self.core.devices[chunk.device().index()].quarantine(chunk);
        self.reuse_released(chunk.device());
    }
}
