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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Buffer, DeviceId, DeviceOffset, IoKind};

    fn io(id: u64, device: u8, at: u64, len: u32) -> Io {
        let buffer = Buffer { at: 0, len };
        Io { id: IoId(id), device: DeviceId(device), kind: IoKind::Read, at: DeviceOffset(at), buffer }
    }

    #[test]
    fn commands_wait_for_all_copies_of_their_bytes_on_their_device() {
        let mut offloaded = Offloaded::default();
        offloaded.begin(io(1, 0, 4096, 8192));
        offloaded.begin(io(2, 0, 12_288, 4096));
        assert!(!offloaded.must_wait(&io(3, 1, 4096, 8192)), "another device");
        assert!(!offloaded.must_wait(&io(3, 0, 0, 4096)) && !offloaded.must_wait(&io(3, 0, 16_384, 512)));
        for (id, at, len) in [(3, 8192, 8192), (4, 4096, 512), (5, 12_288, 512)] {
            assert!(offloaded.must_wait(&io(id, 0, at, len)));
            offloaded.wait(io(id, 0, at, len));
        }
        assert!(offloaded.next_ready().is_none(), "no copy has ended");
        offloaded.end(IoId(1));
        let ready: Vec<_> = std::iter::from_fn(|| offloaded.next_ready()).map(|io| io.id.0).collect();
        assert_eq!(ready, [4], "the others wait for the second copy");
        assert!(offloaded.is_awaited(&io(6, 0, 0, 16_384)) && !offloaded.is_awaited(&io(6, 1, 0, 16_384)));
        offloaded.end(IoId(2));
        let ready: Vec<_> = std::iter::from_fn(|| offloaded.next_ready()).map(|io| io.id.0).collect();
        assert_eq!(ready, [3, 5], "in order of arrival");
        assert!(offloaded.is_empty());
    }
}
