//! Defines the document that `weir pool check --json` prints.

use schemars::JsonSchema;
use serde::Serialize;
use weir_map::check::CheckCounts;

/// The document of `weir pool check`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir pool check")]
pub struct CheckDocument {
    /// The pool, as its superblocks say; `null` if no superblock is intact.
    pub(super) pool: Option<PoolName>,
    /// There are only findings of severity `note`; after a repair, in the pool as it is then.
    pub(super) clean: bool,
    /// Devices that are absent or fail, each with the reason, so that not everything was checked. The exit
    /// code is 8 then, unless something is damaged elsewhere.
    pub(super) unchecked: Vec<String>,
    /// The findings before a repair, 1000 at most.
    pub(super) findings: Vec<FindingPart>,
    /// Findings beyond those in `findings`.
    pub(super) findings_omitted: u64,
    /// What the repair did; `null` without `--repair`, or if there was nothing to repair.
    pub(super) repaired: Option<RepairedPart>,
    /// What was checked; after a repair, in the check that followed it.
    pub(super) checked: CheckedPart,
}

/// A pool, as its superblocks name it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Pool")]
pub(super) struct PoolName {
    /// Its name.
    pub(super) name: String,
    /// The random UUID that it got when it was created, in hexadecimal.
    pub(super) id: String,
}

/// Something that is not as it should be.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Finding")]
pub(super) struct FindingPart {
    /// `note`: a power loss also leaves it, and opening the pool deals with it; `leak`: space in use by
    /// nothing; `redundancy`: one of two copies is damaged; `unchecked`: a device is absent, and something
    /// may be on it (a `note` if nothing is); `damage`: something is damaged and has no intact copy.
    #[schemars(extend("enum" = ["note", "leak", "redundancy", "unchecked", "damage"]))]
    pub(super) severity: &'static str,
    /// The metadata structure: `superblock`, `root`, `journal`, `map page`, `volume` and others.
    pub(super) structure: &'static str,
    /// Name of the device.
    pub(super) device: String,
    /// Path of the device.
    pub(super) path: String,
    /// Offset on the device.
    pub(super) offset_bytes: u64,
    /// How it was recognised.
    pub(super) reason: String,
    /// What it means for the data of the pool.
    pub(super) impact: String,
    /// What to do.
    pub(super) help: String,
    /// `--repair` repairs it.
    pub(super) repairable: bool,
}

/// What a repair did.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Repaired")]
pub(super) struct RepairedPart {
    /// Copies of superblocks that were rewritten.
    pub(super) superblocks: u64,
    /// Both roots were rewritten.
    pub(super) roots: bool,
    /// Records that were freed because no extent refers to them.
    pub(super) records: u64,
    /// Map pages that were freed because no volume refers to them.
    pub(super) map_pages: u64,
    /// The findings after the repair, 1000 at most.
    pub(super) remaining: Vec<FindingPart>,
    /// Findings beyond those in `remaining`.
    pub(super) remaining_omitted: u64,
    /// Why the pool does not open, which the rest of the repair needs; `null` if it does.
    pub(super) obstacle: Option<String>,
}

/// What was checked.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Checked")]
pub(super) struct CheckedPart {
    /// Copies of superblocks.
    superblocks: u64,
    /// Roots whose pages were read.
    roots: u64,
    /// Journal frames.
    frames: u64,
    /// Metadata pages.
    pages: u64,
    /// Volumes of the pool.
    volumes: u64,
    /// Extents with data.
    extents: u64,
    /// Records in use.
    records: u64,
    /// Bytes read from the devices.
    read_bytes: u64,
}

impl From<CheckCounts> for CheckedPart {
    fn from(checked: CheckCounts) -> Self {
        let CheckCounts { superblocks, roots, frames, pages, volumes, extents, records, bytes_read: read } =
            checked;
        Self { superblocks, roots, frames, pages, volumes, extents, records, read_bytes: read.get() }
    }
}
