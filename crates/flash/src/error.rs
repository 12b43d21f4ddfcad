//! Errors of a log.

use crate::Stream;
use thiserror::Error;

/// Why a log does not take a write. Except after [`Stuck`](Self::Stuck), the log is unchanged by the failed
/// call, but for cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LogError {
    /// The address is beyond the end of a dense map.
    #[error("address {address} is beyond the log's {addresses} pages")]
    Address {
        /// The address.
        address: u64,
        /// Number of addresses.
        addresses: u64,
    },
    /// There is no such append point.
    #[error("the log has no append point {}, but {points}", stream.0)]
    Stream {
        /// The append point.
        stream: Stream,
        /// Number of append points.
        points: u8,
    },
    /// The log holds as many valid pages as it may; trim some first.
    #[error("the log is full: {limit} valid pages")]
    Full {
        /// The most valid pages.
        limit: u64,
    },
    /// No segment is free, but erases are in flight: write again after [`Log::erased`](crate::Log::erased).
    #[error("no segment is free until one of {in_flight} erases in flight is complete")]
    Erasing {
        /// Number of erases in flight.
        in_flight: u32,
    },
    /// Cleaning gains no space: (nearly) all pages of the candidates are valid. The log cannot be used
    /// further.
    #[error(
        "cleaning is stuck: {cleaned} segments cleaned in a row gained no room for a page; {valid} of \
         {pages} pages are valid, {free} segments free, {reserve} kept; give the log more spare space"
    )]
    Stuck {
        /// Segments cleaned in a row.
        cleaned: u64,
        /// Valid pages.
        valid: u64,
        /// Pages of all segments that can hold data.
        pages: u64,
        /// Free segments.
        free: u32,
        /// Free segments that cleaning keeps.
        reserve: u32,
    },
}
