//! `by_size`: small items go to flash, large ones to disks.
//!
//! Source: the rule of Conquest (A.-I. A. Wang, G. Kuenning, P. Reiher, G. Popek, "The Conquest File System",
//! ACM Transactions on Storage 2(3), 2006) as the variant TridentFS-size applies it (section 4.3).
//!
//! Rule: an item smaller than a threshold goes to a tier without seeks, another one to a tier with them: of
//! several such tiers, to the one with the lowest load. Without tiers of that kind, to any.
//!
//! Constants: a threshold of 1 MB, as published.
//!
//! When not: where sizes are alike, one kind of tier gets everything and the other is idle.

use super::{Distribution, TierLoad, default_rate, least_loaded};
use weir_model::Bytes;

/// The published threshold.
pub const SIZE_THRESHOLD: Bytes = Bytes::mib(1);

/// A threshold of size.
#[derive(Clone, Copy, Debug)]
pub struct BySize {
    threshold: Bytes,
}

impl BySize {
    /// Creates the policy.
    pub fn new(threshold: Bytes) -> Self {
        Self { threshold }
    }
}

impl Distribution for BySize {
    fn distribute(&mut self, items: &[Bytes], tiers: &mut [TierLoad]) -> Vec<usize> {
        let default_rate = default_rate(tiers);
        let has_kind = [false, true].map(|seeks| tiers.iter().any(|tier| tier.seeks == seeks));
        let target = |size: &Bytes| {
            let is_large = *size >= self.threshold;
            let suits = |tier: &TierLoad| tier.seeks == is_large || !has_kind[usize::from(is_large)];
            // The others are as if they were infinitely loaded.
            let loads = |tier: &TierLoad| if suits(tier) { tier.load } else { f64::INFINITY };
            let candidates: Vec<_> =
                tiers.iter().map(|tier| TierLoad { load: loads(tier), ..*tier }).collect();
            let target = least_loaded(&candidates);
            tiers[target].add(*size, default_rate);
            target
        };
        items.iter().map(target).collect()
    }
}
