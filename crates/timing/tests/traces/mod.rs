//! Service times measured on real disks: the traces distributed with DiskSim, and the drives on which they
//! were measured.

use flate2::read::GzDecoder;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use weir_timing::fit::{Gap, Sample, parse};

/// Traces by file name, each with its drive and the position of its gaps. In the two newer traces the gaps
/// precede their records' requests: only then do the platter's angles agree from one request to the next.
pub(crate) const TRACES: [(&str, &str, Gap); 3] = [
    ("hdd_cheetah9LP.trace.gz", "cheetah-9lp", Gap::Before),
    ("hdd_atlas10k.trace.gz", "atlas-10k", Gap::Before),
    ("hdd_hp_c2247a.trace.gz", "hp-c2247a", Gap::After),
];

/// Returns the folder of the traces: `device` in `WEIR_TRACES`, or in `../shared/traces` beside the
/// repository.
pub(crate) fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("WEIR_TRACES").map_or_else(beside, PathBuf::from).join("device")
}

/// Reads a trace.
///
/// # Errors
/// Returns a message.
pub(crate) fn load(path: &Path, gap: Gap) -> Result<Vec<Sample>, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    GzDecoder::new(file).read_to_string(&mut text).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text, gap).map_err(|e| format!("{}: {e}", path.display()))
}
