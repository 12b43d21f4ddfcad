//! A picture of points, and letters on it: pictures look the same everywhere, whatever fonts there are.

use font8x8::{BASIC_FONTS, LATIN_FONTS, UnicodeFonts as _};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use std::convert::Infallible;

/// Red, green and blue of each point.
const CHANNELS: usize = 3;
/// Points of a letter, each way, at its smallest.
const LETTER: u32 = 8;

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// Points from left to right, rows from top to bottom.
pub(super) struct Canvas<'p> {
    size: (u32, u32),
    points: &'p mut [u8],
}

impl<'p> Canvas<'p> {
    /// Memory for so many points.
    pub(super) fn memory((width, height): (u32, u32)) -> Vec<u8> {
        vec![255; width as usize * height as usize * CHANNELS]
    }

    /// On memory of that size.
    pub(super) fn new(size: (u32, u32), points: &'p mut [u8]) -> Self {
        Self { size, points }
    }
}

/// By how much letters are enlarged.
fn scale(style: &impl BackendTextStyle) -> i32 {
    (style.size() / f64::from(LETTER)).round().max(1.0) as i32
}

fn width(text: &str, scale: i32) -> i32 {
    text.chars().count() as i32 * LETTER as i32 * scale
}

/// The rows of a letter, each from its lowest bit on.
fn letter(letter: char) -> [u8; LETTER as usize] {
    let known = |letter| BASIC_FONTS.get(letter).or_else(|| LATIN_FONTS.get(letter));
    known(letter).or_else(|| known('?')).unwrap_or_default()
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        let (width, height) = (self.size.0 as i32, self.size.1 as i32);
        if !(0..width).contains(&x) || !(0..height).contains(&y) {
            return Ok(());
        }
        let at = (y * width + x) as usize * CHANNELS;
        let (red, green, blue) = color.rgb;
        for (point, wanted) in self.points[at..at + CHANNELS].iter_mut().zip([red, green, blue]) {
            let mixed = f64::from(*point) * (1.0 - color.alpha) + f64::from(wanted) * color.alpha;
            *point = mixed.round() as u8;
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let (scale, anchor, turn) = (scale(style), style.anchor(), style.transform());
        let (width, height) = (width(text, scale), LETTER as i32 * scale);
        let left = match anchor.h_pos {
            HPos::Left => 0,
            HPos::Right => -width,
            HPos::Center => -width / 2,
        };
        let top = match anchor.v_pos {
            VPos::Top => 0,
            VPos::Center => -height / 2,
            VPos::Bottom => -height,
        };
        for (number, character) in (0..).zip(text.chars()) {
            let rows = letter(character);
            for (x, y) in (0..LETTER as i32 * scale).flat_map(|x| (0..height).map(move |y| (x, y))) {
                if rows[(y / scale) as usize] >> (x / scale) & 1 == 1 {
                    let (x, y) = turn.transform(left + number * LETTER as i32 * scale + x, top + y);
                    self.draw_pixel((at.0 + x, at.1 + y), style.color())?;
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let scale = scale(style);
        Ok((width(text, scale) as u32, LETTER * scale as u32))
    }
}
