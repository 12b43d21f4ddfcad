//! Persistent memory: what a store needs before it survives a power loss.

mod mapped;
mod simulated;

pub use mapped::{Mapped, MappedPages, OpenError, Persistence};
pub use simulated::{Granule, Simulated};

use std::io;

/// Unit of cache flushes, in bytes.
pub const LINE_BYTES: u64 = 64;

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
