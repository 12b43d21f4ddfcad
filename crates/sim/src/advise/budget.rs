//! What a budget of bytes written to flash per day would cost in hits.

use super::response::{hit_shares, written};
use super::split::{split, split_within};
use super::{DAY, DeviceSet, Search};
use crate::place::endurance::is_flash;
use weir_model::Bytes;

/// What a write budget costs, by the same cache as the predictions: with the budget and without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetCost {
    /// Bytes that may be written to the fast devices per day.
    pub budget: Bytes,
    /// Bytes per day that are written to them, by clients and by copies.
    pub written_per_day: [f64; 2],
    /// Share of the reads that they serve.
    pub hit_share: [f64; 2],
}

impl Search<'_> {
    /// Returns what a write budget for the fast devices of a set costs; `None` if none of them is flash.
    pub fn budget_cost(&self, set: &DeviceSet, budget: Bytes) -> Option<BudgetCost> {
        let sizes = self.sizes(set)?;
        let drive = |model: &str| weir_timing::drives::drive(model).is_some_and(is_flash);
        if !set.fast_kinds().any(|kind| drive(&self.offers[kind.offer].model)) {
            return None;
        }
        let days = (self.demand.duration().as_secs_f64() / DAY).max(f64::MIN_POSITIVE);
        let splits = [split_within(self.demand, sizes, budget), split(self.demand, sizes)];
        Some(BudgetCost {
            budget,
            written_per_day: splits.each_ref().map(|split| {
                let [fast, second, _] = written(self.demand, split);
                (fast.0 + second.0) as f64 / days
            }),
            hit_share: splits.each_ref().map(|split| hit_shares(self.demand, split).iter().sum()),
        })
    }
}
