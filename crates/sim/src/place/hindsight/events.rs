//! The accesses to each block, in order.
//!
//! A block is the largest unit that all requests access as a whole: 4 KiB, or more if all requests are longer
//! and aligned.

use crate::place::machine::PIECE_MAX;
use crate::{Arrival, VolumeData};
use std::collections::BTreeSet;
use weir_model::{BLOCK, Bytes, ExtentIndex, ExtentSize, Op, VolumeOffset};

/// Effect of a request on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// The block holds no data from then on.
    Clear,
}

/// A block of a volume, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId {
    pub(super) volume: u32,
    pub(super) block: u64,
}

/// One access to a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) id: BlockId,
    /// Number of the request.
    pub(super) at: u32,
    pub(super) access: Access,
    /// Number of blocks of the command, including this one.
    pub(super) blocks: u16,
    /// Bytes of this block that the command accesses.
    pub(super) bytes: u32,
}

/// All accesses, sorted by block, and by request within each block.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) all: Vec<Event>,
    pub(super) requests: u32,
    /// Length of a block.
    pub(super) block: Bytes,
}

impl Events {
    /// Splits requests to volumes with extents of this size into accesses to blocks.
    pub(super) fn of(arrivals: &[Arrival], extent: ExtentSize) -> Self {
        let mut all = Vec::new();
        let aligned = arrivals.iter().fold(extent.bytes().0, |all, a| all | a.offset.0 | a.len.0);
        let block = (1 << aligned.trailing_zeros()).max(BLOCK);
        for (at, arrival) in (0u32..).zip(arrivals) {
            let access = match arrival.op {
                Op::Read => Access::Read,
                Op::Write => Access::Write,
                // Zeros need not be written.
                Op::Trim | Op::WriteZeroes { .. } => Access::Clear,
                Op::Flush => continue,
            };
            let (from, end) = (arrival.offset.0, arrival.offset.0 + arrival.len.0);
            for start in (from..end).step_by(PIECE_MAX.0 as usize) {
                let end = end.min(start + PIECE_MAX.0);
                let (first, after) = (start / block, end.div_ceil(block));
                for number in first..after {
                    let bytes = end.min((number + 1) * block) - start.max(number * block);
                    // A partly cleared block keeps its data.
                    if access == Access::Clear && bytes < block {
                        continue;
                    }
                    let id = BlockId { volume: arrival.volume as u32, block: number };
                    let (blocks, bytes) = ((after - first) as u16, bytes as u32);
                    all.push(Event { id, at, access, blocks, bytes });
                }
            }
        }
        all.sort_unstable_by_key(|event| (event.id, event.at));
        Self { all, requests: arrivals.len() as u32, block: Bytes(block) }
    }

    /// Iterates over the blocks, each with its events.
    pub(super) fn by_block(&self) -> impl Iterator<Item = &[Event]> {
        self.all.chunk_by(|a, b| a.id == b.id)
    }
}

/// The blocks that hold data before the load begins.
pub(super) struct FilledBlocks<'a> {
    pub(super) spaces: &'a [VolumeData],
    pub(super) extent: ExtentSize,
    /// Length of a block.
    pub(super) block: Bytes,
}

impl FilledBlocks<'_> {
    pub(super) fn contains(&self, id: BlockId) -> bool {
        let (volume, index) = self.extent_of(id);
        let Some(space) = self.spaces.get(volume) else { return false };
        let run = space.extents.partition_point(|run| run.end <= index);
        space.extents.get(run).is_some_and(|run| run.start <= index)
    }

    /// Returns the volume of a block and the extent in it.
    pub(super) fn extent_of(&self, id: BlockId) -> (usize, ExtentIndex) {
        (id.volume as usize, self.extent.index(VolumeOffset(id.block * self.block.0)))
    }

    /// Returns the extents that hold data before the load or are written later, in order.
    pub(super) fn extents_with(&self, events: &Events) -> Vec<(usize, ExtentIndex)> {
        let runs =
            self.spaces.iter().enumerate().flat_map(|(v, space)| space.extents.iter().map(move |r| (v, r)));
        let filled =
            runs.flat_map(|(v, run)| (run.start.0..run.end.0).map(move |index| (v, ExtentIndex(index))));
        let first_write = |block: &[Event]| block.iter().find(|event| event.access == Access::Write).copied();
        let written = events.by_block().filter_map(first_write).map(|event| self.extent_of(event.id));
        filled.chain(written).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the events of a block that reach a device: a read of a block without data does not.
    pub(super) fn device_events<'e>(&self, block: &'e [Event]) -> impl Iterator<Item = &'e Event> {
        let mut holds = block.first().is_some_and(|event| self.contains(event.id));
        block.iter().filter(move |event| {
            let reads = holds;
            holds = match event.access {
                Access::Read => holds,
                Access::Write => true,
                Access::Clear => false,
            };
            event.access == Access::Write || (event.access == Access::Read && reads)
        })
    }
}
