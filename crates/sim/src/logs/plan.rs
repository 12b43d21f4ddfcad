//! Settings of stacked logs.

use crate::SimError;
use weir_flash::{CopyTo, LogConfig, Metadata, Thresholds, WearLevelling};
use weir_model::{Bytes, Nanos, Seed};
use weir_policy::reclaim::ReclaimPolicy;

/// Parameters of a simulation of stacked logs.
#[derive(Clone, Debug)]
pub struct StackPlan {
    /// Size of a page of all logs.
    pub page: Bytes,
    /// The layers, from the first, which takes the load, to the last, which is flash. At least one.
    pub layers: Vec<LayerPlan>,
    /// The defragger; `None` for none.
    pub defragger: Option<Defragger>,
    /// How the logs are filled before the load begins.
    pub precondition: StackPrecondition,
    /// How long the load runs.
    pub repetition: Repetition,
    /// Random seed of the victim policies.
    pub seed: Seed,
}

/// How the logs are filled before the load begins. What that writes is in no figure but wear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StackPrecondition {
    /// The logs are empty.
    #[default]
    Empty,
    /// Every page of the data is written once, in the order of addresses.
    Fill,
    /// Every page of the data is written once, then twice as many pages at random: the layers have cleaned.
    Age,
    /// The load's own first requests, so many, are carried out.
    Requests(u64),
}

impl StackPrecondition {
    /// All that need no number, by the names that commands use.
    pub const ALL: [(&'static str, Self); 3] =
        [("empty", Self::Empty), ("fill", Self::Fill), ("age", Self::Age)];
}

/// How long the load runs, in overwrites of its data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repetition {
    /// Most overwrites of the warm-up, which ends when TCWA is steady and all layers clean. With 0 the first
    /// write counts.
    pub warm_up_max: f64,
    /// Overwrites that are measured.
    pub measured: f64,
}

/// Parameters of a layer.
#[derive(Clone, Debug)]
pub struct LayerPlan {
    /// Physical size of all its logs; whole segments are used.
    pub size: Bytes,
    /// Size of a segment: at least three pages.
    pub segment: Bytes,
    /// The share of the addresses above that each log has, in their order, and of the layer's size. One for
    /// each log; they need not add up to 1.
    pub shares: Vec<f64>,
    /// The share of each log's segments that cleaning keeps free: it starts below that, and stops at it.
    pub reserve: f64,
    /// Selects victims.
    pub policy: &'static ReclaimPolicy,
    /// Metadata of each log.
    pub metadata: LogMetadata,
    /// Whether the addresses of an erased segment are trimmed in the layer below.
    pub trim: bool,
}

/// Metadata that the logs of a layer write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogMetadata {
    /// Pages at the end of each segment.
    pub summary: u32,
    /// A page of a log's journal follows this many pages that it wrote; 0 for no journal.
    pub journal_every: u32,
    /// Each log of the layer writes its checkpoint page when the layer has taken this many pages; 0 for
    /// never. A checkpoint page is valid until the next one.
    pub checkpoint_every: u64,
    /// Pages that each log writes first and never again. They shift what follows against the segments below.
    pub shift: u32,
}

/// The virtual-log defragger of the first layer.
///
/// A run takes the closed segments that were written since they were last defragmented, those written longest
/// ago first, and writes all of their pages to the layer below at their own addresses, in one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defragger {
    /// When it runs.
    pub time: DefragTime,
    /// The most segments of a run, as a share of all segments of the first layer.
    pub share: f64,
    /// Classes of segments by the number of their erases, which is how often their addresses were written
    /// again; each class is written together. 1 for the order of addresses.
    pub classes: u32,
}

/// When the defragger runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefragTime {
    /// Once whenever no request has arrived for this long.
    Idle(Nanos),
    /// Whenever the load has overwritten its data this often.
    Every(f64),
}

/// The fewest segments of a log: a free one to keep, an open one, and two to clean.
const SEGMENTS_MIN: u64 = 4;

impl LayerPlan {
    /// Returns the layer's size for the given capacity ratio: the size of the layer above to the size of this
    /// one, less its reserve.
    pub fn size_for_ratio(above: Bytes, ratio: f64, reserve: f64) -> Bytes {
        Bytes((above.0 as f64 / ratio / (1.0 - reserve)).round() as u64)
    }

    /// Divides a number in the ratio of the shares: returns the end of each part.
    pub(super) fn divide(&self, number: u64) -> Vec<u64> {
        let total: f64 = self.shares.iter().sum();
        let sums = self.shares.iter().scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        sums.map(|sum| ((number as f64 * sum / total).round() as u64).min(number)).collect()
    }

    /// Returns the settings of each log.
    ///
    /// # Errors
    /// Fails if a log has too few segments or impossible ones.
    pub(super) fn configs(&self, page: Bytes, layer: usize) -> Result<Vec<LogConfig>, SimError> {
        let pages = self.segment.0 / page.0.max(1);
        let segments = self.size.0 / (pages * page.0).max(1);
        let (mut configs, mut start) = (Vec::new(), 0);
        for (log, end) in self.divide(segments).into_iter().enumerate() {
            let own = end - start;
            start = end;
            let (layer, log) = (layer + 1, log + 1);
            if own < SEGMENTS_MIN {
                let segment = self.segment;
                return Err(SimError::LogTooSmall {
                    layer,
                    log,
                    segments: own,
                    segment,
                    least: SEGMENTS_MIN,
                });
            }
            let segments = u32::try_from(own).unwrap_or(u32::MAX);
            let kept = ((f64::from(segments) * self.reserve).ceil() as u32).clamp(1, segments - 3);
            configs.push(LogConfig {
                segments,
                pages: u32::try_from(pages).unwrap_or(u32::MAX),
                limit: None,
                append_points: 1,
                copies: CopyTo::Same,
                thresholds: Thresholds { start: kept, stop: kept },
                metadata: Metadata {
                    summary: self.metadata.summary,
                    journal_every: self.metadata.journal_every,
                },
                wear: WearLevelling::default(),
            });
        }
        Ok(configs)
    }
}
