//! Pictures written to a file: as PNG if the name of the file says so, else as SVG.

use crate::failure::Failure;
use crate::files::{self, OutputKind};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use weir_model::ErrorKind;

/// The only font used in PNGs, so that they look the same on every machine.
const FONT: &[u8] = include_bytes!("../fonts/NotoSans-subset.ttf");
/// Pixels per point of the SVG, chosen so that text is sharp on high-resolution screens.
const SCALE: f32 = 2.0;

static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("Noto Sans");
    Arc::new(fonts)
});

/// Writes a picture in the format of the file name: PNG for `.png`, SVG for any other name.
///
/// # Errors
/// Fails if the picture cannot be drawn or the file cannot be written.
pub fn write(path: &Path, svg: &str) -> Result<(), Failure> {
    let is_png = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    let picture = if is_png { png(svg)? } else { svg.as_bytes().to_vec() };
    files::replace(path, OutputKind::Picture, &picture)
}

/// Renders an SVG as PNG.
///
/// # Errors
/// Fails if the SVG cannot be drawn.
pub fn png(svg: &str) -> Result<Vec<u8>, Failure> {
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::new(
            ErrorKind::Environment,
            format!("the picture cannot be drawn as PNG: {why}"),
            "write it as SVG",
        )
    };
    let options = Options { fontdb: FONTS.clone(), font_family: "Noto Sans".into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| cannot(&error))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| cannot(&"it is too large"))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| cannot(&"it is too large"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| cannot(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sim::plot::{RatioRow, ratios_svg};

    #[test]
    fn png_uses_the_bundled_font() {
        let row = RatioRow { quantity: "reads, µs ± 1".into(), published: Some(2.0), measured: 3.0 };
        let svg = ratios_svg("a picture", &[row]);
        let drawn = png(&svg).expect("a PNG");
        assert_eq!(drawn, png(&svg).expect("a PNG"), "the same again");
        let pixels = Pixmap::decode_png(&drawn).expect("a PNG");
        assert_eq!(pixels.width(), 1600);
        let dark = |svg: &str| {
            let pixels = Pixmap::decode_png(&png(svg).expect("a PNG")).expect("a PNG");
            pixels.pixels().iter().filter(|pixel| pixel.red() < 100 && pixel.green() < 100).count()
        };
        // Text is drawn without any font of this machine.
        let without = svg.replace("a picture", "").replace("reads, µs ± 1", "");
        assert!(dark(&svg) > dark(&without) + 1000, "{} {}", dark(&svg), dark(&without));
        assert!(png("<svg").expect_err("none").message.contains("cannot be drawn"));
    }
}
