//! Plots published ratios beside reproduced ones.

use super::sheet::{Shape, Style, Svg, WIDTH};
use super::text;

/// A ratio as published and as reproduced.
#[derive(Clone, Debug, PartialEq)]
pub struct RatioRow {
    /// Description of the ratio.
    pub quantity: String,
    /// Published value.
    pub published: Option<f64>,
    /// Reproduced value.
    pub measured: f64,
}

/// Horizontal position where the text ends and the scale begins.
const WORDS: f64 = 430.0;
const FONT: f64 = 12.5;
const LINE: f64 = 16.0;

/// Draws, as SVG, a row for each ratio on a logarithmic scale: a ring for the published value, a disc for the
/// reproduced one.
pub fn ratios_svg(title: &str, rows: &[RatioRow]) -> String {
    let mut svg = Svg::titled(title);
    let (ring, disc) = (Style::colored("#222222"), Style::of(0));
    let key = [
        (ring.clone(), Shape::Ring(6.0), "published".to_owned()),
        (disc.clone(), Shape::Disc(4.0), "here".to_owned()),
    ];
    svg.legend(&key);
    let rows = || rows.iter().filter(|row| row.measured > 0.0 && row.measured.is_finite());
    let logs = || rows().flat_map(|row| row.published.into_iter().chain([row.measured])).map(f64::log2);
    let most = logs().filter(|log| log.is_finite()).fold(1.0, |most: f64, log| most.max(log.abs())).ceil();
    let x = |log: f64| WORDS + (log + most) / (2.0 * most) * (WIDTH - WORDS - 30.0);
    let (top, mut places) = (svg.y + 4.0, Vec::new());
    svg.y = top + 4.0;
    for row in rows() {
        let lines = text::wrap(&row.quantity, FONT, WORDS - 40.0);
        let height = LINE * lines.len().max(1) as f64 + 8.0;
        for (number, line) in lines.iter().enumerate() {
            svg.text((16.0, svg.y + 4.0 + LINE * (number as f64 + 0.75)), "start", FONT, "#222222", line);
        }
        places.push(svg.y + height / 2.0);
        svg.y += height;
    }
    let bottom = svg.y + 4.0;
    let step = ((most / 4.0).ceil() as u32).max(1);
    for power in (-(most as i32)..=most as i32).filter(|power| power.unsigned_abs().is_multiple_of(step)) {
        let at = x(f64::from(power));
        let look = Style::hairline(if power == 0 { "#666666" } else { "#dddddd" });
        svg.line(&look, &[(at, top), (at, bottom)]);
        let label = if power < 0 { format!("1/{}", 1u64 << -power) } else { format!("{}", 1u64 << power) };
        svg.text((at, bottom + LINE), "middle", FONT, "#222222", &label);
    }
    for (row, at) in rows().zip(places) {
        if let Some(published) = row.published.filter(|published| *published > 0.0) {
            svg.point(&ring, Shape::Ring(6.0), (x(published.log2()), at));
        }
        svg.point(&disc, Shape::Disc(4.0), (x(row.measured.log2()), at));
    }
    svg.y = bottom + LINE + 4.0;
    svg.finish()
}
