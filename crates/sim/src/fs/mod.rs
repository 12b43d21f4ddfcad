//! A file system over memory that keeps its contents and tiers of existing file systems below, in virtual
//! time: TridentFS's evaluation, with the policies of weir's file system.
//!
//! **The machine.** Clients run programs ([`load`]) in a closed loop on a few processors. Files are born in
//! NVM, as two items each: metadata and data. Above the high watermark items are evicted, by an eviction and
//! a distribution policy, to *containers* in the file systems of the tiers. What is read from a container,
//! and what was just evicted to one, is in the operating system's memory, a page cache ([`PageCache`] is
//! least recently used, by file). Clients wait for reads of containers; evictions run in the background, and
//! a client waits for them only if NVM has no space.
//!
//! **The tiers** are models of drives behind models of file systems ([`BottomFs`]): where a container lies,
//! which metadata is written with it, and when. Writes of a batch are sorted and merged as an elevator does.
//! Reads come before writes.
//!
//! **Without NVM** ([`FastTier::Memory`]) the same machine is a plain file system: changes wait in memory,
//! up to a limit and for 30 s, and metadata is the tiers'.
//!
//! Not modelled: directories as items, partial data in NVM (data is in or out as a whole), `fsync`, the
//! device's own cleaning. Data larger than half of NVM goes to a tier at once.

mod bottom;
mod clients;
mod eviction;
pub mod load;
mod operations;
mod outcome;
mod page_cache;
mod plan;
mod run;
mod space;
#[cfg(test)]
mod tests;
mod tier;

pub use bottom::BottomFs;
pub use outcome::{FsOutcome, HitShares, TierOutcome};
pub use page_cache::PageCache;
pub use plan::{FastTier, FsPlan, Machine, RateSource, TierPlan};
pub use run::simulate;
