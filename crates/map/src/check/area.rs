//! Reading a metadata member, as far as it can be read.

use crate::page::PageNumber;
use crate::superblock::{JOURNAL_AT, ROOT_AT};
use crate::{PAGE, Superblock};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceId, DeviceOffset, Store};

/// Pages read at once: a checkpoint's lie side by side.
const WINDOW_PAGES: u64 = 256;
/// Windows kept.
const WINDOWS_MAX: usize = 128;

/// The metadata of one member.
pub(super) struct Area<'a> {
    store: &'a mut dyn Store,
    pub(super) sb: &'a Superblock,
    windows: FxHashMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    /// Bytes read so far.
    pub(super) read: Bytes,
}

impl<'a> Area<'a> {
    pub(super) fn new(store: &'a mut dyn Store, sb: &'a Superblock) -> Self {
        Self { store, sb, windows: FxHashMap::default(), order: VecDeque::new(), read: Bytes(0) }
    }

    pub(super) fn device(&self) -> DeviceId {
        self.sb.device
    }

    /// Where a metadata page is.
    pub(super) fn address(&self, number: PageNumber) -> DeviceOffset {
        let number = number.0.min(self.sb.meta_pages);
        DeviceOffset(self.sb.pages_at().0 + number * PAGE as u64)
    }

    fn read_at(&mut self, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), String> {
        self.read += Bytes(bytes.len() as u64);
        self.store.read(self.sb.device, at, bytes).map_err(|error| format!("it cannot be read: {error}"))
    }

    /// A root slot's page.
    pub(super) fn root(&mut self, slot: usize) -> Result<Vec<u8>, String> {
        let mut page = vec![0; PAGE];
        self.read_at(ROOT_AT[slot], &mut page).map(|()| page)
    }

    /// The journal ring; what cannot be read is zeros, and listed.
    pub(super) fn ring(&mut self) -> (Vec<u8>, Vec<(DeviceOffset, String)>) {
        let mut ring = vec![0; self.sb.journal_pages as usize * PAGE];
        let mut unread = Vec::new();
        let mut at = JOURNAL_AT;
        for part in ring.chunks_mut(crate::journal::FRAME_MAX) {
            if self.read_at(at, part).is_err() {
                for (i, page) in part.chunks_mut(PAGE).enumerate() {
                    let at = DeviceOffset(at.0 + (i * PAGE) as u64);
                    if let Err(why) = self.read_at(at, page) {
                        page.fill(0);
                        unread.push((at, why));
                    }
                }
            }
            at.0 += part.len() as u64;
        }
        (ring, unread)
    }

    /// A metadata page, which must be within the area.
    pub(super) fn page(&mut self, number: PageNumber) -> Result<Vec<u8>, String> {
        if number.0 >= self.sb.meta_pages {
            return Err(format!("page {} is beyond the metadata area", number.0));
        }
        let window = number.0 / WINDOW_PAGES;
        let first = window * WINDOW_PAGES;
        if !self.windows.contains_key(&window) {
            let pages = WINDOW_PAGES.min(self.sb.meta_pages - first);
            let mut bytes = vec![0; pages as usize * PAGE];
            if self.read_at(self.address(PageNumber(first)), &mut bytes).is_err() {
                // Some page of the window is unreadable: each on its own, so that only that one counts.
                let mut page = vec![0; PAGE];
                return self.read_at(self.address(number), &mut page).map(|()| page);
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
