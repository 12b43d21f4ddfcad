//! Experiments with a pool: the real engine over modelled devices, and the measured outcome.
//!
//! [`machine`](mod@machine) simulates the machine, [`run`] runs an experiment, [`outcome`] holds the
//! measurements, [`hindsight`] computes bounds for any policy. [`hosts`] runs several machines that share
//! bricks, [`migrations`] counts what a policy migrates. [`endurance`] says how long the flash of devices
//! lasts, [`budgeted`](mod@budgeted) limits what a policy writes to them.

mod brick;
pub mod budgeted;
mod clients;
mod dataless;
pub mod endurance;
pub mod hindsight;
pub mod hosts;
pub mod machine;
mod meter;
mod metered_world;
pub mod migrations;
pub mod noise;
pub mod outcome;
mod phases;
pub mod pool;
pub mod run;
