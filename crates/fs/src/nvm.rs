//! Persistent memory: what a store needs before it survives a power loss.

mod mapped;
mod simulated;

pub use mapped::{Mapped, MappedPages, OpenError, Persistence, WindowBytes};
pub use simulated::{Granule, Simulated};

use std::io;
use std::ops::Range;

/// Unit of cache flushes, in bytes.
pub const LINE_BYTES: u64 = 64;

/// Where a chunk of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPlace {
    /// At this address.
    At(u64),
    /// Nowhere: it reads as zeros.
    Hole,
}

/// Bytes of a file that are wanted as one slice although its chunks are scattered.
#[derive(Clone, Debug)]
pub struct WindowRequest<'a> {
    /// Number of the file. The same number makes repeated requests cheap.
    pub file: u64,
    /// Size of the file, for which virtual memory is reserved.
    pub file_bytes: u64,
    /// The bytes of the file.
    pub bytes: Range<u64>,
    /// Bytes of a chunk, a multiple of the size of the system's pages.
    pub chunk_bytes: u64,
    /// The chunks that have these bytes, in the order of the file.
    pub places: &'a [ChunkPlace],
}

impl WindowRequest<'_> {
    /// Returns the chunks, each with its index in the file.
    fn chunks(&self) -> impl Iterator<Item = (u64, ChunkPlace)> {
        (self.bytes.start / self.chunk_bytes..).zip(self.places.iter().copied())
    }
}

/// Persistent memory, byte-addressed from 0.
///
/// A store is *visible* to loads at once. It is *durable* (survives a power loss) once a
/// [`flush`](Self::flush) of its range and a later [`fence`](Self::fence) have returned. Before that, any
/// part of it may survive or be lost, in any order: caches evict lines, and the kernel writes back pages,
/// whenever they like.
pub trait Memory {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Copies `out.len()` bytes at `at` to `out`.
    ///
    /// # Panics
    /// Panics if the range ends beyond the memory.
    fn load(&self, at: u64, out: &mut [u8]);

    /// Returns the `len` bytes at `at`, where they are.
    ///
    /// # Panics
    /// Panics if the range ends beyond the memory.
    fn bytes(&self, at: u64, len: usize) -> &[u8];

    /// Returns bytes of several chunks as one slice; `None` if the memory cannot map them so, as it cannot
    /// unless it says otherwise.
    ///
    /// # Panics
    /// Panics if a chunk ends beyond the memory, or if the places are not those of the bytes.
    fn window(&self, request: &WindowRequest<'_>) -> Option<WindowBytes<'_>> {
        let _ = request;
        None
    }

    /// Stores `bytes` at `at`.
    ///
    /// # Panics
    /// Panics if the range ends beyond the memory.
    fn store(&mut self, at: u64, bytes: &[u8]);

    /// Stores `len` zero bytes at `at`.
    ///
    /// # Panics
    /// Panics if the range ends beyond the memory.
    fn zero(&mut self, at: u64, len: u64);

    /// Begins to make earlier stores in the range durable; the next fence completes it.
    fn flush(&mut self, at: u64, len: u64);

    /// Waits until everything flushed is durable, before any later store is.
    ///
    /// # Errors
    /// Returns the operating system's error. What was flushed since the last fence may then be lost, and a
    /// repeated fence cannot tell.
    fn fence(&mut self) -> io::Result<()>;
}
