//! Arguments that several commands share: global options, and value parsers.

use crate::output::Width;
use crate::pool_file;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};
use weir_sim::FlashRating;
use weir_sim::cache::{EvictionPolicy, share};
use weir_sim::flash::Cell;
use weir_trace::Format;

/// Heading of the global options in help texts.
const GLOBAL: &str = "Global options";
/// Heading of the trace options in help texts.
pub(crate) const TRACE: &str = "Trace options";
/// Heading of the options about flash in help texts.
const ENDURANCE: &str = "Endurance options";
/// Heading of the output options in help texts.
pub(crate) const OUTPUT: &str = "Output options";

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Read the pool's description from FILE
    #[arg(long, global = true, help_heading = GLOBAL)]
    #[arg(env = "WEIR_POOL", default_value = "pool.toml", value_name = "FILE")]
    pub pool: PathBuf,
    /// Print one JSON document on standard output
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// Print tables at full width, even on a narrow terminal
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub wide: bool,
}

impl Common {
    /// Returns the maximum width of text on standard output.
    pub fn width(&self) -> Width {
        if self.wide { Width::UNLIMITED } else { Width::of_stdout() }
    }
}

/// How a trace is read.
#[derive(Clone, Debug, Args)]
pub struct TraceOptions {
    /// Read the trace as FORMAT (weir help traces) [default: detected]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named, help_heading = TRACE)]
    pub format: Option<Format>,
    /// Fail if a line of the trace cannot be read, or if the trace is truncated
    #[arg(long, help_heading = TRACE)]
    pub strict: bool,
}

/// What is assumed of flash devices, and what may be written to them.
#[derive(Clone, Debug, Args)]
pub struct FlashOptions {
    /// Take the usual rating of these cells for the life of flash [default: tlc]
    #[arg(long, value_name = "CELL", help_heading = ENDURANCE)]
    #[arg(value_parser = PossibleValuesParser::new(Cell::ALL.map(|cell| cell.name)))]
    pub cell: Option<String>,
    /// Set how often a cell can be erased [default: the usual rating of --cell]
    #[arg(long, value_name = "N", help_heading = ENDURANCE)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub cycles: Option<u32>,
    /// Set the spare factor, the over-provisioned share of a device's flash in use: (T - U) / T [default: 7%]
    #[arg(long, value_name = "SHARE", value_parser = spare_factor, help_heading = ENDURANCE)]
    pub spare: Option<f64>,
    /// Report what a budget of SIZE written to flash per day would cost
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = ENDURANCE)]
    pub write_budget: Option<Bytes>,
}

impl FlashOptions {
    /// Returns the name of the cells.
    pub(crate) fn cell(&self) -> &str {
        self.cell.as_deref().unwrap_or("tlc")
    }

    /// Returns the rating that they describe.
    pub(crate) fn rating(&self) -> FlashRating {
        // The argument parser accepts no other name.
        let rated = Cell::by_name(self.cell()).map_or(1, |cell| cell.cycles);
        FlashRating { cycles: self.cycles.unwrap_or(rated), spare: self.spare.unwrap_or(0.07) }
    }

    /// Returns the first given option that describes the flash.
    pub(crate) fn rating_option(&self) -> Option<&'static str> {
        let options = [
            (self.cell.is_some(), "--cell"),
            (self.cycles.is_some(), "--cycles"),
            (self.spare.is_some(), "--spare"),
        ];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }
}

/// Parses a share of the flash that leaves some for the user.
///
/// # Errors
/// The error says which shares are allowed.
pub(crate) fn spare_factor(text: &str) -> Result<f64, String> {
    let factor = share(text).ok().filter(|factor| *factor < 1.0);
    factor.ok_or_else(|| "write a percentage above 0% and below 100%".into())
}

/// What the user accepts for a pool that is not all there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Accept {
    /// Accept older data or metadata of the pool where the newer copy is absent; changes that only the absent
    /// copy holds are lost for good
    #[arg(long)]
    pub accept_rollback: bool,
    /// Open the pool without DEVICE; access to data that it alone holds fails with EIO (repeatable)
    #[arg(long, value_name = "DEVICE", value_parser = name)]
    pub without: Vec<String>,
}

/// Returns a parser of the names of cache eviction policies.
pub(crate) fn evictions() -> PossibleValuesParser {
    PossibleValuesParser::new(EvictionPolicy::ALL.iter().map(|policy| policy.name))
}

/// Parses the weight of accesses per byte beside recency in an eviction by score.
pub(crate) fn omega(text: &str) -> Result<f64, String> {
    let omega = text.parse().ok().filter(|omega| (0.0..=1e15).contains(omega));
    omega.ok_or_else(|| "write a number from 0 to 1e15".into())
}

/// Parses a duration with its unit.
///
/// # Errors
/// The error says which values are allowed.
pub(crate) fn duration(text: &str) -> Result<Nanos, String> {
    pool_file::duration(text).map_err(|allowed| format!("write {allowed}"))
}

/// Parses the name of a pool, a device or a volume.
///
/// # Errors
/// The error says which names are allowed.
pub(crate) fn name(text: &str) -> Result<String, String> {
    pool_file::name(text).map_err(|allowed| format!("a name is {allowed}"))
}

/// Returns the names of all placement policies.
pub(crate) fn policies() -> Vec<&'static str> {
    weir_policy::placement::ALL.iter().map(|known| known.name).collect()
}

/// Parses a size, which must be a whole number of sectors.
///
/// # Errors
/// The error says which sizes are allowed.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    match pool_file::size(text) {
        Ok(size) if size.get().is_multiple_of(weir_model::SECTOR) && size.get() >= weir_model::BLOCK => {
            Ok(size)
        }
        Ok(size) if size.get() < weir_model::BLOCK => {
            Err(format!("{size} is too small: write {} or more", Bytes(weir_model::BLOCK)))
        }
        Ok(size) => {
            Err(format!("{} bytes are no multiple of 512; use a unit such as MiB or GiB", size.get()))
        }
        Err(allowed) => Err(format!("write {allowed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_sizes_are_whole_sectors() {
        assert_eq!(size("4GiB"), Ok(Bytes::gib(4)));
        assert_eq!((size("1GB"), size("1G")), (Ok(Bytes(1_000_000_000)), Ok(Bytes::gib(1))));
        assert_eq!(size("500GB"), Ok(Bytes(500_000_000_000)));
        for (bad, why) in [
            ("5KB", "5000 bytes are no multiple of 512; use a unit"),
            ("512B", "512 B is too small: write 4 KiB or more"),
            ("1KiB", "1 KiB is too small: write 4 KiB or more"),
        ] {
            assert!(size(bad).is_err_and(|said| said.starts_with(why)), "{bad}: {:?}", size(bad));
        }
    }
}
