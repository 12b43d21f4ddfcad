//! Space whose release is durable, resting until the commands that may touch it have ended (rule 2 of
//! docs/invariants.md).

use crate::device::outstanding::{Behind, Outstanding};
use weir_map::Chunk;

/// The space of a device that rests.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    chunks: Behind<Chunk>,
    /// Whole extents among it.
    extents: u32,
}

impl Resting {
    /// It rests until every command begun so far has ended.
    pub(crate) fn add(&mut self, chunk: Chunk, commands: &mut Outstanding) {
        self.extents += u32::from(matches!(chunk, Chunk::Whole(_)));
        self.chunks.add(chunk, commands);
    }

    /// What has rested.
    pub(crate) fn next(&mut self, commands: &Outstanding) -> Option<Chunk> {
        let chunk = self.chunks.next(commands)?;
        self.extents -= u32::from(matches!(chunk, Chunk::Whole(_)));
        Some(chunk)
    }

    /// Extents that are resting.
    pub(crate) fn extents(&self) -> u32 {
        self.extents
    }

    /// Whether some space is resting.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.chunks.is_empty()
    }
}
