//! The program: its pool file, its commands. Read `main.rs` for the table of contents.
//!
//! A library only so that tests and fuzz targets reach [`pool_file::parse`].
#![forbid(unsafe_code)]

pub mod advise;
pub mod args;
pub mod demo;
pub mod exit;
pub mod explain;
pub mod failure;
pub mod files;
pub mod output;
pub mod parallel;
pub mod picture;
pub mod pool;
pub mod pool_file;
pub mod progress;
pub mod repro;
pub mod serving;
pub mod signals;
pub mod sim;
pub mod status;
pub mod traces;
