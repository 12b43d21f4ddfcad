//! Bytes written, by purpose.

use crate::flight::{Flight, MetadataIo, Purpose, WriteIo};
use weir_model::Bytes;

/// The bytes written since the start, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesWritten {
    /// Clients' data, including the rest of blocks that a write covers in part.
    pub data: Bytes,
    /// Journal frames.
    pub frames: Bytes,
    /// Checkpoints: pages and roots.
    pub checkpoints: Bytes,
}

impl BytesWritten {
    #[inline]
    pub(crate) fn note(&mut self, flight: &Flight) {
        match flight.purpose {
            Purpose::Write(WriteIo::Data(_)) => self.data += flight.len(),
            Purpose::Metadata(MetadataIo::Frame) => self.frames += flight.len(),
            Purpose::Metadata(MetadataIo::Pages | MetadataIo::Root) => self.checkpoints += flight.len(),
            _ => {}
        }
    }
}
