//! `hystor`: the costly blocks also on the fast device, and writes buffered there.
//!
//! Source: Hystor (the paper's sections 3 to 5).
//!
//! Rule: each access adds its inverse bitmap to the [block table](crate::block_table), so that blocks
//! accessed often by small requests stand out. Every `period` Program 1 names the most costly blocks, as many
//! as fit the *remap area*. Resident blocks among them go to the top of the resident list; the others are
//! copied to the fast device in exchange for those at its bottom, until the fraction `update` of the area has
//! changed. Blocks that clients call metadata are remapped at first sight, and, if configured, those that the
//! volume's own ext2/3/4 superblock calls metadata ([`crate::ext`]). Writes to resident blocks go to the fast
//! device; other writes too, into the *write-back area*, as long as it has space. Above the `high` watermark
//! the scrubber writes dirty blocks back, in home-address order, down to `low`. A read of a block in an area
//! goes there, however busy the fast device is; with `reads = "soonest"`, which is ours, it goes where the
//! answer is expected sooner. With `buffer_copies = 2` dirty blocks are in slots of a second fast device as
//! well, until they are written back: the loss of either device loses no data. A clean copy is on one device
//! only. Both areas are quotas, not places. The home of a block is kept (inclusive): clean copies are
//! dropped, never written.
//!
//! Constants: a period changes 5 to 10 % of the area, as published; blocks of 4 KiB. The paper gives no
//! period and no watermarks: 10 s, 75 % and 50 % are ours, and so are the order of scrubbing and the second
//! copy. A second device counts as fast if its idle read takes at most twice as long as the first's, or if it
//! is nearer to the first than to the slowest (as a ratio).
//!
//! A difference: blocks are remapped one by one, but the two lists are kept by extent, where a resident
//! extent is one with resident blocks: some 40 bytes per extent among others instead of per block. With
//! `resident_list = "blocks"` the resident list is by block, as published. An extent is in one area at a
//! time.
//!
//! When not: once the fast device is saturated it stays so, because the policy ignores load.

mod areas;
mod copies;
mod explain;
mod extent_blocks;
mod plan;
mod recency;
mod resident_list;

use super::allocation::{fastest, is_metadata};
use super::{
    Access, Action, DeviceView, KeptPlaces, Key, Placement, PolicyContext, Question, ReadFrom, Reasons,
    Settings, Stripe, Subscriptions, WriteTo,
};
use crate::block_table::{BlockAddress, Flags, inverse_bitmap};
use crate::{BlockTable, Lru};
use areas::{Areas, Extent};
use extent_blocks::ExtentBlocks;
use resident_list::ResidentBlocks;
use std::collections::VecDeque;
use weir_model::{BlockRange, DeviceId, ExtentIndex, ExtentKey, ExtentSize, Nanos, PlaceId, PlaceKind};

const PERIOD: Key = Key::time("period", Nanos::secs(10), "how often the costly blocks are named anew");
const UPDATE: Key = Key::percent("update", 10.0, "of the remap area, what a period changes at most");
const SPACE: Key = Key::percent("space", 85.0, "of the fast device's space, what both areas take");
const WRITE_BACK: Key = Key::percent("write_back", 20.0, "of that, the write-back area; 0% for none");
const HIGH: Key = Key::percent("high", 75.0, "dirty part of the write-back area at which scrubbing begins");
const LOW: Key = Key::percent("low", 50.0, "dirty part of the write-back area at which it ends");
const BUFFER: Key = Key::size("buffer_up_to", 4 << 20, "the largest write that is buffered");
const COPIES: Key =
    Key::count("buffer_copies", 1, (1, 2), "copies of dirty blocks, each on a fast device of its own");
const METADATA: Key = Key::choice(
    "metadata",
    &["hint", "infer", "off"],
    "what is remapped at first sight: what clients call metadata, also what the volume's superblock does, nothing",
);
/// The values of the key `metadata`.
const INFER: usize = 1;
const OFF: usize = 2;
const READS: Key = Key::choice(
    "reads",
    &["fast", "soonest"],
    "where blocks are read that are on the fast device too: there, or where the answer is expected sooner",
);
const SOONEST: usize = 1;
const RESIDENT_LIST: Key = Key::choice(
    "resident_list",
    &["extents", "blocks"],
    "what leaves the remap area for new blocks: whole extents, or single blocks as published, in more memory",
);
const BY_BLOCKS: usize = 1;

