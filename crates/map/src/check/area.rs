//! Reading the metadata of one member, or of two as one, as far as it is readable.

use crate::format::page::PageNumber;
use crate::format::superblock::{JOURNAL_AT, ROOT_AT};
use crate::{PAGE, Superblock};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use weir_model::{Bytes, DeviceId, DeviceOffset, Store};

/// The number of pages read at once: those of a checkpoint are adjacent, and a small pool uses few.
const WINDOW_PAGES: u64 = 32;
/// The number of windows kept.
const WINDOWS_MAX: usize = 1024;

/// The metadata of one member, or of several that mirror each other.
pub(super) struct MetadataArea<'a> {
    store: &'a mut dyn Store,
    /// The superblock of the first member; all members have the same layout.
    pub(super) sb: &'a Superblock,
    members: &'a [DeviceId],
    windows: FxHashMap<(DeviceId, u64), Vec<u8>>,
    order: VecDeque<(DeviceId, u64)>,
    /// Bytes read so far.
    pub(super) bytes_read: Bytes,
}

impl<'a> MetadataArea<'a> {
    pub(super) fn new(store: &'a mut dyn Store, sb: &'a Superblock, members: &'a [DeviceId]) -> Self {
        Self {
            store,
            sb,
            members,
            windows: FxHashMap::default(),
            order: VecDeque::new(),
            bytes_read: Bytes(0),
        }
    }

    pub(super) fn device(&self) -> DeviceId {
        self.sb.device
    }

    /// Returns the offset of a metadata page.
    pub(super) fn address(&self, number: PageNumber) -> DeviceOffset {
        let number = number.0.min(self.sb.meta_pages);
        DeviceOffset(self.sb.pages_at().0 + number * PAGE as u64)
    }

    fn read_at(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), String> {
        self.bytes_read += Bytes(bytes.len() as u64);
        self.store.read(device, at, bytes).map_err(|error| format!("it cannot be read: {error}"))
    }

    /// Reads a root slot's page on each member.
    pub(super) fn roots(&mut self, slot: usize) -> Vec<Result<Vec<u8>, String>> {
        let members = self.members;
        let read = |device: &DeviceId| {
            let mut page = vec![0; PAGE];
            self.read_at(*device, ROOT_AT[slot], &mut page).map(|()| page)
        };
        members.iter().map(read).collect()
    }

    /// Reads each member's journal ring. Also returns the parts that no member can read; unreadable parts are
    /// zeros.
    pub(super) fn rings(&mut self) -> (Vec<Vec<u8>>, Vec<(DeviceOffset, String)>) {
        let (mut rings, mut unread) = (Vec::new(), BTreeMap::new());
        for device in self.members {
            let (ring, missing) = self.ring(*device);
            rings.push(ring);
            for (at, why) in missing {
                unread.entry(at.0).or_insert((why, 0)).1 += 1;
            }
        }
        let nowhere = unread.into_iter().filter(|(_, (_, members))| *members == self.members.len());
        (rings, nowhere.map(|(at, (why, _))| (DeviceOffset(at), why)).collect())
    }

    fn ring(&mut self, device: DeviceId) -> (Vec<u8>, Vec<(DeviceOffset, String)>) {
        let mut ring = vec![0; self.sb.journal_pages as usize * PAGE];
        let mut unread = Vec::new();
        let mut at = JOURNAL_AT;
        for part in ring.chunks_mut(crate::log::journal::FRAME_MAX) {
            if self.read_at(device, at, part).is_err() {
                for (i, page) in part.chunks_mut(PAGE).enumerate() {
                    let at = DeviceOffset(at.0 + (i * PAGE) as u64);
                    if let Err(why) = self.read_at(device, at, page) {
                        page.fill(0);
                        unread.push((at, why));
                    }
                }
            }
            at.0 += part.len() as u64;
        }
        (ring, unread)
    }

    /// Returns a metadata page of the first member whose copy `accept` takes.
    ///
    /// # Errors
    /// If there is none, returns the reason of the first member.
    pub(super) fn page<T>(
        &mut self,
        number: PageNumber,
        accept: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, String> {
        if number.0 >= self.sb.meta_pages {
            return Err(format!("page {} is beyond the metadata area", number.0));
        }
        let mut first = None;
        for device in self.members {
            match self.member_page(*device, number).and_then(|page| accept(&page)) {
                Ok(accepted) => return Ok(accepted),
                Err(why) => drop(first.get_or_insert(why)),
            }
        }
        Err(first.unwrap_or_else(|| "there is no member".into()))
    }

    fn member_page(&mut self, device: DeviceId, number: PageNumber) -> Result<Vec<u8>, String> {
        let window = (device, number.0 / WINDOW_PAGES);
        let first = window.1 * WINDOW_PAGES;
        if !self.windows.contains_key(&window) {
            let pages = WINDOW_PAGES.min(self.sb.meta_pages - first);
            let mut bytes = vec![0; pages as usize * PAGE];
            if self.read_at(device, self.address(PageNumber(first)), &mut bytes).is_err() {
                // Some page of the window is unreadable: pages are read one by one, so that only that one
                // counts.
                let mut page = vec![0; PAGE];
                return self.read_at(device, self.address(number), &mut page).map(|()| page);
            }
            if self.order.len() == WINDOWS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.windows.remove(&oldest);
            }
            self.windows.insert(window, bytes);
            self.order.push_back(window);
        }
        let start = (number.0 - first) as usize * PAGE;
        let page = self.windows.get(&window).and_then(|bytes| bytes.get(start..start + PAGE));
        page.map(<[u8]>::to_vec).ok_or_else(|| "it was not read".into())
    }
}
