//! Ratios beside one another: what was published, and what came out here.

use super::{Drawn, as_png, as_svg};
use crate::SimError;
use plotters::prelude::*;

/// A ratio as published, where it was, and here.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What it is of what.
    pub what: String,
    /// As published.
    pub published: Option<f64>,
    /// Here.
    pub here: f64,
}

const WIDTH: u32 = 1300;
const ROW: u32 = 26;
/// Above and below the rows.
const ROUND: u32 = 100;
/// Of the width, what words take.
const WORDS: f64 = 0.58;

fn size(rows: usize) -> (u32, u32) {
    (WIDTH, ROUND + ROW * rows as u32)
}

/// Draws, as SVG, a row for each ratio on a logarithmic scale: a ring as published, a disc here.
///
/// # Errors
/// If it cannot be drawn.
pub fn compared_svg(title: &str, rows: &[Compared]) -> Result<String, SimError> {
    as_svg(size(rows.len()), |backend| draw(backend, title, rows))
}

/// The same as PNG.
///
/// # Errors
/// If it cannot be drawn.
pub fn compared_png(title: &str, rows: &[Compared]) -> Result<Vec<u8>, SimError> {
    as_png(size(rows.len()), |backend| draw(backend, title, rows))
}

fn draw<B: DrawingBackend>(backend: B, title: &str, rows: &[Compared]) -> Drawn
where
    B::ErrorType: 'static,
{
    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(title, ("sans-serif", 22))?;
    let logs = || rows.iter().flat_map(|row| row.published.into_iter().chain([row.here])).map(f64::log2);
    let most = logs().filter(|log| log.is_finite()).fold(1.0, |most: f64, log| most.max(log.abs())).ceil();
    let (width, left) = (f64::from(WIDTH), f64::from(WIDTH) * WORDS);
    let x = |log: f64| (left + (log + most) / (2.0 * most) * (width - left - 30.0)) as i32;
    let y = |row: usize| (10 + ROW * row as u32 + ROW / 2) as i32;
    let (top, bottom) = (6, y(rows.len()) - 6);
    let words = ("sans-serif", 15).into_font();
    for step in -(most as i32)..=most as i32 {
        let at = x(f64::from(step));
        let style = if step == 0 { BLACK.mix(0.6) } else { BLACK.mix(0.15) };
        area.draw(&PathElement::new(vec![(at, top), (at, bottom)], style))?;
        let label = if step < 0 { format!("1/{}", 1 << -step) } else { format!("{}", 1 << step) };
        area.draw(&Text::new(label, (at - 8, bottom + 6), words.clone()))?;
    }
    for (number, row) in rows.iter().enumerate() {
        let at = y(number);
        // Not every font has the sign of omission.
        area.draw(&Text::new(row.what.replace('…', "..."), (10, at - 8), words.clone()))?;
        if let Some(published) = row.published {
            area.draw(&Circle::new((x(published.log2()), at), 6, BLACK.stroke_width(2)))?;
        }
        area.draw(&Circle::new((x(row.here.log2()), at), 4, Palette99::pick(0).filled()))?;
    }
    let key = "ring: published; disc: here";
    area.draw(&Text::new(key, (10, bottom + 6), words))?;
    area.present()?;
    Ok(())
}
