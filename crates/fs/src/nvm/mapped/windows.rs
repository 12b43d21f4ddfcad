//! Files that are contiguous in virtual memory (SCMFS, section 3).
//!
//! The chunks of a large file lie anywhere in the region. A window is a range of virtual memory in which they
//! are mapped once more, in the order of the file, so that any bytes of it are one slice. Windows hold
//! nothing that is not in the region: they are made when they are needed, chunk by chunk, and the one that
//! was used least recently goes when there are too many. So addresses cannot run out, and a fragmented range
//! is never moved.

use crate::nvm::{ChunkPlace, WindowRequest};
use rustc_hash::FxHashMap;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Chunks and holes that all windows together show at most. Each may be a mapping of its own, and so may the
/// gap beside it, of which a process can have 65,530, unless the system says otherwise.
const CHUNKS_MAX: usize = 16_384;
/// The part of the system's limit of mappings that chunks may take.
const MAPPINGS_PART: usize = 4;
/// Virtual bytes of a window. A file that is longer, because it is sparse or the region very large, has none.
const WINDOW_BYTES_MAX: u64 = 1 << 40;
/// Virtual bytes of all windows together, of the 128 TiB that a process has.
const BYTES_MAX: u64 = 16 << 40;

/// The windows of a region.
#[derive(Debug)]
pub(super) struct Windows {
    table: Mutex<Table>,
    chunks_max: usize,
}

#[derive(Debug, Default)]
struct Table {
    windows: FxHashMap<u64, Window>,
    /// Counts requests; the last one of each window says how long ago it was used.
    clock: u64,
    /// Entries of all windows.
    chunks: usize,
    /// Virtual bytes of all windows.
    bytes: u64,
}

/// A file's range, and what has been mapped in it. What has no entry was never handed out.
#[derive(Debug)]
struct Window {
    range: Arc<Reserved>,
    chunk_bytes: u64,
    entries: FxHashMap<u64, ChunkPlace>,
    last_used: u64,
}

/// A range of virtual memory that reads as zeros where nothing is mapped.
#[derive(Debug)]
struct Reserved {
    /// What was reserved, of which `base` is the first address that large pages can begin at.
    start: NonNull<u8>,
    reserved: usize,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to this value, and it is read-only memory.
unsafe impl Send for Reserved {}
// SAFETY: as above.
unsafe impl Sync for Reserved {}

/// Bytes of a file in its window, which exists as long as they do.
#[derive(Debug)]
pub struct WindowBytes<'a> {
    window: Arc<Reserved>,
    within: Range<usize>,
    /// What is mapped is memory that `store` changes.
    _memory: std::marker::PhantomData<&'a [u8]>,
}

