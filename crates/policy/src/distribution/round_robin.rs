//! `round_robin`: each tier gets the same number of bytes, as with RAID 0.
//!
//! Source: the variant TridentFS-single (RAID-0) of TridentFS, section 4.3, whose array gives flash and disk
//! stripes in turn; by items, as the round robin of its figure 5(b).
//!
//! Rule: an item goes to the tier that has received the fewest bytes so far, of equal ones to the first.
//! Stripes of 256 KiB in turn come to the same shares.
//!
//! Constants: none. When not: with tiers of different speed, the batch waits for the slowest.

use super::{Distribution, TierLoad, default_rate};
use weir_model::Bytes;

/// Equal shares.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    /// The bytes that each tier has received.
    received: Vec<u64>,
}

impl Distribution for RoundRobin {
    fn distribute(&mut self, items: &[Bytes], tiers: &mut [TierLoad]) -> Vec<usize> {
        let default_rate = default_rate(tiers);
        self.received.resize(tiers.len(), 0);
        let target = |size: &Bytes| {
            let least = self.received.iter().enumerate().min_by_key(|(_, received)| **received);
            let target = least.map_or(0, |(index, _)| index);
            self.received[target] += size.0;
            tiers[target].add(*size, default_rate);
            target
        };
        items.iter().map(target).collect()
    }
}