/// The tunable constants.
pub(super) const KEYS: &[Key] =
    &[PERIOD, UPDATE, SPACE, WRITE_BACK, HIGH, LOW, BUFFER, COPIES, METADATA, READS, RESIDENT_LIST];

/// The interval of rounds: actions are requested in small portions.
const ROUND: Nanos = Nanos::millis(100);
/// The maximum number of actions per round while devices are busy.
const BUSY_ACTIONS_MAX: usize = 8;
/// The number of extents examined per round for copies left by an earlier policy.
const EXTENTS_PER_ROUND: usize = 128;
/// The maximum number of accesses to metadata whose remapping waits; more are forgotten until the next
/// access.
const WAITING_METADATA_MAX: usize = 1 << 14;

/// Blocks of an extent to be remapped.
#[derive(Clone, Debug)]
struct Update {
    key: ExtentKey,
    blocks: ExtentBlocks,
}

/// The state of the policy.
#[derive(Clone, Debug)]
pub struct Hystor {
    period: Nanos,
    update: f64,
    space: f64,
    write_back: f64,
    high: f64,
    low: f64,
    buffer_up_to: u64,
    /// Whether dirty blocks are kept on two fast devices.
    duplexed: bool,
    metadata: usize,
    read_from: ReadFrom,
    table: BlockTable,
    stripe: Stripe,
    fast: Option<DeviceId>,
    /// The device of the second copies, if they are configured and there is one.
    second: Option<DeviceId>,
    /// Whether the second device was searched for.
    second_searched: bool,
    areas: Areas,
    resident_blocks: ResidentBlocks,
    updates: VecDeque<Update>,
    /// Metadata seen while no action could be requested: it is remapped before the costly blocks.
    waiting_metadata: VecDeque<Update>,
    next_period: Nanos,
    scrubbing: bool,
    /// The position of the search for copies left by an earlier policy, while it lasts.
    adoption_cursor: Option<ExtentKey>,
}

/// Returns the policy with two copies of dirty blocks.
pub(super) fn duplexed(mut policy: super::TunedPolicy) -> super::TunedPolicy {
    policy.settings.set(&COPIES, 2.0);
    policy
}

/// The quotas of both areas, in blocks.
#[derive(Clone, Copy, Debug)]
struct Quota {
    remap: u64,
    write_back: u64,
}

