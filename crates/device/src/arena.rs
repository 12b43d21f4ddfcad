//! The pool's buffer memory, shared with the kernel: one anonymous, page-aligned mapping.
//!
//! While a buffer is lent to the kernel (a device command, a receive or a send in flight), no one else may
//! access its bytes, or may only read them if the kernel only reads them too. The ownership rules of
//! [`weir_model::Request`] and [`weir_model::Io`] define who may; debug builds check them at every access. No
//! slice ever covers more than the buffer it was requested for.

use std::io;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};
use weir_model::{BLOCK, Buddy, Buffer, Bytes, GROWTH_MAX, Memory};

use crate::DeviceError;

/// The mapping, kept alive by every owner whose commands may still point into it.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    map: MmapRaw,
    /// Bytes in use from the start; the rest replaces those of them that may never be returned.
    initial_len: u64,
    #[cfg(debug_assertions)]
    lent: std::sync::Mutex<Vec<(Buffer, KernelAccess)>>,
}

/// How the kernel uses a lent buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelAccess {
    /// It reads the buffer: a device write, a send.
    Read,
    /// It changes the buffer: a device read, a receive.
    Write,
}

impl Region {
    fn new(size: Bytes) -> io::Result<Self> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let len = usize::try_from(size.0 * GROWTH_MAX).map_err(too_large)?;
        // This reserves address space for the maximum size; only touched pages use memory.
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
        // Huge pages save TLB entries; a refusal only costs speed.
        let _ = map.advise(Advice::HugePage);
        Ok(Self {
            inner: Arc::new(Inner {
                map: map.into(),
                initial_len: size.0,
                #[cfg(debug_assertions)]
                lent: std::sync::Mutex::default(),
            }),
        })
    }

    /// Returns the start of the region, and the length of the part in use from the start.
    pub(crate) fn initial_part(&self) -> (*mut u8, usize) {
        (self.inner.map.as_mut_ptr(), self.inner.initial_len as usize)
    }

    /// Reports whether the buffer is in the part that is in use from the start.
    #[inline]
    pub(crate) fn is_in_initial_part(&self, buffer: Buffer) -> bool {
        buffer.at + u64::from(buffer.len) <= self.inner.initial_len
    }

    /// Returns a pointer to a buffer's bytes; valid for `buffer.len` bytes as long as any clone of the region
    /// lives.
    ///
    /// # Panics
    /// Panics if the buffer is not within the region: it was not taken from this arena.
    #[inline]
    pub(crate) fn pointer(&self, buffer: Buffer) -> *mut u8 {
        let end = buffer.at.checked_add(u64::from(buffer.len));
        assert!(end.is_some_and(|end| end <= self.inner.map.len() as u64), "{buffer:?} is not of this arena");
        // SAFETY: just checked to stay within the mapping.
        unsafe { self.inner.map.as_mut_ptr().add(buffer.at as usize) }
    }

    /// Marks the buffer as lent to the kernel.
    #[inline]
    pub(crate) fn lend(&self, buffer: Buffer, how: KernelAccess) {
        #[cfg(debug_assertions)]
        if buffer.len > 0 {
            self.check(buffer, how);
            self.lent().push((buffer, how));
        }
        #[cfg(not(debug_assertions))]
        let _ = (buffer, how);
    }

    /// Marks the buffer as returned by the kernel.
    #[inline]
    pub(crate) fn returned(&self, buffer: Buffer, how: KernelAccess) {
        #[cfg(debug_assertions)]
        if buffer.len > 0 {
            let mut lent = self.lent();
            let at = lent.iter().position(|&l| l == (buffer, how)).expect("returned what was not lent");
            lent.swap_remove(at);
        }
        #[cfg(not(debug_assertions))]
        let _ = (buffer, how);
    }

    /// Panics if part of the buffer is lent to the kernel in a way that would race with `how`.
    #[cfg(debug_assertions)]
    fn check(&self, buffer: Buffer, how: KernelAccess) {
        let end = |b: Buffer| b.at + u64::from(b.len);
        for &(other, its) in self.lent().iter() {
            let overlap = other.at < end(buffer) && buffer.at < end(other);
            assert!(
                !overlap || (how == KernelAccess::Read && its == KernelAccess::Read),
                "{buffer:?} is used while {other:?} is lent to the kernel ({its:?})"
            );
        }
    }

    #[cfg(debug_assertions)]
    fn lent(&self) -> std::sync::MutexGuard<'_, Vec<(Buffer, KernelAccess)>> {
        self.inner.lent.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the bytes of a buffer that its owner gave away for a command executed on the spot.
    ///
    /// # Safety
    /// No one else, kernel included, may use the buffer while the slice lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "exclusive by the rules of ownership, not by borrow")]
    pub(crate) unsafe fn lent_slice(&self, buffer: Buffer) -> &mut [u8] {
        #[cfg(debug_assertions)]
        self.check(buffer, KernelAccess::Write);
        // SAFETY: in bounds (`pointer`), mapped as long as `self`; exclusive by the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(buffer), buffer.len as usize) }
    }

    /// Returns the bytes of a buffer that no one changes meanwhile.
    #[inline]
    pub(crate) fn bytes(&self, buffer: Buffer) -> &[u8] {
        #[cfg(debug_assertions)]
        self.check(buffer, KernelAccess::Read);
        // SAFETY: in bounds (`pointer`), mapped as long as `self`, initialised (anonymous maps are
        // zeros), and by the rules of ownership not changed by the kernel while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.pointer(buffer), buffer.len as usize) }
    }
}

