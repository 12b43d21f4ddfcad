//! Plots of a trace's characteristics.

use super::axis::{Axis, Unit};
use super::sheet::{Mark, Panel, Shape, Sheet, Style};
use crate::analysis::{Curve, Spread, Timeline, TraceAnalysis};
use weir_model::BLOCK;

/// A plot.
#[derive(Clone, Debug)]
pub enum TracePlot<'a> {
    /// Miss ratios by cache size, up to a cache of this many blocks.
    MissRatios(&'a [Curve], u64),
    /// Accesses by time and address, on a logarithmic scale of darkness; the flag says whether the trace has
    /// times.
    HotSpots(&'a Timeline, bool),
    /// Distinct blocks accessed so far; the flag says whether the trace has times.
    Footprint(&'a Timeline, bool),
    /// Distributions of numbers of this unit, by powers of two, each with its name.
    Spreads(&'a str, Vec<(&'a str, &'a Spread)>),
}

impl TraceAnalysis {
    /// Returns a plot of its miss-ratio curves.
    pub fn miss_ratios(&self) -> TracePlot<'_> {
        TracePlot::MissRatios(&self.analysis.curves, self.analysis.blocks)
    }

    /// Returns a plot of accesses by time and address.
    pub fn hot_spots(&self) -> TracePlot<'_> {
        TracePlot::HotSpots(&self.analysis.timeline, self.timed)
    }

    /// Returns a plot of the footprint over time.
    pub fn footprint(&self) -> TracePlot<'_> {
        TracePlot::Footprint(&self.analysis.timeline, self.timed)
    }
}

const HEIGHT: f64 = 320.0;
/// Cache sizes that span more than this factor are drawn on a logarithmic axis.
const WIDE_SPAN: f64 = 30.0;

impl TracePlot<'_> {
    /// Draws the plot as SVG.
    pub fn svg(&self, title: &str) -> String {
        let (legend, panel) = match self {
            Self::MissRatios(curves, blocks) => miss_ratios(curves, *blocks),
            Self::HotSpots(timeline, timed) => (Vec::new(), hot_spots(timeline, *timed)),
            Self::Footprint(timeline, timed) => (Vec::new(), footprint(timeline, *timed)),
            Self::Spreads(unit, spreads) => bars(unit, spreads),
        };
        Sheet { title, legend, panels: vec![panel] }.svg()
    }
}

type Legend = Vec<(Style, Shape, String)>;

fn panel(x: Axis, y: Axis, marks: Vec<Mark>) -> Panel {
    Panel { x, y, height: HEIGHT, has_grid: true, marks }
}

fn size(blocks: u64) -> f64 {
    blocks as f64 * BLOCK as f64
}

fn miss_ratios(curves: &[Curve], blocks: u64) -> (Legend, Panel) {
    let points = || curves.iter().flat_map(|curve| &curve.points).filter(|point| point.size_blocks > 0);
    let least = points().map(|point| size(point.size_blocks)).fold(size(blocks.max(1)), f64::min);
    let most = size(blocks.max(1));
    let is_wide = most / least > WIDE_SPAN;
    let name = "cache size";
    let x = match is_wide {
        true => Axis::logarithmic(name, least, most, Unit::Bytes),
        false => Axis::linear(name, 0.0, most, Unit::Bytes),
    };
    let (mut legend, mut marks) = (Vec::new(), Vec::new());
    for (number, curve) in curves.iter().enumerate() {
        // A cache of size zero hits nothing; a logarithmic axis has no position for it.
        let zero = (!is_wide).then_some((0.0, 1.0));
        let points = curve.points.iter().filter(|point| point.size_blocks > 0);
        let points = points.map(|point| (size(point.size_blocks), point.miss_ratio));
        marks.push(Mark::Line(Style::of(number), zero.into_iter().chain(points).collect()));
        legend.push((Style::of(number), Shape::Line, curve.policy.to_owned()));
    }
    (legend, panel(x, Axis::linear("miss ratio", 0.0, 1.02, Unit::Plain), marks))
}