impl Deref for WindowBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Windows::bytes` saw that the range is in the window, which `self` keeps. What is mapped
        // there stays until no `WindowBytes` of the window is left, and its contents as long as the memory is
        // borrowed.
        unsafe {
            let first = self.window.base.as_ptr().add(self.within.start);
            std::slice::from_raw_parts(first, self.within.len())
        }
    }
}

impl Default for Windows {
    fn default() -> Self {
        let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let chunks_max = chunks_max(limit.ok().as_deref());
        Self { table: Mutex::default(), chunks_max }
    }
}

/// Returns how many chunks windows show where a process can have this many mappings.
fn chunks_max(mappings: Option<&str>) -> usize {
    let mappings = mappings.and_then(|mappings| mappings.trim().parse::<usize>().ok());
    mappings.map_or(CHUNKS_MAX, |mappings| CHUNKS_MAX.min(mappings / MAPPINGS_PART))
}

impl Windows {
    /// Returns the bytes that are asked for; `None` if the file is too long for a window, or if the kernel
    /// refuses one. `file` is the region.
    pub(super) fn bytes(&self, file: &File, request: &WindowRequest<'_>) -> Option<WindowBytes<'_>> {
        let WindowRequest { chunk_bytes, ref bytes, .. } = *request;
        let chunks = bytes.end.div_ceil(chunk_bytes) - bytes.start / chunk_bytes;
        assert!(chunks == request.places.len() as u64, "one for each chunk");
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let window = table.window(request)?;
        let mut is_mapped = true;
        let mut new = 0;
        for (index, place) in request.chunks() {
            if window.entries.get(&index) != Some(&place) {
                is_mapped &= window.range.map(file, index * chunk_bytes, chunk_bytes, place).is_ok();
                new += usize::from(window.entries.insert(index, place).is_none());
            }
        }
        let range = Arc::clone(&window.range);
        table.chunks += new;
        if !is_mapped {
            table.remove(request.file);
            return None;
        }
        table.shrink(self.chunks_max, request.file);
        let within = bytes.start as usize..bytes.end as usize;
        Some(WindowBytes { window: range, within, _memory: std::marker::PhantomData })
    }
}

impl Table {
    /// Returns the file's window, in which the request's chunks can be mapped.
    fn window(&mut self, request: &WindowRequest<'_>) -> Option<&mut Window> {
        self.clock += 1;
        let chunk_bytes = request.chunk_bytes;
        let needed = request.bytes.end.max(request.file_bytes).checked_next_multiple_of(chunk_bytes)?;
        if !self.windows.get_mut(&request.file).is_some_and(|window| window.can_show(request)) {
            // Someone may read what was there. That window lasts as long as the reader needs it.
            self.remove(request.file);
            // The file may grow up to twofold before it needs another.
            let len = needed.checked_next_power_of_two().filter(|len| *len <= WINDOW_BYTES_MAX)?;
            while self.bytes + len > BYTES_MAX && self.remove_oldest(request.file) {}
            let range = Arc::new(Reserved::new(len as usize, chunk_bytes as usize).ok()?);
            self.bytes += len;
            let entries = FxHashMap::default();
            self.windows.insert(request.file, Window { range, chunk_bytes, entries, last_used: 0 });
        }
        let window = self.windows.get_mut(&request.file)?;
        window.last_used = self.clock;
        Some(window)
    }

    fn remove(&mut self, file: u64) {
        if let Some(window) = self.windows.remove(&file) {
            self.chunks -= window.entries.len();
            self.bytes -= window.range.len as u64;
        }
    }

    /// Removes windows until the others show at most `max` chunks; that of `kept` goes last.
    fn shrink(&mut self, max: usize, kept: u64) {
        while self.chunks > max {
            if !self.remove_oldest(kept) {
                self.remove(kept);
            }
        }
    }

    fn remove_oldest(&mut self, kept: u64) -> bool {
        let others = self.windows.iter().filter(|(file, _)| **file != kept);
        let oldest = others.min_by_key(|(_, window)| window.last_used).map(|(file, _)| *file);
        oldest.inspect(|file| self.remove(*file)).is_some()
    }
}

impl Window {
    /// Returns whether it is long enough, and nobody reads a chunk that would have to be replaced.
    fn can_show(&mut self, request: &WindowRequest<'_>) -> bool {
        let differs = |(index, place)| self.entries.get(&index).is_some_and(|mapped| *mapped != place);
        self.chunk_bytes == request.chunk_bytes
            && self.range.len as u64 >= request.bytes.end
            && (!request.chunks().any(differs) || Arc::get_mut(&mut self.range).is_some())
    }
}

impl Reserved {
    fn new(len: usize, alignment: usize) -> io::Result<Self> {
        let reserved = len.checked_add(alignment).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::READ, flags)? };
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at address 0");
        let skipped = start.as_ptr().align_offset(alignment);
        // SAFETY: `align_offset` is less than `alignment`, by which more was reserved.
        let base = unsafe { start.add(skipped) };
        Ok(Self { start, reserved, base, len })
    }

    /// Maps a chunk of the region at `at`, or zeros. Nobody may have a reference to what is there.
    fn map(&self, file: &File, at: u64, len: u64, place: ChunkPlace) -> io::Result<()> {
        let (at, len) = (at as usize, len as usize);
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "a chunk beyond its window");
        // SAFETY: as above, `at` is in the range.
        let address = unsafe { self.base.as_ptr().add(at) }.cast();
        match place {
            // SAFETY: only pages of this range are replaced, which nobody has references to.
            ChunkPlace::At(from) => unsafe {
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                rustix::mm::mmap(address, len, ProtFlags::READ, flags, file, from)?;
                // Where the kernel has none, the window is as usable without.
                libc::madvise(address, len, libc::MADV_HUGEPAGE);
            },
            // SAFETY: as above.
            ChunkPlace::Hole => unsafe {
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
                rustix::mm::mmap_anonymous(address, len, ProtFlags::READ, flags)?;
            },
        }
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range was reserved by `new`, and nothing refers to it any more.
        // The kernel joins neighbours, and a process with as many mappings as it can have cannot split them.
        // The range then stays, which takes addresses and no memory.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.reserved) };
    }
}

#[cfg(test)]
mod tests;
