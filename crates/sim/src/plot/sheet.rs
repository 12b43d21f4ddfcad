//! An SVG page: a title, a legend, and panels with axes, one below the other.

use super::axis::Axis;
use super::text;
use std::fmt::Write as _;

/// Width of the page in points, readable at its natural size.
pub(super) const WIDTH: f64 = 800.0;
const MARGIN: f64 = 16.0;
const TITLE: f64 = 17.0;
const TEXT: f64 = 13.0;
const TICKS: f64 = 12.0;
/// Height of a line of text, as a multiple of the font size.
const LINE: f64 = 1.35;

const INK: &str = "#222222";
const FRAME: &str = "#888888";
const GRID: &str = "#e4e4e4";
/// Colours that remain distinguishable for colour-blind readers.
const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f4e37", "#666666"];

/// Style of a line or a point.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Style {
    pub(super) color: &'static str,
    pub(super) opacity: f64,
    pub(super) width: f64,
    is_dashed: bool,
}

impl Style {
    /// Returns the style of the series of this number.
    pub(super) fn of(number: usize) -> Self {
        let is_dashed = number / COLORS.len() % 2 == 1;
        Self { color: COLORS[number % COLORS.len()], opacity: 1.0, width: 2.0, is_dashed }
    }

    pub(super) fn colored(color: &'static str) -> Self {
        Self { color, opacity: 1.0, width: 2.0, is_dashed: false }
    }

    pub(super) fn hairline(color: &'static str) -> Self {
        Self { width: 1.0, ..Self::colored(color) }
    }

    pub(super) fn paler(self) -> Self {
        Self { opacity: 0.55, width: 1.2, ..self }
    }

    pub(super) fn opacity(self, opacity: f64) -> Self {
        Self { opacity, ..self }
    }

    fn stroke(&self) -> String {
        let dashes = if self.is_dashed { " stroke-dasharray=\"6 3\"" } else { "" };
        let Self { color, opacity, width, .. } = self;
        format!(
            "fill=\"none\" stroke=\"{color}\" stroke-opacity=\"{opacity:.2}\" stroke-width=\"{width}\"{dashes}"
        )
    }

    fn fill(&self) -> String {
        format!("fill=\"{}\" fill-opacity=\"{:.2}\"", self.color, self.opacity)
    }
}

/// Shapes of points and legend entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Line,
    Bar,
    /// A disc of this radius.
    Disc(f64),
    Ring(f64),
    Cross(f64),
}

/// A mark in a panel, at values of its axes.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    Line(Style, Vec<(f64, f64)>),
    /// A rectangle between two opposite corners.
    Bar(Style, [(f64, f64); 2]),
    Point(Style, Shape, (f64, f64)),
    /// A label beside a point.
    Label(Style, String, (f64, f64)),
}

/// Axes and the marks between them.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) height: f64,
    pub(super) has_grid: bool,
    pub(super) marks: Vec<Mark>,
}

/// A whole page.
#[derive(Clone, Debug)]
pub(super) struct Sheet<'a> {
    pub(super) title: &'a str,
    pub(super) legend: Vec<(Style, Shape, String)>,
    pub(super) panels: Vec<Panel>,
}

/// SVG in the making, from top to bottom.
pub(super) struct Svg {
    body: String,
    /// Vertical position of the next element.
    pub(super) y: f64,
}

impl Sheet<'_> {
    /// Draws the page as SVG, as high as needed.
    pub(super) fn svg(&self) -> String {
        let mut svg = Svg::titled(self.title);
        svg.legend(&self.legend);
        let ticks = self.panels.iter().flat_map(|panel| &panel.y.ticks);
        let left = ticks.map(|(_, label)| text::width(label, TICKS)).fold(30.0, f64::max) + MARGIN + 8.0;
        for panel in &self.panels {
            svg.panel(panel, left.min(WIDTH / 4.0));
        }
        svg.finish()
    }
}

impl Svg {
    /// Starts a page with a title, on as many lines as needed.
    pub(super) fn titled(title: &str) -> Self {
        let mut svg = Self { body: String::new(), y: MARGIN };
        for line in text::wrap(title, TITLE, WIDTH - 2.0 * MARGIN) {
            svg.text((WIDTH / 2.0, svg.y + TITLE), "middle", TITLE, INK, &line);
            svg.y += TITLE * LINE;
        }
        svg.y += 6.0;
        svg
    }

