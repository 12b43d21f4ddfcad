//! What is known of a request while it is in flight.

use crate::nbd::transmission::Fault;
use crate::nbd::wire::command;
use weir_model::{BLOCK, Buffer, Op, VolumeOffset};

/// The end of a list of pieces.
pub(super) const NONE: u16 = u16::MAX;

/// A client's request.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) cookie: u64,
    /// One of [`command`], or anything a client makes up.
    pub(super) kind: u16,
    /// What the engine is asked, if it is.
    pub(super) op: Option<Op>,
    pub(super) fua: bool,
    /// A read to be sent in order, without gaps: because replies are simple, or the client asked.
    pub(super) ordered: bool,
    /// A read to be sent in one chunk, or a status of one descriptor.
    pub(super) one: bool,
    pub(super) offset: VolumeOffset,
    pub(super) len: u32,
    /// Bytes that have become pieces, or were dropped.
    pub(super) taken: u32,
    /// Pieces that have not come to their end: for data of a read being laid out for sending, for
    /// everything else the engine's reply.
    pub(super) open: u16,
    /// Pieces the engine has.
    pub(super) submitted: u16,
    /// A piece was carried out.
    pub(super) partly_done: bool,
    /// The first failure.
    pub(super) fault: Option<Fault>,
    /// Ordered reads: the first and last piece that is not yet to be sent.
    pub(super) head: u16,
    pub(super) tail: u16,
}

impl Active {
    /// Where the next piece begins.
    pub(super) fn next(&self) -> VolumeOffset {
        VolumeOffset(self.offset.0 + u64::from(self.taken))
    }

    /// No piece is open, and none will be.
    pub(super) fn is_complete(&self) -> bool {
        self.open == 0 && self.is_submitted()
    }

    /// The engine has, or had, all of it.
    pub(super) fn is_submitted(&self) -> bool {
        self.taken == self.len
    }

    /// The engine is done with all of it.
    pub(super) fn is_done(&self) -> bool {
        self.is_submitted() && self.submitted == 0
    }

    /// Failures of these are told in chunks where the client understands them.
    pub(super) fn is_answered_in_chunks(&self) -> bool {
        matches!(self.kind, command::READ | command::BLOCK_STATUS)
    }
}

/// A part of a request with its own turn in the engine.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) request: u16,
    /// Ordered reads: the piece after this one.
    pub(super) next: u16,
    pub(super) offset: VolumeOffset,
    pub(super) len: u32,
    /// Whose it is follows from `state`.
    pub(super) buffer: Option<Buffer>,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The engine has it, and the buffer.
    Submitted,
    /// Read. Bit *i* is set if block *i* of the buffer is all zeros.
    Read { zeros: u64 },
    /// Failed; the request knows why.
    Failed,
}

impl Piece {
    /// Where its first byte is in the buffer.
    pub(super) fn start(&self) -> u32 {
        (self.offset.0 % BLOCK) as u32
    }

    /// The payload's part of the buffer.
    pub(super) fn payload(&self) -> Option<Buffer> {
        self.buffer.map(|buffer| buffer.part(self.start(), self.len))
    }

    /// The part of the payload in the blocks `from..to`, in bytes from the payload's start.
    pub(super) fn blocks(&self, from: u32, to: u32) -> (u32, u32) {
        let start = self.start();
        let at = |block: u32| (block * BLOCK as u32).clamp(start, start + self.len) - start;
        (at(from), at(to))
    }

    /// Blocks the payload touches.
    pub(super) fn block_count(&self) -> u32 {
        (self.start() + self.len).div_ceil(BLOCK as u32)
    }
}
