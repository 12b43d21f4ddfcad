//! Experiments with a pool: the real engine over modelled devices, and what it came to.
//!
//! [`machine`](mod@machine) stands in for the world, [`run`] is the course of an experiment, [`outcome`]
//! what is measured, [`hindsight`] what any policy could have come to.

pub mod hindsight;
mod hollow;
pub mod machine;
mod meter;
mod metered;
pub mod noise;
pub mod outcome;
pub mod pool;
pub mod run;
