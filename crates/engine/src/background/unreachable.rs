//! Unreachable data: the ranges of volumes that only lost devices have. They are reported, not left for
//! clients to discover.
//!
//! When a device is lost, or absent when the pool is opened, a background walk over all volumes finds the
//! blocks that no other device has: dirty blocks of a write-back area, and all data that was in one place.
//! The first ranges are reported one by one, all of them as a sum.

use crate::background::BackgroundTask;
use crate::device::Device;
use crate::notice::{Notice, Notices};
use crate::walk::{self, next_key};
use crate::{Base, DataPath};
use std::collections::BTreeMap;
use weir_map::{ExtentState, Map};
use weir_model::{
    BLOCK, BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, Memory, Nanos, VolumeId, VolumeOffset,
};

/// The number of extents examined per step.
const EXTENTS_PER_STEP: usize = 256;
/// The time between two steps.
const STEP_INTERVAL: Nanos = Nanos::millis(1);
/// The maximum number of ranges reported one by one.
const REPORTED_MAX: u64 = 32;

/// A range of a volume that only a lost device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnreachableRange {
    device: DeviceId,
    volume: VolumeId,
    start: u64,
    end: u64,
}

/// The walk and its results.
#[derive(Debug, Default)]
pub(crate) struct UnreachableData {
    walk: Option<ExtentKey>,
    due: Nanos,
    /// The last range, which may continue in the next extent.
    last_range: Option<UnreachableRange>,
    ranges: u64,
    bytes: BTreeMap<VolumeId, Bytes>,
    /// The bytes found by the last complete walk.
    found: BTreeMap<VolumeId, Bytes>,
}

impl UnreachableData {
    /// Returns the bytes that only lost devices had at the last walk.
    pub(crate) fn found(&self) -> Bytes {
        Bytes(self.found.values().map(|bytes| bytes.0).sum())
    }

    /// Returns those of one volume.
    pub(crate) fn found_in(&self, volume: VolumeId) -> Bytes {
        self.found.get(&volume).copied().unwrap_or_default()
    }
}

impl BackgroundTask for UnreachableData {
    /// Returns when the walk continues.
    fn due(&self, _: &DataPath) -> Option<Nanos> {
        self.walk.map(|_| self.due)
    }

    /// Continues the walk.
    fn run<M: Memory>(&mut self, data: &mut DataPath, _: &mut M) {
        if self.due(data).is_some_and(|due| due <= data.base.core.now) {
            let Base { core, .. } = &mut data.base;
            let view = WalkContext { map: &core.map, devices: &core.devices, notices: &mut core.notices };
            self.continue_walk(core.now, view);
        }
    }
}

/// The engine's state that the walk uses.
struct WalkContext<'a> {
    map: &'a Map,
    devices: &'a [Device],
    notices: &'a mut Notices,
}

impl WalkContext<'_> {
    fn is_lost(&self, device: DeviceId) -> bool {
        self.devices[device.index()].is_lost()
    }
}

impl UnreachableData {
    /// Begins the walk again, after a device is lost.
    pub(crate) fn restart_walk(&mut self, now: Nanos, map: &Map) {
        let first = map.catalogue().volumes.keys().next();
        let walk = first.map(|volume| ExtentKey { volume: *volume, index: ExtentIndex(0) });
        *self = Self { walk, due: now, found: std::mem::take(&mut self.found), ..Self::default() };
    }

    /// Examines some extents.
    fn continue_walk(&mut self, now: Nanos, mut view: WalkContext<'_>) {
        for _ in 0..EXTENTS_PER_STEP {
            let Some(from) = self.walk else { return };
            let Some(key) = walk::next_extent(view.map, from, |_| true) else {
                self.walk = None;
                return self.end(&mut view);
            };
            self.note(key, &mut view);
            self.walk = Some(next_key(key));
        }
        self.due = now + STEP_INTERVAL;
    }

    /// Records the blocks of an extent that only lost devices have.
    fn note(&mut self, key: ExtentKey, view: &mut WalkContext<'_>) {
        let blocks = BlockRange { first: 0, count: view.map.extent().blocks() };
        match view.map.find(key) {
            ExtentState::Empty => {}
            ExtentState::Direct(whole) => {
                if view.is_lost(whole.device) {
                    self.add(whole.device, key, blocks, view);
                }
            }
            ExtentState::Record(record) => {
                if !record.places.iter().any(|place| view.is_lost(place.device())) {
                    return;
                }
                let record = record.into_owned();
                for block in 0..blocks.count {
                    let holders = || {
                        record.places.iter().filter(|place| place.valid.contains(block)).map(|p| p.device())
                    };
                    if let Some(device) = holders().next()
                        && holders().all(|device| view.is_lost(device))
                    {
                        self.add(device, key, BlockRange { first: block, count: 1 }, view);
                    }
                }
            }
        }
    }

    fn add(&mut self, device: DeviceId, key: ExtentKey, blocks: BlockRange, view: &mut WalkContext<'_>) {
        let base = view.map.extent().start(key.index).0;
        // The last extent may extend beyond the end of its volume.
        let size = view.map.volume(key.volume).map_or(u64::MAX, |volume| volume.size.0);
        let at = |block: u16| (base + u64::from(block) * BLOCK).min(size);
        let range =
            UnreachableRange { device, volume: key.volume, start: at(blocks.first), end: at(blocks.end()) };
        if range.start == range.end {
            return;
        }
        *self.bytes.entry(key.volume).or_default() += Bytes(range.end - range.start);
        match &mut self.last_range {
            Some(open) if (open.device, open.volume, open.end) == (device, key.volume, range.start) => {
                open.end = range.end;
            }
            _ => {
                self.report(view);
                self.last_range = Some(range);
            }
        }
    }

    fn report(&mut self, view: &mut WalkContext<'_>) {
        let Some(UnreachableRange { device, volume, start, end }) = self.last_range.take() else { return };
        self.ranges += 1;
        if self.ranges <= REPORTED_MAX {
            let (offset, len) = (VolumeOffset(start), Bytes(end - start));
            view.notices.push(Notice::Unreachable { device, volume, offset, len });
        }
    }

    fn end(&mut self, view: &mut WalkContext<'_>) {
        self.report(view);
        self.found = std::mem::take(&mut self.bytes);
        if self.ranges > REPORTED_MAX {
            view.notices.push(Notice::UnreachableTotal { ranges: self.ranges, bytes: self.found() });
        }
    }
}
