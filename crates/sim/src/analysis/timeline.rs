//! Accesses by time windows and disk regions, each as fine as the bounds allow.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Collects accesses in at most [`WINDOWS`] windows and [`REGIONS`] regions: both start fine, and double
/// their width whenever there are too many. Memory is constant, however long and large the trace is.
#[derive(Debug, Default)]
pub(super) struct TimelineCollector {
    /// Windows are 2^this long.
    window: u32,
    /// Regions have 2^this blocks.
    region: u32,
    /// The first and the last block.
    span: Option<(u64, u64)>,
    windows: BTreeMap<u64, Window>,
}

#[derive(Debug, Default)]
struct Window {
    reads: u64,
    writes: u64,
    footprint: u64,
    /// Accesses by region.
    accesses: BTreeMap<u64, u64>,
}

/// Requests and accesses by windows of time and regions of the disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Timeline {
    /// Length of a window: in nanoseconds, or in requests if the trace has no times.
    pub window: u64,
    /// Consecutive windows, those without a request included; at most 128.
    pub windows: Vec<Stretch>,
    /// Blocks of a region.
    pub region_blocks: u64,
    /// First block of the first region, counted from the start of the disk. Each disk begins at block 0.
    pub first_block: u64,
    /// The heat map: for each window the accesses to each of at most 64 regions.
    pub heat: Vec<Vec<u64>>,
}

/// A window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Window")]
pub struct Stretch {
    /// Start since the first request, in the unit of the window's length.
    pub start: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Distinct blocks accessed from the first request to the end of the window.
    pub footprint: u64,
}

/// Maximum number of windows.
pub const WINDOWS: u64 = 128;
/// Maximum number of regions.
pub const REGIONS: u64 = 64;

impl TimelineCollector {
    /// Adds a request to blocks of a disk at a time that does not go back; `footprint` is the number of
    /// distinct blocks accessed so far, including its own.
    pub(super) fn add(&mut self, at: u64, blocks: RangeInclusive<u64>, is_write: bool, footprint: u64) {
        let (first, last) = (*blocks.start(), *blocks.end());
        let span = self.span.map_or((first, last), |(least, most)| (least.min(first), most.max(last)));
        self.span = Some(span);
        while (span.1 >> self.region) - (span.0 >> self.region) >= REGIONS {
            self.widen_regions();
        }
        while at >> self.window >= WINDOWS {
            self.widen_windows();
        }
        let window = self.windows.entry(at >> self.window).or_default();
        window.reads += u64::from(!is_write);
        window.writes += u64::from(is_write);
        window.footprint = footprint;
        for region in first >> self.region..=last >> self.region {
            let start = first.max(region << self.region);
            let end = last.min(((region + 1) << self.region) - 1);
            *window.accesses.entry(region).or_default() += end - start + 1;
        }
    }

    fn widen_regions(&mut self) {
        self.region += 1;
        for window in self.windows.values_mut() {
            for (region, accesses) in std::mem::take(&mut window.accesses) {
                *window.accesses.entry(region / 2).or_default() += accesses;
            }
        }
    }

    fn widen_windows(&mut self) {
        self.window += 1;
        for (number, old) in std::mem::take(&mut self.windows) {
            let window = self.windows.entry(number / 2).or_default();
            window.reads += old.reads;
            window.writes += old.writes;
            window.footprint = old.footprint;
            for (region, accesses) in old.accesses {
                *window.accesses.entry(region).or_default() += accesses;
            }
        }
    }

    /// Returns the timeline, including windows without requests.
    pub(super) fn finish(self) -> Timeline {
        let Some((least, most)) = self.span else { return Timeline::default() };
        let (first, last) = (least >> self.region, most >> self.region);
        let mut timeline = Timeline {
            window: 1 << self.window,
            region_blocks: 1 << self.region,
            first_block: first << self.region,
            ..Timeline::default()
        };
        let (end, none, mut footprint) = (self.windows.keys().last().copied(), Window::default(), 0);
        for number in 0..=end.unwrap_or(0) {
            let window = self.windows.get(&number).unwrap_or(&none);
            footprint = window.footprint.max(footprint);
            timeline.windows.push(Stretch {
                start: number << self.window,
                reads: window.reads,
                writes: window.writes,
                footprint,
            });
            let accesses = |region| window.accesses.get(&region).copied().unwrap_or(0);
            timeline.heat.push((first..=last).map(accesses).collect());
        }
        timeline
    }
}
