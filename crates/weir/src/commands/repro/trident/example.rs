//! The example of figure 5: ten items are distributed to flash and disk.

use super::super::parameters::Parameters;
use super::super::results::{Metrics, finite};
use super::experiment::Method;
use crate::failure::Failure;
use weir_model::Bytes;
use weir_policy::distribution::{DistributionPolicy, DistributionSettings, TierLoad};

/// The metrics of a method.
#[cfg(test)]
pub(super) const METRICS: [&str; 4] = ["flash time", "disk time", "longer time", "ratio of times"];

/// Returns the service times of both devices.
///
/// # Errors
/// Fails if a parameter is unusable.
pub(super) fn metrics(p: &Parameters, method: Method) -> Result<Metrics, Failure> {
    let sizes: Vec<Bytes> = p.counts::<10>("figure_5_items")?.map(|size| Bytes(size * 1000)).to_vec();
    let [disk, large] = [p.number("figure_5_disk")?, p.number("figure_5_large")?];
    // The publication computes with the speed of large writes where large items go to the disk.
    let disk = if method == Method::Trident { large } else { disk };
    let tier = |seeks, rate: f64| TierLoad { seeks, load: 0.0, rate: Some(rate * 1e6) };
    let mut tiers = [tier(false, p.number("figure_5_flash")?), tier(true, disk)];
    if let Some(policy) = DistributionPolicy::by_name(method.policy()) {
        policy.start(&DistributionSettings::default()).distribute(&sizes, &mut tiers);
    }
    let [flash, disk] = tiers.map(|tier| tier.load);
    let values = [
        ("flash time", flash),
        ("disk time", disk),
        ("longer time", flash.max(disk)),
        ("ratio of times", flash.max(disk) / flash.min(disk)),
    ];
    Ok(finite(values.into_iter().map(|(name, value)| (name.to_owned(), value))))
}
