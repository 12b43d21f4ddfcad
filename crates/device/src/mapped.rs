//! A file in memory (tmpfs), read through a mapping and written by system call.
//!
//! There is no device to wait for, so a system call costs more than the copy it makes: a random 4 KiB read
//! takes 0.65 us through the mapping and 1.9 us through `pread`, and 12 us through a ring, which hands such
//! files to its worker threads (measured on a 2.5 GHz machine with the mitigations of 2018; half of that
//! without).
//!
//! Writes use `pwrite` nevertheless. The file outlives a killed process, and a copy interrupted in the middle
//! of a sector would leave one that is neither old nor new; the kernel finishes the page it is copying. And a
//! full file system is an error of the call.
//!
//! Holes are never touched through the mapping, which would allocate memory. Another process may truncate the
//! file; access to the missing pages of a mapping raises SIGBUS, which kills the process. [`sigbus`] turns
//! that signal into a flag, after which only system calls are used.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use weir_model::{BLOCK, Bytes, DeviceOffset, IoError};

use crate::store::io_error;

pub(crate) mod sigbus;

/// The mapping, and which of its blocks have memory allocated.
#[derive(Debug)]
pub(crate) struct Mapped {
    // The guard precedes the mapping, so that it is dropped first.
    guard: sigbus::Guard,
    map: MmapRaw,
    /// One bit per block: set if the file has memory for it.
    present: Vec<u64>,
}

impl Mapped {
    /// Maps the first `size` bytes of the file, a whole number of blocks.
    pub(crate) fn new(file: &File, size: Bytes) -> io::Result<Self> {
        let len = usize::try_from(size.0).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let map = MmapOptions::new().len(len).map_raw(file)?;
        let guard = sigbus::Guard::over(map.as_mut_ptr() as usize, len)?;
        let present = vec![0; (size.0 / BLOCK).div_ceil(64) as usize];
        let mut mapped = Self { guard, map, present };
        mapped.find_present(file, size)?;
        Ok(mapped)
    }

    fn find_present(&mut self, file: &File, size: Bytes) -> io::Result<()> {
        let mut at = 0;
        while at < size.0 {
            let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            at = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size.0);
            // Only blocks that are entirely allocated.
            self.set_present(start.div_ceil(BLOCK)..at / BLOCK);
        }
        Ok(())
    }

    /// Fills `bytes` from a range within the mapping.
    pub(crate) fn read(&self, file: &File, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        let mut from = at.0;
        let mut rest = &mut *bytes;
        while !rest.is_empty() {
            let len = rest.len().min((BLOCK - from % BLOCK) as usize);
            let (piece, later) = rest.split_at_mut(len);
            if self.is_present(from / BLOCK) {
                let there = self.pointer(from, len);
                // SAFETY: `there` is within the mapping (`pointer`), and not part of the arena.
                unsafe { std::ptr::copy_nonoverlapping(there, piece.as_mut_ptr(), len) };
            } else {
                piece.fill(0);
            }
            rest = later;
            from += len as u64;
        }
        if self.guard.has_tripped() { file.read_exact_at(bytes, at.0).map_err(io_error) } else { Ok(()) }
    }

    /// Writes `bytes` to a range within the mapping.
    pub(crate) fn write(&mut self, file: &File, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        file.write_all_at(bytes, at.0).map_err(io_error)?;
        self.mark_written(at, Bytes(bytes.len() as u64));
        Ok(())
    }

    /// Marks a range as written, in any way: the file now has memory for it.
    pub(crate) fn mark_written(&mut self, at: DeviceOffset, len: Bytes) {
        self.set_present(at.0 / BLOCK..(at.0 + len.0).div_ceil(BLOCK));
    }

    /// Returns a pointer to a range of the file.
    #[inline]
    fn pointer(&self, at: u64, len: usize) -> *const u8 {
        assert!(at + len as u64 <= self.map.len() as u64, "{len} bytes at {at:#x} are not mapped");
        // SAFETY: just checked to stay within the mapping.
        unsafe { self.map.as_ptr().add(at as usize) }
    }

    #[inline]
    fn is_present(&self, block: u64) -> bool {
        self.present[(block / 64) as usize] & (1 << (block % 64)) != 0
    }

    fn set_present(&mut self, blocks: Range<u64>) {
        for block in blocks {
            self.present[(block / 64) as usize] |= 1 << (block % 64);
        }
    }
}
