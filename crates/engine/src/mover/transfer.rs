//! A move under way: what was asked for, and how far it is.

use crate::ids::PieceId;
use crate::lookup::Address;
use weir_map::{BlockSet, Needs};
use weir_model::{BlockRange, Buffer, ExtentKey, Nanos, PlaceId};

/// A move under way.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) key: ExtentKey,
    pub(super) to: PlaceId,
    /// What was asked for.
    pub(super) blocks: BlockRange,
    /// Afterwards the blocks are to be nowhere else.
    pub(super) alone: bool,
    /// Blocks still to be looked at.
    pub(super) left: BlockSet,
    pub(super) buffer: Buffer,
    pub(super) stage: Stage,
    /// How many commits it has waited for.
    pub(super) commits: u8,
    pub(super) failed: bool,
}

/// How far a move is, with what only that needs.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// Its next run is about to begin.
    #[default]
    Begins,
    /// It goes on after a commit.
    WaitsForCommit,
    /// It goes on when the devices have time for it.
    WaitsForTime(Nanos),
    /// A run is being read: by a command of its own, or by this client's read.
    Reads { run: CopyRun, client_read: Option<PieceId> },
    /// What was read is being written.
    Writes(CopyRun, Writing),
}

/// A run in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRun {
    pub(super) blocks: BlockRange,
    pub(super) destination: Destination,
    /// The flush its source needs.
    pub(super) source: Option<Needs>,
    /// How often devices had lost writes when it began to be read.
    pub(super) doubts: u32,
}

/// Where a run is put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    pub(super) address: Address,
    /// The place is newly allocated, and not the extent's yet.
    pub(super) fresh: bool,
}

/// The writes of a run.
#[derive(Debug)]
pub(super) struct Writing {
    /// The blocks submitted.
    pub(super) submitted: BlockSet,
    /// Writes that have not ended.
    pub(super) left: u32,
    /// What those that have ended need.
    pub(super) needs: Option<Needs>,
    /// Pieces that wait for them.
    pub(super) waiting: Vec<PieceId>,
}

impl Stage {
    pub(super) const fn waits_for_commit(&self) -> bool {
        matches!(self, Self::WaitsForCommit)
    }

    /// The blocks of the run that this client's read brings, if it brings one. From then on nobody does.
    pub(super) fn take_piggybacked(&mut self, piece: PieceId) -> Option<BlockRange> {
        match self {
            Self::Reads { run, client_read } if *client_read == Some(piece) => {
                *client_read = None;
                Some(run.blocks)
            }
            _ => None,
        }
    }

    /// The run that has been read.
    pub(super) fn take_read(&mut self) -> Option<CopyRun> {
        match std::mem::take(self) {
            Self::Reads { run, .. } => Some(run),
            _ => None,
        }
    }
}

impl Move {
    /// Its writes, if some of these blocks of the place are among them.
    pub(super) fn writes(&mut self, key: ExtentKey, place: PlaceId, run: BlockRange) -> Option<&mut Writing> {
        let is_there = self.key == key && self.to == place;
        match &mut self.stage {
            Stage::Writes(_, writing) if is_there && writing.submitted.contains_any(run) => Some(writing),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_map::Whole;
    use weir_model::{DeviceExtent, DeviceId};

    #[test]
    fn what_a_read_brings_is_taken_once_and_by_that_read() {
        let whole = Whole { device: DeviceId(1), extent: DeviceExtent(0) };
        let destination = Destination { address: Address::Whole(whole), fresh: true };
        let blocks = BlockRange { first: 2, count: 3 };
        let run = CopyRun { blocks, destination, source: None, doubts: 0 };
        let mut stage = Stage::Reads { run, client_read: Some(PieceId(7)) };
        assert_eq!(stage.take_piggybacked(PieceId(6)), None);
        assert_eq!(
            (stage.take_piggybacked(PieceId(7)), stage.take_piggybacked(PieceId(7))),
            (Some(blocks), None)
        );
        assert!(stage.take_read().is_some_and(|run| run.blocks == blocks));
        assert!(matches!(stage, Stage::Begins) && stage.take_read().is_none());
    }
}
