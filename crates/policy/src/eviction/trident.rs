//! `trident`: of the items not accessed for long, the seldom accessed and the large ones leave first.
//!
//! Source: T.-C. Huang, D.-W. Chang, "TridentFS: a hybrid file system for non-volatile RAM, flash memory and
//! magnetic disk", Software: Practice and Experience 46, 2016, section 3.4, equation (1).
//!
//! Rule: an item's score is `C + omega * AC / S`. C is the value, at its last access, of a clock that ticks
//! at each eviction; AC is the number of its accesses; S is its size in bytes. The lowest score leaves.
//!
//! Constants: the paper has omega and does not print it. Ours is the best of a sweep (see [`OMEGA`]).
//!
//! When not: where what was accessed often is never accessed again. The clock, unlike that of `gdsf`, ticks
//! by 1 whatever left, so a small item that was accessed n times outlives `omega * n / S` evictions.

use super::items::{History, ItemSettings, Ranking};

/// The default of omega, in bytes: an access to an item of 16 MiB is worth one eviction's time, one to 4 KiB
/// is worth 4,096.
///
/// The best of a sweep, or within 3 % of it, for three loads and two SSDs: `docs/reference/sim-fs.md`.
pub const OMEGA: f64 = 16_777_216.0;

/// The score of `TridentFS`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trident {
    /// The weight of accesses per byte beside recency.
    pub omega: f64,
}

impl Ranking for Trident {
    fn rank(&self, item: &History) -> f64 {
        item.clock as f64 + self.omega * item.accesses as f64 / item.size.0.max(1) as f64
    }
}

pub(super) fn ranking(settings: &ItemSettings) -> Box<dyn Ranking> {
    Box::new(Trident { omega: settings.omega })
}
