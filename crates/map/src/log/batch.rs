//! A commit under way.

use crate::PAGE;
use crate::format::value::RecordId;
use crate::log::delta::Delta;
use crate::log::journal::{FRAME_MAX, FrameBuilder};
use weir_model::ExtentKey;

/// A commit under way: what its frames say, to be applied when they are durable.
#[derive(Debug)]
pub(crate) struct Commit {
    /// The next frame.
    pub(crate) builder: FrameBuilder,
    /// Candidates not yet looked at.
    pub(crate) left: usize,
    /// What the frames sealed so far say.
    pub(crate) deltas: Vec<Delta>,
    /// The extents they are about, and the record each then has.
    pub(crate) extents: Vec<(ExtentKey, Option<RecordId>)>,
}

impl Commit {
    pub(crate) fn new(ring: u64) -> Self {
        // Whole pages: what is stored must never be longer than what room was asked for.
        let frame_max = FRAME_MAX.min((ring / 8) as usize / PAGE * PAGE).max(PAGE);
        Self { builder: FrameBuilder::new(frame_max), left: 0, deltas: Vec::new(), extents: Vec::new() }
    }

    /// What its frames say.
    pub(crate) fn deltas(&self) -> impl Iterator<Item = &Delta> {
        self.deltas.iter()
    }
}