impl Hystor {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            period: settings.time(&PERIOD).max(ROUND),
            update: settings.get(&UPDATE),
            space: settings.get(&SPACE),
            write_back: settings.get(&WRITE_BACK),
            high: settings.get(&HIGH),
            low: settings.get(&LOW).min(settings.get(&HIGH)),
            buffer_up_to: settings.get(&BUFFER) as u64,
            duplexed: settings.get(&COPIES) > 1.0,
            metadata: settings.choice(&METADATA),
            read_from: if settings.choice(&READS) == SOONEST { ReadFrom::Soonest } else { ReadFrom::Slots },
            table: BlockTable::default(),
            stripe: Stripe::default(),
            fast: None,
            second: None,
            second_searched: false,
            areas: Areas::default(),
            resident_blocks: (settings.choice(&RESIDENT_LIST) == BY_BLOCKS).then(|| Lru::new(usize::MAX)),
            updates: VecDeque::new(),
            waiting_metadata: VecDeque::new(),
            next_period: Nanos(0),
            scrubbing: false,
            adoption_cursor: Some(ExtentKey::default()),
        }
    }

    /// Returns the fast device: the one with the shortest idle read, if there is another. It stays the same
    /// while it is usable.
    fn fast<'a>(&mut self, devices: &'a [DeviceView]) -> Option<&'a DeviceView> {
        let usable = |id: &DeviceId| devices.get(id.index()).is_some_and(|d| d.is_usable);
        self.fast = self.fast.filter(usable).or_else(|| fastest(devices).filter(|_| devices.len() > 1));
        devices.get(self.fast?.index())
    }

    /// Returns the quotas of both areas. Buffered blocks count on the second device too, if there is one.
    fn quota(&self, devices: &[DeviceView], fast: &DeviceView, blocks: u16) -> Quota {
        let all = u64::from(fast.extents) * u64::from(blocks);
        let there = u64::from(fast.free) * u64::from(blocks) + self.areas.blocks();
        let both = self.space * all.min(there) as f64;
        let buffered = |both: f64| (both * self.write_back) as u64;
        let second = self.second.and_then(|id| devices.get(id.index()));
        let there =
            second.map_or(u64::MAX, |d| buffered(self.space * f64::from(d.extents) * f64::from(blocks)));
        let write_back = buffered(both).min(there);
        Quota { remap: both as u64 - write_back, write_back }
    }

    /// Marks blocks of an extent as resident.
    fn remap(&mut self, context: &PolicyContext<'_>, key: ExtentKey, range: BlockRange) {
        for at in addresses(key, range, context.extent) {
            self.table.set(at, Flags::RESIDENT, true);
            if let Some(list) = &mut self.resident_blocks {
                list.insert(at, ());
            }
        }
    }

    /// Marks all blocks of an extent as not resident.
    fn unmap(&mut self, key: ExtentKey, extent: ExtentSize) {
        for at in addresses(key, BlockRange { first: 0, count: extent.blocks() }, extent) {
            if self.table.has(at, Flags::RESIDENT) {
                self.clear_flags(at);
                if let Some(list) = &mut self.resident_blocks {
                    list.remove(&at);
                }
            }
        }
    }

    /// Marks a block as not resident.
    fn clear_flags(&mut self, at: BlockAddress) {
        self.table.set(at, Flags::RESIDENT, false);
        // The next access is a first one again.
        self.table.set(at, Flags::METADATA, false);
    }

    /// Requests the copies of waiting metadata and the planned ones, a run of an extent at a time, in
    /// exchange for extents at the bottom of the list.
    fn copy_planned(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, quota: Quota, budget: usize) {
        for _ in 0..(self.waiting_metadata.len() + self.updates.len()).min(budget) {
            if context.actions.len() >= budget {
                return;
            }
            let waiting = self.waiting_metadata.pop_front();
            let Some(mut update) = waiting.or_else(|| self.next_planned(context)) else { return };
            let run = update.blocks.take_run();
            if self.areas.resident_blocks() + u64::from(run.count) > quota.remap {
                self.evict(context, fast, run.count);
            }
            context.actions.push(Action::Copy { key: update.key, blocks: run, to: fine(fast) });
            self.remap(context, update.key, run);
            let seen = Extent::of(&context.map.places(update.key), fine(fast));
            let all = context.extent.blocks();
            self.areas.add_resident(update.key, seen.with_clean(run.count, all));
            if !update.blocks.is_empty() {
                self.updates.push_back(update);
            }
        }
    }

    /// Returns the next planned copy, without metadata that was remapped since.
    fn next_planned(&mut self, context: &PolicyContext<'_>) -> Option<Update> {
        let Self { table, updates, .. } = self;
        while let Some(mut update) = updates.pop_front() {
            let key = update.key;
            update.blocks.retain(|block| {
                let at = address(key, block, context.extent);
                !(table.has(at, Flags::METADATA) && table.has(at, Flags::RESIDENT))
            });
            if !update.blocks.is_empty() {
                return Some(update);
            }
        }
        None
    }

    /// Makes room for new blocks: evicts the extent at the bottom of the resident list, or as many blocks.
    fn evict(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, wanted: u16) {
        match self.resident_blocks {
            Some(_) => self.evict_blocks(context, fast, wanted),
            None => self.evict_extent(context, fast),
        }
    }

    fn evict_extent(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId) {
        if let Some(key) = self.areas.oldest_resident() {
            self.evict_whole(context, key, fast);
        }
    }

    /// Evicts an extent: it is dropped if clean, else written back.
    fn evict_whole(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey, fast: DeviceId) {
        let places = context.map.places(key);
        self.areas.forget(key);
        self.unmap(key, context.extent);
        let blocks = whole_range(context);
        if places.place(fine(fast)).is_some_and(|p| p.dirty > 0) {
            if let Some(to) = self.home(context.devices, &places, fast) {
                context.actions.push(Action::Move { key, blocks, to });
            }
        } else {
            context.actions.push(Action::Drop { key, blocks, from: fine(fast) });
            self.drop_second(context, key);
        }
    }

    /// Writes dirty blocks back between the watermarks, in the order of their addresses.
    fn scrub(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, quota: Quota, budget: usize) {
        self.refresh_requested(context, fast);
        let mark = |share: f64| (share * quota.write_back as f64) as u64;
        if self.areas.dirty() > mark(self.high) {
            self.scrubbing = true;
        }
        while self.scrubbing && context.actions.len() < budget {
            if self.areas.dirty_unrequested() <= mark(self.low) {
                self.scrubbing = self.areas.dirty() > mark(self.low);
                return;
            }
            let Some(key) = self.areas.next_dirty() else { return };
            let places = context.map.places(key);
            self.areas.update(key, Extent::of(&places, fine(fast)));
            if let Some(to) = self.home(context.devices, &places, fast) {
                context.actions.push(Action::Copy { key, blocks: whole_range(context), to });
            }
        }
    }

    /// Drops clean copies from the write-back area before it is full, the least recently used first.
    fn make_room(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId, quota: Quota, budget: usize) {
        while self.areas.buffered_blocks() > quota.write_back / 8 * 7 && context.actions.len() < budget {
            let Some(key) = self.areas.oldest_clean() else { return };
            let seen = Extent::of(&context.map.places(key), fine(fast));
            if seen.dirty == 0 {
                self.areas.forget(key);
                context.actions.push(Action::Drop { key, blocks: whole_range(context), from: fine(fast) });
                self.drop_second(context, key);
            } else {
                self.areas.update(key, seen);
            }
        }
    }

    /// Searches for copies left by an earlier policy on the fast device; they count as buffered from then on.
    fn adopt(&mut self, context: &PolicyContext<'_>, fast: DeviceId) {
        for _ in 0..EXTENTS_PER_ROUND {
            let Some(at) = self.adoption_cursor else { return };
            let Some(key) = context.map.next(at) else {
                self.adoption_cursor = None;
                return;
            };
            self.adoption_cursor = Some(ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key });
            let seen = Extent::of(&context.map.places(key), fine(fast));
            if seen.blocks > 0 && !self.areas.contains(key) {
                self.areas.add_buffered(key, seen);
            }
        }
    }
}

