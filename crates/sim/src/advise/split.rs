//! Splits a trace's requests between fast and slow devices, by the fast devices' size: a point of the
//! miss-ratio curve, with the resulting copies and write-back.
//!
//! Fast devices are modelled in the way the engine uses them: slots of one block each, assigned by an
//! eviction policy. A read miss goes to the slow devices and is copied. Writes go to the fast ones; when a
//! written block is evicted, it is written back with all other written blocks of its extent.
//!
//! Before the trace begins, the data is placed as the engine fills a pool: whole extents in address order,
//! the first on the fast devices.
//!
//! `adaptive` treats two fast kinds as one: a block worth a slot has one on either, and a new block takes the
//! place of an evicted one. So the cached blocks are those of one cache with the sum of both sizes, and the
//! faster kind holds its part of them.

use super::demand::{BLOCKS, Demand, ExtentAccess};
use crate::write_budget::WriteBudget;
use weir_model::{BLOCK, Bytes, Nanos};
use weir_policy::eviction::{AccessKind, Block, CacheSize, Eviction, Insertion, WTinyLfu};

/// Capacity of fast devices, in extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(pub u32);

/// Slots of the fast devices of a set, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sizes {
    /// Slots of the fastest kind.
    pub fast: Slots,
    /// Slots of the second kind; zero if there is none.
    pub second: Slots,
}

impl Sizes {
    /// Returns the slots of both kinds together.
    pub fn total(self) -> Slots {
        Slots(self.fast.0 + self.second.0)
    }

    /// Returns the slots of a kind; `None` for the slow one, which has room for everything.
    pub(super) fn of(self, level: Level) -> Option<Slots> {
        match level {
            Level::Fast => Some(self.fast),
            Level::Second => Some(self.second),
            Level::Slow => None,
        }
    }
}

/// A kind of device in a set, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The fastest.
    Fast,
    /// The second of two fast kinds.
    Second,
    /// The kind with room for all data.
    Slow,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::Fast, Self::Second, Self::Slow];
}

/// How a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServiceRecord {
    /// The slowest kind that serves a part of it.
    pub(super) served_by: Level,
    /// The kind it is copied to, if a slow device had to serve it.
    pub(super) copied_to: Option<Level>,
}

/// Results for the measured requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// How each request is served.
    pub(super) services: Vec<ServiceRecord>,
    /// Background writes to slow devices, in time order.
    pub(super) write_backs: Vec<WriteBack>,
    /// Bytes copied to the fastest devices and to the second kind.
    pub(super) copied: [Bytes; 2],
}

/// A write-back of blocks of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteBack {
    pub(super) at: Nanos,
    pub(super) extent: u32,
    pub(super) len: Bytes,
}

/// Splits a trace at these slots: at least one, and in total at most as many as the trace has extents.
pub(super) fn split(demand: &Demand, sizes: Sizes) -> Split {
    split_with(WTinyLfu::new(cache_of(demand, sizes.total())), demand, sizes)
}

/// Like [`split`], with at most so many bytes written to the fast devices per day: no miss is copied or
/// written to them while they have had more. Writes to blocks that are on them count, and are carried out.
pub(super) fn split_within(demand: &Demand, sizes: Sizes, per_day: Bytes) -> Split {
    let cache = WTinyLfu::new(cache_of(demand, sizes.total()));
    split_with_budget(cache, demand, sizes, Some(WriteBudget::new(per_day)))
}

/// Returns the number of blocks and the capacity of the cache.
pub(super) fn cache_of(demand: &Demand, slots: Slots) -> CacheSize {
    let [blocks, capacity] = [demand.extents(), slots.0].map(|extents| extents * BLOCKS as u32);
    CacheSize { blocks, capacity }
}

/// Splits with any eviction policy.
pub(super) fn split_with(cache: impl Eviction, demand: &Demand, sizes: Sizes) -> Split {
    split_with_budget(cache, demand, sizes, None)
}

