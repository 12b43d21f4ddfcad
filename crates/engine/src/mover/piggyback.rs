//! Piggybacked promotion: a client's read of all the blocks of a copy serves as the copy's read too.
//!
//! It replaces the mover's own read in every respect: it begins when that would, at the same place, and
//! blocks that a client locks in the meantime are left out as always. When it ends, before the client is
//! answered, the bytes are copied to the mover's buffer. If it fails, so does the run.

use crate::DataPath;
use crate::flight::{Flight, Purpose, ReadIo};
use crate::ids::PieceId;
use crate::lookup::Source;
use crate::request::piece::Piece;
use weir_model::{BLOCK, BlockRange, DeviceOffset, IoError, Memory};
use weir_policy::placement::Action;

/// A client's read, sent in one command, that has just begun and that a move may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PiggybackRead {
    pub(crate) piece: PieceId,
    source: Source,
    range: BlockRange,
}

impl PiggybackRead {
    /// Whether the read covers these blocks at that source.
    pub(crate) fn covers(&self, run: BlockRange, source: Source) -> bool {
        let within = run.first >= self.range.first && run.end() <= self.range.end();
        let at = || self.source.at.0 + u64::from(run.first - self.range.first) * BLOCK;
        within && source.device == self.source.device && source.at == DeviceOffset(at())
    }
}

impl DataPath {
    /// Begins a queued move that can use a read piece which has just begun, in one command, from `source`.
    #[inline]
    pub(crate) fn piggyback_move(&mut self, piece: PieceId, source: Source) {
        if !self.base.host.actions.is_empty() {
            self.piggyback_queued(piece, source);
        }
    }

    #[inline(never)]
    fn piggyback_queued(&mut self, piece: PieceId, source: Source) {
        let Piece { key, range, locks_blocks: takes_blocks, .. } =
            self.base.requests.pieces[piece.0 as usize];
        if takes_blocks {
            // For the mover these blocks are locked like blocks being written.
            return;
        }
        let [one, more] =
            [1, 2].map(|count| self.base.space.scratch.has_move_buffer(BlockRange { first: 0, count }, true));
        let brings = |blocks: &BlockRange| {
            let within = blocks.first >= range.first && blocks.end() <= range.end();
            within && if blocks.count == 1 { one } else { more }
        };
        let fits = |action: &Action| match action {
            Action::Copy { blocks, .. } | Action::Move { blocks, .. } => brings(blocks),
            _ => false,
        };
        if let Some(action) = self.base.host.actions.take(key, fits) {
            self.begin_action(action, Some(PiggybackRead { piece, source, range }));
        }
    }

    /// Continues the moves that wait for the bytes of a read that has ended.
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
