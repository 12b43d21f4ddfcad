//! Service times measured on real disks: the traces that came with DiskSim, and the drives they
//! were taken on.

use flate2::read::GzDecoder;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use weir_timing::fit::{Gap, Sample, parse};

/// A trace by its file's name, the drive it was taken on, and where its gaps lie. The gaps of the
/// two newer traces lie before their records' requests: only so do the platter's angles agree from
/// one request to the next.
pub(crate) const TRACES: [(&str, &str, Gap); 3] = [
    ("hdd_cheetah9LP.trace.gz", "cheetah-9lp", Gap::Before),
    ("hdd_atlas10k.trace.gz", "atlas-10k", Gap::Before),
    ("hdd_hp_c2247a.trace.gz", "hp-c2247a", Gap::After),
];

/// The folder the traces are in: `device` in `WEIR_TRACES`, or in `../shared/traces` beside the
/// repository.
pub(crate) fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("WEIR_TRACES").map_or_else(beside, PathBuf::from).join("device")
}

/// Reads a trace.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn load(path: &Path, gap: Gap) -> Result<Vec<Sample>, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    GzDecoder::new(file).read_to_string(&mut text).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text, gap).map_err(|e| format!("{}: {e}", path.display()))
}
