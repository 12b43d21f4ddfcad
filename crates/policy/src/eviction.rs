//! Eviction: which block leaves a full cache for a new one.
//!
//! One file per published policy. All work on blocks numbered densely from 0 ([`Block`]) and keep what they
//! know in arrays indexed by that number: no hashing, no allocation after the start. Where a paper leaves a choice, the
//! one of libCacheSim (1a1a11a/libCacheSim) is taken, so that counts can be compared to the unit.
//!
//! [`every_eviction_policy`](crate::every_eviction_policy) lists them; [`Belady`], which knows the future, is the bound.

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
pub use belady::{Belady, Future};

/// The list of all policies that could serve: hands each one's name, module and type to a macro of the caller's.
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
            // Leaves first: what ...                                                         Bytes a block
            "fifo": fifo::Fifo;         // came first                                                     8
            "lru": lru::Lru;            // was used longest ago                                           8
            "lrw": lrw::Lrw;            // was written longest ago                                        8
            "clock": clock::Clock;      // came first, with a second chance if used                       9
            "lfu": lfu::Lfu;            // was used least often since it came                            12
            "slru": slru::Slru;         // was used longest ago among the least used, in four segments    9
            "2q": twoq::TwoQ;           // came first and was not asked for again soon after it left      9
            "arc": arc::Arc;            // was used longest ago, once or often, as pays just then         9
            "lirs": lirs::Lirs;         // was not used twice soon                                       17
            "sieve": sieve::Sieve;      // was not used since the hand last passed                        9
            "s3fifo": s3fifo::S3Fifo;   // came first and was not used twice, in three queues             9
            // was used less often lately than what would take its place: 9, and up to 5 to count
            "wtinylfu": wtinylfu::WTinyLfu;
            // the same as libCacheSim has it, which differs from the publication: 9, and 58 for each of the capacity
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
