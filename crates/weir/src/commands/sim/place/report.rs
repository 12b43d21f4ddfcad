//! Formats the results of simulations as text and as JSON.

use crate::output::{Width, table};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{Bytes, Nanos};
use weir_sim::advise::Years;
use weir_sim::load::ramp::saturation;
use weir_sim::{AmplificationSource, DeviceEndurance, DeviceOutcome, Mode, Outcome, Plan, Responses};

/// The results of one load under several policies.
#[derive(Debug)]
pub(in crate::commands::sim) struct Comparison {
    /// The load, as on the command line.
    pub(super) load: String,
    /// The random seed.
    pub(super) seed: u64,
    /// Parts of the load that could not be used as they are.
    pub(super) notes: Vec<String>,
    /// The plan of the simulations.
    pub(super) plan: Plan,
    /// The mean response at which a ramp saturates.
    pub(super) limit: Nanos,
    /// The results, in the order of the policies on the command line.
    pub(super) outcomes: Vec<Outcome>,
}

impl Comparison {
    /// Returns the document that `--json` prints.
    pub(in crate::commands::sim) fn document(&self) -> PlaceDocument<'_> {
        PlaceDocument {
            load: &self.load,
            seed: self.seed,
            loop_: match &self.plan.mode {
                Mode::Open => Loop::Open,
                Mode::Closed(steps) => Loop::Closed(steps.first().map_or(0, |(_, depth)| *depth)),
                Mode::Ramp(_) => Loop::Ramp,
            },
            duration_ns: self.plan.duration.0,
            saturation: matches!(self.plan.mode, Mode::Ramp(_)).then(|| SaturationPart {
                limit_ns: self.limit.0,
                requests_per_second: self.saturations().collect(),
            }),
            notes: &self.notes,
            results: &self.outcomes,
        }
    }

    /// Returns the point of saturation of each policy under a ramp.
    fn saturations(&self) -> impl Iterator<Item = Option<f64>> {
        self.outcomes.iter().map(|outcome| saturation(&outcome.ramp, self.limit))
    }

    /// Returns the steps of a ramp, and where each policy saturates; without a ramp nothing.
    fn ramp(&self, width: Width) -> String {
        let rows = self.outcomes.iter().flat_map(|outcome| {
            outcome.ramp.iter().map(|step| {
                let time =
                    |time| step.responses.time_if_any(time).map_or("-".into(), |time| time.to_string());
                let (mean, p99) = (time(step.responses.mean), time(step.responses.p99));
                let rate = |rate: f64| format!("{rate:.0}");
                [outcome.policy.clone(), rate(step.offered), rate(step.delivered), mean, p99]
            })
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return String::new();
        }
        let heads = ["POLICY", "OFFERED/S", "DELIVERED/S", "MEAN", "P99"];
        let mut text = format!("\n{}", table(width, heads, rows));
        for (outcome, saturation) in self.outcomes.iter().zip(self.saturations()) {
            let limit = self.limit;
            text += &match saturation {
                Some(rate) => {
                    format!(
                        "\n{}: saturated at {rate:.0} requests/s: the mean response is {limit}\n",
                        outcome.policy
                    )
                }
                None => format!("\n{}: the mean response crosses {limit} at no step\n", outcome.policy),
            };
        }
        text
    }

    /// Returns the text that is printed without `--json`: response times by policy, and devices by policy.
    pub(in crate::commands::sim) fn human(&self, width: Width) -> String {
        let measured = self.outcomes.first().map_or_else(String::new, |outcome| outcome.measured.to_string());
        let mode = match &self.plan.mode {
            Mode::Open => "open loop".to_owned(),
            Mode::Closed(steps) => {
                format!("closed loop of {}", steps.first().map_or(0, |(_, depth)| *depth))
            }
            Mode::Ramp(ramp) => format!("ramp of {} steps", ramp.rates().len()),
        };
        let mut text = format!("{}, {mode}, {measured} measured, seed {}\n\n", self.load, self.seed);
        text += &table(
            width,
            [
                "POLICY",
                "REQUESTS/S",
                "MB/S",
                "MEAN",
                "P50",
                "P99",
                "P99.9",
                "READS",
                "READS P99",
                "WRITES",
                "WRITES P99",
                "MOVED",
            ],
            self.outcomes.iter().map(responses_row),
        );
        text += "\n";
        let rows = self
            .outcomes
            .iter()
            .flat_map(|outcome| outcome.devices.iter().map(|device| device_row(outcome, device)));
        text += &table(
            width,
            ["POLICY", "DEVICE", "MODEL", "ROOM", "USED", "SHARE", "LOAD", "QUEUE", "READS", "WRITES"],
            rows,
        );
        text += &self.ramp(width);
        text += &endurance(width, &self.outcomes);
        for outcome in &self.outcomes {
            let said = [outcome.cannot_keep_up(), outcome.all.heavy_tail()].into_iter().flatten();
            said.for_each(|said| text += &format!("\n{}: {said}\n", outcome.policy));
        }
        for outcome in &self.outcomes {
            text += &migration_effect(outcome);
        }
        for note in &self.notes {
            text += &format!("\nnote: {note}\n");
        }
        text
    }
}

/// The document of `weir sim place`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir sim place")]
pub(crate) struct PlaceDocument<'a> {
    /// The trace or the load, as on the command line.
    load: &'a str,
    /// The random seed.
    seed: u64,
    /// How requests arrive.
    #[serde(rename = "loop")]
    loop_: Loop,
    /// Virtual time that the load lasts.
    duration_ns: u64,
    /// Where each policy saturates under a ramp; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    saturation: Option<SaturationPart>,
    /// What of the trace could not be read or used as it is.
    notes: &'a [String],
    /// The policies, in the order of the command line.
    results: &'a [Outcome],
}

