//! Which losses of acknowledged writes a client has been told of.
//!
//! A disk loses writes once, and every client that uses the volume has to know: as Linux tells everybody who
//! has a file open of an error of writing back. Each is told by the first FLUSH of its own that ends after
//! the loss.

use super::Connection;
use weir_engine::Loss;
use weir_model::{Mutant, Op, Reply, RequestError, RequestId};

/// What a client knows. Losses of a volume are numbered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// The last loss when it began, unless it has said that it leaves.
    pub(super) known: Option<u64>,
    /// The last one that it was told of.
    told: u64,
}

impl Heard {
    /// It is let in; so many were before.
    pub(super) fn begin(&mut self, number: u64) {
        (self.known, self.told) = (Some(number), number);
    }

    /// It is told of the losses up to this one; whether that is news.
    pub(super) fn hear(&mut self, number: u64) -> bool {
        let is_news = number > self.told;
        self.told = self.told.max(number);
        is_news
    }
}

impl Connection {
    /// Before the client asks for anything: writes of its volume were lost so many times before.
    pub fn note_losses_before(&mut self, number: u64) {
        self.losses.begin(number);
    }

    /// How many losses of writes the client surely knows of, or need not know of; `None` if it has asked
    /// for nothing, or said that it leaves. What it was told since may be lost with its connection.
    pub fn losses_known(&self) -> Option<u64> {
        self.losses.known
    }

    /// A reply to a FLUSH, which fails if writes were lost of which the client has not been told: by the
    /// first FLUSH that comes to its end after that, whoever else was told before. Others are as they are.
    pub fn with_losses(&mut self, reply: Reply, last: impl FnOnce() -> Option<Loss>) -> Reply {
        // What carries data is no FLUSH.
        if reply.buffer.is_some() || !self.is_flush(reply.id) {
            return reply;
        }
        let Some(loss) = last() else { return reply };
        let is_news = self.losses.hear(loss.number);
        if !is_news || self.planted.is(Mutant::LossToldOnce) {
            return reply;
        }
        Reply { result: reply.result.and(Err(RequestError::FlushFailed(loss.device))), ..reply }
    }

    /// Whether the piece is a FLUSH.
    fn is_flush(&self, id: RequestId) -> bool {
        let piece = self.pieces.get(id.0 as u16);
        let request = piece.and_then(|piece| self.requests.get(piece.request));
        request.is_some_and(|request| request.op == Some(Op::Flush))
    }
}
