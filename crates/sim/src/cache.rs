//! Caches without time: which accesses of a trace hit, and what that writes and where.
//!
//! A trace is loaded once ([`BlockTrace`]): every request becomes accesses to the blocks it touches, in ascending
//! order, and blocks are numbered densely. Then it is played to any number of caches ([`play`]), each with a size, an
//! eviction policy, an admission policy and a way to treat writes ([`Setup`]). Runs share the trace and nothing else, so
//! that a driver may start them on as many threads as it likes.

mod blocks;
mod outcome;
mod play;
mod policies;
#[cfg(test)]
mod tests;

pub use blocks::{BlockSize, BlockTrace, BlockTraceError, Loader};
pub use outcome::{CacheOutcome, Counts};
pub use play::{Setup, WriteMode, play};
pub use policies::{AdmissionPolicy, EvictionPolicy};
