//! State of requests and their pieces while they are in flight.

use crate::nbd::transmission::Fault;
use crate::nbd::wire::command;
use weir_model::{BLOCK, Buffer, Op, VolumeOffset};

/// Marks the end of a list of pieces.
pub(super) const NONE: u16 = u16::MAX;

/// A client's request.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    pub(super) cookie: u64,
    /// One of [`command`], or any other value a client sends.
    pub(super) kind: u16,
    /// Operation for the engine, if there is one.
    pub(super) op: Option<Op>,
    pub(super) fua: bool,
    /// A read whose data must leave in order, without gaps: because replies are simple, or because the client
    /// asked for it.
    pub(super) ordered: bool,
    /// A read to be answered in one chunk, or a status with one descriptor.
    pub(super) single_reply: bool,
    pub(super) offset: VolumeOffset,
    pub(super) len: u32,
    /// Bytes that have become pieces, or were dropped.
    pub(super) consumed: u32,
    /// Pieces that are not complete. Data of a read completes when it is laid out for sending, everything
    /// else with the engine's reply.
    pub(super) incomplete_pieces: u16,
    /// Pieces in the engine.
    pub(super) submitted: u16,
    /// True if at least one piece has been executed.
    pub(super) partly_executed: bool,
    /// The first failure.
    pub(super) fault: Option<Fault>,
    /// First and last piece of an ordered read that is not queued for sending.
    pub(super) head: u16,
    pub(super) tail: u16,
}

impl ActiveRequest {
    /// Returns the offset of the next piece.
    pub(super) fn next(&self) -> VolumeOffset {
        VolumeOffset(self.offset.0 + u64::from(self.consumed))
    }

    /// Reports whether no piece is open and none will follow.
    pub(super) fn is_complete(&self) -> bool {
        self.incomplete_pieces == 0 && self.is_submitted()
    }

    /// Reports whether all pieces have been submitted to the engine.
    pub(super) fn is_submitted(&self) -> bool {
        self.consumed == self.len
    }

    /// Reports whether the engine has completed all pieces.
    pub(super) fn is_executed(&self) -> bool {
        self.is_submitted() && self.submitted == 0
    }

    /// Reports whether failures are reported in chunks to clients with structured replies.
    pub(super) fn is_answered_in_chunks(&self) -> bool {
        matches!(self.kind, command::READ | command::BLOCK_STATUS)
    }
}

/// A part of a request with its own turn in the engine.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) request: u16,
    /// Next piece of an ordered read.
    pub(super) next: u16,
    pub(super) offset: VolumeOffset,
    pub(super) len: u32,
    /// The buffer; `state` determines its owner.
    pub(super) buffer: Option<Buffer>,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The engine has the piece and its buffer.
    Submitted,
    /// Read. Bit *i* is set if block *i* of the buffer is all zeros.
    Read { zeros: u64 },
    /// Failed; the request has the reason.
    Failed,
}

impl Piece {
    /// Returns the offset of the first byte in the buffer.
    pub(super) fn start(&self) -> u32 {
        (self.offset.0 % BLOCK) as u32
    }

    /// Returns the payload's part of the buffer.
    pub(super) fn payload(&self) -> Option<Buffer> {
        self.buffer.map(|buffer| buffer.part(self.start(), self.len))
    }

    /// Returns start and end of the payload within the blocks `from..to`, in bytes from the payload's start.
    pub(super) fn blocks(&self, from: u32, to: u32) -> (u32, u32) {
        let start = self.start();
        let at = |block: u32| (block * BLOCK as u32).clamp(start, start + self.len) - start;
        (at(from), at(to))
    }

    /// Returns the number of blocks that the payload touches.
    pub(super) fn block_count(&self) -> u32 {
        (self.start() + self.len).div_ceil(BLOCK as u32)
    }
}
