//! Reproduces flash caches with selective admission (HEC, the dissertation's chapter 3): a database beside
//! its backup, four admission policies, and caches of 50, 70 and 90 % of the critical size of each policy.
//!
//! The paper's trace is not available. The reproduction uses `oltp+backup` of
//! [`weir_sim::load::NAMED_LOADS`], which anybody can generate.

use super::args::ReproArgs;
use super::results::{ExperimentId, Results, ResultsFile, of_cache};
use super::{Form, Measures, Reproduction};
use crate::failure::{Failure, REPORT_DEFECT};
use crate::{parallel, pool_file, progress};
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
    data: include_str!("data/hec_admission.toml"),
    measures: Measures::Caches(run),
    notes: |_| Vec::new(),
};

const LOAD: &str = "oltp+backup";
/// Duration of the load. The backup reads everything twice; the first pass warms the caches, as the paper
/// does with its trace.
const DURATION: Nanos = Nanos::secs(439);

/// An admission policy: its name in the paper, and its name in weir.
type Policy = (&'static str, &'static str);
const ALL: Policy = ("ADMIT_ALL", "all");
const SSEQR: Policy = ("SSEQR", "sequential");
const TC: Policy = ("TC", "touch_count");
const SSEQR_TC: Policy = ("SSEQR+TC", "sequential+touch_count");
const POLICIES: [Policy; 4] = [ALL, SSEQR, TC, SSEQR_TC];
const PERCENT: [u32; 3] = [50, 70, 90];

fn name(policy: Policy, percent: u32) -> String {
    format!("{}, {percent} %", policy.1)
}

/// Returns the names of all experiments.
#[cfg(test)]
pub(super) fn names() -> Vec<String> {
    POLICIES.into_iter().flat_map(|policy| PERCENT.map(|percent| name(policy, percent))).collect()
}

/// Replays the trace of each seed on all caches, or on those that `--only` names.
fn run(args: &ReproArgs, form: &Form, file: &ResultsFile) -> Result<Results, Failure> {
    let selected: Vec<_> = POLICIES
        .into_iter()
        .flat_map(|policy| PERCENT.map(|percent| (policy, percent)))
        .filter(|(policy, percent)| {
            args.only.as_ref().is_none_or(|only| name(*policy, *percent).contains(only))
        })
        .collect();
    let duration = args.duration.unwrap_or(DURATION);
    let mut results = Results::default();
    for &seed in &form.seeds {
        let trace = std::sync::OnceLock::new();
        let play = |(policy, percent): &(Policy, u32)| {
            let experiment = name(*policy, *percent);
            let id = ExperimentId { experiment, seed, duration_ns: duration.0 };
            let missing =
                || Failure::environment(format!("there is no admission policy {}", policy.1), REPORT_DEFECT);
            let metrics = file.get_or_run(&id, || {
                let trace = trace.get_or_init(|| Trace::new(seed, duration)).as_ref();
                let outcome = trace.map_err(Failure::clone)?.play(policy.1, *percent);
                outcome.map(|outcome| of_cache(&outcome)).ok_or_else(missing)
            })?;
            Ok::<_, Failure>((id, metrics))
        };
        let what = format!("{} caches of a database beside its backup, seed {seed}", selected.len());
        let outcomes = progress::during(&what, || {
            parallel::map(&selected, parallel::cores(), &parallel::Stop::default(), play)
        })?;
        outcomes.into_iter().for_each(|(id, metrics)| results.add(id, metrics));
    }
    Ok(results)
}

/// The trace, and the critical size of each admission policy in the part of the trace that counts.
struct Trace {
    blocks: BlockTrace,
    /// Number of requests that warm the caches.
    warm_up: usize,
    critical: Vec<(&'static str, u64)>,
}

impl Trace {
    fn new(seed: u64, duration: Nanos) -> Result<Self, Failure> {
        let failure = |error: String| Failure::from_message(ErrorKind::Usage, &error);
        let mut load = parse(LOAD, seed, pool_file::size, pool_file::duration)
            .map_err(|error| failure(error.to_string()))?;
        let mut loader = Loader::default();
        let mut analyzer = Analyzer::new(Settings { blocks: u32::MAX, ..Settings::default() });
        let (mut now, mut warm_up) = (Nanos(0), 0);
        loop {
            let asked = load.next_arrival(now);
            now = asked.at;
            if now >= duration {
                break;
            }
            let record =
                Record { at: now, disk: Disk(0), op: asked.op, offset: asked.offset, len: asked.len };
            loader.take(&record);
            if now.0 < duration.0 / 2 {
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
