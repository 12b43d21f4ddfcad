//! Formats the results of `weir sim fs` as text and as JSON.

use super::FsArgs;
use crate::output::{Table, Width};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{Bytes, Nanos};
use weir_sim::fs::{FsOutcome, TierOutcome};

/// A combination of NVM and policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Combination {
    pub(super) nvm: Option<Bytes>,
    pub(super) eviction: Option<&'static str>,
    pub(super) omega: Option<f64>,
    pub(super) distribution: &'static str,
    pub(super) promotion: Option<&'static str>,
}

/// The results of one load with several combinations.
#[derive(Debug)]
pub(in crate::commands::sim) struct FsComparison {
    load: String,
    seed: u64,
    watermarks: [f64; 2],
    memory: Bytes,
    results: Vec<(Combination, FsOutcome)>,
}

/// The document of `weir sim fs`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir sim fs")]
pub(crate) struct FsDocument<'a> {
    /// The words of the load, as on the command line.
    load: &'a str,
    /// The random seed.
    seed: u64,
    /// Share of NVM in use from which on items are evicted, from 0 to 1.
    high_watermark: f64,
    /// Share at which eviction stops.
    low_watermark: f64,
    /// Size of the page cache.
    memory_bytes: u64,
    /// The combinations of NVM and policies.
    results: Vec<ResultPart<'a>>,
}

/// The result of a combination.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FsResult")]
struct ResultPart<'a> {
    /// Size of NVM; `null` without NVM: changes then wait in memory.
    nvm_bytes: Option<u64>,
    /// The eviction policy; `null` without NVM.
    eviction: Option<&'a str>,
    /// The weight of accesses per byte; `null` with policies that have none.
    omega: Option<f64>,
    /// The distribution policy.
    distribution: &'a str,
    /// The promotion policy; `null` without NVM.
    promotion: Option<&'a str>,
    /// What was measured.
    outcome: &'a FsOutcome,
}

impl FsComparison {
    pub(super) fn new(args: &FsArgs, results: Vec<(Combination, FsOutcome)>) -> Self {
        Self {
            load: args.load.clone(),
            seed: args.seed,
            watermarks: [args.high, args.low],
            memory: args.memory,
            results,
        }
    }

    /// Returns the document that `--json` prints.
    pub(in crate::commands::sim) fn document(&self) -> FsDocument<'_> {
        let part = |(combination, outcome)| {
            let Combination { nvm, eviction, omega, distribution, promotion }: &'_ Combination = combination;
            ResultPart {
                nvm_bytes: nvm.map(|size| size.0),
                eviction: *eviction,
                omega: *omega,
                distribution,
                promotion: *promotion,
                outcome,
            }
        };
        let [high_watermark, low_watermark] = self.watermarks;
        FsDocument {
            load: &self.load,
            seed: self.seed,
            high_watermark,
            low_watermark,
            memory_bytes: self.memory.0,
            results: self.results.iter().map(|(combination, outcome)| part((combination, outcome))).collect(),
        }
    }

    /// Returns the text that is printed without `--json`: a table of the combinations, and one of the tiers.
    pub(in crate::commands::sim) fn human(&self, width: Width) -> String {
        let unit = self.results.first().map_or("", |(_, outcome)| outcome.work_unit);
        let [high, low] = self.watermarks.map(|share| share * 100.0);
        let mut text = format!(
            "{}\nwork in {unit}; page cache of {}, watermarks {high:.0} % and {low:.0} %, seed {}\n\n",
            self.load, self.memory, self.seed
        );
        let heading: [&str; 15] = [
            "#",
            "NVM",
            "EVICTION",
            "DISTRIBUTION",
            "WORK/S",
            "BYTES/S",
            "MEAN",
            "EVICTED",
            "NVM HITS",
            "PROMOTION",
            "P99",
            "MEMORY HITS",
            "TIER HITS",
            "WAITED",
            "OMEGA",
        ];
        let rows = self
            .results
            .iter()
            .enumerate()
            .map(|(nth, (combination, outcome))| combination_row(nth + 1, combination, outcome));
        let rows: Vec<_> = rows.collect();
        let order = order(&rows);
        let rows = rows.iter().map(|row| order.map(|column| row[column].as_str()));
        text += &Table::new(order.map(|column| heading[column]), rows).text(width);
        text += "\n";
        let heading =
            ["#", "TIER", "FILES ON", "BUSY", "EVICTED", "SHARE", "READ", "WRITTEN", "BYTES/BUSY S"];
        let rows =
            self.results.iter().enumerate().flat_map(|(nth, (_, outcome))| {
                outcome.tiers.iter().map(move |tier| tier_row(nth + 1, tier))
            });
        text + &Table::new(heading, rows).text(width)
    }
}

/// Formats a share as a percentage.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn bytes(count: f64) -> String {
    Bytes(count as u64).to_string()
}

/// Columns of the settings in a [`combination_row`].
const SETTINGS: [usize; 5] = [1, 2, 3, 9, 14];

/// Returns the order of the columns of combinations: after the number the settings that vary, so that narrow
/// terminals show them, and settings that are all the same at the end. If none varies, all stay in place.
fn order(rows: &[[String; 15]]) -> [usize; 15] {
    let varies = |column: usize| rows.iter().any(|row| row[column] != rows[0][column]);
    let is_setting = |column: &usize| SETTINGS.contains(column);
    let mut order = std::array::from_fn(|column| column);
    if SETTINGS.into_iter().any(varies) {
        order.sort_by_key(|column| match column {
            0 => 0,
            column if is_setting(column) && varies(*column) => 1,
            column if !is_setting(column) => 2,
            _ => 3,
        });
    }
    order
}

fn combination_row(number: usize, combination: &Combination, outcome: &FsOutcome) -> [String; 15] {
    let Combination { nvm, eviction, omega, distribution, promotion } = combination;
    let time =
        |time: Nanos| outcome.all.time_if_any(time).map_or_else(|| "-".to_owned(), |time| time.to_string());
    [
        number.to_string(),
        nvm.map_or_else(|| "none".to_owned(), |size| size.to_string()),
        eviction.unwrap_or("-").to_owned(),
        (*distribution).to_owned(),
        format!("{:.1}", outcome.work_per_second),
        bytes(outcome.bytes_per_second),
        time(outcome.all.mean),
        Bytes(outcome.evicted_bytes).to_string(),
        percent(outcome.hits.fast),
        promotion.unwrap_or("-").to_owned(),
        time(outcome.all.p99),
        percent(outcome.hits.memory),
        percent(outcome.hits.tiers),
        Nanos::from_secs_f64(outcome.waited_seconds).to_string(),
        omega.map_or_else(|| "-".to_owned(), |omega| omega.to_string()),
    ]
}

fn tier_row(number: usize, tier: &TierOutcome) -> [String; 9] {
    [
        number.to_string(),
        tier.drive.clone(),
        tier.file_system.clone(),
        percent(Some(tier.busy)),
        Bytes(tier.evicted_bytes).to_string(),
        percent(tier.evicted_share),
        Bytes(tier.read_bytes).to_string(),
        Bytes(tier.written_bytes).to_string(),
        tier.bytes_per_busy_second.map_or_else(|| "-".to_owned(), bytes),
    ]
}
