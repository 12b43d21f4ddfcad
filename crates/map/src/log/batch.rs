//! A commit in progress.

use crate::PAGE;
use crate::format::value::RecordId;
use crate::log::delta::Delta;
use crate::log::journal::{FRAME_MAX, FrameBuilder};
use weir_model::ExtentKey;

/// A commit in progress: the deltas of its frames, applied when they are durable.
#[derive(Debug)]
pub(crate) struct Commit {
    /// The next frame.
    pub(crate) builder: FrameBuilder,
    /// The number of candidates not yet visited.
    pub(crate) unvisited: usize,
    /// The deltas of the frames sealed so far.
    pub(crate) deltas: Vec<Delta>,
    /// The extents concerned, each with its record afterwards.
    pub(crate) extents: Vec<(ExtentKey, Option<RecordId>)>,
}

impl Commit {
    pub(crate) fn new(ring: u64) -> Self {
        // Whole pages, so that the stored length never exceeds the space that was checked for.
        let frame_max = FRAME_MAX.min((ring / 8) as usize / PAGE * PAGE).max(PAGE);
        Self { builder: FrameBuilder::new(frame_max), unvisited: 0, deltas: Vec::new(), extents: Vec::new() }
    }

    /// Returns the deltas of its frames.
    pub(crate) fn deltas(&self) -> impl Iterator<Item = &Delta> {
        self.deltas.iter()
    }
}
