//! Reads the metadata of all members as one: a page that one member has wrong is taken from the other, and
//! repaired.

use crate::format::page::{self, Identity, PageNumber};
use crate::format::table::Pointer;
use crate::{MapError, PAGE, PoolId, Superblock, create};
use weir_model::{Bytes, DeviceId, DeviceOffset, IoError, Planted, Store};

/// The maximum number of pages read at once.
const RUN_PAGES: u64 = 256;
/// The maximum gap between two wanted pages that is read along: an SSD takes about as long for 64 KiB as for
/// another command.
const GAP_PAGES: u64 = 16;

/// A page that a member has wrong, with its correct bytes.
pub(crate) type Repair = (DeviceId, PageNumber, Box<[u8; PAGE]>);

/// Reads metadata pages, many at a time where [planned](Self::plan) pages are adjacent.
pub(crate) struct Reader<'a> {
    store: &'a mut dyn Store,
    pool: PoolId,
    members: &'a [DeviceId],
    pages_at: DeviceOffset,
    meta_pages: u64,
    /// The pages that will be requested, ascending.
    planned: Vec<u64>,
    /// Per member, the last pages read.
    runs: Vec<PageRun>,
    pub(crate) bytes_read: Bytes,
    pub(crate) repairs: Vec<Repair>,
    /// The pages read, unordered.
    pub(crate) used: Vec<PageNumber>,
    planted: Planted,
}

/// A run of adjacent pages.
#[derive(Default)]
struct PageRun {
    first: u64,
    pages: u64,
    /// Empty where the device failed: its pages are then read one by one.
    bytes: Vec<u8>,
}

/// A page that matches its pointer.
pub(crate) struct VerifiedPage {
    pub(crate) level: u8,
    pub(crate) next: PageNumber,
    pub(crate) payload: Vec<u8>,
}

/// The page that a pointer leads to, as expected. A map page's level is in the page.
#[derive(Clone, Copy)]
pub(crate) struct ExpectedPage {
    pub(crate) identity: Identity,
    pub(crate) any_level: bool,
    pub(crate) what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        store: &'a mut dyn Store,
        layout: &Superblock,
        members: &'a [DeviceId],
        planted: Planted,
    ) -> Self {
        Self {
            store,
            pool: layout.pool,
            members,
            pages_at: layout.pages_at(),
            meta_pages: layout.meta_pages,
            planned: Vec::new(),
            runs: members.iter().map(|_| PageRun::default()).collect(),
            bytes_read: Bytes(0),
            repairs: Vec::new(),
            used: Vec::new(),
            planted,
        }
    }

    /// Plans to read the pages of these pointers next. Returns the pointers' indices in the order of the
    /// pages on disk: read in that order, every part of the disk is read once, however mixed up the pages
    /// are. Pointers to nothing come last.
    pub(crate) fn plan(&mut self, pointers: &[Pointer]) -> Vec<usize> {
        let mut order: Vec<_> = (0..pointers.len()).collect();
        order.sort_unstable_by_key(|i| pointers[*i].number);
        let numbers = order.iter().map(|i| pointers[*i].number.0);
        self.planned = numbers.take_while(|n| *n < self.meta_pages).collect();
        order
    }

    /// Returns the page from the first member that has it right. It is verified on all members, because
    /// undetected damage on one is lost with the other.
    ///
    /// # Errors
    /// If none has it right, returns the error of the first.
    pub(crate) fn page(
        &mut self,
        number: PageNumber,
        expected: ExpectedPage,
    ) -> Result<VerifiedPage, MapError> {
        let (mut wrong, mut good, mut first_error) = (Vec::new(), None, None);
        for (member, &device) in self.members.iter().enumerate() {
            match self.read_on_member(member, number, expected) {
                Ok(found) => drop(good.get_or_insert(found)),
                Err(error) => {
                    wrong.push(device);
                    first_error.get_or_insert(error);
                }
            }
        }
        match (good, first_error) {
            (Some((opened, bytes)), _) => {
                self.repairs.extend(wrong.into_iter().map(|device| (device, number, bytes.clone())));
                self.used.push(number);
                Ok(opened)
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(MapError::Mismatch("none of them carries metadata".into())),
        }
    }

    fn read_on_member(
        &mut self,
        member: usize,
        number: PageNumber,
        expected: ExpectedPage,
    ) -> Result<(VerifiedPage, Box<[u8; PAGE]>), MapError> {
        let (device, at) = (self.members[member], self.address(number));
        let io = |error| MapError::Io { device, what: "read", at, error };
        let bytes = self.bytes(member, number).map_err(io)?;
        let mut identity = expected.identity;
        if expected.any_level {
            identity.level = bytes[5];
        }
        let damaged = |why| MapError::Damaged { device, what: expected.what, at, why };
        let (payload, next) =
            page::open(&bytes[..], self.pool, identity, number, self.planted).map_err(damaged)?;
        Ok((VerifiedPage { level: identity.level, next, payload: payload.to_vec() }, bytes))
    }

    pub(crate) fn address(&self, number: PageNumber) -> DeviceOffset {
        DeviceOffset(self.pages_at.0 + number.0.min(self.meta_pages) * PAGE as u64)
    }

    fn bytes(&mut self, member: usize, number: PageNumber) -> Result<Box<[u8; PAGE]>, IoError> {
        if !self.runs[member].contains(number) && self.planned.binary_search(&number.0).is_ok() {
            self.fetch(member, number);
        }
        let mut bytes = Box::new([0; PAGE]);
        match self.runs[member].page(number) {
            Some(page) => bytes.copy_from_slice(page),
            None => {
                self.store.read(self.members[member], self.address(number), &mut bytes[..])?;
                self.bytes_read += Bytes(PAGE as u64);
            }
        }
        Ok(bytes)
    }

    /// Reads a planned page, and the planned ones after it that are near.
    fn fetch(&mut self, member: usize, number: PageNumber) {
        let mut last = number.0;
        for next in &self.planned[self.planned.partition_point(|n| *n < last)..] {
            if next - last > GAP_PAGES || next - number.0 >= RUN_PAGES {
                break;
            }
            last = *next;
        }
        let pages = last + 1 - number.0;
        let mut bytes = vec![0; pages as usize * PAGE];
        let at = self.address(number);
        if create::read(self.store, self.members[member], at, &mut bytes).is_err() {
            bytes.clear();
        }
        self.bytes_read += Bytes(bytes.len() as u64);
        self.runs[member] = PageRun { first: number.0, pages, bytes };
    }
}

impl PageRun {
    fn contains(&self, number: PageNumber) -> bool {
        (self.first..self.first + self.pages).contains(&number.0)
    }

    fn page(&self, number: PageNumber) -> Option<&[u8]> {
        let start = number.0.checked_sub(self.first)? as usize * PAGE;
        self.bytes.get(start..start + PAGE)
    }
}
