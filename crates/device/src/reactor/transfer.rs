//! The progress of a receive or send over several buffers, in the kernel's representation.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, iovec, msghdr};
use weir_model::{Buffer, Errno, IoError};

use crate::arena::{KernelAccess, Region};

/// Maximum number of buffers of one system call (the kernel's `UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// A receive or send. Its memory is reused by the next one.
#[derive(Debug)]
pub(super) struct Transfer {
    parts: Vec<(Buffer, KernelAccess)>,
    vectors: Vec<iovec>,
    header: msghdr,
    /// Index of the first vector that is not complete.
    next: usize,
    left: usize,
    transferred: usize,
    /// True if the transfer ends only when everything has been moved.
    is_whole: bool,
    active: bool,
}

/// State of a transfer after a system call.
pub(super) enum Progress {
    /// Call again.
    Continue,
    /// It is complete, with this many bytes moved.
    Complete(Result<usize, IoError>),
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            vectors: Vec::new(),
            // SAFETY: a `msghdr` of zeros is valid: no address, no vectors, no control data.
            header: unsafe { std::mem::zeroed() },
            next: 0,
            left: 0,
            transferred: 0,
            is_whole: false,
            active: false,
        }
    }
}

impl Transfer {
    /// Starts a transfer with these buffers.
    pub(super) fn begin(&mut self, parts: &[Buffer], whole: bool, region: &Region, how: KernelAccess) {
        assert!(!self.active, "one receive and one send at a time per connection");
        self.parts.clear();
        self.vectors.clear();
        for &part in parts.iter().filter(|part| part.len > 0) {
            region.lend(part, how);
            self.parts.push((part, how));
            self.vectors.push(iovec { iov_base: region.pointer(part).cast(), iov_len: part.len as usize });
        }
        self.left = self.vectors.iter().map(|v| v.iov_len).sum();
        (self.next, self.transferred, self.is_whole, self.active) = (0, 0, whole, true);
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Takes the buffers back from the kernel.
    pub(super) fn end(&mut self, region: &Region) {
        self.active = false;
        for (part, how) in self.parts.drain(..) {
            region.returned(part, how);
        }
    }

    /// Returns the flags for a system call on the rest.
    pub(super) fn flags(&self) -> c_int {
        let all =
            if self.is_whole && self.vectors.len() - self.next <= PARTS_MAX { libc::MSG_WAITALL } else { 0 };
        all | libc::MSG_NOSIGNAL
    }

    /// Returns the rest, if it is contiguous.
    pub(super) fn single(&self) -> Option<(*mut u8, u32)> {
        let [only] = &self.vectors[self.next..] else { return None };
        Some((only.iov_base.cast(), only.iov_len as u32))
    }

    /// Returns the rest as a message; valid until the transfer is changed or moved.
    pub(super) fn header(&mut self) -> *mut msghdr {
        let rest = &mut self.vectors[self.next..];
        self.header.msg_iov = rest.as_mut_ptr();
        self.header.msg_iovlen = rest.len().min(PARTS_MAX) as _;
        &raw mut self.header
    }

    /// Handles the result of a system call: bytes, or a negated error number.
    pub(super) fn handle_result(&mut self, answer: i32) -> Progress {
        match answer {
            e if e == -libc::EAGAIN || e == -libc::EINTR => return Progress::Continue,
            e if e < 0 => return Progress::Complete(Err(IoError::Os(Errno(-e)))),
            // A send of zero bytes, or the end of the stream.
            0 => return Progress::Complete(Ok(self.transferred)),
            _ => self.advance(answer as usize),
        }
        if self.is_whole && self.left > 0 {
            Progress::Continue
        } else {
            Progress::Complete(Ok(self.transferred))
        }
    }

    fn advance(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.left, "more moved than asked for");
        self.transferred += bytes;
        self.left -= bytes;
        let mut bytes = bytes;
        while bytes > 0 {
            let vector = &mut self.vectors[self.next];
            let step = bytes.min(vector.iov_len);
            vector.iov_base = vector.iov_base.cast::<u8>().wrapping_add(step).cast();
            vector.iov_len -= step;
            bytes -= step;
            if vector.iov_len == 0 {
                self.next += 1;
            }
        }
    }

    /// Sends what the socket takes without waiting.
    pub(super) fn try_send(&mut self, socket: BorrowedFd<'_>) -> c_int {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let header = self.header();
        // SAFETY: the header's vectors point into the arena, within bounds (`Region::pointer`);
        // the kernel only reads them and is done when the call returns.
        answer(unsafe { libc::sendmsg(socket.as_raw_fd(), header, flags) })
    }

    /// Receives what is available without waiting.
    pub(super) fn try_recv(&mut self, socket: BorrowedFd<'_>) -> c_int {
        let header = self.header();
        // SAFETY: the header's vectors point into the arena, within bounds (`Region::pointer`), to
        // bytes given away for this receive; the kernel is done with them when the call returns.
        answer(unsafe { libc::recvmsg(socket.as_raw_fd(), header, libc::MSG_DONTWAIT) })
    }
}

/// Converts a system call's result to the form that io_uring uses.
fn answer(result: isize) -> c_int {
    if result >= 0 {
        return result.try_into().unwrap_or(c_int::MAX);
    }
    -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
