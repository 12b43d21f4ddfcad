//! Plots the frontier of device sets: price against response times and flash life.

use super::axis::{Axis, Unit};
use super::sheet::{Mark, Panel, Shape, Sheet, Style};
use crate::advise::SetFigures;

/// Device sets to plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontier {
    /// Currency of the prices.
    pub currency: String,
    /// All sets.
    pub sets: Vec<PlottedSet>,
}

/// One device set.
#[derive(Clone, Debug, PartialEq)]
pub struct PlottedSet {
    /// Set name.
    pub name: String,
    /// Predicted figures.
    pub predicted: SetFigures,
    /// Simulated figures, if the set was simulated and can keep up.
    pub simulated: Option<SetFigures>,
    /// Whether it can keep up with the trace, as far as is known; otherwise it has no response times to plot.
    pub keeps_up: bool,
    /// Whether it is on the frontier.
    pub is_on_frontier: bool,
    /// Whether it is the recommended set.
    pub is_pick: bool,
}

const HEIGHT: f64 = 230.0;
/// Largest flash life drawn, in years: devices that do not wear out are drawn there.
const LIFE_MAX: f64 = 100.0;

type Figure = fn(&SetFigures) -> f64;

const GRAY: &str = "#bbbbbb";
const BLACK: &str = "#222222";
const RED: &str = "#c1001f";

fn price(judged: &SetFigures) -> f64 {
    judged.price.whole().max(0.01)
}

fn padded_range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) =
        values.fold((f64::MAX, 1e-9), |(least, most), value| (value.min(least), value.max(most)));
    (least.min(most) / 1.3, most * 1.3)
}

impl Frontier {
    /// Draws the plot as SVG.
    pub fn svg(&self, title: &str) -> String {
        let panels: [(&str, Unit, Figure); 3] = [
            ("mean response", Unit::Nanos, |judged| judged.mean.0.max(1) as f64),
            ("99 of 100 requests take at most", Unit::Nanos, |judged| judged.p99.0.max(1) as f64),
            ("flash lasts, years (100: longer, or it does not wear)", Unit::Plain, |judged| {
                judged.life.0.clamp(1e-3, LIFE_MAX)
            }),
        ];
        let panels = panels.into_iter().map(|(name, unit, figure)| self.panel(name, unit, figure)).collect();
        Sheet { title, legend: self.legend(), panels }.svg()
    }

    fn legend(&self) -> Vec<(Style, Shape, String)> {
        let mut legend = vec![
            (Style::colored(GRAY), Shape::Disc(3.0), "another set is better".to_owned()),
            (Style::of(0), Shape::Disc(4.5), "predicted, on the frontier".into()),
            (Style::colored(BLACK), Shape::Ring(7.0), "simulated".into()),
            (Style::colored(RED), Shape::Ring(7.0), "the pick".into()),
        ];
        if self.sets.iter().any(|set| !set.keeps_up) {
            legend.push((
                Style::colored(BLACK),
                Shape::Cross(4.0),
                "cannot keep up, at the top of the responses".into(),
            ));
        }
        legend
    }

    fn panel(&self, name: &str, unit: Unit, figure: Figure) -> Panel {
        let able = || self.sets.iter().filter(|set| set.keeps_up);
        let judged = || able().flat_map(|set| [Some(&set.predicted), set.simulated.as_ref()]).flatten();
        let (cheapest, dearest) = padded_range(self.sets.iter().map(|set| price(&set.predicted)));
        let (least, most) = padded_range(judged().map(figure));
        let currency = format!("price, {}", self.currency);
        let at = |judged: &SetFigures| (price(judged), figure(judged));
        let point = |look: &Style, shape, judged: &SetFigures| Mark::Point(look.clone(), shape, at(judged));
        let (gray, blue) = (Style::colored(GRAY), Style::of(0));
        let mut marks = Vec::new();
        marks.extend(
            able()
                .filter(|set| !set.is_on_frontier)
                .map(|set| point(&gray, Shape::Disc(2.5), &set.predicted)),
        );
        marks.extend(
            able().filter(|set| set.is_on_frontier).map(|set| point(&blue, Shape::Disc(4.5), &set.predicted)),
        );
        // In the panel of lives the top is the best, so sets that cannot keep up are not drawn there.
        let is_shown = |set: &&PlottedSet| !set.keeps_up && unit == Unit::Nanos;
        for set in self.sets.iter().filter(is_shown) {
            let top = (price(&set.predicted), most);
            marks.push(Mark::Point(Style::colored(BLACK), Shape::Cross(4.0), top));
        }
        for (set, simulated) in able().filter_map(|set| Some((set, set.simulated.as_ref()?))) {
            let look = Style::colored(if set.is_pick { RED } else { BLACK });
            marks.push(point(&look, Shape::Ring(7.0), simulated));
            if set.is_pick {
                marks.push(Mark::Label(look, set.name.clone(), at(simulated)));
            }
        }
        Panel {
            x: Axis::logarithmic(&currency, cheapest, dearest, Unit::Plain),
            y: Axis::logarithmic(name, least, most, unit),
            height: HEIGHT,
            has_grid: true,
            marks,
        }
    }
}
