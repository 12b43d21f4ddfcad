//! Which requests fast devices answer and which slow ones, by the fast devices' size: a point of the miss-ratio curve, and
//! what goes to and fro besides.
//!
//! Fast devices are modelled as the engine uses them: slots of a block each, and which blocks have one is decided by an eviction
//! policy. A read of what is not there goes to the slow devices and is copied. Writes go to the fast ones; when a block that
//! was written leaves, it goes home with all others of its extent that were.
//!
//! Before the trace begins all is as the engine lays it out: whole extents in order of addresses, the first on the fast devices.
//!
//! Of two fast kinds `adaptive` makes one: what is worth a slot has one on either, and what comes takes the place of what leaves. So
//! the blocks of both are those of one cache of both sizes, and the faster kind has its part of them.

use super::demand::{Asked, BLOCKS, Demand};
use weir_model::{BLOCK, Bytes, Nanos};
use weir_policy::eviction::{Block, Eviction, Insertion, Room, Use, WTinyLfu};

/// Extents there is room for on fast devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(pub u32);

/// Slots of the fast devices of a set, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sizes {
    /// Of the fastest kind.
    pub fast: Slots,
    /// Of the second one; none if there is none.
    pub second: Slots,
}

impl Sizes {
    /// Slots of both together.
    pub fn total(self) -> Slots {
        Slots(self.fast.0 + self.second.0)
    }

    /// Of a kind; `None` of the slow one, which has room for everything.
    pub(super) fn of(self, level: Level) -> Option<Slots> {
        match level {
            Level::Fast => Some(self.fast),
            Level::Second => Some(self.second),
            Level::Slow => None,
        }
    }
}

/// One of a set's kinds, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The fastest.
    Fast,
    /// The second of two fast ones.
    Second,
    /// That with room for everything.
    Slow,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::Fast, Self::Second, Self::Slow];
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The slowest that has a part of it.
    pub(super) by: Level,
    /// Where it is copied to, if it had to be had from a slow device.
    pub(super) copied_to: Option<Level>,
}

/// What came of the measured requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Of each what became of it.
    pub(super) answers: Vec<Answer>,
    /// What is written to slow devices in the background, in order of time.
    pub(super) home: Vec<Home>,
    /// Bytes copied to the fastest devices and to the second ones.
    pub(super) copied: [Bytes; 2],
}

/// What of an extent is brought home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) at: Nanos,
    pub(super) extent: u32,
    pub(super) len: Bytes,
}

/// Splits what a trace asks at so many slots: at least one, in all at most as many as it has extents.
pub(super) fn split(demand: &Demand, sizes: Sizes) -> Split {
    split_by(WTinyLfu::new(cache_of(demand, sizes.total())), demand, sizes)
}

/// How many blocks there are, and how many have room.
pub(super) fn cache_of(demand: &Demand, slots: Slots) -> Room {
    let [blocks, capacity] = [demand.extents(), slots.0].map(|extents| extents * BLOCKS as u32);
    Room { blocks, capacity }
}

/// With any policy.
pub(super) fn split_by(cache: impl Eviction, demand: &Demand, sizes: Sizes) -> Split {
    let dirty = vec![0; demand.extents() as usize];
    let place = |extent: u32| if extent < sizes.fast.0 { 0 } else { u32::MAX };
    let second = (0..demand.extents()).map(place).collect();
    let mut tier = Tier { cache, dirty, second, now: Nanos(0), split: Split::default() };
    (0..cache_of(demand, sizes.total()).capacity).rev().for_each(|block| {
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
    /// … and, of those on fast devices, the blocks on the second kind.
    second: Vec<u32>,
    now: Nanos,
    split: Split,
}

impl<E: Eviction> Tier<E> {
    fn take(&mut self, request: &Asked) {
        self.now = request.at;
        let mut answer = Answer { by: Level::Fast, copied_to: None };
        for (extent, blocks) in request.pieces() {
            for block in (0..BLOCKS as u32).filter(|block| blocks >> block & 1 == 1) {
                let touched = self.touch(extent, block, request.is_write);
                answer.by = answer.by.max(touched.by);
                answer.copied_to = touched.copied_to.or(answer.copied_to);
            }
        }
        self.split.answers.push(answer);
    }

    /// What has a block of an extent, or takes it.
    fn touch(&mut self, extent: u32, block: u32, is_write: bool) -> Answer {
        let number = Block(extent * BLOCKS as u32 + block);
        let is_there = self.cache.hit(number, if is_write { Use::Write } else { Use::Read });
        if !is_there {
            match self.cache.insert(number, |_| true) {
                Insertion::Replaced(Block(leaving)) => {
                    let (from, left) = (leaving / BLOCKS as u32, leaving % BLOCKS as u32);
                    self.leave(from, left);
                    self.take_place(extent, block, self.second[from as usize] >> left & 1);
                }
                Insertion::Added => {}
                Insertion::Refused => return Answer { by: Level::Slow, copied_to: None },
            }
        }
        let is_second = self.second[extent as usize] >> block & 1 == 1;
        let level = if is_second { Level::Second } else { Level::Fast };
        if is_write {
            self.dirty[extent as usize] |= 1 << block;
            return Answer { by: level, copied_to: None };
        }
        if is_there {
            return Answer { by: level, copied_to: None };
        }
        self.split.copied[usize::from(is_second)] += Bytes(BLOCK);
        Answer { by: Level::Slow, copied_to: Some(level) }
    }

    fn take_place(&mut self, extent: u32, block: u32, is_second: u32) {
        let places = &mut self.second[extent as usize];
        *places = *places & !(1 << block) | is_second << block;
    }

    fn leave(&mut self, extent: u32, block: u32) {
        if self.dirty[extent as usize] >> block & 1 == 1 {
            let dirty = std::mem::take(&mut self.dirty[extent as usize]);
            let len = Bytes(u64::from(dirty.count_ones()) * BLOCK);
            self.split.home.push(Home { at: self.now, extent, len });
        }
    }
}
