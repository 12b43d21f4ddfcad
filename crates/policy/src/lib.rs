//! Placement, caching, admission, distribution and reclaim policies, as pure decisions: a policy receives
//! events and returns actions.
//!
//! There is one file per published policy, headed by its source and rule. A policy does no I/O, reads no
//! clock, draws no random numbers of its own and starts no thread: the server and the simulator run the same
//! code.
#![forbid(unsafe_code)]

pub mod admission;
pub mod block_table;
mod cache;
pub mod distribution;
pub mod eviction;
mod ewma;
pub mod ext;
pub mod harm;
mod lru;
pub mod placement;
pub mod promotion;
pub mod reclaim;
pub mod watermarks;

pub use block_table::BlockTable;
pub use ewma::{Ewma, MovingDeviation};
pub use lru::Lru;
pub use watermarks::Watermarks;
