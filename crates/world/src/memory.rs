//! Buffer memory that tracks its [damaged](DamagedSectors) sectors.

use crate::DamagedSectors;
use std::borrow::Cow;
use std::ops::Range;
use weir_model::{Buffer, Bytes, HeapMemory, Memory, SECTOR};

/// The byte that clients of a server receive in place of the bytes of damaged sectors. No write has such
/// contents.
pub const DAMAGE_MARK: u8 = 0xd5;

/// The buffer memory of a world.
#[derive(Debug)]
pub struct WorldMemory {
    memory: HeapMemory,
    damaged: DamagedSectors,
    marks_zeros: bool,
}

impl WorldMemory {
    /// Creates a memory of `size`, rounded up to whole blocks.
    #[must_use]
    pub fn new(size: Bytes) -> Self {
        Self { memory: HeapMemory::new(size), damaged: DamagedSectors::default(), marks_zeros: false }
    }

    /// [Marks](DAMAGE_MARK) damaged zeros in place from now on: a server passes zeros on without their bytes.
    pub const fn mark_damaged_zeros(&mut self) {
        self.marks_zeros = true;
    }

    /// Frees all buffers, regardless of their owners.
    pub fn reset(&mut self) {
        self.memory.reset();
        self.damaged = DamagedSectors::default();
    }

    /// Returns the damaged sectors of a buffer.
    #[must_use]
    pub fn damaged_sectors(&self, buffer: Buffer) -> DamagedSectors {
        self.damaged.part(sectors(buffer))
    }

    /// Returns the bytes of a buffer as they are sent to a client: damaged sectors are [marked](DAMAGE_MARK),
    /// because only the devices know of them.
    #[must_use]
    pub fn sent(&self, buffer: Buffer) -> Cow<'_, [u8]> {
        let bytes = self.memory.bytes(buffer);
        let end = buffer.at + bytes.len() as u64;
        let touched = buffer.at / SECTOR..end.div_ceil(SECTOR);
        if !self.damaged.touches(touched.clone()) {
            return Cow::Borrowed(bytes);
        }
        let mut marked = bytes.to_vec();
        for sector in touched.filter(|sector| self.damaged.contains(*sector)) {
            let (from, to) = ((sector * SECTOR).max(buffer.at), ((sector + 1) * SECTOR).min(end));
            marked[(from - buffer.at) as usize..(to - buffer.at) as usize].fill(DAMAGE_MARK);
        }
        Cow::Owned(marked)
    }

    /// Sets the damaged sectors of a buffer.
    pub fn set_damaged(&mut self, buffer: Buffer, spoilt: &DamagedSectors) {
        self.damaged.put(sectors(buffer), spoilt);
        if !self.marks_zeros || spoilt.is_empty() {
            return;
        }
        let first = (buffer.at.next_multiple_of(SECTOR) - buffer.at) as usize;
        let bytes = &mut self.memory.bytes_mut(buffer)[first..];
        for (sector, bytes) in bytes.chunks_exact_mut(SECTOR as usize).enumerate() {
            if spoilt.contains(sector as u64) && bytes.iter().all(|byte| *byte == 0) {
                bytes.fill(DAMAGE_MARK);
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
        if !self.damaged.is_empty() {
            self.set_damaged(buffer, &DamagedSectors::default());
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
        if !self.damaged.is_empty() {
            self.set_damaged(buffer, &DamagedSectors::default());
        }
        self.memory.bytes_mut(buffer)
    }
    fn free(&self) -> Bytes {
        self.memory.free()
    }
    fn grow(&mut self, bytes: Bytes) {
        self.memory.grow(bytes);
    }
    fn copy(&mut self, from: Buffer, to: Buffer) {
        self.memory.copy(from, to);
        if !self.damaged.is_empty() {
            let spoilt = self.damaged_sectors(from);
            self.set_damaged(to, &spoilt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_sectors_are_marked_when_sent() {
        let mut memory = WorldMemory::new(Bytes(8192));
        memory.mark_damaged_zeros();
        let buffer = memory.take(Bytes(4096)).expect("a buffer");
        memory.bytes_mut(buffer)[..1024].fill(7);
        let mut spoilt = DamagedSectors::first(2);
        spoilt.put(0..1, &DamagedSectors::default());
        spoilt.put(3..4, &DamagedSectors::first(1));
        memory.set_damaged(buffer, &spoilt);
        assert_eq!(memory.bytes(buffer)[512..1024], [7; 512], "data stays what the device has");
        assert_eq!(
            memory.bytes(buffer)[1536..2048],
            [DAMAGE_MARK; 512],
            "zeros could be passed on without a look"
        );
        let part = buffer.part(500, 600);
        let sent = memory.sent(part);
        assert_eq!((sent[11], sent[12], sent[523], sent[524]), (7, DAMAGE_MARK, DAMAGE_MARK, 0));
        assert_eq!(DamagedSectors::marked(&memory.sent(buffer), DAMAGE_MARK), spoilt);
        memory.give(buffer);
        let next = memory.take(Bytes(4096)).expect("the same one");
        assert_eq!(next.at, buffer.at);
        assert!(DamagedSectors::marked(&memory.sent(next)[..1536], DAMAGE_MARK).is_empty());
    }
}
