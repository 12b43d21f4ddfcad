//! A region file or DAX device, mapped once.
//!
//! All `unsafe` code of the crate is here and below.
#![allow(unsafe_code)]

mod lines;
mod windows;

pub use windows::WindowBytes;

use super::{ChunkPlace, Memory, WindowRequest};
use lines::Instruction;
use rustix::fs::{FallocateFlags, FileType, FlockOperation};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use thiserror::Error;
use windows::Windows;

/// How stores become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// By flushes of cache lines: the file is on DAX, and the kernel granted a synchronous mapping.
    CacheLines,
    /// By `fdatasync` of the region file.
    FileSync,
}

/// The pages by which the kernel is to map a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedPages {
    /// Pages of 4 KiB.
    Small,
    /// Pages of 2 MiB where memory is touched for the first time, if the file's file system has them.
    Large,
    /// Pages of 2 MiB, now: small ones are copied together. Linux 6.1 and later.
    Collapsed,
}

/// The reason why a region cannot be opened or created.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the region open.
    #[error("region {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The path is that of a directory, or of an empty file.
    #[error("{} holds no region", .0.display())]
    NotARegion(PathBuf),
    /// A region is to be created, and the path is not that of a file.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The operating system refused.
    #[error("cannot {what} {}: {error}", path.display())]
    Os {
        /// What was tried.
        what: &'static str,
        /// The region.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
}

/// A mapped region.
///
/// The region is locked against other processes as long as this value exists. Should the file be truncated
/// meanwhile, the next access ends the process with SIGBUS.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    size: u64,
    file: File,
    /// `None`: stores become durable by `fdatasync`.
    instruction: Option<Instruction>,
    writable: bool,
    windows: Windows,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Mapped {}
// SAFETY: methods with `&self` only read, and references into the mapping borrow it; those that write take
// `&mut self`.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Creates a region file of `size` bytes with all of its space allocated, so that no later store finds
    /// the disk full, and maps it. An existing file is an error unless `overwrite`.
    ///
    /// # Errors
    /// Returns an error if the file exists or is in use, or if the operating system refuses.
    pub fn create(path: &Path, size: u64, overwrite: bool) -> Result<Self, OpenError> {
        let os = |what| move |error: io::Error| OpenError::Os { what, path: path.to_owned(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        if overwrite {
            options.create(true)
        } else {
            options.create_new(true)
        };
        let is_new = !path.exists();
        let file = options.open(path).map_err(os("create"))?;
        if !file.metadata().map_err(os("inspect"))?.is_file() {
            return Err(OpenError::NotAFile(path.to_owned()));
        }
        lock(&file, path, true)?;
        let allocated = allocate(&file, path, size);
        if allocated.is_err() && is_new {
            // The error that is returned says more than one of the removal would.
            let _ = std::fs::remove_file(path);
        }
        allocated?;
        let memory = Self::map(file, path, size, true)?;
        // A tmpfs with huge=advise has allocated small pages. Copying them together takes 2 to 4 ms a MiB,
        // once. Reads and writes are then up to 1.2 times as fast, those of 1 MiB or more 1.3 to 1.5 times
        // (bench/fs-pages). Other file systems refuse at once.
        let _ = memory.ask_for(MappedPages::Collapsed);
        Ok(memory)
    }

    /// Opens and maps an existing region; `writable` locks it for this process alone.
    ///
    /// # Errors
    /// Returns an error if the region is in use, or if the operating system refuses.
    pub fn open(path: &Path, writable: bool) -> Result<Self, OpenError> {
        let os = |what| move |error: io::Error| OpenError::Os { what, path: path.to_owned(), error };
        let file = OpenOptions::new().read(true).write(writable).open(path).map_err(os("open"))?;
        let status = rustix::fs::fstat(&file).map_err(|error| os("inspect")(error.into()))?;
        if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
            return Err(OpenError::NotARegion(path.to_owned()));
        }
        lock(&file, path, writable)?;
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(|error| os("find the size of")(error.into()))?;
        Self::map(file, path, size, writable)
    }

    fn map(file: File, path: &Path, size: u64, writable: bool) -> Result<Self, OpenError> {
        let os = |error: io::Error| OpenError::Os { what: "map", path: path.to_owned(), error };
        let len = usize::try_from(size).map_err(|_| os(io::ErrorKind::FileTooLarge.into()))?;
        if len == 0 {
            return Err(OpenError::NotARegion(path.to_owned()));
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let map = |flags| unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, &file, 0) };
        // Only DAX grants MAP_SYNC, which is what makes flushing cache lines sufficient.
        let synchronous = Instruction::best().and_then(|instruction| {
            Some((map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC).ok()?, Some(instruction)))
        });
        let (base, instruction) = match synchronous {
            Some(mapped) => mapped,
            None => (map(MapFlags::SHARED).map_err(|error| os(error.into()))?, None),
        };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        let memory = Self { base, size, file, instruction, writable, windows: Windows::default() };
        // Where the kernel has none, or needs no request, the region is as usable without.
        let _ = memory.ask_for(MappedPages::Large);
        Ok(memory)
    }

    /// Returns how stores become durable.
    pub const fn persistence(&self) -> Persistence {
        if self.instruction.is_some() { Persistence::CacheLines } else { Persistence::FileSync }
    }

    /// Asks the kernel to map the region by such pages.
    ///
    /// # Errors
    /// Returns the error of the operating system, which may lack such pages.
    pub fn ask_for(&self, pages: MappedPages) -> io::Result<()> {
        let advice = match pages {
            MappedPages::Small => libc::MADV_NOHUGEPAGE,
            MappedPages::Large => libc::MADV_HUGEPAGE,
            MappedPages::Collapsed => libc::MADV_COLLAPSE,
        };
        // SAFETY: the range is this mapping, whose contents none of these changes.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.size as usize, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Checks that the range is in the mapping and returns the address of its first byte.
    fn address(&self, at: u64, len: u64) -> *mut u8 {
        let end = at.checked_add(len).expect("no range ends beyond 2^64");
        assert!(end <= self.size, "range {at}+{len} ends beyond the region of {} bytes", self.size);
        // SAFETY: `at` is at most the size of the mapping.
        unsafe { self.base.as_ptr().add(at as usize) }
    }
}

