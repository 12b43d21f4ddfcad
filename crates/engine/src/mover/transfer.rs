//! The state of a move in flight.

use crate::ids::PieceId;
use crate::lookup::Address;
use weir_map::{BlockSet, Needs};
use weir_model::{BlockRange, Buffer, ExtentKey, Nanos, PlaceId};

/// A move in flight.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) key: ExtentKey,
    pub(super) to: PlaceId,
    /// The blocks requested.
    pub(super) blocks: BlockRange,
    /// Whether the blocks are dropped from all other places afterwards.
    pub(super) exclusive: bool,
    /// The blocks not yet processed.
    pub(super) remaining: BlockSet,
    pub(super) buffer: Buffer,
    pub(super) stage: Stage,
    /// The number of commits it has waited for.
    pub(super) commits: u8,
    pub(super) failed: bool,
}

/// The stage of a move, with the data of that stage.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// Its next run is about to begin.
    #[default]
    Starting,
    /// It continues after a commit.
    WaitingForCommit,
    /// It continues when pacing permits.
    Paced(Nanos),
    /// A run is being read, by a command of its own or by this client's read.
    Reading { run: CopyRun, client_read: Option<PieceId> },
    /// The run is being written.
    Writing(CopyRun, Writing),
}

/// A run in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRun {
    pub(super) blocks: BlockRange,
    pub(super) destination: Destination,
    /// The flush that the source data needs to be durable.
    pub(super) source: Option<Needs>,
    /// The number of times that devices had lost writes when the read began.
    pub(super) loss_count: u32,
}

/// The destination of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    pub(super) address: Address,
    /// Whether the place is newly allocated, and not the extent's yet.
    pub(super) fresh: bool,
}

/// The writes of a run.
#[derive(Debug)]
pub(super) struct Writing {
    /// The blocks submitted.
    pub(super) submitted: BlockSet,
    /// The number of writes in flight.
    pub(super) in_flight: u32,
    /// The flush that the completed writes need to be durable.
    pub(super) needs: Option<Needs>,
    /// Pieces that wait for these writes.
    pub(super) waiting: Vec<PieceId>,
}

impl Stage {
    pub(super) const fn waits_for_commit(&self) -> bool {
        matches!(self, Self::WaitingForCommit)
    }

    /// Takes the blocks of the run that this client's read delivers, if it serves this move. Later calls
    /// return `None`.
    pub(super) fn take_piggybacked(&mut self, piece: PieceId) -> Option<BlockRange> {
        match self {
            Self::Reading { run, client_read } if *client_read == Some(piece) => {
                *client_read = None;
                Some(run.blocks)
            }
            _ => None,
        }
    }

    /// Takes the run that has been read.
    pub(super) fn take_read(&mut self) -> Option<CopyRun> {
        match std::mem::take(self) {
            Self::Reading { run, .. } => Some(run),
            _ => None,
        }
    }
}

impl Move {
    /// Returns the writes in flight, if they cover some of these blocks of the place.
    pub(super) fn writes(&mut self, key: ExtentKey, place: PlaceId, run: BlockRange) -> Option<&mut Writing> {
        let is_there = self.key == key && self.to == place;
        match &mut self.stage {
            Stage::Writing(_, writing) if is_there && writing.submitted.contains_any(run) => Some(writing),
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
    fn piggybacked_blocks_are_taken_once() {
        let whole = Whole { device: DeviceId(1), extent: DeviceExtent(0) };
        let destination = Destination { address: Address::Whole(whole), fresh: true };
        let blocks = BlockRange { first: 2, count: 3 };
        let run = CopyRun { blocks, destination, source: None, loss_count: 0 };
        let mut stage = Stage::Reading { run, client_read: Some(PieceId(7)) };
        assert_eq!(stage.take_piggybacked(PieceId(6)), None);
        assert_eq!(
            (stage.take_piggybacked(PieceId(7)), stage.take_piggybacked(PieceId(7))),
            (Some(blocks), None)
        );
        assert!(stage.take_read().is_some_and(|run| run.blocks == blocks));
        assert!(matches!(stage, Stage::Starting) && stage.take_read().is_none());
    }
}
