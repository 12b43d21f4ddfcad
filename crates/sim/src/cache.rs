//! Caches without time: which accesses of a trace hit, and what that writes and where.
//!
//! A trace is loaded once ([`BlockTrace`]): every request becomes accesses to the blocks it touches, in ascending
//! order, and blocks are numbered densely. Then it is played to any number of caches ([`play`]), each with a size, an
//! eviction policy, an admission policy and a way to treat writes ([`Setup`]). LRU caches of
//! many sizes take one pass over the trace together ([`passes`], [`play_pass`]). Passes share the trace and nothing else, so that a
//! driver may start them on as many threads as it likes.

/// Raised whenever some cache comes to other counts than before: results that were kept are of no use then.
pub const COUNTED_AS: u32 = 1;

mod blocks;
mod config;
mod numbers;
mod outcome;
mod play;
mod policies;
mod size;
mod sizes;
mod stack;
#[cfg(test)]
mod tests;

pub use blocks::{BlockSize, BlockTrace, BlockTraceError, Loader, ReadError};
pub(crate) use blocks::{homes, place};
pub use config::CacheConfig;
pub(crate) use numbers::Numbers;
pub use outcome::{CacheFigures, CacheOutcome, Counts, Ratios};
pub use play::{Setup, WriteMode, passes, play, play_pass, play_warmed};
pub use policies::{AdmissionPolicy, EvictionPolicy};
pub use size::{Size, block_size, share, size};
pub use stack::Stack;