/// Gives a file this size, with all of its space allocated, and empties it first.
fn allocate(file: &File, path: &Path, size: u64) -> Result<(), OpenError> {
    let os = |what| move |error: io::Error| OpenError::Os { what, path: path.to_owned(), error };
    file.set_len(0).and_then(|()| file.set_len(size)).map_err(os("resize"))?;
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size)
        .map_err(|error| os("allocate")(error.into()))?;
    file.sync_all().map_err(os("flush"))
}

fn lock(file: &File, path: &Path, exclusive: bool) -> Result<(), OpenError> {
    let how = match exclusive {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    rustix::fs::flock(file, how).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => OpenError::InUse(path.to_owned()),
        error => OpenError::Os { what: "lock", path: path.to_owned(), error: error.into() },
    })
}

impl Memory for Mapped {
    fn size(&self) -> u64 {
        self.size
    }

    fn load(&self, at: u64, out: &mut [u8]) {
        let from = self.address(at, out.len() as u64);
        // SAFETY: `address` checked the range; `out` is not in the mapping, to which nobody has a mutable
        // reference.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let from = self.address(at, len as u64);
        // SAFETY: `address` checked the range; no method writes as long as `self` is borrowed.
        unsafe { std::slice::from_raw_parts(from, len) }
    }

    fn window(&self, request: &WindowRequest<'_>) -> Option<WindowBytes<'_>> {
        for place in request.places {
            if let ChunkPlace::At(at) = place {
                self.address(*at, request.chunk_bytes);
            }
        }
        self.windows.bytes(&self.file, request)
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        assert!(self.writable, "the region is mapped read-only");
        let to = self.address(at, bytes.len() as u64);
        // SAFETY: as in `load`; `&mut self` excludes other accesses of this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    fn zero(&mut self, at: u64, len: u64) {
        assert!(self.writable, "the region is mapped read-only");
        let to = self.address(at, len);
        // SAFETY: as in `store`.
        unsafe { std::ptr::write_bytes(to, 0, len as usize) }
    }

    fn flush(&mut self, at: u64, len: u64) {
        if let Some(instruction) = self.instruction {
            let from = self.address(at, len);
            // SAFETY: `address` checked the range.
            unsafe { instruction.flush(from, len as usize) }
        }
    }

    fn fence(&mut self) -> io::Result<()> {
        match self.instruction {
            Some(_) => lines::fence(),
            None => rustix::fs::fdatasync(&self.file)?,
        }
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, with this size, and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size as usize) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests;
