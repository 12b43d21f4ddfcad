//! Reproduces flash caches with selective admission (HEC, the dissertation's chapter 3): a database beside
//! its backup, four admission policies, and caches of 50, 70 and 90 % of the critical size of each policy.
//!
//! The paper's trace is not available. The reproduction uses `oltp+backup` of
//! [`weir_sim::load::NAMED_LOADS`], which anybody can generate.

use super::Published::Size;
use super::args::ReproArgs;
use super::report::{ExperimentPart, Experiments, OutcomePart};
use super::{Figure, Measures, Reproduction};
use crate::failure::{Failure, REPORT_DEFECT};
use crate::output::{Width, table};
use crate::{parallel, pool_file, progress};
use std::collections::BTreeMap;
use weir_model::{ErrorKind, Nanos};
use weir_sim::analysis::{Analyzer, Settings};
use weir_sim::cache::{
    AdmissionPolicy, BlockTrace, CacheOutcome, EvictionPolicy, Loader, Setup, WriteMode, play_warmed,
};
use weir_sim::load::parse;
use weir_trace::{Disk, Record};

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "hec-admission",
    about: "what a cache on flash admits: writes to it and hits, by policy and size",
    source: "dissertation on endurance, chapter 3: table 3.3",
    measures: Measures::Caches { run, figures },
    notes: |_| Vec::new(),
};

const LOAD: &str = "oltp+backup";
/// Duration of the load. The backup reads everything twice; the first pass warms the caches, as the paper
/// does with its trace.
const DURATION: Nanos = Nanos::secs(439);

/// A row of the published table.
struct Row {
    policy: Policy,
    /// Size of the cache, in percent of the critical size.
    percent: u32,
    /// Flash in GiB, of which 20 % are in reserve.
    size: f64,
    /// Reads that hit, in GiB.
    read: f64,
    /// Share of reads that hit.
    hits: f64,
    clwa: f64,
}

/// An admission policy: its name in the paper, and its name in weir.
type Policy = (&'static str, &'static str);
const ALL: Policy = ("ADMIT_ALL", "all");
const SSEQR: Policy = ("SSEQR", "sequential");
const TC: Policy = ("TC", "touch_count");
const SSEQR_TC: Policy = ("SSEQR+TC", "sequential+touch_count");
const POLICIES: [Policy; 4] = [ALL, SSEQR, TC, SSEQR_TC];
const PERCENT: [u32; 3] = [50, 70, 90];

const fn row(policy: Policy, percent: u32, [size, read, hits, clwa]: [f64; 4]) -> Row {
    Row { policy, percent, size, read, hits, clwa }
}

const PUBLISHED: [Row; 12] = [
    row(ALL, 50, [135.91, 84.40, 0.4126, 7.73]),
    row(ALL, 70, [190.28, 170.40, 0.6205, 5.39]),
    row(ALL, 90, [244.64, 279.50, 0.8708, 2.42]),
    row(SSEQR, 50, [76.66, 71.71, 0.2086, 4.38]),
    row(SSEQR, 70, [107.33, 132.21, 0.4789, 3.17]),
    row(SSEQR, 90, [138.0, 200.38, 0.7901, 1.70]),
    row(TC, 50, [64.83, 44.33, 0.1922, 4.60]),
    row(TC, 70, [90.76, 85.87, 0.3466, 3.88]),
    row(TC, 90, [116.69, 149.21, 0.5566, 2.60]),
    row(SSEQR_TC, 50, [53.57, 56.75, 0.1521, 3.72]),
    row(SSEQR_TC, 70, [75.0, 98.43, 0.3261, 3.02]),
    row(SSEQR_TC, 90, [96.43, 150.94, 0.5734, 1.97]),
];

/// Results of the caches, by name.
#[derive(Debug, Default)]
pub(super) struct Caches(BTreeMap<String, CacheOutcome>);

fn name(policy: Policy, percent: u32) -> String {
    format!("{}, {percent} %", policy.1)
}

