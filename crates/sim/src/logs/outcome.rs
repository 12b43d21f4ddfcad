//! The outcome of a simulation of stacked logs.

use crate::flash::WearFigures;
use schemars::JsonSchema;
use serde::Serialize;

/// What stacked logs did in the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StackOutcome {
    /// Size of a page.
    pub page_bytes: u64,
    /// Amount of the load's data.
    pub data_bytes: u64,
    /// Whether TCWA was steady at the end: in the last five windows.
    pub steady: bool,
    /// Overwrites of the data in the warm-up, which is not counted in the other figures.
    pub warm_up_overwrites: f64,
    /// Overwrites of the data in the measurement.
    pub measured_overwrites: f64,
    /// Pages that the user wrote, in whole or in part.
    pub user_pages: u64,
    /// FSWA: pages that the first layer wrote, its cleaner, its metadata and the defragger included, per page
    /// of the user.
    pub first_amplification: f64,
    /// FLWA: pages that the last layer programmed per page written to it.
    pub last_amplification: f64,
    /// TCWA: pages that the last layer programmed per page of the user.
    pub total_amplification: f64,
    /// What the defragger did; `null` without one.
    pub defragger: Option<DefragFigures>,
    /// The layers, from the first.
    pub layers: Vec<LayerFigures>,
    /// Warm-up and measurement over time.
    pub windows: Vec<StackWindow>,
}

/// What the defragger did in the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DefragFigures {
    /// Runs.
    pub runs: u64,
    /// Pages that it wrote to the second layer.
    pub pages: u64,
}

/// What a layer did in the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerFigures {
    /// Pages that the layer took from above.
    pub received_pages: u64,
    /// Pages that it programmed, which the layer below took.
    pub programmed_pages: u64,
    /// Pages programmed per page taken from above.
    pub amplification: f64,
    /// Its logs, in the order of their addresses.
    pub logs: Vec<LogFigures>,
}

/// What a log did in the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LogFigures {
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u32,
    /// Segments that cleaning keeps free.
    pub reserve_segments: u32,
    /// Valid pages at the end, as a share of the pages for data in all segments but the reserve and the open
    /// one.
    pub utilisation: f64,
    /// Pages written to it, its checkpoints included.
    pub written_pages: u64,
    /// Valid pages that cleaning copied.
    pub copied_pages: u64,
    /// Pages of summaries and of the journal.
    pub metadata_pages: u64,
    /// Valid pages that were trimmed.
    pub trimmed_pages: u64,
    /// Segments erased.
    pub erases: u64,
    /// Pages programmed per page written to it; `null` if none was.
    pub amplification: Option<f64>,
    /// Erase counts since the log was empty.
    pub wear: WearFigures,
    /// Closed segments at the end by valid share, in ten bars of equal width.
    pub valid_histogram: Vec<u64>,
}

/// A part of the warm-up or the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StackWindow {
    /// Overwrites of the data until its end.
    pub overwrites: f64,
    /// Whether it belongs to the measurement.
    pub measured: bool,
    /// TCWA in the window.
    pub total_amplification: f64,
    /// Pages programmed per page taken from above in the window, for each layer; `null` if it took none.
    pub amplifications: Vec<Option<f64>>,
    /// Closed segments of each layer at the end by valid share, in ten bars of equal width.
    pub valid_histograms: Vec<Vec<u64>>,
}
