//! Distribution: to which of several tiers below each of the items goes that leave the fast tier together.
//!
//! The tiers work in parallel, so a batch is done when the last of them is. There is one file per policy;
//! [`DISTRIBUTION`] lists them. A policy gets the sizes of the items in the order of eviction, and the loads
//! and measured rates of the tiers, and adds what it distributes to the loads.

mod by_size;
mod greedy;
mod meter;
mod round_robin;
#[cfg(test)]
mod tests;
mod trident;

pub use by_size::{BySize, SIZE_THRESHOLD};
pub use greedy::Greedy;
pub use meter::{METER_PERIOD, RateMeter};
pub use round_robin::RoundRobin;
pub use trident::Trident;

use std::fmt;
use weir_model::Bytes;

/// A tier as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierLoad {
    /// Whether each command costs an arm's seek, so that large items suit it better than small ones.
    pub seeks: bool,
    /// Its load: the accumulated service time, in seconds, of all data that was read from it and written or
    /// distributed to it.
    pub load: f64,
    /// Its measured rate in bytes per second; `None` before it was measured.
    pub rate: Option<f64>,
}

impl TierLoad {
    /// Adds an item to the load: its size divided by the rate. `default_rate` stands for a rate that was not
    /// measured.
    pub fn add(&mut self, size: Bytes, default_rate: f64) {
        self.load += size.0 as f64 / self.rate.unwrap_or(default_rate).max(1.0);
    }
}

/// Returns what stands for rates that were not measured: the mean of the others, so that a tier without a
/// measurement is neither preferred nor avoided.
pub fn default_rate(tiers: &[TierLoad]) -> f64 {
    let rates = || tiers.iter().filter_map(|tier| tier.rate);
    let count = rates().count();
    if count == 0 { 1e6 } else { rates().sum::<f64>() / count as f64 }
}

/// Distributes items over tiers.
pub trait Distribution: fmt::Debug + Send {
    /// Returns the tier of each item, as an index, and adds the items to the tiers' loads. There is at least
    /// one tier.
    fn distribute(&mut self, items: &[Bytes], tiers: &mut [TierLoad]) -> Vec<usize>;
}

/// A distribution policy.
#[derive(Clone, Copy, Debug)]
pub struct DistributionPolicy {
    /// Its name.
    pub name: &'static str,
    /// Its rule in a line.
    pub about: &'static str,
    make: fn(&DistributionSettings) -> Box<dyn Distribution>,
}

/// Settings of the policies; each takes those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributionSettings {
    /// Items of this size or larger go to tiers that seek (`by_size`).
    pub size_threshold: Bytes,
}

impl Default for DistributionSettings {
    fn default() -> Self {
        Self { size_threshold: SIZE_THRESHOLD }
    }
}

/// All distribution policies, the default first.
pub const DISTRIBUTION: &[DistributionPolicy] = &[
    DistributionPolicy {
        name: "trident",
        about: "the smallest items to flash, the largest to disks, so that loads become equal",
        make: |_| Box::new(Trident),
    },
    DistributionPolicy {
        name: "greedy",
        about: "each item to the tier with the lowest load",
        make: |_| Box::new(Greedy),
    },
    DistributionPolicy {
        name: "by_size",
        about: "items below a size to flash, the others to disks",
        make: |settings| Box::new(BySize::new(settings.size_threshold)),
    },
    DistributionPolicy {
        name: "round_robin",
        about: "the same number of bytes to each tier",
        make: |_| Box::<RoundRobin>::default(),
    },
];

impl DistributionPolicy {
    /// Returns the policy of this name; `None` if there is none.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        DISTRIBUTION.iter().find(|policy| policy.name == name)
    }

    /// Creates the policy.
    pub fn start(&self, settings: &DistributionSettings) -> Box<dyn Distribution> {
        (self.make)(settings)
    }
}

/// Returns the tier with the lowest load; of equal ones, the first that does not seek.
fn least_loaded(tiers: &[TierLoad]) -> usize {
    let order = |(index, tier): &(usize, &TierLoad)| (tier.load, tier.seeks, *index);
    let least = tiers.iter().enumerate().min_by(|a, b| {
        let (a, b) = (order(a), order(b));
        a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
    });
    least.map_or(0, |(index, _)| index)
}
