//! Pictures of experiments, written to a file: as PNG if its name ends so, else as SVG.

use crate::failure::Failure;
use std::path::Path;
use weir_model::ErrorKind;
use weir_sim::{Outcome, plot};

/// Draws these outcomes over time.
///
/// # Errors
/// If it cannot be drawn, or the file not be written.
pub fn write(path: &Path, title: &str, outcomes: &[Outcome]) -> Result<(), Failure> {
    let is_png = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    let picture =
        if is_png { plot::png(title, outcomes) } else { plot::svg(title, outcomes).map(String::into_bytes) };
    let picture = picture.map_err(|error| Failure::told(ErrorKind::Environment, &error.to_string()))?;
    std::fs::write(path, picture).map_err(|error| Failure::os("write", path, &error))
}