    /// Returns the whole document.
    pub(super) fn finish(self) -> String {
        let height = (self.y + MARGIN).ceil();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"Noto Sans, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }

    /// Draws a line of text whose baseline is at this point.
    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: &str, size: f64, color: &str, words: &str) {
        let words = escaped(words);
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{color}\">{words}</text>"
        );
    }

    /// Draws the legend, on as many lines as needed.
    pub(super) fn legend(&mut self, entries: &[(Style, Shape, String)]) {
        let mut x = MARGIN;
        for (look, shape, name) in entries {
            for (number, line) in text::wrap(name, TEXT, WIDTH - 2.0 * MARGIN - 32.0).iter().enumerate() {
                let width = 28.0 + text::width(line, TEXT) * 1.05 + 20.0;
                if x > MARGIN && (x + width > WIDTH - MARGIN || number > 0) {
                    (x, self.y) = (MARGIN, self.y + TEXT * LINE);
                }
                let middle = self.y + TEXT * 0.65;
                if number == 0 {
                    match shape {
                        Shape::Line => self.line(look, &[(x, middle), (x + 22.0, middle)]),
                        Shape::Bar => self.bar(look, (x + 4.0, middle - 5.0), (14.0, 10.0)),
                        _ => self.point(look, *shape, (x + 11.0, middle)),
                    }
                }
                self.text((x + 28.0, self.y + TEXT), "start", TEXT, INK, line);
                x += width;
            }
        }
        if !entries.is_empty() {
            self.y += TEXT * LINE + 4.0;
        }
    }

    pub(super) fn line(&mut self, look: &Style, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(self.body, "<polyline points=\"{}\" {}/>", path.trim_end(), look.stroke());
    }

    pub(super) fn bar(&mut self, look: &Style, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let fill = look.fill();
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {fill}/>"
        );
    }

    pub(super) fn point(&mut self, look: &Style, shape: Shape, (x, y): (f64, f64)) {
        let drawn = match shape {
            Shape::Disc(radius) => {
                format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {}/>", look.fill())
            }
            Shape::Ring(radius) => {
                format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {}/>", look.stroke())
            }
            Shape::Cross(arm) => format!(
                "<path d=\"M{:.1},{:.1} l{d},{d} m0,-{d} l-{d},{d}\" {}/>",
                x - arm,
                y - arm,
                look.stroke(),
                d = 2.0 * arm
            ),
            Shape::Line | Shape::Bar => return,
        };
        self.body += &(drawn + "\n");
    }

    fn panel(&mut self, panel: &Panel, left: f64) {
        self.text((MARGIN, self.y + TEXT), "start", TEXT, INK, &panel.y.name);
        let (top, width, height) = (self.y + TEXT * LINE + 8.0, WIDTH - MARGIN * 2.0 - left, panel.height);
        let x = |value: f64| left + panel.x.at(value) * width;
        let y = |value: f64| top + (1.0 - panel.y.at(value)) * height;
        let mesh = Style::hairline(GRID);
        for (at, label) in &panel.y.ticks {
            if panel.has_grid {
                self.line(&mesh, &[(left, y(*at)), (left + width, y(*at))]);
            }
            self.text((left - 6.0, y(*at) + TICKS * 0.35), "end", TICKS, INK, label);
        }
        // Labels that would touch the previous one are left out.
        let mut free = f64::MIN;
        for (at, label) in &panel.x.ticks {
            if panel.has_grid {
                self.line(&mesh, &[(x(*at), top), (x(*at), top + height)]);
            }
            let half = text::width(label, TICKS) * 0.55;
            if x(*at) - half > free && x(*at) + half < WIDTH {
                self.text((x(*at), top + height + TICKS * LINE), "middle", TICKS, INK, label);
                free = x(*at) + half + 6.0;
            }
        }
        let end = top + height + TICKS * LINE;
        self.text((left + width / 2.0, end + TEXT * LINE), "middle", TEXT, INK, &panel.x.name);
        for mark in &panel.marks {
            self.mark(mark, &x, &y);
        }
        let frame = Style::hairline(FRAME);
        let corners = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)];
        self.line(&frame, &corners.map(|(across, down)| (left + across * width, top + down * height)));
        self.y = end + TEXT * LINE + 16.0;
    }

    fn mark(&mut self, mark: &Mark, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
        match mark {
            Mark::Line(look, points) => {
                let points: Vec<_> = points.iter().map(|point| (x(point.0), y(point.1))).collect();
                match points[..] {
                    [] => {}
                    [alone] => self.point(look, Shape::Disc(look.width), alone),
                    _ => self.line(look, &points),
                }
            }
            Mark::Bar(look, [from, to]) => {
                let (left, top) = (x(from.0), y(to.1));
                self.bar(look, (left, top), (x(to.0) - left, y(from.1) - top));
            }
            Mark::Point(look, shape, at) => self.point(look, *shape, (x(at.0), y(at.1))),
            Mark::Label(look, name, at) => {
                let (at, width) = ((x(at.0), y(at.1)), text::width(name, TEXT) * 1.05);
                let (to, anchor) = match at.0 + 12.0 + width < WIDTH - MARGIN {
                    true => (at.0 + 12.0, "start"),
                    false => ((at.0 - 12.0).max(MARGIN + width), "end"),
                };
                // A white edge keeps the label readable over other marks.
                let edge = "<g paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"4\">\n";
                self.body += edge;
                self.text((to, at.1 - 8.0), anchor, TEXT, look.color, name);
                self.body += "</g>\n";
            }
        }
    }
}

/// Escapes text for XML; characters that XML does not allow are dropped.
fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => xml += "&amp;",
            '<' => xml += "&lt;",
            '>' => xml += "&gt;",
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {}
            letter => xml.push(letter),
        }
    }
    xml
}
