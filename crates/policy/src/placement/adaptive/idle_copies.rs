//! Copies in idle time: of regions that are read, but whose parts are not worth the time of a copy each.
//!
//! Rule: a copy costs the other devices' time. While these are idle, no client waits for it. A region that
//! was read is then copied in address order and as a whole, so that a read of several extents finds all of
//! them or none on the fast device. Space for it beyond [`Headroom::unreserved_fill`] is made by regions
//! worth nothing, which were not read for many epochs. Regions worth a quarter as much do not suffice: hot
//! sets that are read in turn would replace one another, each shortly before it is read again.
//!
//! Constants: chosen for reads of 256 KiB at random; see the page on hard loads in docs/policies.

use super::super::PolicyContext;
use super::SOONER_FRACTION;
use super::fast::FastDevices;
use super::headroom::Headroom;
use super::heat::{Mask, PartLayout, REGION_EXTENTS, UNIT_WORTH, region_start};
use super::promoter::Promoter;
use super::worth::Worth;
use std::collections::VecDeque;
use weir_model::{ExtentIndex, ExtentKey, PlaceKind};

/// The maximum number of regions waiting; beyond it the one read first is dropped.
const WAITING_MAX: usize = 1024;
/// The minimum worth of a region: of its missing parts, on average. It must also be half the price.
const REGION_WORTH_MIN: u16 = UNIT_WORTH / 8;
/// The other devices are idle while they have clients' commands in less than this fraction of rounds, of
/// which the last ten or so count.
const BUSY_MAX: f64 = 0.25;
const ROUND_WEIGHT: f64 = 0.1;
/// The number of rounds that the region in progress waits for space before the next one is tried: a minute.
const WAIT_ROUNDS_MAX: u32 = 600;

/// What may leave the fast device for a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement {
    /// The region that takes the space: nothing of it leaves.
    pub(super) region: ExtentKey,
    /// The maximum worth of a part that leaves; its region is worth nothing on average.
    pub(super) part_worth: u16,
    /// The maximum number of them.
    pub(super) parts: u32,
}

/// Whether copies may take space without anything leaving for them.
fn has_free_space(context: &PolicyContext<'_>, fast: FastDevices) -> bool {
    let cut = PartLayout::new(context.extent.blocks());
    fast.fill(context.devices, cut) <= Headroom::unreserved_fill()
}

/// Returns the parts of an extent to copy: none if it is not allocated, or if a whole place on a fast device
/// has it.
fn missing_parts(context: &PolicyContext<'_>, fast: FastDevices, worth: &Worth, key: ExtentKey) -> Mask {
    let places = context.map.places(key);
    if places.as_slice().is_empty() || fast.have_place(&places, PlaceKind::Whole) {
        return 0;
    }
    let resident = worth.table.peek(key).map_or(0, |heat| heat.resident);
    PartLayout::new(context.extent.blocks()).all() & !resident
}

/// Returns the extent after this one.
fn following(key: ExtentKey) -> ExtentKey {
    ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key }
}

/// The state of copies in idle time.
#[derive(Clone, Debug)]
pub(super) struct IdleCopies {
    /// The first extents of regions that were read.
    waiting: VecDeque<ExtentKey>,
    /// The next extent to copy of the region in progress, and how many are left of it.
    next: Option<(ExtentKey, u64)>,
    /// The number of rounds it has waited for space.
    waited: u32,
    /// The parts of space made for copies that they have not taken yet.
    space: u32,
    /// The fraction of recent rounds in which the other devices had commands of clients.
    busy: f64,
}

impl Default for IdleCopies {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), next: None, waited: 0, space: 0, busy: 1.0 }
    }
}

impl IdleCopies {
    /// Resets the state, because other devices are the fast ones now.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        (self.next, self.waited, self.space) = (None, 0, 0);
    }

    /// Notes a read of parts that are not on the fast device.
    pub(super) fn note_miss(&mut self, key: ExtentKey) {
        let region = region_start(key);
        if self.waiting.back() != Some(&region) {
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(region);
        }
    }

    /// Returns what may leave for the region in progress now; `None` if it needs no more space.
    pub(super) fn replacement(
        &self,
        context: &PolicyContext<'_>,
        fast: FastDevices,
        worth: &Worth,
    ) -> Option<Replacement> {
        let (key, left) = self.next.filter(|_| self.is_idle() && !has_free_space(context, fast))?;
        let extents = std::iter::successors(Some(key), |key| Some(following(*key))).take(left as usize);
        let missing = extents.map(|key| missing_parts(context, fast, worth, key).count_ones()).sum::<u32>();
        let (parts, region) = (missing.saturating_sub(self.space), region_start(key));
        let cut = PartLayout::new(context.extent.blocks());
        let worth = worth.table.region_worth(cut, region, false);
        (parts > 0).then_some(Replacement { region, part_worth: worth / 2, parts })
    }

    /// Notes that this many parts left for the region in progress.
    pub(super) fn note_space(&mut self, parts: u32) {
        self.space += parts;
    }

    fn is_idle(&self) -> bool {
        self.busy < BUSY_MAX
    }

    /// Selects the next waiting region that is worth a copy. Returns whether one is in progress.
    fn select_region(&mut self, cut: PartLayout, worth: &Worth) -> bool {
        let least = REGION_WORTH_MIN.max(worth.price() / 2);
        while self.next.is_none() {
            let Some(region) = self.waiting.pop_front() else { return false };
            let is_worth_it = worth.table.region_worth(cut, region, false) >= least;
            self.next = is_worth_it.then_some((region, REGION_EXTENTS));
        }
        true
    }

    /// Requests copies of waiting regions, while the other devices are idle and space is not short.
    pub(super) fn round(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: FastDevices,
        (worth, headroom, is_evicting): (&mut Worth, &mut Headroom, bool),
        promoter: &mut Promoter,
    ) {
        self.busy += ROUND_WEIGHT * (f64::from(u8::from(headroom.had_clients())) - self.busy);
        let is_sooner = worth.block_prices(context, fast, false).is_sooner_on_fast(SOONER_FRACTION);
        if is_evicting || !self.is_idle() || !is_sooner {
            return;
        }
        let cut = PartLayout::new(context.extent.blocks());
        while self.select_region(cut, worth) {
            let Some((key, left)) = self.next else { return };
            let missing = missing_parts(context, fast, worth, key);
            if missing == 0 {
                self.advance(key, left);
                continue;
            }
            headroom.request_space();
            if !promoter.may_request(context) {
                return;
            }
            if !has_free_space(context, fast) && self.space < missing.count_ones() {
                self.waited += 1;
                if self.waited > WAIT_ROUNDS_MAX {
                    (self.next, self.waited) = (None, 0);
                }
                return;
            }
            self.waited = 0;
            // Extents that were never accessed are copied, too: their state exists from now on.
            worth.table.get_or_insert(key);
            promoter.copy(context, fast, (worth, headroom), key, missing);
            let still_missing = missing_parts(context, fast, worth, key);
            self.space = self.space.saturating_sub((missing & !still_missing).count_ones());
            if still_missing == 0 || still_missing == missing {
                self.advance(key, left);
            }
        }
    }

    /// Goes on to the extent after this one, of which and behind which `left` are left of the region.
    fn advance(&mut self, key: ExtentKey, left: u64) {
        self.next = (left > 1).then_some((following(key), left - 1));
    }
}
