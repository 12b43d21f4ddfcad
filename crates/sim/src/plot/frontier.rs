//! The frontier of what could be bought: price against responses and flash life.

use super::{Drawn, as_png, as_svg};
use crate::SimError;
use crate::advise::Judged;
use plotters::coord::Shift;
use plotters::prelude::*;
use weir_model::Nanos;

/// Sets of devices, to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontier {
    /// What prices are in.
    pub currency: String,
    /// All of them.
    pub sets: Vec<Shown>,
}

/// A set.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// What it is expected to come to.
    pub predicted: Judged,
    /// What the engine made of it, if it was tried.
    pub simulated: Option<Judged>,
    /// Whether no other one is better in everything.
    pub is_on_frontier: bool,
    /// Whether it is the one to buy.
    pub is_pick: bool,
}

const SIZE: (u32, u32) = (1000, 1150);
const FONT: (&str, u32) = ("sans-serif", 11);
/// Lives are drawn up to this, in years: all that does not wear out lies there.
const LIFE_MOST: f64 = 100.0;

type Figure = fn(&Judged) -> f64;

/// As it is drawn, on a scale without zero.
fn millis(time: Nanos) -> f64 {
    (time.0 as f64 / 1e6).max(1e-6)
}

/// … of whole units of the currency.
fn price(judged: &Judged) -> f64 {
    judged.price.whole().max(0.01)
}

impl Frontier {
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
        let area = area.titled(title, ("sans-serif", 18))?;
        let panels = area.split_evenly((3, 1));
        self.panel(&panels[0], "mean response, ms", |judged| millis(judged.mean))?;
        self.panel(&panels[1], "99 of 100 requests take at most, ms", |judged| millis(judged.p99))?;
        self.panel(&panels[2], "flash lasts, years", |judged| judged.life.0.clamp(1e-3, LIFE_MOST))?;
        area.present()?;
        Ok(())
    }

    fn panel<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, title: &str, figure: Figure) -> Drawn
    where
        B::ErrorType: 'static,
    {
        let judged =
            || self.sets.iter().flat_map(|set| [Some(&set.predicted), set.simulated.as_ref()]).flatten();
        let around = |values: &mut dyn Iterator<Item = f64>| {
            let (least, most) = values
                .fold((f64::MAX, 1e-9), |(least, most), value: f64| (value.min(least), value.max(most)));
            least.min(most) / 1.3..most * 1.3
        };
        let prices = around(&mut judged().map(price));
        let figures = around(&mut judged().map(figure));
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(72)
            .build_cartesian_2d(prices.log_scale(), figures.log_scale())?;
        chart
            .configure_mesh()
            .label_style(FONT)
            .x_labels(5)
            .x_label_formatter(&|price| format!("{price:.0}"))
            .x_desc(format!("price, {}", self.currency))
            .y_desc(title)
            .light_line_style(WHITE)
            .draw()?;
        let at = |judged: &Judged| (price(judged), figure(judged));
        let (gray, blue, red) = (BLACK.mix(0.2), Palette99::pick(3).to_rgba(), RED.to_rgba());
        let beaten = self.sets.iter().filter(|set| !set.is_on_frontier);
        let drawn = chart.draw_series(beaten.map(|set| Circle::new(at(&set.predicted), 2, gray.filled())))?;
        drawn.label("beaten").legend(move |at| Circle::new(at, 2, gray.filled()));
        let on_frontier = || self.sets.iter().filter(|set| set.is_on_frontier);
        let drawn =
            chart.draw_series(on_frontier().map(|set| Circle::new(at(&set.predicted), 4, blue.filled())))?;
        drawn.label("frontier").legend(move |at| Circle::new(at, 4, blue.filled()));
        let tried =
            || self.sets.iter().filter_map(|set| set.simulated.as_ref().map(|simulated| (set, simulated)));
        let ring = |(set, simulated): (&Shown, &Judged)| {
            let color = if set.is_pick { red } else { BLACK.to_rgba() };
            Circle::new(at(simulated), 7, color.stroke_width(2))
        };
        let drawn = chart.draw_series(tried().map(ring))?;
        drawn.label("simulated").legend(|at| Circle::new(at, 6, BLACK.stroke_width(2)));
        let name = |(set, simulated): (&Shown, &Judged)| {
            let words = TextStyle::from(FONT).color(&RED);
            EmptyElement::at(at(simulated)) + Text::new(set.name.clone(), (10, -16), words)
        };
        chart.draw_series(tried().filter(|(set, _)| set.is_pick).map(name))?;
        chart
            .configure_series_labels()
            .label_font(FONT)
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    }
}