/// Returns the horizontal axis: time, or requests if the trace has no times.
fn clock(timed: bool, end: f64) -> Axis {
    let (name, unit) = if timed { ("time", Unit::Nanos) } else { ("requests", Unit::Plain) };
    Axis::linear(name, 0.0, end, unit)
}

fn footprint(timeline: &Timeline, timed: bool) -> Panel {
    let ends = timeline
        .windows
        .iter()
        .map(|window| (window.start.saturating_add(timeline.window) as f64, size(window.footprint)));
    let points: Vec<_> = std::iter::once((0.0, 0.0)).chain(ends).collect();
    let (end, most) = points.last().copied().unwrap_or_default();
    let y = Axis::linear("distinct blocks accessed so far", 0.0, most * 1.05, Unit::Bytes);
    panel(clock(timed, end), y, vec![Mark::Line(Style::of(0), points)])
}

fn hot_spots(timeline: &Timeline, timed: bool) -> Panel {
    let place = |region: usize| size(timeline.first_block + region as u64 * timeline.region_blocks);
    let time = |window: usize| (window as u64).saturating_mul(timeline.window) as f64;
    let regions = timeline.heat.first().map_or(0, Vec::len);
    let most = timeline.heat.iter().flatten().copied().max().unwrap_or(1) as f64;
    let cells = timeline.heat.iter().enumerate().flat_map(|(window, row)| {
        row.iter().enumerate().filter(|(_, accesses)| **accesses > 0).map(move |(region, accesses)| {
            // Even a single access is visible.
            let dark = 0.12 + 0.88 * (*accesses as f64).ln_1p() / most.ln_1p();
            let corners = [(time(window), place(region)), (time(window + 1), place(region + 1))];
            Mark::Bar(Style::colored("#a0001e").opacity(dark), corners)
        })
    });
    let name = format!("offset (darker: more accesses, up to {most:.0})");
    let y = Axis::linear(&name, place(0), place(regions.max(1)), Unit::Bytes);
    let marks = cells.collect();
    Panel { has_grid: false, ..panel(clock(timed, time(timeline.heat.len())), y, marks) }
}

fn bars(unit: &str, spreads: &[(&str, &Spread)]) -> (Legend, Panel) {
    let buckets = || spreads.iter().flat_map(|(_, spread)| &spread.buckets);
    // Blocks are shown as sizes.
    let (unit, factor) = match unit {
        "bytes" => (Unit::Bytes, 1.0),
        "nanoseconds" => (Unit::Nanos, 1.0),
        _ => (Unit::Bytes, BLOCK as f64),
    };
    let power = |from: u64| 2f64.powi(from.max(1).ilog2() as i32) * factor;
    let least = buckets().map(|bucket| power(bucket.from)).fold(f64::MAX, f64::min);
    let most = buckets().map(|bucket| power(bucket.from) * 2.0).fold(2.0 * factor, f64::max);
    let share = |count: u64, spread: &Spread| count as f64 / spread.count.max(1) as f64;
    let tallest = spreads.iter().flat_map(|(_, s)| s.buckets.iter().map(|b| share(b.count, s)));
    let tallest = tallest.fold(1e-3, f64::max);
    let of = if unit == Unit::Nanos { "time" } else { "size" };
    let x = Axis::logarithmic(of, least.min(most / 2.0), most, unit);
    let y = Axis::linear("share, by powers of two", 0.0, (tallest * 1.1).min(1.02), Unit::Percent);
    let width = 0.9 / spreads.len().max(1) as f64;
    let (mut legend, mut marks) = (Vec::new(), Vec::new());
    for (number, (name, spread)) in spreads.iter().enumerate() {
        let look = Style::of(number);
        marks.extend(spread.buckets.iter().map(|bucket| {
            let left = 0.05 + width * number as f64;
            let at = |share: f64| power(bucket.from) * 2f64.powf(share);
            let corners = [(at(left), 0.0), (at(left + width), share(bucket.count, spread))];
            Mark::Bar(look.clone().opacity(0.9), corners)
        }));
        let name = if spread.count == 0 { format!("{name} (none)") } else { (*name).to_owned() };
        legend.push((look, Shape::Bar, name));
    }
    (legend, panel(x, y, marks))
}
