//! `greedy`: each item, in the order of eviction, goes to the tier with the lowest load.
//!
//! Source: list scheduling (R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM Journal on
//! Applied Mathematics 17, 1969), as the baseline of TridentFS, sections 3.5 and 4.8.
//!
//! Rule: the load of the chosen tier grows by the item's size divided by its measured rate. With equal loads
//! flash is first.
//!
//! Constants: none. When not: with items of very different sizes, disks get small ones, for which they seek.

use super::{Distribution, TierLoad, default_rate, least_loaded};
use weir_model::Bytes;

/// List scheduling.
#[derive(Clone, Copy, Debug)]
pub struct Greedy;

impl Distribution for Greedy {
    fn distribute(&mut self, items: &[Bytes], tiers: &mut [TierLoad]) -> Vec<usize> {
        let default_rate = default_rate(tiers);
        let target = |size: &Bytes| {
            let target = least_loaded(tiers);
            tiers[target].add(*size, default_rate);
            target
        };
        items.iter().map(target).collect()
    }
}
