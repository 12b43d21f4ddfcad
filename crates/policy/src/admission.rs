//! Admission: which missed blocks may enter a cache.
//!
//! Writes wear out a cache on flash, and every admitted miss is a write. There is one file per published
//! policy.

mod sequential;
mod sketch;
mod tinylfu;
mod touch_count;

pub use sequential::{SequenceSettings, Sequential};
pub use tinylfu::TinyLfu;
pub use touch_count::{TouchCount, TouchSettings};

use crate::cache::Block;
use std::fmt;
use weir_model::{Bytes, Nanos, VolumeOffset};

/// A request for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// The time, from any start; never before that of an earlier request.
    pub at: Nanos,
    /// The disk, by any number.
    pub disk: u32,
    /// The offset.
    pub offset: VolumeOffset,
    /// The length, at least 1.
    pub len: Bytes,
}

impl BlockRequest {
    /// Returns the end, one past the last byte.
    const fn end(self) -> u64 {
        self.offset.0.saturating_add(self.len.0)
    }
}

/// An admission policy.
pub trait Admission: fmt::Debug + Send {
    /// Notes a request, hit or miss. Returns whether its missed blocks may enter.
    fn request(&mut self, request: BlockRequest) -> bool {
        let _ = request;
        true
    }

    /// Notes an access to a block, hit or miss. Called for each block of a request, after [`Self::request`].
    fn block(&mut self, block: Block) {
        let _ = block;
    }

    /// Whether a missed block may enter in place of the one leaving.
    fn may_replace(&mut self, missed: Block, leaving: Block) -> bool {
        let _ = (missed, leaving);
        true
    }
}

/// The settings of the published admission policies. The default is that of the published experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Of [`Sequential`].
    pub sequences: SequenceSettings,
    /// Of [`TouchCount`].
    pub touches: TouchSettings,
}

/// Admits every miss.
#[derive(Debug)]
pub struct AdmitAll;

impl Admission for AdmitAll {}

/// Admits the blocks that both policies admit.
#[derive(Debug)]
pub struct AdmitBoth<A, B>(pub A, pub B);

impl<A: Admission, B: Admission> Admission for AdmitBoth<A, B> {
    fn request(&mut self, request: BlockRequest) -> bool {
        // Both must see the request, so this is no `&&`.
        self.0.request(request) & self.1.request(request)
    }

    fn block(&mut self, block: Block) {
        self.0.block(block);
        self.1.block(block);
    }

    fn may_replace(&mut self, missed: Block, leaving: Block) -> bool {
        self.0.may_replace(missed, leaving) && self.1.may_replace(missed, leaving)
    }
}

#[cfg(test)]
mod tests;
