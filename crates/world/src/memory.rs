//! Buffer memory that tracks its [damaged](Spoilt) sectors.

use crate::Spoilt;
use std::borrow::Cow;
use std::ops::Range;
use weir_model::{Buffer, Bytes, HeapMemory, Memory, SECTOR};

/// The byte that clients of a server receive in place of the bytes of damaged sectors. No write has such
/// contents.
pub const SPOILT: u8 = 0xd5;

/// The buffer memory of a world.
#[derive(Debug)]
pub struct WorldMemory {
    memory: HeapMemory,
    spoilt: Spoilt,
    shows_zeros: bool,
}

impl WorldMemory {
    /// Creates a memory of `size`, rounded up to whole blocks.
    #[must_use]
    pub fn new(size: Bytes) -> Self {
        Self { memory: HeapMemory::new(size), spoilt: Spoilt::default(), shows_zeros: false }
    }

    /// [Marks](SPOILT) damaged zeros in place from now on: a server passes zeros on without their bytes.
    pub const fn show_spoilt_zeros(&mut self) {
        self.shows_zeros = true;
    }

    /// Frees all buffers, regardless of their owners.
    pub fn reset(&mut self) {
        self.memory.reset();
        self.spoilt = Spoilt::default();
    }

    /// Returns the damaged sectors of a buffer.
    #[must_use]
    pub fn spoilt(&self, buffer: Buffer) -> Spoilt {
        self.spoilt.part(sectors(buffer))
    }

    /// Returns the bytes of a buffer as they are sent to a client: damaged sectors are [marked](SPOILT),
    /// because only the devices know of them.
    #[must_use]
    pub fn sent(&self, buffer: Buffer) -> Cow<'_, [u8]> {
        let bytes = self.memory.bytes(buffer);
        let end = buffer.at + bytes.len() as u64;
        let touched = buffer.at / SECTOR..end.div_ceil(SECTOR);
        if !self.spoilt.touches(touched.clone()) {
            return Cow::Borrowed(bytes);
        }
        let mut marked = bytes.to_vec();
        for sector in touched.filter(|sector| self.spoilt.contains(*sector)) {
            let (from, to) = ((sector * SECTOR).max(buffer.at), ((sector + 1) * SECTOR).min(end));
            marked[(from - buffer.at) as usize..(to - buffer.at) as usize].fill(SPOILT);
        }
        Cow::Owned(marked)
    }

    /// Sets the damaged sectors of a buffer.
    pub fn spoil(&mut self, buffer: Buffer, spoilt: &Spoilt) {
        self.spoilt.put(sectors(buffer), spoilt);
        if !self.shows_zeros || spoilt.is_empty() {
            return;
        }
        let first = (buffer.at.next_multiple_of(SECTOR) - buffer.at) as usize;
        let bytes = &mut self.memory.bytes_mut(buffer)[first..];
        for (sector, bytes) in bytes.chunks_exact_mut(SECTOR as usize).enumerate() {
            if spoilt.contains(sector as u64) && bytes.iter().all(|byte| *byte == 0) {
                bytes.fill(SPOILT);
            }
        }
    }
}

/// Returns the sectors that are entirely in a buffer.
fn sectors(buffer: Buffer) -> Range<u64> {
    buffer.at.div_ceil(SECTOR)..(buffer.at + u64::from(buffer.len)) / SECTOR
}

impl Memory for WorldMemory {
    /// A new owner must not look at the contents that an earlier one left.
    fn take(&mut self, len: Bytes) -> Option<Buffer> {
        let buffer = self.memory.take(len)?;
        if !self.spoilt.is_empty() {
            self.spoil(buffer, &Spoilt::default());
        }
        Some(buffer)
    }
    fn give(&mut self, buffer: Buffer) {
        self.memory.give(buffer);
    }
    fn bytes(&self, buffer: Buffer) -> &[u8] {
        self.memory.bytes(buffer)
    }
    /// The caller fills the buffer, so it is no longer damaged.
    fn bytes_mut(&mut self, buffer: Buffer) -> &mut [u8] {
        if !self.spoilt.is_empty() {
            self.spoil(buffer, &Spoilt::default());
        }
        self.memory.bytes_mut(buffer)
    }
    fn free(&self) -> Bytes {
        self.memory.free()
    }
    fn make_up(&mut self, bytes: Bytes) {
        self.memory.make_up(bytes);
    }
    fn copy(&mut self, from: Buffer, to: Buffer) {
        self.memory.copy(from, to);
        if !self.spoilt.is_empty() {
            let spoilt = self.spoilt(from);
            self.spoil(to, &spoilt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spoilt_is_marked_when_it_is_sent_until_somebody_else_has_the_buffer() {
        let mut memory = WorldMemory::new(Bytes(8192));
        memory.show_spoilt_zeros();
        let buffer = memory.take(Bytes(4096)).expect("a buffer");
        memory.bytes_mut(buffer)[..1024].fill(7);
        let mut spoilt = Spoilt::first(2);
        spoilt.put(0..1, &Spoilt::default());
        spoilt.put(3..4, &Spoilt::first(1));
        memory.spoil(buffer, &spoilt);
        assert_eq!(memory.bytes(buffer)[512..1024], [7; 512], "data stays what the device has");
        assert_eq!(
            memory.bytes(buffer)[1536..2048],
            [SPOILT; 512],
            "zeros could be passed on without a look"
        );
        let part = buffer.part(500, 600);
        let sent = memory.sent(part);
        assert_eq!((sent[11], sent[12], sent[523], sent[524]), (7, SPOILT, SPOILT, 0));
        assert_eq!(Spoilt::marked(&memory.sent(buffer), SPOILT), spoilt);
        memory.give(buffer);
        let next = memory.take(Bytes(4096)).expect("the same one");
        assert_eq!(next.at, buffer.at);
        assert!(Spoilt::marked(&memory.sent(next)[..1536], SPOILT).is_empty());
    }
}
