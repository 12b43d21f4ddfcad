//! Eviction: which block leaves a full cache for a new one.
//!
//! One file per published policy. All work on blocks numbered densely from 0 ([`Block`]) and keep what they
//! know in arrays indexed by that number: no hashing, no allocation after the start. Where a paper leaves a choice, the
//! one of libCacheSim (1a1a11a/libCacheSim) is taken, so that counts can be compared to the unit.
//!
//! | policy | leaves first | bytes a block |
//! |---|---|--:|
//! | [`Fifo`] | what came first | 8 |
//! | [`Lru`] | what was used longest ago | 8 |
//! | [`Lrw`] | what was written longest ago | 8 |
//! | [`Clock`] | what came first, with a second chance if used | 9 |
//! | [`Sieve`] | what was not used since the hand last passed | 9 |
//! | [`Lfu`] | what was used least often since it came | 12 |
//! | [`Slru`] | what was used longest ago among what was used least often, in four segments | 9 |
//! | [`TwoQ`] | what came first and was not asked for again soon after it left | 9 |
//! | [`Arc`] | what was used longest ago, once or often, as pays just then | 9 |
//! | [`Lirs`] | what was not used twice soon | 17 |
//! | [`S3Fifo`] | what came first and was not used twice, in three queues | 9 |
//! | [`WTinyLfu`] | what was used less often lately than what would take its place | 9, and up to 5 to count |
//! | [`WTinyLfuLibCacheSim`] | the same as libCacheSim has it, which differs from the publication | 9, and 58 for each of the capacity |
//! | [`Belady`] | what will not be used for longest: the bound | 4, and 4 for each access of the trace |

mod arc;
mod belady;
mod clock;
mod fifo;
mod lfu;
mod lirs;
mod lists;
mod lru;
mod lrw;
mod marks;
mod queue;
mod s3fifo;
mod sieve;
mod slru;
#[cfg(test)]
mod tests;
mod twoq;
mod wtinylfu;
mod wtinylfu_libcachesim;

pub use crate::cached::{Block, Room};
pub use arc::Arc;
pub use belady::{Belady, Future};
pub use clock::Clock;
pub use fifo::Fifo;
pub use lfu::Lfu;
pub use lirs::Lirs;
pub use lru::Lru;
pub use lrw::Lrw;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use slru::Slru;
pub use twoq::TwoQ;
pub use wtinylfu::WTinyLfu;
pub use wtinylfu_libcachesim::WTinyLfuLibCacheSim;

/// What a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// To be read.
    Read,
    /// To be written.
    Write,
}

/// What became of a block that was to be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It is in; there was room.
    Added,
    /// It is in, and this one left.
    Replaced(Block),
    /// It is not in: it was not to replace the one that would have left.
    Refused,
}

/// A cache's contents, and the rule by which they leave. Holds no data.
///
/// A trace is played by asking for each block with [`hit`](Self::hit) and, when that says no, taking the block
/// in with [`insert`](Self::insert). Each call takes constant time, for [`Clock`], [`Sieve`] and [`S3Fifo`]
/// amortised.
pub trait Eviction {
    /// The next use is that of the trace's access with this index. For who knows the future.
    #[inline]
    fn reach(&mut self, access: u32) {
        let _ = access;
    }

    /// Whether a block is in the cache; if it is, it is used.
    fn hit(&mut self, block: Block, used: Use) -> bool;

    /// Takes in a block that is not in the cache. If the cache is full, `may_replace` is asked about the block
    /// that is to leave; if it says no, that block stays and the new one stays out, and what is remembered of blocks that left
    /// is as it was.
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion;

    /// Takes a block out; whether it was in. What is remembered of blocks that left is not touched.
    fn remove(&mut self, block: Block) -> bool;
}

/// How a block comes in where nothing is remembered of those that left.
trait Turnover: Eviction {
    fn is_full(&self) -> bool;

    /// The block that is to leave; asked again without a change between, the same.
    fn candidate(&mut self) -> Option<Block>;

    /// Takes in a block for which there is room.
    fn enter(&mut self, block: Block);
}

/// [`Eviction::insert`] in these steps.
#[inline]
fn turn_over(policy: &mut impl Turnover, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
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
