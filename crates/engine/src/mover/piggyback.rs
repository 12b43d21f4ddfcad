//! Piggybacked promotion: a client's read that brings all the blocks a copy is to have is the copy's read as
//! well.
//!
//! It takes the place of the mover's own read in every respect: it begins when that would, at the very
//! place, and what others take of the blocks meanwhile is left out as always. When it has ended, before the
//! client is answered, the bytes are copied to the mover's buffer. If it fails, so does the run.

use crate::DataPath;
use crate::flight::{Flight, Purpose, ReadIo};
use crate::ids::PieceId;
use crate::lookup::Source;
use crate::request::piece::Piece;
use weir_model::{BLOCK, BlockRange, DeviceOffset, IoError, Memory};
use weir_policy::placement::Action;

/// A client's read that has just begun, in one command, and that a move may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PiggybackRead {
    pub(crate) piece: PieceId,
    source: Source,
    range: BlockRange,
}

impl PiggybackRead {
    /// Whether it brings these blocks from there.
    pub(crate) fn brings(&self, run: BlockRange, source: Source) -> bool {
        let within = run.first >= self.range.first && run.end() <= self.range.end();
        let at = || self.source.at.0 + u64::from(run.first - self.range.first) * BLOCK;
        within && source.device == self.source.device && source.at == DeviceOffset(at())
    }
}

impl DataPath {
    /// A read piece has begun in one command, from `source`: if the mover is asked for blocks it brings, the
    /// move begins with it.
    #[inline]
    pub(crate) fn piggyback_move(&mut self, piece: PieceId, source: Source) {
        if !self.base.host.actions.is_empty() {
            self.piggyback_queued(piece, source);
        }
    }

    #[inline(never)]
    fn piggyback_queued(&mut self, piece: PieceId, source: Source) {
        let Piece { key, range, takes_blocks, .. } = self.base.requests.pieces[piece.0 as usize];
        if takes_blocks {
            // To the mover they are as blocks that are being written.
            return;
        }
        let [one, more] =
            [1, 2].map(|count| self.base.space.scratch.has_for_move(BlockRange { first: 0, count }, true));
        let brings = |blocks: &BlockRange| {
            let within = blocks.first >= range.first && blocks.end() <= range.end();
            within && if blocks.count == 1 { one } else { more }
        };
        let fits = |action: &Action| match action {
            Action::Copy { blocks, .. } | Action::Move { blocks, .. } => brings(blocks),
            _ => false,
        };
        if let Some(action) = self.base.host.actions.take(key, fits) {
            self.carry_out(action, Some(PiggybackRead { piece, source, range }));
        }
    }

    /// A read has ended: the moves that were to have its bytes go on.
    pub(crate) fn piggyback_read_ended<M: Memory>(
        &mut self,
        piece: PieceId,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        if !matches!(flight.purpose, Purpose::Read(ReadIo::Run(_))) {
            return;
        }
        let first = self.base.requests.pieces[piece.0 as usize].range.first;
        while let Some((id, run, buffer)) = self.mover.take_piggybacked(piece) {
            if result.is_ok() {
                let from = flight.buffer.part(u32::from(run.first - first) * BLOCK as u32, buffer.len);
                memory.copy(from, buffer);
                self.mover.note_piggybacked(run.count);
            }
            self.move_read_ended(id, result);
        }
    }
}
