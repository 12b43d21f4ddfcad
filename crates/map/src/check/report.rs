//! The report of a check.

use crate::Superblock;
use weir_model::{Bytes, DeviceId, DeviceOffset};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A state that a power loss also leaves; opening the pool handles it, and nothing is lost.
    Note,
    /// Space is allocated that nothing uses.
    Leak,
    /// One of two copies is damaged; the other is intact, and nothing is lost.
    CopyDamaged,
    /// A device is absent: its content was not checked.
    Unchecked,
    /// Something is damaged of which no intact copy is left.
    Damage,
}

impl Severity {
    /// Returns the lower-case name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Leak => "leak",
            Self::CopyDamaged => "redundancy",
            Self::Unchecked => "unchecked",
            Self::Damage => "damage",
        }
    }
}

/// The remedy for a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Opening the pool, which every command that uses it does.
    Reopen,
    /// [`repair`](super::repair()) rewrites this copy of a superblock from the other.
    Superblock {
        /// Whether it is the copy at the device's end, not the one at its beginning.
        second: bool,
    },
    /// [`repair`](super::repair()) opens the pool, which rewrites both roots.
    Roots,
    /// [`repair`](super::repair()) frees it.
    Free,
    /// weir could only guess; this text advises the administrator.
    Manual(&'static str),
}

impl Remedy {
    /// Whether [`repair`](super::repair()) applies it.
    pub const fn is_repair(self) -> bool {
        matches!(self, Self::Superblock { .. } | Self::Roots | Self::Free)
    }

    /// Returns the advice in words.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Reopen => "nothing: opening the pool deals with it",
            Self::Superblock { .. } => "--repair writes it anew from the other copy",
            Self::Roots => "--repair writes it anew from what is intact",
            Self::Free => "--repair gives it back",
            Self::Manual(way_out) => way_out,
        }
    }
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The structure: "superblock", "root", "journal", "map page", "volume"...
    pub what: &'static str,
    /// The device; for a finding that is not in one place, the metadata member.
    pub device: DeviceId,
    /// The offset on the device.
    pub at: DeviceOffset,
    /// The evidence.
    pub why: String,
    /// The consequence for the pool's user.
    pub consequence: String,
    /// The remedy.
    pub remedy: Remedy,
}

/// The extent of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Superblock copies read.
    pub superblocks: u64,
    /// Roots whose pages were read.
    pub roots: u64,
    /// Journal frames verified.
    pub frames: u64,
    /// Metadata pages verified.
    pub pages: u64,
    /// Volumes.
    pub volumes: u64,
    /// Extents with data.
    pub extents: u64,
    /// Records in use.
    pub records: u64,
    /// Bytes read.
    pub bytes_read: Bytes,
}

/// The position of a pool's metadata in its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The sequence of the next journal frame.
    pub frame: u64,
    /// The sequence of the root.
    pub root: u64,
}

/// The result of a [check](super::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The devices' superblocks, by device id; `None` without a good one.
    pub superblocks: Vec<Option<Superblock>>,
    /// The findings, in the order in which they were made; at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// The number of findings beyond those.
    pub findings_omitted: u64,
    /// The position of the map that opening would recover; `None` if there is none.
    pub position: Option<Position>,
    /// The extent of the check.
    pub counts: CheckCounts,
}

/// The maximum number of findings in a report; more are only counted.
pub const FINDINGS_MAX: usize = 1000;

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.findings_omitted += 1;
        }
    }

    /// Returns the worst severity; `None` without findings.
    pub fn worst_severity(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.severity).max()
    }

    /// Whether the pool is intact, or in a state that a power loss may leave.
    pub fn is_clean(&self) -> bool {
        self.worst_severity().is_none_or(|worst| worst == Severity::Note)
    }

    /// Whether [`repair`](super::repair()) would do something.
    pub fn is_repairable(&self) -> bool {
        self.findings.iter().any(|f| f.remedy.is_repair())
    }
}
