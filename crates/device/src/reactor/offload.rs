//! Long writes to files in memory that other threads copy, and the commands that wait for them.
//!
//! The reactor's thread reads such a file through a mapping. While another thread copies into the same
//! sector, it would find a part of the old content and a part of the new one, which no device returns. So a
//! command to bytes that are being copied waits for the end of the copy, and no copy of bytes that a command
//! waits for is given to another thread: a command waits only for copies that were there before it.

use weir_model::{Io, IoId};

/// The copies in progress, and the commands that wait.
#[derive(Debug, Default)]
pub(super) struct Offloaded {
    copies: Vec<Io>,
    waiting: Vec<Io>,
}

impl Offloaded {
    /// Reports whether no copy is in progress.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Notes that another thread copies this write.
    pub(super) fn begin(&mut self, write: Io) {
        self.copies.push(write);
    }

    /// Reports whether a command is to bytes that are being copied. Cost: none without copies.
    #[inline]
    pub(super) fn must_wait(&self, io: &Io) -> bool {
        self.copies.iter().any(|copy| overlap(copy, io))
    }

    /// Reports whether a command waits for bytes of this one.
    #[inline]
    pub(super) fn is_awaited(&self, io: &Io) -> bool {
        self.waiting.iter().any(|waiting| overlap(waiting, io))
    }

    /// Has a command wait.
    pub(super) fn wait(&mut self, io: Io) {
        self.waiting.push(io);
    }

    /// Notes that the write with this id has been copied.
    pub(super) fn end(&mut self, id: IoId) {
        self.copies.retain(|copy| copy.id != id);
    }

    /// Returns a command that no longer has to wait, in order of arrival.
    pub(super) fn next_ready(&mut self) -> Option<Io> {
        let ready = self.waiting.iter().position(|io| !self.must_wait(io))?;
        Some(self.waiting.remove(ready))
    }
}

/// Reports whether two commands have bytes of a device in common.
fn overlap(one: &Io, other: &Io) -> bool {
    let ends = [one, other].map(|io| io.at.0 + io.len().0);
    one.device == other.device && one.at.0 < ends[1] && other.at.0 < ends[0]
}
