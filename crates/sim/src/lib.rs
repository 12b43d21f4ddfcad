//! Experiments in virtual time: what would have been, had the pool been another one.
//!
//! [`place`] runs the real engine, with the very policies the server runs, over modelled devices that
//! keep no data: the same requests, other devices or policies, in a fraction of the time. Read
//! [`machine`](mod@machine) for what stands in for the world, [`load`] for what is asked of it, [`run`]
//! for the course of an experiment and what is measured.
//!
//! [`cache`] plays a trace to caches of any size and policy, without time; [`analysis`] tells what it is like;
//! [`advise`] finds what to buy for it.
//!
//! Everything follows from the load, the pool and a seed: two runs of the same are the same.
//!
//! Pure: no I/O, no clock, no threads.
#![forbid(unsafe_code)]

pub mod advise;
pub mod analysis;
pub mod cache;
pub mod dbench;
pub mod files;
mod hollow;
pub mod load;
pub mod machine;
mod meter;
pub mod mix;
pub mod noise;
pub mod outcome;
pub mod plot;
pub mod pool;
pub mod postmark;
pub mod process;
mod replay;
pub mod run;
mod side_by_side;
pub mod synthetic;
#[cfg(test)]
mod tests;
pub mod units;

pub use load::{Arrival, Client, Load, Space};
pub use noise::Noise;
pub use outcome::{DeviceOutcome, Outcome, Responses, Window};
pub use pool::{DeviceSpec, PoolSpec, Room};
pub use postmark::Postmark;
pub use replay::Replay;
pub use run::{Mode, Plan, SimError, place};
pub use synthetic::Synthetic;
