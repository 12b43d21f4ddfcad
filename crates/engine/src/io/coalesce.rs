//! Coalescing of adjacent commands: a client's request is often longer than an extent.
//!
//! Only first attempts of client reads and writes that wait to be handed out, adjacent on a device and in
//! memory, are joined. When the joined command ends, each of its parts ends as if it had been alone. A part
//! that failed is retried alone, so that a bad sector fails only its own blocks.

use crate::flight::{Flight, Purpose, ReadIo, WriteIo};
use crate::io::commands::Commands;
use smallvec::SmallVec;
use weir_model::{Io, IoKind, Mutant};

/// The maximum length of a joined command, in bytes.
const LEN_MAX: u32 = 1 << 20;
/// The number of waiting commands examined for the next part: requests to several devices, or of several
/// clients, alternate in the queue.
const CANDIDATES_MAX: usize = 8;

/// Whether a command may be joined with others.
pub(crate) fn may_join(flight: &Flight) -> bool {
    matches!(
        flight.purpose,
        Purpose::Read(ReadIo::Run(_) | ReadIo::Gap(_)) | Purpose::Write(WriteIo::Data(_))
    ) && matches!(flight.kind, IoKind::Read | IoKind::Write { fua: false })
        && flight.attempt == 1
}

impl Commands {
    /// Joins a command with the waiting commands that continue it.
    #[inline(never)]
    pub(super) fn join(&mut self, mut io: Io) -> Io {
        if !self.get(io.id).is_some_and(may_join) {
            return io;
        }
        let mut parts = SmallVec::new();
        while let Some(next) = self.continues_at(&io) {
            let Some(part) = self.queue.remove(next) else { break };
            io.buffer.len += part.buffer.len;
            parts.push(part.id);
        }
        if !parts.is_empty() {
            self.joined.insert(io.id, parts);
        }
        io
    }

    /// Returns the index of the waiting command that continues this one.
    fn continues_at(&self, io: &Io) -> Option<usize> {
        let continues = |next: &Io| {
            next.device == io.device
                && next.kind == io.kind
                && next.at.0 == io.at.0 + u64::from(io.buffer.len)
                && (next.buffer.at == io.buffer.at + u64::from(io.buffer.len)
                    || self.planted.is(Mutant::JoinedAcrossBuffers))
                && io.buffer.len + next.buffer.len <= LEN_MAX
                && self.get(next.id).is_some_and(may_join)
        };
        self.queue.iter().take(CANDIDATES_MAX).position(continues)
    }
}
