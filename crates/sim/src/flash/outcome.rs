//! The outcome of a flash simulation.

use super::Lifetime;
use crate::responses::{Responses, ResponsesPart};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_flash::Wear;

/// The result of one victim policy.
// In JSON sizes are in bytes and end in `_bytes`, times are in nanoseconds and end in `_ns`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlashOutcome {
    /// The victim policy.
    pub policy: String,
    /// Space of the device.
    pub space: SpareSpace,
    /// Blocks and planes of the device.
    pub arrangement: Arrangement,
    /// Whether write amplification was steady when the measurement began.
    pub steady: bool,
    /// Overwrites of the capacity in the warm-up, and in the measurement.
    pub warm_up_overwrites: f64,
    /// Overwrites of the capacity in the measurement.
    pub measured_overwrites: f64,
    /// Bytes that the user wrote in the measurement.
    pub written_bytes: u64,
    /// Pages programmed in the measurement.
    pub pages: PageCounts,
    /// Write amplification: pages programmed per page that the user wrote.
    pub amplification: f64,
    /// Bytes programmed per byte that the user wrote: more than `amplification` if requests cover pages in
    /// part.
    pub byte_amplification: f64,
    /// Write amplification of uniform random writes by the closed form, for the spare factor of the segments
    /// in use: of greedy cleaning with the policies `greedy` and `d-choices`, of oldest first with `oldest`;
    /// `null` with the others.
    pub uniform_amplification: Option<f64>,
    /// Erase counts since the device was empty.
    pub wear: WearFigures,
    /// How long the flash lasts.
    pub lifetime: Lifetime,
    /// Virtual time that was measured.
    pub measured_ns: u64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Requests of an open loop that were answered later than as much time again as the requests took to
    /// arrive: the device cannot keep up.
    pub late_requests: u64,
    /// Response times of reads.
    #[schemars(with = "ResponsesPart")]
    pub reads: Responses,
    /// Response times of writes.
    #[schemars(with = "ResponsesPart")]
    pub writes: Responses,
    /// Warm-up and measurement over time.
    pub windows: Vec<FlashWindow>,
}

/// Space of the device, by all conventions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpareSpace {
    /// What the user can write, U.
    pub capacity_bytes: u64,
    /// Flash in the segments in use, T: all but reserve and open segments.
    pub in_use_bytes: u64,
    /// All flash.
    pub flash_bytes: u64,
    /// Spare factor, `(T - U) / T`.
    pub spare_factor: f64,
    /// Over-provisioning by the other convention, `(T - U) / U`.
    pub over_provisioning: f64,
    /// Segments in all.
    pub segments: u32,
    /// Free segments that cleaning keeps.
    pub reserve_segments: u32,
    /// Open segments: append points.
    pub open_segments: u32,
}

/// Blocks and planes of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Arrangement {
    /// Size of a page.
    pub page_bytes: u64,
    /// Pages in a block.
    pub block_pages: u32,
    /// Pages that are collected and erased at once.
    pub segment_pages: u32,
    /// Planes in a die.
    pub planes: u32,
    /// Dies at a channel.
    pub dies: u32,
    /// Channels.
    pub channels: u32,
}

/// Numbers of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PageCounts {
    /// Pages that the user wrote, in whole or in part.
    pub user: u64,
    /// Valid pages that cleaning copied.
    pub copied: u64,
    /// Of these, to level wear.
    pub levelled: u64,
    /// Pages that the user trimmed.
    pub trimmed: u64,
    /// Segments erased.
    pub erases: u64,
}

/// Distribution of the segments' erase counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WearFigures {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Of the least worn segment.
    pub least: u32,
    /// Of the most worn segment.
    pub most: u32,
}

impl From<Wear> for WearFigures {
    fn from(Wear { mean, deviation, least, most }: Wear) -> Self {
        Self { mean, deviation, least, most }
    }
}

/// A part of the warm-up or the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlashWindow {
    /// Overwrites of the capacity until its end.
    pub overwrites: f64,
    /// Whether it belongs to the measurement.
    pub measured: bool,
    /// Write amplification in the window.
    pub amplification: f64,
    /// Closed segments at its end by valid share, in ten bars of equal width.
    pub valid_histogram: Vec<u64>,
}