/// Points of saturation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Saturation")]
struct SaturationPart {
    /// Mean response time at which a pool counts as saturated.
    limit_ns: u64,
    /// Delivered rate at that mean response, in the order of `results`; `null` if no step crosses it.
    requests_per_second: Vec<Option<f64>>,
}

/// How requests arrive.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Loop {
    /// Open loop: at the times of the load.
    Open,
    /// Closed loop: with this many requests in flight.
    Closed(usize),
    /// Open loop: at the rates of a ramp.
    Ramp,
}

/// Returns the effect of migration by the engine's own estimate, and how often the engine stopped it.
fn migration_effect(outcome: &Outcome) -> String {
    let mut text = String::new();
    if let Some(estimate) = outcome.estimate.filter(|_| outcome.moved > Bytes(0)) {
        let (took, without) = (estimate.mean, estimate.without);
        text += &format!(
            "\n{}: a command took {took}, and without moves {without}, as the engine estimates\n",
            outcome.policy
        );
    }
    if outcome.stops > 0 {
        text += &format!(
            "\n{}: moves were stopped {} times, because they did harm\n",
            outcome.policy, outcome.stops
        );
    }
    text
}

/// Returns how long the flash of each device lasts, and what a write budget costs; without endurance nothing.
fn endurance(width: Width, outcomes: &[Outcome]) -> String {
    let of_outcome = |outcome| {
        let device = move |device: &DeviceOutcome| Some(endurance_row(outcome, device, device.endurance?));
        outcome.devices.iter().filter_map(device)
    };
    let rows: Vec<_> = outcomes.iter().flat_map(of_outcome).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["POLICY", "FLASH", "WRITTEN/DAY", "WA", "PROGRAMMED/DAY", "LIFE", "COMMANDS"];
    let mut text = format!("\n{}", table(width, heads, rows));
    for pair in outcomes.windows(2) {
        let (free, limited) = (&pair[0], &pair[1]);
        let Some(budget) = limited.write_budget_bytes else { continue };
        let [limited_bytes, free_bytes] = [limited, free].map(written_per_day);
        text += &format!(
            "\n{}: with a budget of {} a day, {} a day are written to flash instead of {}; flash carries out \
             {:.1} % of the commands instead of {:.1} %, and a request takes {} on average instead of {}\n",
            free.policy,
            Bytes(budget),
            limited_bytes,
            free_bytes,
            limited.flash_share() * 100.0,
            free.flash_share() * 100.0,
            limited.all.mean,
            free.all.mean
        );
        if limited_bytes > Bytes(budget) {
            text += &format!(
                "{}: the budget is exceeded: it does not limit writes to blocks already on flash, new data \
                 and metadata\n",
                free.policy
            );
        }
    }
    text
}

/// Returns the bytes written to all flash devices per day.
fn written_per_day(outcome: &Outcome) -> Bytes {
    let endurances = outcome.devices.iter().filter_map(|device| device.endurance);
    Bytes(endurances.filter_map(|found| found.lifetime.bytes_per_day).sum::<f64>() as u64)
}

fn endurance_row(outcome: &Outcome, device: &DeviceOutcome, found: DeviceEndurance) -> [String; 7] {
    let is_upper = if found.source == AmplificationSource::ClosedForm { "at most " } else { "" };
    let per_day = |bytes: f64| Bytes(bytes as u64).to_string();
    let life =
        found.lifetime.life_years.map_or_else(|| "not written".to_owned(), |life| Years(life).to_string());
    [
        policy_name(outcome),
        device.name.clone(),
        per_day(found.lifetime.bytes_per_day.unwrap_or(0.0)),
        format!("{is_upper}{:.2}", found.amplification),
        per_day(found.programmed_bytes_per_day),
        life,
        format!("{:.1} %", device.served * 100.0),
    ]
}

/// Returns the name of a policy in tables, with its write budget.
fn policy_name(outcome: &Outcome) -> String {
    match outcome.write_budget_bytes {
        Some(_) => format!("{} (budget)", outcome.policy),
        None => outcome.policy.clone(),
    }
}

fn responses_row(outcome: &Outcome) -> [String; 12] {
    let Outcome { rate, bytes_rate, all, reads, writes, moved, .. } = outcome;
    let or_none = |responses: &Responses, time: Nanos| {
        responses.time_if_any(time).map_or_else(|| "-".to_owned(), |time| time.to_string())
    };
    [
        policy_name(outcome),
        format!("{rate:.0}"),
        format!("{:.1}", bytes_rate / 1e6),
        or_none(all, all.mean),
        or_none(all, all.p50),
        or_none(all, all.p99),
        or_none(all, all.p999),
        or_none(reads, reads.mean),
        or_none(reads, reads.p99),
        or_none(writes, writes.mean),
        or_none(writes, writes.p99),
        moved.to_string(),
    ]
}

fn device_row(outcome: &Outcome, device: &DeviceOutcome) -> [String; 10] {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let used = device.used.0 as f64 / device.room.0.max(1) as f64;
    let direction = |d: &weir_sim::place::outcome::DirectionOutcome| match d.count {
        0 => "-".to_owned(),
        count => format!("{count} of {}, {}", Bytes(d.bytes.0 / count), d.mean),
    };
    [
        policy_name(outcome),
        device.name.clone(),
        device.model.clone(),
        device.room.to_string(),
        percent(used),
        percent(device.share),
        percent(device.load),
        format!("{:.2}", device.queue),
        direction(&device.reads),
        direction(&device.writes),
    ]
}

#[cfg(test)]
mod tests;
