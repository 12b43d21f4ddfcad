//! What lost devices alone hold, by volume and range: it is reported, never just missed.
//!
//! When a device is lost, or absent when the pool is opened, a walk over all volumes looks for blocks that no
//! other device holds: dirty blocks of a write-back area, and everything that was in one place. In the
//! background, some extents at a time. The first ranges are told one by one, all of them as a sum.

use crate::Engine;
use crate::notice::Notice;
use crate::task::Task;
use crate::walk::{self, after};
use weir_map::Found;
use weir_model::{
    BLOCK, BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, Memory, Nanos, VolumeId, VolumeOffset,
};

/// Extents looked at at a time.
const WALK: usize = 256;
/// The time between two such steps.
const WALK_EVERY: Nanos = Nanos::millis(1);
/// Ranges told one by one.
const TOLD: u64 = 32;

/// Bytes of a volume that a lost device alone holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    device: DeviceId,
    volume: VolumeId,
    start: u64,
    end: u64,
}

/// The walk, and what it has found.
#[derive(Debug, Default)]
pub(crate) struct Unreachable {
    walk: Option<ExtentKey>,
    due: Nanos,
    /// What may go on in the next extent.
    open: Option<Range>,
    ranges: u64,
    bytes: Bytes,
    /// What was found by the last walk that came to its end.
    found: Bytes,
}

impl Unreachable {
    /// How much lost devices alone held when that was looked for last.
    pub(crate) const fn found(&self) -> Bytes {
        self.found
    }
}

impl Task for Unreachable {
    /// When to go on.
    fn due(engine: &Engine) -> Option<Nanos> {
        engine.unreachable.walk.map(|_| engine.unreachable.due)
    }

    /// Goes on with the walk.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if <Self as Task>::due(engine).is_none_or(|due| due > engine.now) {
            return;
        }
        for _ in 0..WALK {
            let Some(from) = engine.unreachable.walk else { return };
            let Some(key) = walk::next_extent(&engine.map, from, |_| true) else {
                engine.unreachable.walk = None;
                return engine.unreachable_walked();
            };
            engine.note_unreachable(key);
            engine.unreachable.walk = Some(after(key));
        }
        engine.unreachable.due = engine.now + WALK_EVERY;
    }
}

impl Engine {
    /// A device is lost: what no other holds is looked for from the start.
    pub(crate) fn look_for_unreachable(&mut self) {
        let found = self.unreachable.found;
        let first = self.map.catalogue().volumes.keys().next();
        let walk = first.map(|volume| ExtentKey { volume: *volume, index: ExtentIndex(0) });
        self.unreachable = Unreachable { walk, due: self.now, found, ..Unreachable::default() };
    }

    /// Notes the blocks of an extent that lost devices alone hold.
    fn note_unreachable(&mut self, key: ExtentKey) {
        let blocks = BlockRange { first: 0, count: self.map.extent().blocks() };
        match self.map.find(key) {
            Found::Empty => {}
            Found::Direct(whole) => {
                if self.is_lost(whole.device) {
                    self.add_unreachable(whole.device, key, blocks);
                }
            }
            Found::Record(record) => {
                if !record.places.iter().any(|place| self.is_lost(place.device())) {
                    return;
                }
                let record = record.into_owned();
                for block in 0..blocks.count {
                    let holders = || {
                        record.places.iter().filter(|place| place.valid.contains(block)).map(|p| p.device())
                    };
                    if let Some(device) = holders().next()
                        && holders().all(|device| self.is_lost(device))
                    {
                        self.add_unreachable(device, key, BlockRange { first: block, count: 1 });
                    }
                }
            }
        }
    }

    fn add_unreachable(&mut self, device: DeviceId, key: ExtentKey, blocks: BlockRange) {
        let base = self.map.extent().start(key.index).0;
        // The last extent may be longer than what is left of its volume.
        let size = self.map.volume(key.volume).map_or(u64::MAX, |volume| volume.size.0);
        let at = |block: u16| (base + u64::from(block) * BLOCK).min(size);
        let range = Range { device, volume: key.volume, start: at(blocks.first), end: at(blocks.end()) };
        if range.start == range.end {
            return;
        }
        self.unreachable.bytes += Bytes(range.end - range.start);
        match &mut self.unreachable.open {
            Some(open) if (open.device, open.volume, open.end) == (device, key.volume, range.start) => {
                open.end = range.end;
            }
            _ => {
                self.tell_unreachable();
                self.unreachable.open = Some(range);
            }
        }
    }

    fn tell_unreachable(&mut self) {
        let Some(Range { device, volume, start, end }) = self.unreachable.open.take() else { return };
        self.unreachable.ranges += 1;
        if self.unreachable.ranges <= TOLD {
            let (offset, len) = (VolumeOffset(start), Bytes(end - start));
            self.notices.push(Notice::Unreachable { device, volume, offset, len });
        }
    }

    fn unreachable_walked(&mut self) {
        self.tell_unreachable();
        let Unreachable { ranges, bytes, .. } = self.unreachable;
        self.unreachable.found = bytes;
        if ranges > TOLD {
            self.notices.push(Notice::UnreachableInAll { ranges, bytes });
        }
    }
}
