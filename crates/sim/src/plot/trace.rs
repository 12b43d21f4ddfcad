//! Pictures of what a trace is like.

use super::{Drawn, as_png, as_svg};
use crate::SimError;
use crate::analysis::{Curve, Spread, Timeline};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;
use weir_model::BLOCK;

/// What is drawn.
#[derive(Clone, Debug)]
pub enum TracePicture<'a> {
    /// Miss ratios by cache size, up to a cache of so many blocks.
    MissRatios(&'a [Curve], u64),
    /// Accesses by time and place, darker where there are more, by their logarithm; whether the trace has times.
    HotSpots(&'a Timeline, bool),
    /// Distinct blocks accessed so far; whether the trace has times.
    Footprint(&'a Timeline, bool),
    /// How numbers of this unit are spread, by powers of two; each with its name.
    Spreads(&'a str, Vec<(&'a str, &'a Spread)>),
}

const SIZE: (u32, u32) = (900, 420);
/// Of letters.
const FONT: (&str, u32) = ("sans-serif", 11);
const GIB: f64 = (1u64 << 30) as f64;

impl TracePicture<'_> {
    /// As SVG.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn svg(&self, title: &str) -> Result<String, SimError> {
        as_svg(SIZE, |backend| self.draw(backend, title))
    }

    /// As PNG.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn png(&self, title: &str) -> Result<Vec<u8>, SimError> {
        as_png(SIZE, |backend| self.draw(backend, title))
    }

    fn draw<B: DrawingBackend>(&self, backend: B, title: &str) -> Drawn
    where
        B::ErrorType: 'static,
    {
        let area = backend.into_drawing_area();
        area.fill(&WHITE)?;
        let area = area.titled(title, ("sans-serif", 16))?;
        match self {
            Self::MissRatios(curves, blocks) => miss_ratios(&area, curves, *blocks)?,
            Self::HotSpots(timeline, timed) => hot_spots(&area, timeline, *timed)?,
            Self::Footprint(timeline, timed) => footprint(&area, timeline, *timed)?,
            Self::Spreads(unit, spreads) => bars(&area, unit, spreads)?,
        }
        area.present()?;
        Ok(())
    }
}

/// One line after the other, each from point to point, in axes with names.
fn lines<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    axes: [(&str, f64); 2],
    all: &[(&str, Vec<(f64, f64)>)],
) -> Drawn
where
    B::ErrorType: 'static,
{
    let [(x, x_most), (y, y_most)] = axes;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..x_most.max(1e-9), 0.0..y_most.max(1e-9))?;
    chart.configure_mesh().label_style(FONT).x_desc(x).y_desc(y).light_line_style(WHITE).draw()?;
    for (number, (name, points)) in all.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
        let key = move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2));
        chart.draw_series(line)?.label(*name).legend(key);
    }
    legend(&mut chart)
}

