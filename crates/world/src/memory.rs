//! Buffer memory that knows which of its sectors are [spoilt](Spoilt).

use crate::Spoilt;
use std::ops::Range;
use weir_model::{Buffer, Bytes, HeapMemory, Memory, SECTOR};

/// The buffer memory of a world.
#[derive(Debug)]
pub struct WorldMemory {
    memory: HeapMemory,
    spoilt: Spoilt,
}

impl WorldMemory {
    /// A region of `size`, rounded up to whole blocks.
    #[must_use]
    pub fn new(size: Bytes) -> Self {
        Self { memory: HeapMemory::new(size), spoilt: Spoilt::default() }
    }

    /// Everything is free again, whoever took it.
    pub fn reset(&mut self) {
        self.memory.reset();
        self.spoilt = Spoilt::default();
    }

    /// The spoilt sectors of a buffer.
    #[must_use]
    pub fn spoilt(&self, buffer: Buffer) -> Spoilt {
        self.spoilt.part(sectors(buffer))
    }

    /// A buffer is filled with what is spoilt like this.
    pub fn spoil(&mut self, buffer: Buffer, spoilt: &Spoilt) {
        self.spoilt.put(sectors(buffer), spoilt);
    }
}

/// The sectors that lie wholly in a buffer.
fn sectors(buffer: Buffer) -> Range<u64> {
    buffer.at.div_ceil(SECTOR)..(buffer.at + u64::from(buffer.len)) / SECTOR
}

impl Memory for WorldMemory {
    fn take(&mut self, len: Bytes) -> Option<Buffer> {
        self.memory.take(len)
    }
    fn give(&mut self, buffer: Buffer) {
        self.memory.give(buffer);
    }
    fn bytes(&self, buffer: Buffer) -> &[u8] {
        self.memory.bytes(buffer)
    }
    /// To fill it: what was spoilt is gone.
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
