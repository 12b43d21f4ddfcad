//! Plots of experiments and traces, as SVG with a width of 800 points.

mod amplification;
mod axis;
mod frontier;
mod ratios;
mod sheet;
#[cfg(test)]
mod tests;
mod text;
mod trace;

use crate::{Outcome, Window};
pub use amplification::{AmplificationLine, AmplificationPanel, amplification_svg};
use axis::{Axis, Unit};
pub use frontier::{Frontier, PlottedSet};
pub use ratios::{RatioRow, ratios_svg};
use sheet::{Mark, Panel, Shape, Sheet, Style};
pub use trace::TracePlot;

const HEIGHT: f64 = 190.0;
/// Response times that span more than this factor are drawn on a logarithmic axis.
const WIDE_SPAN: f64 = 20.0;

/// A figure of a window; `None` if it has none.
type Value<'v> = &'v dyn Fn(&Window) -> Option<f64>;

/// Plots requests per second, response times (mean, and 99th percentile as a paler line), the first device's
/// share of all commands and the moved bytes over the load's time: one line per policy.
pub fn svg(title: &str, outcomes: &[Outcome]) -> String {
    let first = outcomes.first().and_then(|outcome| outcome.devices.first());
    let share = format!("commands to {}", first.map_or("the first device", |device| &device.name));
    // A window without replies has no response times.
    let answered = |window: &Window, time: weir_model::Nanos| (window.rate > 0.0).then_some(time.0 as f64);
    let panels = vec![
        panel("requests answered a second", Unit::Plain, outcomes, &[&|w: &Window| Some(w.rate)]),
        panel(
            "response: mean, and 99 of 100 (paler)",
            Unit::Nanos,
            outcomes,
            &[&|w| answered(w, w.mean), &|w| answered(w, w.p99)],
        ),
        panel(&share, Unit::Percent, outcomes, &[&|w| w.shares.first().copied()]),
        panel("moved", Unit::Bytes, outcomes, &[&|w| Some(w.moved.0 as f64)]),
    ];
    let legend = outcomes.iter().enumerate();
    let legend = legend.map(|(number, outcome)| (Style::of(number), Shape::Line, outcome.policy.clone()));
    Sheet { title, legend: legend.collect(), panels }.svg()
}

fn panel(name: &str, unit: Unit, outcomes: &[Outcome], values: &[Value<'_>]) -> Panel {
    let windows = || outcomes.iter().flat_map(|outcome| &outcome.windows);
    let end = windows().map(|window| window.start.0 as f64).fold(1.0, f64::max);
    let all = || windows().flat_map(|window| values.iter().filter_map(|value| value(window)));
    let (least, most) =
        all().fold((f64::MAX, 0.0), |(least, most): (f64, f64), v| (least.min(v), most.max(v)));
    let y = match unit {
        Unit::Nanos if least > 0.0 && most / least > WIDE_SPAN => {
            Axis::logarithmic(name, least / 1.1, most * 1.1, unit)
        }
        // The axis shows sizes even if nothing was moved.
        Unit::Bytes => Axis::linear(name, 0.0, (most * 1.05).max(f64::from(1 << 20)), unit),
        Unit::Percent => Axis::linear(name, 0.0, 1.0, unit),
        _ => Axis::linear(name, 0.0, most * 1.05, unit),
    };
    let mut marks = Vec::new();
    for (number, outcome) in outcomes.iter().enumerate() {
        for (line, value) in values.iter().enumerate() {
            let look = if line == 0 { Style::of(number) } else { Style::of(number).paler() };
            let points = outcome.windows.iter().map(|window| Some((window.start.0 as f64, value(window)?)));
            // A line is interrupted where there is no value.
            let points: Vec<Option<(f64, f64)>> = points.collect();
            let lines = points.split(Option::is_none).filter(|line| !line.is_empty());
            marks
                .extend(lines.map(|line| Mark::Line(look.clone(), line.iter().copied().flatten().collect())));
        }
    }
    Panel { x: Axis::linear("time", 0.0, end, Unit::Nanos), y, height: HEIGHT, has_grid: true, marks }
}