/// Which colour is whose, in the upper right corner.
fn legend<'a, B: DrawingBackend + 'a, C: CoordTranslate>(chart: &mut ChartContext<'a, B, C>) -> Drawn
where
    B::ErrorType: 'static,
{
    chart
        .configure_series_labels()
        .label_font(FONT)
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

fn miss_ratios<B: DrawingBackend>(area: &DrawingArea<B, Shift>, curves: &[Curve], blocks: u64) -> Drawn
where
    B::ErrorType: 'static,
{
    let gib = |blocks: u64| blocks as f64 * BLOCK as f64 / GIB;
    let line = |curve: &'_ Curve| {
        // Nothing hits in no cache.
        let points = curve.points.iter().map(|point| (gib(point.size_blocks), point.miss_ratio));
        std::iter::once((0.0, 1.0)).chain(points).collect()
    };
    let all: Vec<_> = curves.iter().map(|curve| (curve.policy, line(curve))).collect();
    lines(area, [("cache, GiB", gib(blocks)), ("misses to accesses", 1.02)], &all)
}

/// What a stretch of time is called, and the factor to it.
fn clock(timed: bool) -> (&'static str, f64) {
    if timed { ("seconds", 1e-9) } else { ("requests", 1.0) }
}

fn footprint<B: DrawingBackend>(area: &DrawingArea<B, Shift>, timeline: &Timeline, timed: bool) -> Drawn
where
    B::ErrorType: 'static,
{
    let (unit, factor) = clock(timed);
    let gib = |blocks: u64| blocks as f64 * BLOCK as f64 / GIB;
    let ends = timeline
        .windows
        .iter()
        .map(|window| (window.start.saturating_add(timeline.window) as f64 * factor, gib(window.footprint)));
    let points: Vec<_> = std::iter::once((0.0, 0.0)).chain(ends).collect();
    let (x, y) = points.last().copied().unwrap_or_default();
    lines(area, [(unit, x), ("accessed so far, GiB", y * 1.05)], &[("footprint", points)])
}

fn hot_spots<B: DrawingBackend>(area: &DrawingArea<B, Shift>, timeline: &Timeline, timed: bool) -> Drawn
where
    B::ErrorType: 'static,
{
    let (unit, factor) = clock(timed);
    let gib = |region: usize| {
        (timeline.first_block + region as u64 * timeline.region_blocks) as f64 * BLOCK as f64 / GIB
    };
    let time = |window: usize| (window as u64).saturating_mul(timeline.window) as f64 * factor;
    let regions = timeline.heat.first().map_or(0, Vec::len);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..time(timeline.heat.len()).max(1e-9), gib(0)..gib(regions.max(1)))?;
    chart
        .configure_mesh()
        .label_style(FONT)
        .disable_mesh()
        .x_desc(unit)
        .y_desc("place on the disk, GiB")
        .draw()?;
    let most = timeline.heat.iter().flatten().copied().max().unwrap_or(1) as f64;
    let cells = timeline.heat.iter().enumerate().flat_map(|(window, row)| {
        row.iter().enumerate().filter(|(_, accesses)| **accesses > 0).map(move |(region, accesses)| {
            // Even one access can be seen.
            let dark = 0.1 + 0.9 * (*accesses as f64).ln_1p() / most.ln_1p();
            let corners = [(time(window), gib(region)), (time(window + 1), gib(region + 1))];
            Rectangle::new(corners, RGBColor(160, 0, 30).mix(dark).filled())
        })
    });
    chart.draw_series(cells)?;
    Ok(())
}

fn bars<B: DrawingBackend>(area: &DrawingArea<B, Shift>, unit: &str, spreads: &[(&str, &Spread)]) -> Drawn
where
    B::ErrorType: 'static,
{
    let buckets = || spreads.iter().flat_map(|(_, spread)| &spread.buckets);
    let power = |from: u64| from.max(1).ilog2();
    let least = buckets().map(|bucket| power(bucket.from)).min().unwrap_or(0);
    let most = buckets().map(|bucket| power(bucket.from)).max().unwrap_or(0) + 1;
    let share = |count: u64, spread: &Spread| count as f64 / spread.count.max(1) as f64;
    let tallest = spreads.iter().flat_map(|(_, s)| s.buckets.iter().map(|b| share(b.count, s)));
    let tallest = tallest.fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(f64::from(least)..f64::from(most), 0.0..tallest * 1.1)?;
    let label = |power: &f64| format!("2^{power}");
    chart
        .configure_mesh()
        .label_style(FONT)
        .disable_x_mesh()
        .x_label_formatter(&label)
        .x_desc(unit)
        .y_desc("share")
        .draw()?;
    let width = 0.9 / spreads.len().max(1) as f64;
    for (number, (name, spread)) in spreads.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let bar = |(power, count): (u32, u64)| {
            let left = f64::from(power) + 0.05 + width * number as f64;
            Rectangle::new([(left, 0.0), (left + width, share(count, spread))], color.mix(0.8).filled())
        };
        let drawn = chart.draw_series(spread.buckets.iter().map(|b| bar((power(b.from), b.count))))?;
        drawn
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], color.filled()));
    }
    legend(&mut chart)
}
