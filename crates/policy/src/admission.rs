//! Admission: which blocks that were missed may come into a cache at all.
//!
//! A cache on flash wears out by what is written to it, and every miss that is admitted is a write. One file per
//! published policy.

mod sequential;
mod sketch;
mod tinylfu;
mod touch_count;

pub use sequential::Sequential;
pub use tinylfu::TinyLfu;
pub use touch_count::{TouchCount, Touches};

use crate::cached::Block;
use std::fmt;
use weir_model::{Bytes, VolumeOffset};

/// A request that asks for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The disk it goes to, by any number.
    pub disk: u32,
    /// Its first byte.
    pub offset: VolumeOffset,
    /// Its length, at least 1.
    pub len: Bytes,
}

impl Asked {
    /// The byte after its last.
    const fn end(self) -> u64 {
        self.offset.0.saturating_add(self.len.0)
    }
}

/// Decides what may come into a cache.
pub trait Admission: fmt::Debug + Send {
    /// A request was made, all of it missed or not: whether those of its blocks that are missed may come in.
    fn request(&mut self, asked: Asked) -> bool {
        let _ = asked;
        true
    }

    /// A block was asked for, missed or not. Called for each block of a request, after [`Self::request`].
    fn block(&mut self, block: Block) {
        let _ = block;
    }

    /// Whether a missed block may come in though another has to leave for it.
    fn may_replace(&mut self, missed: Block, leaving: Block) -> bool {
        let _ = (missed, leaving);
        true
    }
}

/// Every miss comes in.
#[derive(Debug)]
pub struct All;

impl Admission for All {}

/// What both admit.
#[derive(Debug)]
pub struct Both<A, B>(pub A, pub B);

impl<A: Admission, B: Admission> Admission for Both<A, B> {
    fn request(&mut self, asked: Asked) -> bool {
        // Both are told of it.
        self.0.request(asked) & self.1.request(asked)
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
