//! Defines the document that `weir advise --json` prints.

use super::{Advice, EngineRun, Row};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use weir_sim::DeviceEndurance;
use weir_sim::advise::{BudgetCost, Forecast, Offer, Rule, Years};

/// The document of `weir advise`. Prices are in the currency of the list of devices.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir advise")]
pub(crate) struct AdviceDocument<'a> {
    /// Path of the trace.
    trace: &'a str,
    /// What of the trace could not be read or used as it is.
    notes: &'a [String],
    /// The placement policy that was simulated.
    policy: &'a str,
    /// The random seed.
    seed: u64,
    /// Predictions are from the first half of the trace, simulations from the second.
    held_out: bool,
    /// Requests that the predictions are from.
    requests: usize,
    /// Distinct data that these requests touch.
    footprint_bytes: u64,
    /// Active data that the trace stands for.
    active_bytes: u64,
    /// Data that the devices must have room for.
    capacity_bytes: u64,
    /// The currency of the list of devices.
    currency: &'a str,
    /// The rule that picks a set.
    rule: Rule,
    /// Name of the set that is picked.
    pick: String,
    /// The pick and its alternatives, a sentence each.
    summary: Vec<String>,
    /// What a limit on writes to flash costs the pick; `null` without `--write-budget`, or if none of its
    /// fast devices is flash.
    write_budget: Option<BudgetPart>,
    /// Path of the pool file that was written; `null` without `--write-pool`.
    pool_file: Option<&'a Path>,
    /// The sets that were considered.
    sets: Vec<SetPart<'a>>,
}

/// A set of devices.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Set")]
struct SetPart<'a> {
    /// Its devices by name: `870-evo-1tb + 2 x exos-4tb`.
    name: String,
    /// Its devices by kind, the fastest first.
    devices: Vec<KindPart<'a>>,
    /// Price of all of them.
    price: f64,
    /// No other set is better in one respect and no worse in the others.
    frontier: bool,
    /// The engine has simulated it.
    finalist: bool,
    /// It is the set that is picked.
    pick: bool,
    /// It keeps up with the trace, as far as is known.
    keeps_up: bool,
    /// By how much it does not keep up; `null` if it does.
    reason: Option<String>,
    /// The prediction.
    predicted: PredictedPart,
    /// The simulation; `null` if it is no finalist.
    simulated: Option<SimulatedPart<'a>>,
}

/// Devices of a kind.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Kind")]
struct KindPart<'a> {
    /// Name on the list of devices.
    name: &'a str,
    /// Maker and model.
    about: &'a str,
    /// How many.
    count: u32,
    /// The modelled drive.
    model: &'a str,
}

/// What is predicted of a set.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Prediction")]
struct PredictedPart {
    /// Mean response time; `null` if the set does not keep up.
    mean_ns: Option<u64>,
    /// 99th percentile of the response times; `null` if the set does not keep up.
    p99_ns: Option<u64>,
    /// By how much it does not keep up; `null` if it does.
    reason: Option<String>,
    /// Utilization of the busiest device: the time in which it answers all requests to the time in which they
    /// arrive.
    utilization: f64,
    /// Years until the flash is worn out; `null` if writing does not wear it out.
    life_years: Option<f64>,
    /// Share of reads that the fast devices answer, 0 to 1; 1 if there is one kind only.
    hit_share: f64,
    /// Share of reads that the devices of the fastest kind answer, 0 to 1.
    fastest_share: f64,
}

/// What the engine made of a set in virtual time.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Simulation")]
struct SimulatedPart<'a> {
    /// Mean response time; `null` if the set does not keep up.
    mean_ns: Option<u64>,
    /// 99th percentile of the response times; `null` if the set does not keep up.
    p99_ns: Option<u64>,
    /// By how much it does not keep up; `null` if it does.
    reason: Option<&'a str>,
    /// Requests answered a second.
    requests_per_second: f64,
    /// Offered load: requests that arrive a second.
    offered_per_second: f64,
    /// Years until the flash is worn out; `null` if writing does not wear it out.
    life_years: Option<f64>,
    /// Share of clients' commands that the fast devices carried out, 0 to 1.
    fast_share: f64,
    /// Requests that were not answered.
    unanswered: u64,
    /// Endurance of the flash of each kind of device that is flash, by the rating of its cells.
    flash: Vec<FlashPart<'a>>,
}

