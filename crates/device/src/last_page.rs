//! The last page of a file, which contains its second superblock, kept mapped; and the check that the file
//! still exists in full.
//!
//! The server checks before every FLUSH reply that a file still is what its superblock says. Reading the page
//! through the device would cost a seek of a disk, or 80 us of an SSD; the file's size and a page that is in
//! memory anyway cost half a microsecond. A truncation removes the page from the mapping, so the next check
//! sees the file as it is then: too short, or extended again with zeros.
//!
//! A file that is removed or replaced works as if nothing had happened until it is closed, and then
//! everything written to it is lost. The system call that returns its size also returns its number of names,
//! which is then 0. That is reported once, so that later checks look at the file's contents again, because it
//! may be truncated as well.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use memmap2::{MmapOptions, MmapRaw};
use weir_model::{BLOCK, Bytes, IoError};

use crate::mapped::sigbus;
use crate::store::io_error;

/// The mapping of a file's last page.
#[derive(Debug)]
pub(crate) struct LastPage {
    // The guard precedes the mapping, so that it is dropped first.
    guard: sigbus::Guard,
    map: MmapRaw,
}

impl LastPage {
    /// Maps the last page of a file of `size` bytes, a whole number of pages, and locks it in memory as far
    /// as the system allows.
    pub(crate) fn new(file: &File, size: Bytes) -> io::Result<Self> {
        let at = size.0.checked_sub(BLOCK).ok_or(io::ErrorKind::UnexpectedEof)?;
        let map = MmapOptions::new().offset(at).len(BLOCK as usize).map_raw_read_only(file)?;
        let guard = sigbus::Guard::over(map.as_mut_ptr() as usize, BLOCK as usize)?;
        // If it is refused, the page is read again when memory was short: rarely, and correctly as well.
        let _may_be_refused = map.lock();
        Ok(Self { guard, map })
    }

    /// Reads the page, which is as long as `bytes`; `None` if that takes a read of the file.
    pub(crate) fn read(
        &self,
        file: &File,
        expected: &Expected,
        bytes: &mut [u8],
    ) -> Option<Result<(), IoError>> {
        if let Err(error) = expected.check(file) {
            return Some(Err(error));
        }
        assert_eq!(bytes.len(), self.map.len(), "a page is read");
        // SAFETY: the mapping is as long as `bytes`, which are not part of it; the guard makes up for a page
        // that the file no longer has.
        unsafe { std::ptr::copy_nonoverlapping(self.map.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        // A page that was missing, or that the device could not read, never returns to the mapping.
        (!self.guard.has_tripped()).then_some(Ok(()))
    }
}

/// State of a file when it was opened.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Its size.
    size: Bytes,
    /// True if it had a name.
    has_name: bool,
    /// True once its removal has been reported.
    removal_reported: Cell<bool>,
}

impl Expected {
    /// Records the state of this file, of this size.
    pub(crate) fn of(file: &File, size: Bytes) -> io::Result<Self> {
        let named = file.metadata()?.nlink() > 0;
        Ok(Self { size, has_name: named, removal_reported: Cell::new(false) })
    }

    /// Checks that the file still is at least as long, and has a name if it had one. A missing name is
    /// reported once.
    pub(crate) fn check(&self, file: &File) -> Result<(), IoError> {
        let found = file.metadata().map_err(io_error)?;
        match found {
            found if found.len() < self.size.0 => Err(IoError::Short),
            found if self.has_name && found.nlink() == 0 && !self.removal_reported.replace(true) => {
                Err(IoError::Removed)
            }
            _ => Ok(()),
        }
    }

    /// Reports whether the file had a name, and has none any more.
    pub(crate) fn has_lost_name(&self, file: &File) -> bool {
        self.has_name && file.metadata().is_ok_and(|found| found.nlink() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const SIZE: Bytes = Bytes(16 * BLOCK);

    /// Creates a file whose last page is full of ones, and maps that page.
    fn file() -> (File, LastPage) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(SIZE.0).expect("its size");
        file.write_all_at(&[1; BLOCK as usize], SIZE.0 - BLOCK).expect("its last page");
        let tail = LastPage::new(&file, SIZE).expect("a mapping");
        (file, tail)
    }

    fn read(file: &File, tail: &LastPage) -> Option<Result<Vec<u8>, IoError>> {
        let mut page = vec![9; BLOCK as usize];
        let expected = Expected::of(file, SIZE).expect("its metadata");
        let result = tail.read(file, &expected, &mut page)?;
        Some(result.map(|()| page))
    }

    #[test]
    fn last_page_read_sees_later_writes() {
        let (file, tail) = file();
        assert_eq!(read(&file, &tail), Some(Ok(vec![1; BLOCK as usize])));
        file.write_all_at(&[2; BLOCK as usize], SIZE.0 - BLOCK).expect("a write");
        assert_eq!(read(&file, &tail), Some(Ok(vec![2; BLOCK as usize])));
    }

    #[test]
    fn truncated_file_reads_short_then_zeros() {
        for cut in [0, BLOCK, SIZE.0 - BLOCK, SIZE.0 - 1] {
            let (file, tail) = file();
            file.set_len(cut).expect("it is cut");
            assert_eq!(read(&file, &tail), Some(Err(IoError::Short)), "cut to {cut}");
            file.set_len(SIZE.0).expect("it grows");
            let kept = (cut + BLOCK).saturating_sub(SIZE.0) as usize;
            let expected = [vec![1; kept], vec![0; BLOCK as usize - kept]].concat();
            assert_eq!(read(&file, &tail), Some(Ok(expected)), "cut to {cut}");
        }
    }

    #[test]
    fn removed_or_replaced_file_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("device"), folder.path().join("other"));
        for replaced in [false, true] {
            let file = File::create_new(&path).expect("a file");
            file.set_len(SIZE.0).expect("its size");
            let expected = Expected::of(&file, SIZE).expect("its metadata");
            std::fs::hard_link(&path, &other).expect("a second name");
            std::fs::remove_file(&path).expect("removed");
            assert_eq!(expected.check(&file), Ok(()), "it has another name");
            if replaced {
                File::create_new(&path).and_then(|_| std::fs::rename(&path, &other)).expect("replaced");
            } else {
                std::fs::remove_file(&other).expect("removed");
            }
            assert!(!Expected::of(&file, SIZE).expect("its metadata").has_lost_name(&file), "it had none");
            assert_eq!(expected.check(&file), Err(IoError::Removed), "replaced: {replaced}");
            assert!(expected.has_lost_name(&file));
            assert_eq!(expected.check(&file), Ok(()), "told once");
            file.set_len(0).expect("it is cut");
            assert_eq!(expected.check(&file), Err(IoError::Short), "that is worse");
        }
    }

    #[test]
    fn a_file_without_a_page_has_none() {
        let file = tempfile::tempfile().expect("a file");
        assert!(LastPage::new(&file, Bytes(0)).is_err());
    }
}