impl Caches {
    /// Returns results in which every figure is 1.
    #[cfg(test)]
    pub(super) fn all_ones() -> Self {
        let counts = weir_sim::cache::Counts { accesses: 1, requests: 1, bytes: 1, ..Default::default() };
        let outcome =
            CacheOutcome { size_blocks: 1, reads: counts, writes: counts, written: 1, ..Default::default() };
        let names = POLICIES.into_iter().flat_map(|policy| PERCENT.map(|percent| name(policy, percent)));
        Self(names.map(|name| (name, outcome.clone())).collect())
    }
}

impl Experiments for Caches {
    fn document(&self) -> Vec<ExperimentPart> {
        let one = |(name, outcome): (&String, &CacheOutcome)| {
            let outcome = OutcomePart::Cache(Box::new(outcome.into()));
            ExperimentPart { name: name.clone(), outcome }
        };
        self.0.iter().map(one).collect()
    }

    fn table(&self, width: Width) -> String {
        let heading = ["EXPERIMENT", "SIZE", "READ HITS", "OF BYTES", "FILLED", "EVICTED", "CLWA"];
        let row = |(name, outcome): (&String, &CacheOutcome)| {
            [
                name.clone(),
                outcome.size().to_string(),
                format!("{:.1} %", outcome.reads.request_hit_ratio() * 100.0),
                format!("{:.1} %", outcome.reads.byte_hit_ratio() * 100.0),
                outcome.filled.to_string(),
                outcome.evicted.to_string(),
                outcome.clwa().map_or("-".into(), |clwa| format!("{clwa:.2}")),
            ]
        };
        table(width, heading, self.0.iter().map(row))
    }
}

/// Replays the trace on all caches, or on those that `--only` names.
fn run(args: &ReproArgs) -> Result<Caches, Failure> {
    let wanted: Vec<_> = POLICIES
        .into_iter()
        .flat_map(|policy| PERCENT.map(|percent| (policy, percent)))
        .filter(|(policy, percent)| {
            args.only.as_ref().is_none_or(|only| name(*policy, *percent).contains(only))
        })
        .collect();
    progress::during(&format!("{} caches of a database beside its backup", wanted.len()), || {
        let trace = Trace::new(args)?;
        let play = |(policy, percent): &(Policy, u32)| {
            let outcome = trace.play(policy.1, *percent);
            let missing =
                || Failure::environment(format!("there is no admission policy {}", policy.1), REPORT_DEFECT);
            outcome.map(|outcome| (name(*policy, *percent), outcome)).ok_or_else(missing)
        };
        let outcomes = parallel::map(&wanted, parallel::cores(), &parallel::Stop::default(), play)?;
        Ok(Caches(outcomes.into_iter().collect()))
    })
}

/// The trace, and the critical size of each admission policy in the part of the trace that counts.
struct Trace {
    blocks: BlockTrace,
    /// Number of requests that warm the caches.
    warm_up: usize,
    critical: Vec<(&'static str, u64)>,
}

impl Trace {
    fn new(args: &ReproArgs) -> Result<Self, Failure> {
        let failure = |error: String| Failure::from_message(ErrorKind::Usage, &error);
        let mut load = parse(LOAD, args.seed, pool_file::size, pool_file::duration)
            .map_err(|error| failure(error.to_string()))?;
        let lasts = args.duration.unwrap_or(DURATION);
        let mut loader = Loader::default();
        let mut analyzer = Analyzer::new(Settings { blocks: u32::MAX, ..Settings::default() });
        let (mut now, mut warm_up) = (Nanos(0), 0);
        loop {
            let asked = load.next_arrival(now);
            now = asked.at;
            if now >= lasts {
                break;
            }
            let record =
                Record { at: now, disk: Disk(0), op: asked.op, offset: asked.offset, len: asked.len };
            loader.take(&record);
            if now.0 < lasts.0 / 2 {
                warm_up += 1;
            } else {
                analyzer.take(&record);
            }
        }
        let blocks = loader.finish().map_err(|error| failure(error.to_string()))?;
        let (analysis, _) = analyzer.finish().map_err(|error| failure(error.to_string()))?;
        let critical = analysis.critical.iter().map(|one| (one.admission, one.blocks)).collect();
        Ok(Self { blocks, warm_up, critical })
    }

