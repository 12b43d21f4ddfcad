//! Tracks which losses of acknowledged writes a client has seen.
//!
//! A disk loses writes once, and every client of the volume has to see the error, just as Linux reports a
//! writeback error to every process that has the file open. Each client gets it from its first FLUSH that
//! completes after the loss.

use super::Connection;
use weir_engine::Loss;
use weir_model::{Mutant, Op, Reply, RequestError, RequestId};

/// The losses of a volume before the first request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastLosses {
    /// Number of losses.
    pub count: u64,
    /// Number of those that the client has certainly seen, if it is one that reconnects; otherwise all.
    pub seen: u64,
}

/// Losses that a client has seen. The losses of a volume are numbered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossesSeen {
    /// The last loss before the client began; `None` once it has announced that it disconnects.
    pub(super) known: Option<u64>,
    /// The last loss reported to the client.
    reported: u64,
}

impl LossesSeen {
    /// Admits the client. What it still has to see of `past` is reported, and known to whoever noted it: its
    /// own disconnection leaves no more unseen than what happens from now on.
    pub(super) fn begin(&mut self, past: PastLosses) {
        (self.known, self.reported) = (Some(past.count), past.seen);
    }

    /// Marks the losses up to `number` as reported; returns whether any of them is new to the client.
    pub(super) fn mark_reported(&mut self, number: u64) -> bool {
        let is_news = number > self.reported;
        self.reported = self.reported.max(number);
        is_news
    }
}

impl Connection {
    /// Records the losses of its volume before the client's first request. Those that it may not have seen
    /// are reported by its first FLUSH.
    pub fn note_past_losses(&mut self, past: PastLosses) {
        self.losses.begin(past);
    }

    /// Returns the number of losses that the client has certainly seen, or need not see; `None` if it has
    /// requested nothing or announced that it disconnects. A report sent since may be lost with its
    /// connection.
    pub fn losses_known(&self) -> Option<u64> {
        self.losses.known
    }

    /// Turns a successful FLUSH reply into a failure if the client has not seen the volume's last loss. The
    /// first FLUSH of each client that completes after the loss fails, whichever clients have seen the error
    /// before. Other replies are returned unchanged.
    pub fn report_losses(&mut self, reply: Reply, last: impl FnOnce() -> Option<Loss>) -> Reply {
        // A reply with a buffer does not belong to a FLUSH.
        if reply.buffer.is_some() || !self.is_flush(reply.id) {
            return reply;
        }
        let Some(loss) = last() else { return reply };
        let is_news = self.losses.mark_reported(loss.number);
        if !is_news || self.planted.is(Mutant::LossToldOnce) {
            return reply;
        }
        Reply { result: reply.result.and(Err(RequestError::FlushFailed(loss.device))), ..reply }
    }

    /// Reports whether the piece is a FLUSH.
    fn is_flush(&self, id: RequestId) -> bool {
        let piece = self.pieces.get(id.0 as u16);
        let request = piece.and_then(|piece| self.requests.get(piece.request));
        request.is_some_and(|request| request.op == Some(Op::Flush))
    }
}
