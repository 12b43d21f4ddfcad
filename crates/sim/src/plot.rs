//! Pictures of experiments: what happened over time, one line for each policy.

mod canvas;
mod compared;
mod frontier;
mod trace;

use crate::{Outcome, SimError, Window};
use canvas::Canvas;
pub use compared::{Compared, compared_png, compared_svg};
pub use frontier::{Frontier, Shown};
use plotters::coord::Shift;
use plotters::prelude::*;
pub use trace::TracePicture;

const SIZE: (u32, u32) = (1000, 1100);
const PANELS: usize = 4;

/// Draws, as SVG, requests a second, responses (mean, and 99 of 100 by a paler line), the first
/// device's share of all commands and what was moved, over the load's time.
///
/// # Errors
/// If it cannot be drawn.
pub fn svg(title: &str, outcomes: &[Outcome]) -> Result<String, SimError> {
    as_svg(SIZE, |backend| draw(backend, title, outcomes))
}

/// The same as PNG.
///
/// # Errors
/// If it cannot be drawn.
pub fn png(title: &str, outcomes: &[Outcome]) -> Result<Vec<u8>, SimError> {
    as_png(SIZE, |backend| draw(backend, title, outcomes))
}

/// A picture's width and height, in points.
type Size = (u32, u32);

/// What is drawn, as SVG.
fn as_svg(size: Size, draw: impl FnOnce(SVGBackend<'_>) -> Drawn) -> Result<String, SimError> {
    let mut svg = String::new();
    draw(SVGBackend::with_string(&mut svg, size)).map_err(failed)?;
    Ok(svg)
}

/// What is drawn, as PNG.
fn as_png(size: Size, draw: impl FnOnce(Canvas<'_>) -> Drawn) -> Result<Vec<u8>, SimError> {
    let mut points = Canvas::memory(size);
    draw(Canvas::new(size, &mut points)).map_err(failed)?;
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&points));
    written.map_err(|error| failed(error.into()))?;
    Ok(png)
}

type Failed = Box<dyn std::error::Error>;
type Drawn = Result<(), Failed>;
type Value<'v> = &'v dyn Fn(&Window) -> f64;

fn failed(error: Failed) -> SimError {
    SimError::Picture(error.to_string())
}

fn draw<B: DrawingBackend>(backend: B, title: &str, outcomes: &[Outcome]) -> Drawn
where
    B::ErrorType: 'static,
{
    let all = backend.into_drawing_area();
    all.fill(&WHITE)?;
    let all = all.titled(title, ("sans-serif", 22))?;
    let panels = all.split_evenly((PANELS, 1));
    let first = outcomes.first().and_then(|outcome| outcome.devices.first());
    let share = format!("% of commands to {}", first.map_or("the first device", |device| &device.name));
    let ms = |time: weir_model::Nanos| time.0 as f64 / 1e6;
    panel(&panels[0], "requests a second", outcomes, &[&|w: &Window| w.rate])?;
    panel(&panels[1], "response: mean and 99 %, ms", outcomes, &[&|w| ms(w.mean), &|w| ms(w.p99)])?;
    panel(&panels[2], &share, outcomes, &[&|w| w.shares.first().map_or(0.0, |share| share * 100.0)])?;
    panel(&panels[3], "moved, MB", outcomes, &[&|w| w.moved.0 as f64 / 1e6])?;
    all.present()?;
    Ok(())
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    outcomes: &[Outcome],
    values: &[Value<'_>],
) -> Drawn
where
    B::ErrorType: 'static,
{
    let windows = || outcomes.iter().flat_map(|outcome| &outcome.windows);
    let end = windows().map(|window| window.start.as_secs_f64()).fold(1e-3, f64::max);
    let most = windows().flat_map(|window| values.iter().map(|value| value(window))).fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, 0.0..most * 1.05)?;
    chart.configure_mesh().x_desc("seconds").light_line_style(WHITE).draw()?;
    for (number, outcome) in outcomes.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        for (line, value) in values.iter().enumerate() {
            let points = outcome.windows.iter().map(|window| (window.start.as_secs_f64(), value(window)));
            let style = if line == 0 { color.stroke_width(2) } else { color.mix(0.4).stroke_width(1) };
            let drawn = chart.draw_series(LineSeries::new(points, style))?;
            if line == 0 {
                let key = move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2));
                drawn.label(&outcome.policy).legend(key);
            }
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