fn fine(device: DeviceId) -> PlaceId {
    PlaceId { device, kind: PlaceKind::Fine }
}

/// Returns the address of a block of an extent.
fn address(key: ExtentKey, block: u16, extent: ExtentSize) -> BlockAddress {
    BlockAddress { volume: key.volume, block: key.index.0 * u64::from(extent.blocks()) + u64::from(block) }
}

/// Iterates over the addresses of blocks of an extent.
fn addresses(key: ExtentKey, range: BlockRange, extent: ExtentSize) -> impl Iterator<Item = BlockAddress> {
    (range.first..range.end()).map(move |block| address(key, block, extent))
}

fn whole_range(context: &PolicyContext<'_>) -> BlockRange {
    BlockRange { first: 0, count: context.extent.blocks() }
}

impl Placement for Hystor {
    fn name(&self) -> &'static str {
        "hystor"
    }

    /// Allocates homes on the other devices in turn; on the fast one when these are full.
    fn allocate(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        let fast = self.fast(context.devices).map(|d| d.id);
        let second = self.second(context.devices);
        let is_home = |d: &DeviceView| Some(d.id) != fast && Some(d.id) != second && d.free > 0;
        let home = self.stripe.next_of(context.devices, is_home);
        home.or_else(|| self.stripe.next_of(context.devices, |d| d.free > 0))
    }

    fn kept_places(&self) -> KeptPlaces {
        KeptPlaces::All
    }

    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, writes: true, runs: true, metadata: self.metadata == INFER }
    }

    fn read_from(&self) -> ReadFrom {
        self.read_from
    }

    fn prefetch(&self, key: ExtentKey, blocks: BlockRange, extent: ExtentSize) {
        self.table.prefetch(address(key, blocks.first, extent));
        self.areas.prefetch(key);
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        let (key, blocks) = (access.key, access.blocks);
        if !access.op.has_payload() {
            if blocks.count == context.extent.blocks() && self.areas.contains(key) {
                self.areas.forget(key);
                self.unmap(key, context.extent);
            }
            return;
        }
        let first = address(key, blocks.first, context.extent).block;
        self.table.access(key.volume, first, blocks.count.into(), inverse_bitmap(access.run));
        self.areas.touch(key);
        if let Some(list) = &mut self.resident_blocks {
            addresses(key, blocks, context.extent).for_each(|at| _ = list.touch(at));
        }
        if self.metadata == OFF || !is_metadata(access) {
            return;
        }
        let Some(fast) = self.fast(context.devices).filter(|d| d.has_space()) else { return };
        if access.places.place(fine(fast.id)).is_some_and(|p| p.blocks > 0) {
            return;
        }
        let mut is_new = false;
        for at in addresses(key, blocks, context.extent) {
            is_new |= !self.table.has(at, Flags::METADATA);
            self.table.set(at, Flags::METADATA, true);
        }
        if access.op != weir_model::Op::Read || access.places.device().is_none() {
            return;
        }
        if context.actions.len() >= context.actions_max {
            if is_new && self.waiting_metadata.len() < WAITING_METADATA_MAX {
                let blocks = (blocks.first..blocks.end()).collect();
                self.waiting_metadata.push_back(Update { key, blocks });
            }
        } else {
            context.actions.push(Action::Copy { key, blocks, to: fine(fast.id) });
            self.remap(context, key, blocks);
            let seen = Extent::of(&access.places, fine(fast.id));
            self.areas.add_resident(key, seen.with_clean(blocks.count, context.extent.blocks()));
        }
    }

    fn write_to(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        let (key, all) = (access.key, context.extent.blocks());
        let Some(fast) = self.fast(context.devices) else { return WriteTo::InPlace };
        let (buffered, elsewhere) = self.write_targets(context.devices, fast.id, &access.places);
        let (Some(buffered), true) = (buffered, fast.has_space()) else { return elsewhere };
        let place = access.places.place(fine(fast.id));
        let (seen, there) = place.map_or((Extent::default(), 0), |p| (Extent::of_place(&p), p.blocks));
        let written = seen.with_dirty(access.blocks.count, access.blocks.count - there, all);
        let mut addresses = addresses(key, access.blocks, context.extent);
        if self.metadata != OFF && is_metadata(access) {
            self.remap(context, key, access.blocks);
            self.areas.add_resident(key, written);
            return buffered;
        }
        let in_remap_area = self.areas.is_resident(key);
        if in_remap_area && addresses.all(|at| self.table.has(at, Flags::RESIDENT)) {
            self.areas.add_resident(key, written);
            return buffered;
        }
        let quota = self.quota(context.devices, fast, all).write_back;
        let more = u64::from(access.blocks.count - there);
        if access.bytes.0 > self.buffer_up_to || quota == 0 || self.areas.buffered_blocks() + more > quota {
            return elsewhere;
        }
        if in_remap_area {
            self.areas.add_resident(key, written);
        } else {
            self.areas.add_buffered(key, written);
        }
        buffered
    }

    fn round_interval(&self) -> Option<Nanos> {
        Some(ROUND)
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        let before = self.fast;
        let fast = self.fast(context.devices);
        self.second(context.devices);
        self.second_searched = true;
        let Some(fast) = fast else { return };
        let (id, quota) = (fast.id, self.quota(context.devices, fast, context.extent.blocks()));
        if before.is_some_and(|before| before != id) {
            // The blocks on the other device are unknown now; it may come back.
            (self.areas, self.adoption_cursor) = (Areas::default(), Some(ExtentKey::default()));
            self.resident_blocks = self.resident_blocks.take().map(|_| Lru::new(usize::MAX));
            self.updates.clear();
            self.waiting_metadata.clear();
        }
        self.adopt(context, id);
        if context.now >= self.next_period {
            self.next_period = context.now + self.period;
            self.plan(context, id, quota);
        }
        let idle = context.devices.iter().all(|d| d.in_flight == 0);
        let budget = if idle { context.actions_max } else { context.actions_max.min(BUSY_ACTIONS_MAX) };
        self.make_room(context, id, quota, budget);
        self.scrub(context, id, quota, budget);
        if context.device(id).is_some_and(DeviceView::has_space) {
            self.copy_planned(context, id, quota, budget);
        }
    }

    fn remark(&self) -> Option<&'static str> {
        self.lacks_second().then_some(copies::NO_SECOND_DEVICE)
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        self.reasons(context, about)
    }
}

#[cfg(test)]
mod tests;
