//! Commands side by side become one: extents are smaller than what clients ask for at once.
//!
//! What is joined are first attempts of client reads and writes that wait to be handed out, next to each
//! other on a device and in memory. The joined command ends as one, and then each of its parts as if it had
//! been alone; a part that failed is tried again alone, so that a bad sector fails only the blocks it is in.

use crate::flight::{Flight, Purpose, ReadIo, WriteIo};
use crate::io::commands::Commands;
use smallvec::SmallVec;
use weir_model::{Io, IoKind, Mutant};

/// How long a joined command may get, in bytes.
const LEN_MAX: u32 = 1 << 20;
/// Waiting commands looked at for the next part: requests for several devices, or of several clients,
/// alternate.
const LOOKS: usize = 8;

/// Whether a command may be joined with others.
pub(crate) fn may_join(flight: &Flight) -> bool {
    matches!(
        flight.purpose,
        Purpose::Read(ReadIo::Run(_) | ReadIo::Gap(_)) | Purpose::Write(WriteIo::Data(_))
    ) && matches!(flight.kind, IoKind::Read | IoKind::Write { fua: false })
        && flight.attempt == 1
}

impl Commands {
    /// Adds to a command those waiting that continue it.
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

    /// Which of the commands waiting continues this one.
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
        self.queue.iter().take(LOOKS).position(continues)
    }
}
