//! Decisions, pure: policies are told what happened and asked what to do.
//!
//! One file per published policy, headed by its source and rule. A policy does no I/O, reads no
//! clock, draws no random numbers of its own and starts no thread: the server and the simulator
//! run the very same code.
#![forbid(unsafe_code)]

pub mod admission;
pub mod block_table;
mod cached;
pub mod eviction;
mod ewma;
pub mod ext;
pub mod harm;
mod lru;
pub mod placement;

pub use block_table::BlockTable;
pub use ewma::Ewma;
pub use lru::Lru;
