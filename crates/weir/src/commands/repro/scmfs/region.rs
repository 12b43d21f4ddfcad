//! Memory of weir's file system that charges a modelled machine for its loads, stores, flushes and fences.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use weir_fs::nvm::{LINE_BYTES, Memory};
use weir_sim::memory::{Address, Machine, PageSize, Place};

/// Where the region is mapped.
const REGION: Address = Address(10 << 40);

/// What is charged beside loads and stores.
#[derive(Clone, Debug)]
pub(super) struct Charges {
    /// Flushes and fences.
    pub(super) has_order: bool,
    /// Flushes of files' contents, if there are flushes.
    pub(super) flushes_data: bool,
    /// What the log of the file system takes.
    pub(super) has_log: bool,
}

/// What programs, the file system and its memory use together.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) machine: Machine,
    /// The buffer of the program that runs: its addresses here, and where it is on the machine.
    pub(super) buffer: Option<(Range<usize>, Place)>,
}

impl Shared {
    /// Returns where bytes of the program's buffer are on the machine; `None` if they are not in it.
    fn buffer_place(&self, bytes: &[u8]) -> Option<Place> {
        let (range, place) = self.buffer.as_ref()?;
        let start = bytes.as_ptr().addr();
        range.contains(&start).then(|| place.plus((start - range.start) as u64))
    }
}

/// Memory on a machine. What is not the program's buffer is on the kernel's stack, which costs nothing.
#[derive(Debug)]
pub(super) struct Charged {
    bytes: Vec<u8>,
    shared: Rc<RefCell<Shared>>,
    pages: PageSize,
    charges: Charges,
    /// Addresses of the log.
    log: Range<u64>,
}

impl Charged {
    /// Returns zeroed memory that is mapped by pages of this size.
    pub(super) fn new(
        size: u64,
        shared: Rc<RefCell<Shared>>,
        pages: PageSize,
        charges: Charges,
        log: Range<u64>,
    ) -> Self {
        Self { bytes: vec![0; size as usize], shared, pages, charges, log }
    }

    const fn place(&self, at: u64) -> Place {
        Place { at: REGION.plus(at), pages: self.pages }
    }

    fn is_free(&self, at: u64) -> bool {
        !self.charges.has_log && self.log.contains(&at)
    }
}

impl Memory for Charged {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn load(&self, at: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[at as usize..][..out.len()]);
        let (shared, len) = (&mut *self.shared.borrow_mut(), out.len() as u64);
        match shared.buffer_place(out) {
            Some(to) => shared.machine.copy(self.place(at), to, len),
            None => shared.machine.read(self.place(at), len),
        }
    }

    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        self.shared.borrow_mut().machine.read(self.place(at), len as u64);
        &self.bytes[at as usize..][..len]
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        if self.is_free(at) {
            return;
        }
        let (shared, len) = (&mut *self.shared.borrow_mut(), bytes.len() as u64);
        match shared.buffer_place(bytes) {
            Some(from) => shared.machine.copy(from, self.place(at), len),
            None => shared.machine.write(self.place(at), len),
        }
    }

    fn zero(&mut self, at: u64, len: u64) {
        self.bytes[at as usize..(at + len) as usize].fill(0);
        self.shared.borrow_mut().machine.write(self.place(at), len);
    }

    fn flush(&mut self, at: u64, len: u64) {
        // Metadata is flushed by line, and the log as a whole.
        let is_data = len != LINE_BYTES && !self.log.contains(&at);
        if self.charges.has_order && !self.is_free(at) && (self.charges.flushes_data || !is_data) {
            self.shared.borrow_mut().machine.flush(self.place(at), len);
        }
    }

    fn fence(&mut self) -> io::Result<()> {
        if self.charges.has_order {
            self.shared.borrow_mut().machine.fence();
        }
        Ok(())
    }
}
