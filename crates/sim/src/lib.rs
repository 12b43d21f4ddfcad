//! Experiments in virtual time: simulates caches and pools over traces and synthetic loads.
//!
//! [`place()`] runs the real engine, with the same policies as the server, over modelled devices that keep no
//! data: it answers what-if questions about other devices or policies for the same requests, in a fraction of
//! the time. Read [`place`](mod@place) for the simulated machine, the course of an experiment and the
//! measurements, and [`load`] for the loads.
//!
//! [`cache`] plays a trace to caches of any size and policy, without time; [`analysis`] computes a trace's
//! characteristics; [`advise`] searches for the devices to buy for it. [`flash`] simulates a NAND device:
//! what it writes, how it wears and how fast it responds; [`flash_cache`] a cache whose blocks lie in the log
//! of a flash device; [`logs`] stacks logs; [`fs`] runs programs on a file system over NVM and drives;
//! [`memory`] says what a file system in memory costs its processor.
//!
//! The load, the pool and a seed determine everything: two runs with the same inputs are identical.
//!
//! The crate is pure: no I/O, no clock, no threads.
#![forbid(unsafe_code)]

pub mod advise;
pub mod analysis;
pub mod cache;
mod error;
pub mod flash;
pub mod flash_cache;
pub mod fs;
pub mod load;
pub mod logs;
pub mod memory;
pub mod place;
pub mod plot;
mod responses;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod units;
mod write_budget;

pub use error::SimError;
pub use load::{Arrival, Client, Load, Postmark, Ramp, RampStep, Replay, Synthetic, VolumeData};
pub use place::budgeted::budgeted;
pub use place::endurance::{AmplificationSource, DeviceEndurance, FlashRating};
pub use place::hindsight::Hindsight;
pub use place::noise::Noise;
pub use place::outcome::{DeviceOutcome, DeviceWindow, Outcome, Window};
pub use place::pool::{DeviceSize, DeviceSpec, PoolSpec};
pub use place::run::{Mode, Plan, place, place_and_record, place_with_endurance};
pub use responses::Responses;
pub use weir_world::flash_log;
