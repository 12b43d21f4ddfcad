//! Eviction: which block leaves a full cache for a new one.
//!
//! There is one file per published policy. All work on blocks numbered densely from 0 ([`Block`]) and keep
//! their state in arrays indexed by that number: no hashing, no allocation after the start. Where a paper
//! leaves a choice, that of libCacheSim (1a1a11a/libCacheSim) is taken, so that counts can be compared
//! exactly.
//!
//! [`every_eviction_policy`](crate::every_eviction_policy) lists them; [`Belady`], which knows the future, is
//! the bound.
//!
//! Files have parts of any size, so that no array of equal blocks holds them: [`items`] evicts these, by the
//! policies that [`ITEM_EVICTION`] lists.

mod arc;
mod belady;
mod clock;
mod fifo;
mod gdsf;
pub mod items;
mod lfu;
mod lirs;
mod lists;
mod lru;
mod lrw;
mod queue;
mod reference_bits;
mod s3fifo;
mod sieve;
mod slru;
#[cfg(test)]
mod tests;
mod trident;
mod twoq;
mod wtinylfu;
mod wtinylfu_libcachesim;

pub use crate::cache::{Block, CacheSize};
pub use belady::{Belady, NextUses};
pub use trident::{OMEGA, Trident};

use items::ItemEvictionPolicy;

/// All eviction policies for items of any size, the default first. A policy's rank of an item is in its file.
pub const ITEM_EVICTION: &[ItemEvictionPolicy] = &[
    // The item that leaves first.
    ItemEvictionPolicy::new("trident", "unused for long, seldom used, or large", trident::ranking),
    ItemEvictionPolicy::new("gdsf", "unused for long, seldom used, or large, aging by rank", gdsf::ranking),
    ItemEvictionPolicy::new("lru", "the least recently used one", |_| Box::new(lru::LruRanking)),
    ItemEvictionPolicy::new("fifo", "the one inserted first", |_| Box::new(fifo::FifoRanking)),
];

/// Passes the list of all eviction policies that could be used online, each with its name, module and type,
/// to a macro of the caller's.
///
/// ```
/// macro_rules! names {
///     ($($name:literal: $module:ident::$policy:ident;)*) => { [$($name),*] };
/// }
/// assert!(weir_policy::every_eviction_policy!(names).contains(&"lru"));
/// ```
#[macro_export]
macro_rules! every_eviction_policy {
    ($each:ident) => {
        $each! {
            // The block that leaves first                                                    Bytes per block
            "fifo": fifo::Fifo;         // the one inserted first: 4, and up to 16 per block of the capacity
            "lru": lru::Lru;            // the least recently used one: the same
            "lrw": lrw::Lrw;            // the least recently written one: the same
            "clock": clock::Clock;      // the one inserted first; a used one gets a second chance          9
            "lfu": lfu::Lfu;            // the one used least often since its insertion                    12
            "slru": slru::Slru;         // the least recently used one of the lowest of four segments       9
            "2q": twoq::TwoQ;           // the one inserted first and not used again soon after it left     9
            "arc": arc::Arc;            // the least recently used one, of those used once or more often    9
            "lirs": lirs::Lirs;         // one not used twice within a short time                          17
            "sieve": sieve::Sieve;      // one not used since the hand last passed                          9
            "s3fifo": s3fifo::S3Fifo;   // the one inserted first and not used twice, in three queues       9
            // one used less often recently than the block that would replace it: 9, and up to 5 to count
            "wtinylfu": wtinylfu::WTinyLfu;
            // the same in libCacheSim's variant: 9, and 58 per block of the capacity
            "wtinylfu-libcachesim": wtinylfu_libcachesim::WTinyLfuLibCacheSim;
        }
    };
}

macro_rules! export {
    ($($name:literal: $module:ident::$policy:ident;)*) => {
        $(pub use $module::$policy;)*
    };
}
every_eviction_policy!(export);

/// The kind of an access to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// The result of inserting a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The block is in; there was space.
    Added,
    /// The block is in, and this one left.
    Replaced(Block),
    /// The block is not in: it may not replace the one that would have left.
    Refused,
}

/// The contents of a cache, without data, and the rule by which they leave.
///
/// To play a trace, call [`hit`](Self::hit) for each block and, if that returns false,
/// [`insert`](Self::insert). Each call takes constant time, for [`Clock`], [`Sieve`] and [`S3Fifo`]
/// amortised.
pub trait Eviction {
    /// Announces that the next use is the trace's access with this index. For policies that know the future.
    #[inline]
    fn advance_to(&mut self, access: u32) {
        let _ = access;
    }

    /// Whether a block is in the cache; if so, this counts as a use.
    fn hit(&mut self, block: Block, used: AccessKind) -> bool;

    /// Inserts a block that is not in the cache. If the cache is full, `may_replace` is called with the block
    /// that would leave; if it returns false, that block stays, the new one stays out, and the history of
    /// blocks that left is unchanged.
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion;

    /// Removes a block. Returns whether it was in. The history of blocks that left is unchanged.
    fn remove(&mut self, block: Block) -> bool;

    /// Reads what the next uses of these blocks need, so that the processor waits for all of them at the same
    /// time. Changes nothing; a policy whose state is small need not do anything.
    #[inline]
    fn prefetch(&self, blocks: &[Block]) {
        let _ = blocks;
    }
}

/// The steps of an insertion for policies without a history of blocks that left.
trait EvictionSteps: Eviction {
    fn is_full(&self) -> bool;

    /// Returns the block that would leave; the same one if called again without a change in between.
    fn candidate(&mut self) -> Option<Block>;

    /// Inserts a block for which there is space.
    fn enter(&mut self, block: Block);
}

/// Implements [`Eviction::insert`] by these steps.
#[inline]
fn insert_stepwise(
    policy: &mut impl EvictionSteps,
    block: Block,
    may_replace: impl FnOnce(Block) -> bool,
) -> Insertion {
    let leaving = if policy.is_full() { policy.candidate() } else { None };
    if let Some(leaving) = leaving {
        if !may_replace(leaving) {
            return Insertion::Refused;
        }
        policy.remove(leaving);
    }
    policy.enter(block);
    leaving.map_or(Insertion::Added, Insertion::Replaced)
}
