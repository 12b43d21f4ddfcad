//! Plots write amplification against the segment of the last of stacked logs.

use super::axis::{Axis, Unit};
use super::sheet::{Mark, Panel, Shape, Sheet, Style};
use weir_model::Bytes;

/// A panel: stacked logs that differ in their segments only.
#[derive(Clone, Debug, PartialEq)]
pub struct AmplificationPanel {
    /// What its stacks have in common.
    pub name: String,
    /// A line for each segment of the first layer.
    pub lines: Vec<AmplificationLine>,
}

/// Stacked logs that differ in the segment of the last layer only.
#[derive(Clone, Debug, PartialEq)]
pub struct AmplificationLine {
    /// What they have in common.
    pub name: String,
    /// Segment of the last layer, and TCWA.
    pub points: Vec<(Bytes, f64)>,
}

const HEIGHT: f64 = 230.0;

/// Draws the panels, one below the other, as SVG. Lines of the same number have the same colour and the name
/// that they have in the first panel.
pub fn amplification_svg(title: &str, panels: &[AmplificationPanel]) -> String {
    let named = panels.first().map(|panel| &panel.lines[..]).unwrap_or_default().iter().enumerate();
    let legend = named.map(|(number, line)| (Style::of(number), Shape::Line, line.name.clone()));
    Sheet { title, legend: legend.collect(), panels: panels.iter().map(panel).collect() }.svg()
}

fn panel(of: &AmplificationPanel) -> Panel {
    let points = || of.lines.iter().flat_map(|line| &line.points).map(|(segment, y)| (segment.0 as f64, *y));
    let (least, most) = points().fold((f64::MAX, 1.0), |(least, most): (f64, f64), (segment, _)| {
        (least.min(segment), most.max(segment))
    });
    let highest = points().fold(1.0, |highest: f64, (_, y)| highest.max(y));
    let mut marks = Vec::new();
    for (number, line) in of.lines.iter().enumerate() {
        let points: Vec<_> = line.points.iter().map(|(segment, y)| (segment.0 as f64, *y)).collect();
        let dot = |at: &(f64, f64)| Mark::Point(Style::of(number), Shape::Disc(3.0), *at);
        marks.extend(points.iter().map(dot));
        marks.push(Mark::Line(Style::of(number), points));
    }
    Panel {
        x: Axis::logarithmic("segment of the last layer", least.min(most), most, Unit::Bytes),
        y: Axis::linear(&format!("TCWA, {}", of.name), 0.0, highest * 1.05, Unit::Plain),
        height: HEIGHT,
        has_grid: true,
        marks,
    }
}
