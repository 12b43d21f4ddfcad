//! Reads the metadata of all members as one: what one does not have right is taken from the other, and
//! mended.

use crate::page::{self, Identity, PageNumber};
use crate::{MapError, PAGE, PoolId, Superblock, create};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceId, DeviceOffset, IoError, Store};

const WINDOW_PAGES: u64 = 256;
/// Of each member.
const WINDOWS_MAX: usize = 128;

/// A page that a member does not have right, with the bytes it should have.
pub(crate) type Repair = (DeviceId, PageNumber, Box<[u8; PAGE]>);

/// Reads metadata pages through windows of 1 MiB: a checkpoint's pages lie side by side.
pub(crate) struct Reader<'a> {
    store: &'a mut dyn Store,
    pool: PoolId,
    members: &'a [DeviceId],
    pages_at: DeviceOffset,
    meta_pages: u64,
    /// Empty where the device failed: its pages are then read one by one.
    windows: FxHashMap<(DeviceId, u64), Vec<u8>>,
    order: VecDeque<(DeviceId, u64)>,
    pub(crate) read: Bytes,
    pub(crate) repairs: Vec<Repair>,
    /// The pages read, in no order.
    pub(crate) used: Vec<PageNumber>,
}

/// A page that is what its pointer says.
pub(crate) struct Opened {
    pub(crate) level: u8,
    pub(crate) next: PageNumber,
    pub(crate) payload: Vec<u8>,
}

/// What a pointer says about the page it points to. A map page's level is in the page.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) identity: Identity,
    pub(crate) any_level: bool,
    pub(crate) what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(store: &'a mut dyn Store, layout: &Superblock, members: &'a [DeviceId]) -> Self {
        Self {
            store,
            pool: layout.pool,
            members,
            pages_at: layout.pages_at(),
            meta_pages: layout.meta_pages,
            windows: FxHashMap::default(),
            order: VecDeque::new(),
            read: Bytes(0),
            repairs: Vec::new(),
            used: Vec::new(),
        }
    }

    /// The page, from the first member that has it right. It is looked at on all of them: what rots
    /// unseen on one is lost with the other.
    ///
    /// # Errors
    /// If none has it right: how the first failed.
    pub(crate) fn page(&mut self, number: PageNumber, expected: Expected) -> Result<Opened, MapError> {
        let (mut wrong, mut good, mut first_error) = (Vec::new(), None, None);
        for &device in self.members {
            match self.from_member(device, number, expected) {
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

    fn from_member(
        &mut self,
        device: DeviceId,
        number: PageNumber,
        expected: Expected,
    ) -> Result<(Opened, Box<[u8; PAGE]>), MapError> {
        let at = self.address(number);
        let io = |error| MapError::Io { device, what: "read", at, error };
        let bytes = self.bytes(device, number).map_err(io)?;
        let mut identity = expected.identity;
        if expected.any_level {
            identity.level = bytes[5];
        }
        let damaged = |why| MapError::Damaged { device, what: expected.what, at, why };
        let (payload, next) = page::open(&bytes[..], self.pool, identity, number).map_err(damaged)?;
        Ok((Opened { level: identity.level, next, payload: payload.to_vec() }, bytes))
    }

    pub(crate) fn address(&self, number: PageNumber) -> DeviceOffset {
        DeviceOffset(self.pages_at.0 + number.0.min(self.meta_pages) * PAGE as u64)
    }

    fn bytes(&mut self, device: DeviceId, number: PageNumber) -> Result<Box<[u8; PAGE]>, IoError> {
        let window = (device, number.0 / WINDOW_PAGES);
        if !self.windows.contains_key(&window) {
            self.fetch(window);
        }
        let start = (number.0 % WINDOW_PAGES) as usize * PAGE;
        let mut bytes = Box::new([0; PAGE]);
        match self.windows.get(&window).and_then(|w| w.get(start..start + PAGE)) {
            Some(page) => bytes.copy_from_slice(page),
            None => self.store.read(device, self.address(number), &mut bytes[..])?,
        }
        Ok(bytes)
    }

    fn fetch(&mut self, window: (DeviceId, u64)) {
        if self.order.len() == WINDOWS_MAX * self.members.len()
            && let Some(oldest) = self.order.pop_front()
        {
            self.windows.remove(&oldest);
        }
        let first = window.1 * WINDOW_PAGES;
        let pages = WINDOW_PAGES.min(self.meta_pages.saturating_sub(first));
        let mut bytes = vec![0; pages as usize * PAGE];
        let at = self.address(PageNumber(first));
        if create::read(self.store, window.0, at, &mut bytes).is_err() {
            bytes.clear();
        }
        self.read += Bytes(bytes.len() as u64);
        self.windows.insert(window, bytes);
        self.order.push_back(window);
    }
}
