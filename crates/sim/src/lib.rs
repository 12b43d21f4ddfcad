//! Experiments in virtual time: what would have been, had the pool been another one.
//!
//! [`place()`] runs the real engine, with the very policies the server runs, over modelled devices that
//! keep no data: the same requests, other devices or policies, in a fraction of the time. Read
//! [`place`](mod@place) for what stands in for the world, the course of an experiment and what is measured,
//! [`load`] for what is asked of it.
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
mod error;
pub mod load;
pub mod place;
pub mod plot;
#[cfg(test)]
mod tests;
pub mod units;

pub use error::SimError;
pub use load::{Arrival, Client, Load, Postmark, Replay, Space, Synthetic};
pub use place::hindsight::Hindsight;
pub use place::noise::Noise;
pub use place::outcome::{DeviceOutcome, Outcome, Responses, Window};
pub use place::pool::{DeviceSize, DeviceSpec, PoolSpec};
pub use place::run::{Mode, Plan, place, place_and_record};
