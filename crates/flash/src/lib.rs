//! The flash log: pages of a sparse address space, written sequentially to segments that are erased as a
//! whole.
//!
//! A [`Log`] knows where each page is, which pages are valid, and which segment to clean. It is sans-I/O: it
//! holds no data and hands its commands to a [`Port`], which carries them out. A simulation completes them at
//! once and counts ([`Simulated`]); a device that takes time reports the end of an erase with
//! [`Log::erased`].
//!
//! - **Segments** have the same number of pages. A segment is *free*, *open* at an append point, *closed*
//!   when it is full, or being erased.
//! - **Append points** ([`Stream`]) separate data that is expected to become invalid at different times. The
//!   writer names one with each write; [`CopyTo`] says where the cleaner's copies go.
//! - **Cleaning** runs when an append point needs a segment and too few are free ([`Thresholds`]). The victim
//!   is selected by a policy of [`weir_policy::reclaim`]. For each of its valid pages the port decides
//!   whether it is copied or dropped, as a cache may.
//! - **Wear** ([`WearLevelling`]): free segments are taken in the order of their erase counts, and segments
//!   with data that stays valid are moved when they lag behind.
//! - **Metadata** ([`Metadata`]): summary pages in each segment, and a journal of the page map in the log
//!   itself.
//!
//! # Conventions
//!
//! The *spare factor* is `(T - U) / T`: U pages that the user addresses, T pages of the segments in use,
//! without the free segments that cleaning keeps and without open ones. [`LogConfig::for_device`] adds those.
//! *Write amplification* is pages programmed (user's, copied, metadata) per page that the user wrote.
//! [`analytic`] has the closed forms against which the log is tested.
//!
//! # Memory and cost
//!
//! With a [`DenseMap`], 4 bytes per address, 4.1 bytes per page of flash, and some 30 bytes per segment: 230
//! MB for 100 GB of 4 KiB pages at 20 % spare and 128 pages a segment, 9.3 GB for 4 TB. A [`SparseMap`] takes
//! about 20 bytes per valid address and 8.1 bytes per page of flash. A page written costs tens of
//! nanoseconds, most of them memory accesses.
#![forbid(unsafe_code)]

pub mod analytic;
mod config;
mod counters;
mod error;
mod free;
mod log;
mod map;
mod port;
pub mod precondition;
mod segments;
#[cfg(test)]
mod tests;

pub use config::{ConfigError, CopyTo, LogConfig, Metadata, Thresholds, WearLevelling};
pub use counters::{Counters, Wear};
pub use error::LogError;
pub use log::Log;
pub use map::{AddressMap, DenseMap, SparseMap};
pub use port::{Content, Erase, Place, Port, Simulated, Stream, Valid};
pub use segments::{SegmentInfo, SegmentState};
