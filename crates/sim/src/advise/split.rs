//! Which requests fast devices answer and which slow ones, by the fast devices' size: a point of the miss-ratio curve, and
//! what goes to and fro besides.
//!
//! Fast devices are modelled as the engine uses them: slots of a block each, and which blocks have one is decided by an eviction
//! policy. A read of what is not there goes to the slow devices and is copied. Writes go to the fast ones; when a block that
//! was written leaves, it goes home with all others of its extent that were.
//!
//! Before the trace begins all is as the engine lays it out: whole extents in order of addresses, the first on the fast devices.

use super::demand::{Asked, BLOCKS, Demand};
use weir_model::{BLOCK, Bytes, Nanos};
use weir_policy::eviction::{Block, Eviction, Insertion, Room, Use, WTinyLfu};

/// Extents there is room for on fast devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(pub u32);

/// What came of the measured requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Of each whether the fast devices answer it.
    pub(super) hits: Vec<bool>,
    /// What is written to slow devices in the background, in order of time.
    pub(super) home: Vec<Home>,
    /// Bytes copied to the fast devices.
    pub(super) copied: Bytes,
}

/// What of an extent is brought home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) at: Nanos,
    pub(super) extent: u32,
    pub(super) len: Bytes,
}

/// Splits what a trace asks at so many slots: at least one, at most as many as it has extents.
pub(super) fn split(demand: &Demand, slots: Slots) -> Split {
    split_by(WTinyLfu::new(room(demand, slots)), demand, slots)
}

/// How many blocks there are, and how many have room.
pub(super) fn room(demand: &Demand, slots: Slots) -> Room {
    let [blocks, capacity] = [demand.extents(), slots.0].map(|extents| extents * BLOCKS as u32);
    Room { blocks, capacity }
}

/// With any policy.
pub(super) fn split_by(cache: impl Eviction, demand: &Demand, slots: Slots) -> Split {
    let dirty = vec![0; demand.extents() as usize];
    let mut tier = Tier { cache, dirty, now: Nanos(0), split: Split::default() };
    (0..room(demand, slots).capacity).rev().for_each(|block| {
        tier.cache.insert(Block(block), |_| true);
    });
    let (rounds, requests) = demand.warm_up();
    for _ in 0..rounds {
        demand.requests().iter().for_each(|request| tier.take(request));
    }
    demand.requests()[..requests].iter().for_each(|request| tier.take(request));
    tier.split = Split::default();
    demand.measured_requests().iter().for_each(|request| tier.take(request));
    tier.split
}

struct Tier<E> {
    cache: E,
    /// Of each extent the blocks that are on the fast devices alone, as bits.
    dirty: Vec<u32>,
    now: Nanos,
    split: Split,
}

impl<E: Eviction> Tier<E> {
    fn take(&mut self, request: &Asked) {
        self.now = request.at;
        let mut all = true;
        for (extent, blocks) in request.pieces() {
            for block in (0..BLOCKS as u32).filter(|block| blocks >> block & 1 == 1) {
                all &= self.touch(extent, block, request.is_write);
            }
        }
        self.split.hits.push(all);
    }

    /// Whether the fast devices have a block of an extent, or take it.
    fn touch(&mut self, extent: u32, block: u32, is_write: bool) -> bool {
        let number = Block(extent * BLOCKS as u32 + block);
        let is_there = self.cache.hit(number, if is_write { Use::Write } else { Use::Read });
        if !is_there {
            match self.cache.insert(number, |_| true) {
                Insertion::Replaced(Block(leaving)) => {
                    self.leave(leaving / BLOCKS as u32, leaving % BLOCKS as u32);
                }
                Insertion::Added => {}
                Insertion::Refused => return false,
            }
        }
        if is_write {
            self.dirty[extent as usize] |= 1 << block;
            return true;
        }
        if !is_there {
            self.split.copied += Bytes(BLOCK);
        }
        is_there
    }

    fn leave(&mut self, extent: u32, block: u32) {
        if self.dirty[extent as usize] >> block & 1 == 1 {
            let dirty = std::mem::take(&mut self.dirty[extent as usize]);
            let len = Bytes(u64::from(dirty.count_ones()) * BLOCK);
            self.split.home.push(Home { at: self.now, extent, len });
        }
    }
}