    /// Replays the trace on a cache that evicts the least recently written block, as in the paper. Returns
    /// `None` if weir has no such policy.
    fn play(&self, admission: &str, percent: u32) -> Option<CacheOutcome> {
        let (_, critical) = self.critical.iter().find(|(policy, _)| *policy == admission)?;
        let setup = Setup {
            eviction: EvictionPolicy::by_name("lrw")?,
            admission: AdmissionPolicy::by_name(admission)?,
            capacity: (critical * u64::from(percent) / 100) as u32,
            mode: WriteMode::Through,
        };
        Some(play_warmed(&self.blocks, &setup, self.warm_up))
    }
}

/// A column of the table.
struct Column {
    name: &'static str,
    published: fn(&Row) -> f64,
    measured: fn(&CacheOutcome) -> f64,
}

const SIZE: Column = Column {
    name: "critical size",
    published: |row| row.size,
    measured: |outcome| f64::from(outcome.size_blocks),
};
const CLWA: Column = Column {
    name: "CLWA",
    published: |row| row.clwa,
    measured: |outcome| outcome.clwa().unwrap_or(f64::NAN),
};
const HITS: Column =
    Column { name: "hits", published: |row| row.hits, measured: |outcome| outcome.reads.request_hit_ratio() };
const READ: Column = Column {
    name: "bytes hit",
    published: |row| row.read,
    measured: |outcome| (outcome.reads.bytes - outcome.reads.missed_bytes) as f64,
};

/// Returns ratios of cells of the table: one policy at one size to another policy or size.
fn figures(caches: &Caches) -> Vec<Figure> {
    let cell = |(policy, percent): (Policy, u32), column: &Column| {
        let row = PUBLISHED.iter().find(|row| row.policy == policy && row.percent == percent);
        let here = caches.0.get(&name(policy, percent));
        (row.map_or(f64::NAN, column.published), here.map_or(f64::NAN, column.measured))
    };
    let ratio = |what: String, column: &Column, one, other| {
        let ((published, here), (to_published, to_here)) = (cell(one, column), cell(other, column));
        Figure::new(what, Size(published / to_published), here / to_here)
    };
    // Each policy is paired with every policy above it in the table.
    let pairs = || (1..4).flat_map(|one| (0..one).map(move |other| (POLICIES[one], POLICIES[other])));
    let mut all: Vec<_> = pairs()
        .map(|(one, other)| {
            ratio(format!("{}: {} to {}", SIZE.name, one.0, other.0), &SIZE, (one, 90), (other, 90))
        })
        .collect();
    for column in [&CLWA, &HITS] {
        for (percent, (one, other)) in
            PERCENT.into_iter().flat_map(|percent| pairs().map(move |pair| (percent, pair)))
        {
            let what = format!("{}, {percent} % of that: {} to {}", column.name, one.0, other.0);
            all.push(ratio(what, column, (one, percent), (other, percent)));
        }
    }
    for (percent, policy) in
        PERCENT.into_iter().flat_map(|percent| [SSEQR, TC, SSEQR_TC].map(|policy| (percent, policy)))
    {
        let what = format!("{}, {percent} %: {} to {}", READ.name, policy.0, ALL.0);
        all.push(ratio(what, &READ, (policy, percent), (ALL, percent)));
    }
    for (column, policy) in
        [&CLWA, &HITS].into_iter().flat_map(|column| POLICIES.map(|policy| (column, policy)))
    {
        let what = format!("{}, {}: 90 % to 50 %", column.name, policy.0);
        all.push(ratio(what, column, (policy, 90), (policy, 50)));
    }
    for column in [&CLWA, &HITS] {
        let what = format!("{}, caches of like size: {} at 90 % to {} at 50 %", column.name, SSEQR.0, ALL.0);
        all.push(ratio(what, column, (SSEQR, 90), (ALL, 50)));
    }
    all
}
