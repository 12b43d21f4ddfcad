//! Formats the results of `weir sim flash` as text and as JSON.

use super::FlashArgs;
use crate::output::{Width, table};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{Bytes, Nanos};
use weir_sim::Responses;
use weir_sim::advise::Years;
use weir_sim::flash::FlashOutcome;

/// The results of one load with several victim policies.
#[derive(Debug)]
pub(in crate::commands::sim) struct FlashComparison {
    load: String,
    seed: u64,
    precondition: String,
    separation: String,
    clients: Option<u32>,
    notes: Vec<String>,
    outcomes: Vec<FlashOutcome>,
}

/// The document of `weir sim flash`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir sim flash")]
pub(crate) struct FlashDocument<'a> {
    /// The trace or the load, as on the command line.
    load: &'a str,
    /// The random seed.
    seed: u64,
    /// How the device was filled: `fill`, `formula` or `empty`.
    precondition: &'a str,
    /// Which pages have append points of their own: `none`, `copies` or `generations`.
    separation: &'a str,
    /// Requests in flight of a closed loop; `null` for an open loop.
    clients: Option<u32>,
    /// What of the trace could not be read or used as it is.
    notes: &'a [String],
    /// The victim policies, in the order of the command line.
    results: &'a [FlashOutcome],
}

impl FlashComparison {
    pub(super) fn new(args: &FlashArgs, notes: Vec<String>, outcomes: Vec<FlashOutcome>) -> Self {
        Self {
            load: args.load.clone(),
            seed: args.seed,
            precondition: args.precondition.clone(),
            separation: args.separate.clone(),
            clients: args.closed,
            notes,
            outcomes,
        }
    }

    /// Returns the document that `--json` prints.
    pub(in crate::commands::sim) fn document(&self) -> FlashDocument<'_> {
        FlashDocument {
            load: &self.load,
            seed: self.seed,
            precondition: &self.precondition,
            separation: &self.separation,
            clients: self.clients,
            notes: &self.notes,
            results: &self.outcomes,
        }
    }

    /// Returns the text that is printed without `--json`: the device, and tables with a row per policy.
    pub(in crate::commands::sim) fn human(&self, width: Width) -> String {
        let mode = self.clients.map_or("open loop".to_owned(), |clients| format!("closed loop of {clients}"));
        let mut text = format!(
            "{}\n{mode}, preconditioned: {}, separated: {}, seed {}\n",
            self.load, self.precondition, self.separation, self.seed
        );
        text += &self.outcomes.first().map(device).unwrap_or_default();
        text += "\n";
        text += &table(
            width,
            [
                "POLICY",
                "WA",
                "UNIFORM WA",
                "STEADY",
                "WARM-UP",
                "COPIED",
                "ERASES",
                "WEAR",
                "LIFE",
                "WRITABLE",
            ],
            self.outcomes.iter().map(endurance_row),
        );
        text += "\n";
        text += &table(
            width,
            ["POLICY", "REQUESTS/S", "READS", "READS P99", "READS MAX", "WRITES", "WRITES P99", "WRITES MAX"],
            self.outcomes.iter().map(responses_row),
        );
        for outcome in self.outcomes.iter().filter(|outcome| outcome.late_requests > 0) {
            let FlashOutcome { policy, late_requests, .. } = outcome;
            text += &format!(
                "\n{policy}: {late_requests} requests were answered later than as much time again as the \
                 requests took to arrive: the device cannot keep up\n"
            );
        }
        self.notes.iter().for_each(|note| text += &format!("\nnote: {note}\n"));
        text
    }
}

/// Describes space and geometry, which are the same for all policies.
fn device(outcome: &FlashOutcome) -> String {
    let (space, arrangement) = (&outcome.space, &outcome.arrangement);
    format!(
        "{} for the user of {} flash; besides, {} erase units kept free and {} open\n\
         spare factor of the rest, (T - U) / T: {:.2} %; over-provisioning, (T - U) / U: {:.2} %\n\
         {} erase units of {} pages of {}; {} channels, {} dies each, {} planes each\n",
        Bytes(space.capacity_bytes),
        Bytes(space.flash_bytes),
        space.reserve_segments,
        space.open_segments,
        space.spare_factor * 100.0,
        space.over_provisioning * 100.0,
        space.segments,
        arrangement.segment_pages,
        Bytes(arrangement.page_bytes),
        arrangement.channels,
        arrangement.dies,
        arrangement.planes,
    )
}

fn endurance_row(outcome: &FlashOutcome) -> [String; 10] {
    let wear = &outcome.wear;
    [
        outcome.policy.clone(),
        format!("{:.3}", outcome.amplification),
        outcome.uniform_amplification.map_or("-".into(), |uniform| format!("{uniform:.3}")),
        if outcome.steady { "yes" } else { "no" }.to_owned(),
        format!("{:.2} overwrites", outcome.warm_up_overwrites),
        outcome.pages.copied.to_string(),
        outcome.pages.erases.to_string(),
        format!("{:.1} +- {:.1}, {} to {}", wear.mean, wear.deviation, wear.least, wear.most),
        outcome.lifetime.life_years.map_or("-".into(), |life| Years(life).to_string()),
        Bytes(outcome.lifetime.writable_bytes as u64).to_string(),
    ]
}

fn responses_row(outcome: &FlashOutcome) -> [String; 8] {
    let or_none = |responses: &Responses, time: Nanos| {
        responses.time_if_any(time).map_or_else(|| "-".to_owned(), |time| time.to_string())
    };
    let FlashOutcome { reads, writes, .. } = outcome;
    [
        outcome.policy.clone(),
        format!("{:.0}", outcome.requests_per_second),
        or_none(reads, reads.mean),
        or_none(reads, reads.p99),
        or_none(reads, reads.max),
        or_none(writes, writes.mean),
        or_none(writes, writes.p99),
        or_none(writes, writes.max),
    ]
}