/// The flash of all devices of a kind.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Flash")]
struct FlashPart<'a> {
    /// Name of the kind on the list of devices.
    name: &'a str,
    /// Endurance, if it is always written to as in the simulation.
    endurance: DeviceEndurance,
}

/// What a budget of bytes written to the fast devices costs, by the model of the predictions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WriteBudget")]
struct BudgetPart {
    /// Bytes that may be written to the fast devices per day.
    budget_bytes: u64,
    /// Bytes that are written to them per day with the budget.
    written_bytes_per_day: f64,
    /// The same without it.
    unlimited_written_bytes_per_day: f64,
    /// Share of reads that the fast devices answer with the budget, 0 to 1.
    hit_share: f64,
    /// The same without it.
    unlimited_hit_share: f64,
}

impl From<BudgetCost> for BudgetPart {
    fn from(cost: BudgetCost) -> Self {
        let BudgetCost { budget, written_per_day: [written, free], hit_share: [less, more] } = cost;
        Self {
            budget_bytes: budget.0,
            written_bytes_per_day: written,
            unlimited_written_bytes_per_day: free,
            hit_share: less,
            unlimited_hit_share: more,
        }
    }
}

impl Advice {
    /// Returns the document that `--json` prints.
    pub(in crate::commands::advise) fn document(&self) -> AdviceDocument<'_> {
        let sets = self.rows.iter().enumerate().map(|(index, row)| self.set(index, row));
        AdviceDocument {
            trace: &self.trace,
            notes: &self.notes,
            policy: &self.policy,
            seed: self.seed,
            held_out: self.is_held_out,
            requests: self.requests,
            footprint_bytes: self.footprint.0,
            active_bytes: self.required.active.0,
            capacity_bytes: self.required.capacity.0,
            currency: &self.list.currency,
            rule: self.rule,
            pick: self.rows[self.pick].set.name(&self.list.offers),
            summary: self.summary(),
            write_budget: self.write_budget.and_then(|(_, cost)| cost).map(BudgetPart::from),
            pool_file: self.pool_file.as_deref(),
            sets: sets.collect(),
        }
    }

    fn set<'a>(&'a self, index: usize, row: &'a Row) -> SetPart<'a> {
        let kinds = row.set.kinds().map(|several| {
            let offer = &self.list.offers[several.offer];
            KindPart { name: &offer.name, about: &offer.about, count: several.count, model: &offer.model }
        });
        SetPart {
            name: row.set.name(&self.list.offers),
            devices: kinds.collect(),
            price: row.forecast.figures.price.whole(),
            frontier: row.is_on_frontier,
            finalist: self.finalists.contains(&index),
            pick: index == self.pick,
            keeps_up: row.cannot_keep_up().is_none(),
            reason: row.cannot_keep_up(),
            predicted: PredictedPart::from(&row.forecast),
            simulated: row.run.as_ref().map(|run| SimulatedPart::new(run, &self.list.offers)),
        }
    }
}

impl From<&Forecast> for PredictedPart {
    fn from(forecast: &Forecast) -> Self {
        let keeps_up = forecast.keeps_up();
        Self {
            mean_ns: keeps_up.then_some(forecast.figures.mean.0),
            p99_ns: keeps_up.then_some(forecast.figures.p99.0),
            reason: forecast.cannot_keep_up(),
            utilization: forecast.load,
            life_years: years(forecast.figures.life),
            hit_share: forecast.hit_share,
            fastest_share: forecast.fastest_share,
        }
    }
}

impl<'a> SimulatedPart<'a> {
    fn new(run: &'a EngineRun, offers: &'a [Offer]) -> Self {
        let flash = run.endurance.iter();
        let flash = flash
            .map(|(kind, endurance)| FlashPart { name: &offers[kind.offer].name, endurance: *endurance });
        Self {
            mean_ns: run.overload_reason.is_none().then_some(run.figures.mean.0),
            p99_ns: run.overload_reason.is_none().then_some(run.figures.p99.0),
            reason: run.overload_reason.as_deref(),
            requests_per_second: run.rates.0,
            offered_per_second: run.rates.1,
            life_years: years(run.figures.life),
            fast_share: run.served,
            unanswered: run.unanswered,
            flash: flash.collect(),
        }
    }
}

fn years(life: Years) -> Option<f64> {
    life.0.is_finite().then_some(life.0)
}
