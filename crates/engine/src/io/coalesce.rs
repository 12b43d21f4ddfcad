//! Commands side by side become one: extents are smaller than what clients ask for at once.
//!
//! What is joined are first attempts of client reads and writes that wait to be handed out, next to each
//! other on a device and in memory. The joined command ends as one, and then each of its parts as if it had
//! been alone; a part that failed is tried again alone, so that a bad sector fails only the blocks it is in.

use crate::Engine;
use crate::flight::{Flight, Purpose, ReadIo, WriteIo};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use weir_model::{Io, IoDone, IoError, IoId, IoKind, Memory, Mutant, Nanos};

/// How long a joined command may get, in bytes.
const LEN_MAX: u32 = 1 << 20;
/// Waiting commands looked at for the next part: requests for several devices, or of several clients,
/// alternate.
const LOOKS: usize = 8;

/// Joined commands that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// The parts behind the first, by its id.
    parts: FxHashMap<IoId, SmallVec<[IoId; 4]>>,
    /// Among the commands that wait may be several of one request: without, none is looked for.
    hopeful: bool,
}

impl Joined {
    /// A request over several extents is about to begin.
    pub(crate) fn expect_parts(&mut self) {
        self.hopeful = true;
    }
}

/// Whether a command may be joined with others.
fn may_join(flight: &Flight) -> bool {
    matches!(
        flight.purpose,
        Purpose::Read(ReadIo::Run(_) | ReadIo::Gap(_)) | Purpose::Write(WriteIo::Data(_))
    ) && matches!(flight.kind, IoKind::Read | IoKind::Write { fua: false })
        && flight.attempt == 1
}

impl Engine {
    /// The next command for a device, to be started now.
    #[inline]
    pub fn next_io(&mut self) -> Option<Io> {
        let io = self.ios.pop_front()?;
        if !self.joined.hopeful {
            return Some(io);
        }
        if self.ios.is_empty() {
            self.joined.hopeful = false;
            return Some(io);
        }
        Some(self.join(io))
    }

    /// Adds to a command those waiting that continue it.
    #[inline(never)]
    fn join(&mut self, mut io: Io) -> Io {
        if !self.flights.get(io.id.0 as usize).is_some_and(may_join) {
            return io;
        }
        let mut parts = SmallVec::new();
        while let Some(next) = self.continues_at(&io) {
            let Some(part) = self.ios.remove(next) else { break };
            io.buffer.len += part.buffer.len;
            parts.push(part.id);
        }
        if !parts.is_empty() {
            self.joined.parts.insert(io.id, parts);
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
                    || self.is_planted(Mutant::JoinedAcrossBuffers))
                && io.buffer.len + next.buffer.len <= LEN_MAX
                && self.flights.get(next.id.0 as usize).is_some_and(may_join)
        };
        self.ios.iter().take(LOOKS).position(continues)
    }

    /// Takes the completion of a device command.
    #[inline]
    pub fn complete<M: Memory>(&mut self, now: Nanos, done: IoDone, memory: &mut M) {
        self.now = now;
        if !self.joined.parts.is_empty()
            && let Some(parts) = self.joined.parts.remove(&done.id)
        {
            return self.complete_joined(done, &parts, memory);
        }
        self.finish_flight(done.id, done.result, memory);
    }

    #[inline(never)]
    fn complete_joined<M: Memory>(&mut self, done: IoDone, parts: &[IoId], memory: &mut M) {
        for id in std::iter::once(&done.id).chain(parts) {
            let Some(flight) = self.flights.get(id.0 as usize) else { continue };
            match done.result {
                Err(error @ IoError::Os(_)) if may_join(flight) && !self.is_spoilt(flight) => {
                    let flight = self.flights.remove(id.0 as usize);
                    self.send_alone(flight, error);
                }
                result => self.finish_flight(*id, result, memory),
            }
        }
    }
}