fn split_with_budget(
    cache: impl Eviction,
    demand: &Demand,
    sizes: Sizes,
    budget: Option<WriteBudget>,
) -> Split {
    let dirty = vec![0; demand.extents() as usize];
    let place = |extent: u32| if extent < sizes.fast.0 { 0 } else { u32::MAX };
    let second = (0..demand.extents()).map(place).collect();
    let mut tier = Tier { cache, dirty, second, now: Nanos(0), budget, split: Split::default() };
    (0..cache_of(demand, sizes.total()).capacity).rev().for_each(|block| {
        tier.cache.insert(Block(block), |_| true);
    });
    let (rounds, requests) = demand.warm_up();
    for _ in 0..rounds {
        demand.requests().iter().for_each(|request| tier.serve(request));
    }
    demand.requests()[..requests].iter().for_each(|request| tier.serve(request));
    tier.split = Split::default();
    demand.measured_requests().iter().for_each(|request| tier.serve(request));
    tier.split
}

struct Tier<E> {
    cache: E,
    /// Blocks of each extent that are only on the fast devices, as bit masks.
    dirty: Vec<u32>,
    /// Cached blocks of each extent that are on the second kind, as bit masks.
    second: Vec<u32>,
    now: Nanos,
    /// What may be written to the fast devices, if that is limited.
    budget: Option<WriteBudget>,
    split: Split,
}

impl<E: Eviction> Tier<E> {
    fn serve(&mut self, request: &ExtentAccess) {
        self.now = request.at;
        let mut answer = ServiceRecord { served_by: Level::Fast, copied_to: None };
        for (extent, blocks) in request.pieces() {
            for block in (0..BLOCKS as u32).filter(|block| blocks >> block & 1 == 1) {
                let touched = self.touch(extent, block, request.is_write);
                answer.served_by = answer.served_by.max(touched.served_by);
                answer.copied_to = touched.copied_to.or(answer.copied_to);
            }
        }
        self.split.services.push(answer);
    }

    /// Serves one block of an extent; returns the kind that has it or receives it.
    fn touch(&mut self, extent: u32, block: u32, is_write: bool) -> ServiceRecord {
        let number = Block(extent * BLOCKS as u32 + block);
        let is_there = self.cache.hit(number, if is_write { AccessKind::Write } else { AccessKind::Read });
        let now = self.now;
        if !is_there {
            if self.budget.as_mut().is_some_and(|budget| !budget.is_left(now)) {
                return ServiceRecord { served_by: Level::Slow, copied_to: None };
            }
            match self.cache.insert(number, |_| true) {
                Insertion::Replaced(Block(leaving)) => {
                    let (from, left) = (leaving / BLOCKS as u32, leaving % BLOCKS as u32);
                    self.evict_block(from, left);
                    self.set_kind(extent, block, self.second[from as usize] >> left & 1);
                }
                Insertion::Added => {}
                Insertion::Refused => return ServiceRecord { served_by: Level::Slow, copied_to: None },
            }
        }
        if let Some(budget) = self.budget.as_mut().filter(|_| is_write || !is_there) {
            budget.take(Bytes(BLOCK));
        }
        let is_second = self.second[extent as usize] >> block & 1 == 1;
        let level = if is_second { Level::Second } else { Level::Fast };
        if is_write {
            self.dirty[extent as usize] |= 1 << block;
            return ServiceRecord { served_by: level, copied_to: None };
        }
        if is_there {
            return ServiceRecord { served_by: level, copied_to: None };
        }
        self.split.copied[usize::from(is_second)] += Bytes(BLOCK);
        ServiceRecord { served_by: Level::Slow, copied_to: Some(level) }
    }

    fn set_kind(&mut self, extent: u32, block: u32, is_second: u32) {
        let places = &mut self.second[extent as usize];
        *places = *places & !(1 << block) | is_second << block;
    }

    fn evict_block(&mut self, extent: u32, block: u32) {
        if self.dirty[extent as usize] >> block & 1 == 1 {
            let dirty = std::mem::take(&mut self.dirty[extent as usize]);
            let len = Bytes(u64::from(dirty.count_ones()) * BLOCK);
            self.split.write_backs.push(WriteBack { at: self.now, extent, len });
        }
    }
}
