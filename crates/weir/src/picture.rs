//! Pictures of experiments, written to a file: as PNG if its name ends so, else as SVG.

use crate::failure::Failure;
use crate::files::{self, Kind};
use std::path::Path;
use weir_model::ErrorKind;
use weir_sim::plot::{Compared, Frontier, TracePicture};
use weir_sim::{Outcome, SimError, plot};

/// Draws these outcomes over time.
///
/// # Errors
/// If it cannot be drawn, or the file not be written.
pub fn write(path: &Path, title: &str, outcomes: &[Outcome]) -> Result<(), Failure> {
    save(path, || plot::png(title, outcomes), || plot::svg(title, outcomes))
}

/// Draws published ratios beside ours.
///
/// # Errors
/// As [`write`].
pub fn write_compared(path: &Path, title: &str, compared: &[Compared]) -> Result<(), Failure> {
    save(path, || plot::compared_png(title, compared), || plot::compared_svg(title, compared))
}

/// Draws what a trace is like.
///
/// # Errors
/// As [`write`].
pub fn write_trace(path: &Path, title: &str, picture: &TracePicture<'_>) -> Result<(), Failure> {
    save(path, || picture.png(title), || picture.svg(title))
}

/// Draws what could be bought.
///
/// # Errors
/// As [`write`].
pub fn write_frontier(path: &Path, title: &str, frontier: &Frontier) -> Result<(), Failure> {
    save(path, || frontier.png(title), || frontier.svg(title))
}

fn save(
    path: &Path,
    png: impl FnOnce() -> Result<Vec<u8>, SimError>,
    svg: impl FnOnce() -> Result<String, SimError>,
) -> Result<(), Failure> {
    let is_png = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    let picture = if is_png { png() } else { svg().map(String::into_bytes) };
    let picture = picture.map_err(|error| Failure::told(ErrorKind::Environment, &error.to_string()))?;
    files::replace(path, Kind::Picture, &picture)
}
