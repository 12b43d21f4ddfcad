//! Quarantined space: its release is durable, but commands in flight may still touch it (rule 2 of
//! docs/internals/invariants.md).

use crate::device::outstanding::{BarrierQueue, Outstanding};
use weir_map::Chunk;

/// The quarantined space of a device.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    chunks: BarrierQueue<Chunk>,
    /// The number of whole extents in quarantine.
    extents: u32,
}

impl Quarantine {
    /// Quarantines space until every command begun so far has ended.
    pub(crate) fn add(&mut self, chunk: Chunk, commands: &mut Outstanding) {
        self.extents += u32::from(matches!(chunk, Chunk::Whole(_)));
        self.chunks.add(chunk, commands);
    }

    /// Returns the next space that no command can touch any more.
    pub(crate) fn next(&mut self, commands: &Outstanding) -> Option<Chunk> {
        let chunk = self.chunks.next(commands)?;
        self.extents -= u32::from(matches!(chunk, Chunk::Whole(_)));
        Some(chunk)
    }

    /// Returns the number of whole extents in quarantine.
    pub(crate) fn extents(&self) -> u32 {
        self.extents
    }

    /// Whether some space is quarantined.
    #[inline]
    pub(crate) fn has_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }
}
