//! Reproduces flash caches with selective admission (HEC, the dissertation's chapter 3): a database beside
//! its backup, four admission policies, and caches of 50, 70 and 90 % of the critical size of each policy.
//!
//! The paper's trace is not available. The reproduction uses `oltp+backup` of
//! [`weir_sim::load::NAMED_LOADS`], which anybody can generate.

use super::args::ReproArgs;
use super::parameters::Parameters;
use super::results::{ExperimentId, Results, ResultsFile, of_cache};
use super::{Measures, Reproduction, Setting};
use crate::failure::{Failure, REPORT_DEFECT};
use crate::{parallel, pool_file, progress};
use weir_model::{Bytes, ErrorKind, Nanos};
use weir_sim::analysis::{Analyzer, Settings};
use weir_sim::cache::{
    AdmissionPolicy, AdmissionSettings, BlockTrace, CacheOutcome, EvictionPolicy, Loader, Setup, WriteMode, play_warmed,
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

/// The named load that the parameters describe.
#[cfg(test)]
pub(super) const LOAD: &str = "oltp+backup";

/// Returns the words of the load: a database, and a backup that reads all of it.
pub(super) fn load_words(p: &Parameters) -> Result<String, Failure> {
    let percent = |name: &str| Ok::<_, Failure>(p.share(name)? * 100.0);
    let (data, database_rate, backup_rate) =
        (p.size("data")?.0, p.number("database_rate")?, p.number("backup_rate")?);
    let [page, extent]: [Bytes; 2] = p.several_sizes("database_request")?;
    let pages = p.count("pages_for_an_extent")?;
    Ok(format!(
        "hotcold hot=first part={}% hits={}% reads={}% size={}B:{pages},{}B:1 over={data}B \
         rate={database_rate} & scan size={}B pieces={}B over={data}B rate={backup_rate}",
        percent("in_use")?,
        percent("to_in_use")?,
        percent("reads")?,
        page.0,
        extent.0,
        p.blocks("backup_request")?.0,
        p.blocks("pieces")?.0,
    ))
}

/// An admission policy: its name in the paper, and its name in weir.
type Policy = (&'static str, &'static str);
const ALL: Policy = ("ADMIT_ALL", "all");
const SSEQR: Policy = ("SSEQR", "sequential");
const TC: Policy = ("TC", "touch_count");
const SSEQR_TC: Policy = ("SSEQR+TC", "sequential+touch_count");
const POLICIES: [Policy; 4] = [ALL, SSEQR, TC, SSEQR_TC];

fn name(policy: Policy, percent: u32) -> String {
    format!("{}, {percent} %", policy.1)
}

/// Returns the experiments: the policies and the sizes in percent of the critical size.
fn experiments(p: &Parameters) -> Result<Vec<(Policy, u32)>, Failure> {
    let sizes: [f64; 3] = p.shares("sizes")?;
    let percents = sizes.map(|size| (size * 100.0).round() as u32);
    Ok(POLICIES.into_iter().flat_map(|policy| percents.map(|percent| (policy, percent))).collect())
}

/// Returns the names of all experiments.
///
/// # Errors
/// Fails if a parameter is unusable.
#[cfg(test)]
pub(super) fn names(setting: &Setting) -> Result<Vec<String>, Failure> {
    let p = &setting.parameters;
    // A run reads these, too.
    load_words(p)?;
    p.share("warm_up")?;
    p.time("duration")?;
    Ok(experiments(p)?.into_iter().map(|(policy, percent)| name(policy, percent)).collect())
}

/// Replays the trace of each seed on all caches, or on those that `--only` names.
fn run(
    setting: &Setting,
    seeds: &[u64],
    variant: Option<&str>,
    args: &ReproArgs,
    file: &ResultsFile,
) -> Result<Results, Failure> {
    let p = &setting.parameters;
    let words = load_words(p)?;
    // The backup reads everything twice; the first pass warms the caches, as the paper does with its trace.
    let warm_up = p.share("warm_up")?;
    let mut selected = experiments(p)?;
    selected.retain(|(policy, percent)| {
        args.only.as_ref().is_none_or(|only| name(*policy, *percent).contains(only))
    });
    let duration = args.duration.map_or_else(|| p.time("duration"), Ok)?;
    let mut results = Results::default();
    for &seed in seeds {
        let trace = std::sync::OnceLock::new();
        let play = |(policy, percent): &(Policy, u32)| {
            let experiment = name(*policy, *percent);
            let id = ExperimentId::new(&experiment, [None, variant], seed, duration);
            let missing =
                || Failure::environment(format!("there is no admission policy {}", policy.1), REPORT_DEFECT);
            let metrics = file.get_or_run(&id, || {
                let trace = trace.get_or_init(|| Trace::new(&words, seed, duration, warm_up)).as_ref();
                let outcome = trace.map_err(Failure::clone)?.play(policy.1, *percent);
                outcome.map(|outcome| of_cache(&outcome)).ok_or_else(missing)
            })?;
            Ok::<_, Failure>((ExperimentId { experiment, ..id }, metrics))
        };
        let what = format!("{} caches of a database beside its backup, seed {seed}", selected.len());
        let outcomes = progress::during(&what, || {
            parallel::map(
                &selected,
                args.jobs.unwrap_or_else(parallel::cores),
                &parallel::Stop::default(),
                play,
            )
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
    fn new(words: &str, seed: u64, duration: Nanos, warm_up_share: f64) -> Result<Self, Failure> {
        let failure = |error: String| Failure::from_message(ErrorKind::Usage, &error);
        let mut load = parse(words, seed, pool_file::size, pool_file::duration)
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
            if now.as_secs_f64() < duration.as_secs_f64() * warm_up_share {
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
            settings: AdmissionSettings::default(),
            capacity: (critical * u64::from(percent) / 100) as u32,
            mode: WriteMode::Through,
        };
        Some(play_warmed(&self.blocks, &setup, self.warm_up))
    }
}
