//! `gdsf`: greedy dual size frequency; as `trident`, but the clock jumps to the rank of what left.
//!
//! Source: L. Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy",
//! HP Laboratories report HPL-98-69R1, 1998.
//!
//! Rule: an item's rank is `L + F * C / S`: the rank L of the item evicted last, at its last access; the
//! number F of its accesses; its cost C, here the same for all; its size S. The lowest rank leaves.
//!
//! Constants: none. A cost that all items share scales all ranks alike, so it has no effect.
//!
//! When not: where large items are read again and again: small ones crowd them out.

use super::items::{History, ItemSettings, Ranking};

#[derive(Debug, Default)]
struct Gdsf {
    /// The rank of the item evicted last.
    last_rank: f64,
}

impl Ranking for Gdsf {
    fn rank(&self, item: &History) -> f64 {
        self.last_rank + item.accesses as f64 / item.size.0.max(1) as f64
    }

    fn evicted(&mut self, rank: f64) {
        self.last_rank = rank;
    }
}

pub(super) fn ranking(_: &ItemSettings) -> Box<dyn Ranking> {
    Box::<Gdsf>::default()
}
