//! Cache simulation without time: hits and misses of a trace, and the resulting writes.
//!
//! A trace is loaded once ([`BlockTrace`]): every request becomes accesses to the blocks it touches, in
//! ascending order, and blocks are numbered densely. Then it is played to any number of caches ([`play()`]),
//! each with a size, an eviction policy, an admission policy and a write mode ([`Setup`]). LRU caches of many
//! sizes share one pass over the trace ([`passes`], [`play_pass`]). Passes share only the trace, so a driver
//! may run them on any number of threads.

/// Version of the counting rules. It is raised whenever some cache gets other counts than before, which
/// invalidates stored results.
pub const COUNTING_VERSION: u32 = 1;

mod blocks;
mod config;
mod dirty;
mod lru_pass;
mod numbers;
mod outcome;
mod play;
mod policies;
mod requests;
mod size;
mod stack;
#[cfg(test)]
mod tests;

pub use blocks::{BlockSize, BlockTrace, BlockTraceError, Loader, ReadError, check_len};
pub(crate) use blocks::{block_keys, split_key};
pub use config::CacheConfig;
pub(crate) use dirty::Dirty;
pub(crate) use numbers::Numbers;
pub(crate) use outcome::Missed;
pub use outcome::{CacheFigures, CacheOutcome, Counts, Ratios};
pub use play::{Setup, WriteMode, passes, play, play_pass, play_warmed};
pub(crate) use policies::Residents;
pub use policies::{AdmissionPolicy, EvictionPolicy, critical_blocks};
pub(crate) use requests::Request;
pub use size::{Size, block_size, share, size};
pub use stack::Stack;
pub use weir_policy::admission::{AdmissionSettings, SequenceSettings, TouchSettings};
