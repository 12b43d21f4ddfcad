//! A cache whose blocks lie in the log of a flash device, without time (HEC).
//!
//! A trace of blocks ([`BlockTrace`](crate::cache::BlockTrace)) is played to one cache ([`play()`]). What the
//! cache admits, it writes to a log of [`weir_flash`], whose cleaner copies or drops valid pages. So there
//! are two amplifications: what the cache writes for each block that the user writes (CLWA), and what the
//! flash programs for each block that the cache writes (FLWA); TCWA is their product.
//!
//! - **Admission** is one of [`AdmissionPolicy`](crate::cache::AdmissionPolicy), with its settings, and
//!   possibly a [budget](FlashCache::write_budget) of bytes a day.
//! - **Eviction** ([`Evict`]): by a policy of the cache, which holds exactly its capacity and trims in the
//!   log what it evicts; or by the log's cleaner, which drops the valid pages of its victims while more than
//!   the guaranteed amount is valid. Then the cache holds between its guarantee and all that is not kept
//!   free.
//! - **Writes** go through the cache, around it, or to it and back later. The cleaner never drops a dirty
//!   page: it writes it back first, in the order of addresses and together with the dirty neighbours that the
//!   victim holds.
//! - **Containers** ([`Container`]) are address ranges with a share of the capacity each.
//!
//! The source is J. Yang, "Improving Performance for Flash-Based Storage Systems", dissertation, University
//! of California, Santa Cruz, 2014, chapter 3. It leaves containers and writing back for later.

mod keeper;
mod outcome;
mod plan;
mod play;
#[cfg(test)]
mod tests;

pub use outcome::{ContainerFigures, FlashCacheOutcome, FlashFigures, LogPages};
pub use plan::{
    CacheLog, Container, Drop, Evict, FlashCache, FlashCacheError, Guarantee, SegmentSize, Victims, WarmUp,
};
pub use play::play;
