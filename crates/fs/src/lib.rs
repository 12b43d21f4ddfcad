//! A file system over persistent memory, after SCMFS.
//!
//! - [`nvm`]: the memory: a mapped file or DAX device, or a simulated one that loses what no fence covers.
//!   All `unsafe` code is there, but for the system call behind `tiers::lease`.
//! - [`layout`]: the format of a region.
//! - [`store`]: atomic groups of changes, by a redo log.
//! - [`space`]: free chunks and pages.
//! - [`namespace`]: inodes, names, contents: the file system itself, without a clock or any I/O of its own.
//! - [`tiers`]: directories on other file systems, to which files are evicted.
//! - [`mod@check`]: verifies that everything agrees.
//! - [`mod@repair`]: makes a damaged file system agree with itself again.
//! - [`fuse`]: the mount.
//! - [`report`]: what `weir fs status` and `weir fs explain` show.
//!
//! docs/decisions/0026-file-system.md has the reasons, docs/reference/fs-format.md the format.

#![deny(unsafe_code)]

pub mod check;
pub mod error;
pub mod fuse;
pub mod layout;
pub mod namespace;
pub mod nvm;
pub mod repair;
pub mod report;
pub mod space;
pub mod store;
#[cfg(test)]
mod testing;
pub mod tiers;