/// The pool's buffer memory. Taking and returning buffers is cheap. Pages are not resident before they are
/// first touched, unless the kernel has them registered; pages that [replace others](Memory::grow) are
/// never registered.
#[derive(Debug)]
pub struct Arena {
    region: Region,
    buddy: Buddy,
    /// The initial number of blocks.
    blocks: u32,
}

impl Arena {
    /// Maps `size` bytes, rounded up to whole blocks.
    ///
    /// # Errors
    /// [`DeviceError::Setup`] if the system has no room for the mapping.
    pub fn new(size: Bytes) -> Result<Self, DeviceError> {
        let blocks = size.0.div_ceil(BLOCK).max(1);
        let small = u32::try_from(blocks).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory));
        small
            .and_then(|blocks| {
                let region = Region::new(Bytes(u64::from(blocks) * BLOCK))?;
                Ok(Self { region, buddy: Buddy::new(blocks), blocks })
            })
            .map_err(|source| DeviceError::Setup { what: "buffer memory", source })
    }

    /// Returns the total size in bytes.
    pub fn size(&self) -> Bytes {
        Bytes(u64::from(self.buddy.blocks()) * BLOCK)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

impl Memory for Arena {
    fn take(&mut self, len: Bytes) -> Option<Buffer> {
        let blocks = u32::try_from(len.0.div_ceil(BLOCK).max(1)).ok()?;
        let at = self.buddy.take(blocks)?;
        Some(Buffer { at: u64::from(at) * BLOCK, len: blocks * BLOCK as u32 })
    }

    fn give(&mut self, buffer: Buffer) {
        #[cfg(debug_assertions)]
        self.region.check(buffer, KernelAccess::Write);
        self.buddy.give((buffer.at / BLOCK) as u32, buffer.len / BLOCK as u32);
    }

    #[inline]
    fn bytes(&self, buffer: Buffer) -> &[u8] {
        self.region.bytes(buffer)
    }

    #[inline]
    fn bytes_mut(&mut self, buffer: Buffer) -> &mut [u8] {
        #[cfg(debug_assertions)]
        self.region.check(buffer, KernelAccess::Write);
        // SAFETY: in bounds (`pointer`), mapped as long as `self`; `&mut self` keeps other users
        // of the arena out, the rules of ownership keep the kernel out.
        unsafe { std::slice::from_raw_parts_mut(self.region.pointer(buffer), buffer.len as usize) }
    }

    fn free(&self) -> Bytes {
        Bytes(u64::from(self.buddy.free_blocks()) * BLOCK)
    }

    fn grow(&mut self, bytes: Bytes) {
        self.buddy.grow(bytes, self.blocks);
    }

    fn copy(&mut self, from: Buffer, to: Buffer) {
        assert_eq!(from.len, to.len, "copy between buffers of different length");
        #[cfg(debug_assertions)]
        {
            self.region.check(from, KernelAccess::Read);
            self.region.check(to, KernelAccess::Write);
        }
        let (source, target) = (self.region.pointer(from), self.region.pointer(to));
        // SAFETY: both in bounds (`pointer`), and owned by the caller; `copy` allows overlap.
        unsafe { std::ptr::copy(source, target, from.len as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_keep_bytes_and_are_reused() {
        let mut arena = Arena::new(Bytes::mib(1)).unwrap();
        let (a, b) = (arena.take(Bytes(5000)).unwrap(), arena.take(Bytes(8192)).unwrap());
        arena.bytes_mut(a).fill(7);
        arena.bytes_mut(b).fill(9);
        arena.copy(a, b);
        assert!(arena.bytes(b).iter().all(|&byte| byte == 7));
        assert_eq!(arena.bytes(a).as_ptr() as usize % 4096, 0);
        arena.give(a);
        arena.give(b);
        assert_eq!(arena.free(), arena.size());
        assert!(arena.take(Bytes::mib(2)).is_none());
    }

    #[test]
    #[should_panic(expected = "not of this arena")]
    fn a_foreign_buffer_is_refused() {
        let arena = Arena::new(Bytes::mib(1)).unwrap();
        arena.bytes(Buffer { at: GROWTH_MAX * (1 << 20) - 8, len: 16 });
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lent to the kernel")]
    fn access_to_lent_buffer_panics() {
        let mut arena = Arena::new(Bytes::mib(1)).unwrap();
        let buffer = arena.take(Bytes(4096)).unwrap();
        arena.region().lend(buffer.part(0, 512), KernelAccess::Write);
        arena.bytes(buffer.part(512, 512));
        arena.bytes(buffer);
    }
}
