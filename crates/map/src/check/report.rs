//! What a check found.

use crate::Superblock;
use weir_model::{Bytes, DeviceId, DeviceOffset};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What a power cut also leaves behind; opening the pool deals with it, nothing is lost.
    Note,
    /// Something is taken that nothing uses.
    Waste,
    /// One of two copies is damaged; the other is intact, nothing is lost.
    Spare,
    /// A device is not there: what is on it was not checked.
    Unchecked,
    /// Something is damaged that nothing intact is left for.
    Damage,
}

impl Severity {
    /// The lower-case name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Waste => "waste",
            Self::Spare => "spare",
            Self::Unchecked => "unchecked",
            Self::Damage => "damage",
        }
    }
}

/// What helps against a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Opening the pool, which every command that uses it does.
    Opening,
    /// [`repair`](super::repair) writes this copy of a superblock anew from the other.
    Superblock {
        /// The copy at the device's end, not the one at its beginning.
        second: bool,
    },
    /// [`repair`](super::repair) opens the pool, which writes both roots anew.
    Roots,
    /// [`repair`](super::repair) gives it back.
    Free,
    /// Nothing weir could do without guessing: this is the way out.
    ByHand(&'static str),
}

impl Remedy {
    /// Whether [`repair`](super::repair) does it.
    pub const fn is_repair(self) -> bool {
        matches!(self, Self::Superblock { .. } | Self::Roots | Self::Free)
    }

    /// What to do, in words.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Opening => "nothing: opening the pool deals with it",
            Self::Superblock { .. } => "--repair writes it anew from the other copy",
            Self::Roots => "--repair writes it anew from what is intact",
            Self::Free => "--repair gives it back",
            Self::ByHand(way_out) => way_out,
        }
    }
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: "superblock", "root", "journal", "map page", "volume"...
    pub what: &'static str,
    /// The device it lies on; the metadata member for what is not in one place.
    pub device: DeviceId,
    /// Where on the device.
    pub at: DeviceOffset,
    /// How it shows.
    pub why: String,
    /// What it means for the pool's user.
    pub matters: String,
    /// What helps.
    pub remedy: Remedy,
}

/// How much a check has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Superblock copies read.
    pub superblocks: u64,
    /// Roots whose pages were read.
    pub roots: u64,
    /// Journal frames verified.
    pub frames: u64,
    /// Metadata pages verified.
    pub pages: u64,
    /// Volumes there are.
    pub volumes: u64,
    /// Extents with anything in them.
    pub extents: u64,
    /// Records in use.
    pub records: u64,
    /// Bytes read.
    pub read: Bytes,
}

/// How far a pool had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Sequence of the journal frame that would come next.
    pub frame: u64,
    /// Sequence of the root.
    pub root: u64,
}

/// The outcome of a [check](super::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The devices' superblocks, by device id; `None` where there is no good one.
    pub superblocks: Vec<Option<Superblock>>,
    /// What is not as it should be, in the order it was found; at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub left_out: u64,
    /// How far the map had come that opening would recover; `None` if there is none.
    pub position: Option<Position>,
    /// What was looked at.
    pub checked: Checked,
}

/// Most findings a report holds; more are only counted.
pub const FINDINGS_MAX: usize = 1000;

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.left_out += 1;
        }
    }

    /// The worst there is; `None` if nothing was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.severity).max()
    }

    /// All is as it should be, or as a power cut may leave it.
    pub fn is_clean(&self) -> bool {
        self.worst().is_none_or(|worst| worst == Severity::Note)
    }

    /// Whether [`repair`](super::repair) would do something.
    pub fn is_repairable(&self) -> bool {
        self.findings.iter().any(|f| f.remedy.is_repair())
    }
}
