//! The weir program: its pool file and its commands. `cli.rs` lists the commands.
//!
//! It is a library only so that tests and fuzz targets can call [`pool_file::parse`].
#![forbid(unsafe_code)]

pub mod args;
pub mod cli;
pub mod commands;
pub mod devices;
pub mod exit;
pub mod failure;
pub mod files;
pub mod output;
pub mod parallel;
pub mod picture;
pub mod pool;
pub mod pool_file;
pub mod progress;
pub mod signals;
pub mod status;
pub mod traces;
