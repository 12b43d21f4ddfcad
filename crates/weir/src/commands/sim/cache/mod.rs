//! `weir sim cache` replays traces on many caches, on as many threads as there are cores.

mod args;
mod flash_args;
mod report;
mod results_file;

pub use args::{AdmissionArgs, CacheArgs};
pub use flash_args::{FlashCacheArgs, WarmUpShare};

use crate::failure::Failure;
use crate::output::Width;
use crate::parallel::{self, Stop};
use crate::progress;
use crate::traces;
use flash_args::{OnFlash, settings_key};
use results_file::{Key, ResultsFile, sha256};
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_model::{Bytes, ErrorKind};
use weir_sim::cache::COUNTING_VERSION;
use weir_sim::cache::{
    AdmissionPolicy, BlockTrace, CacheConfig, CacheFigures, EvictionPolicy, WriteMode, passes, play_pass,
};
use weir_sim::flash_cache::{self, FlashFigures};
use weir_trace::Tally;

/// The results of all traces and caches.
#[derive(Debug)]
pub(super) struct CacheComparison {
    mode: WriteMode,
    /// Results by trace; within a trace by policy, admission and size, in the order of the command line.
    results: Vec<Vec<Played>>,
}

/// The result of a trace with one cache.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Result")]
struct Played {
    /// Path of the trace.
    trace: String,
    /// What of the trace could not be read or used as it is; absent if there is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Distinct blocks of the trace.
    blocks: u32,
    /// Size of a block.
    block_bytes: u64,
    #[serde(flatten)]
    figures: CacheFigures,
    /// The flash below the cache; absent if `--flash` is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flash: Option<FlashFigures>,
    /// Processor time in seconds to play the trace to this cache; caches played in one pass share its time.
    cpu_seconds: f64,
}

/// The document of `weir sim cache`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir sim cache")]
pub(crate) struct CacheDocument<'a> {
    /// The traces, in the order of the command line.
    traces: Vec<TracePart<'a>>,
    /// Where writes go: `through`, `around` or `back`.
    write_mode: &'static str,
    /// Share of a cache that may be dirty, 0 to 1; `null` unless `write_mode` is `back`.
    dirty_ratio: Option<f64>,
    /// A result for each trace, eviction policy, admission policy and size, in the order of the command line;
    /// on flash also for each kind of eviction, victim policy and write budget.
    results: Vec<&'a Played>,
}

/// A trace.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Trace")]
struct TracePart<'a> {
    /// Path of the trace.
    trace: &'a str,
    /// What of the trace could not be read or used as it is.
    notes: &'a [String],
    /// Distinct blocks.
    blocks: u32,
    /// Size of a block.
    block_bytes: u64,
    /// Accesses: one for each block of each request.
    accesses: u64,
    /// Requests.
    requests: u64,
}

/// A trace and the caches to replay it on.
struct Job<'a> {
    path: &'a Path,
    /// The caches, each with the key of its result; `None` if results are not kept.
    caches: Vec<(Cache, Option<Key>)>,
}

/// A cache, possibly on flash.
#[derive(Clone, Copy, Debug)]
struct Cache {
    config: CacheConfig,
    flash: Option<OnFlash>,
}

/// Replays every trace on every cache. Takes results from the file of results if it has them.
///
/// # Errors
/// Fails if a trace or the file of results cannot be used. The file keeps the results known by then.
pub(super) fn run(args: &CacheArgs) -> Result<CacheComparison, Failure> {
    check(args)?;
    let kept = args.out.as_deref().map(ResultsFile::open).transpose()?;
    let mut jobs = Vec::new();
    for path in &args.traces {
        let sha256 = kept.is_some().then(|| sha256(path)).transpose()?;
        let with_key = |cache| (cache, sha256.as_deref().map(|sha256| key(args, sha256, &cache)));
        jobs.push(Job { path, caches: caches(args).into_iter().map(with_key).collect() });
    }
    let results = run_jobs(args, &jobs, kept)?;
    Ok(CacheComparison { mode: mode(args), results })
}

/// Refuses arguments that contradict each other, whatever the traces are.
fn check(args: &CacheArgs) -> Result<(), Failure> {
    if !args.size.iter().all(|size| size.fits(args.block_size)) {
        let block = args.block_size.bytes();
        return Err(Failure::usage(
            format!("--size names a cache too small or too large for blocks of {block}"),
            format!("name sizes from {block} to {}", Bytes(u64::from(u32::MAX) * block.0)),
        ));
    }
    if args.dirty.is_some() && mode(args).dirty().is_none() {
        return Err(Failure::usage(
            format!("--dirty is for caches that are written back, and --write-mode is {}", args.write_mode),
            "add --write-mode back, or leave --dirty away",
        ));
    }
    let touches = args.admission_settings.settings().touches;
    if u64::from(touches.threshold) > touches.touches_max() {
        return Err(Failure::usage(
            format!("{} touches are more than {} can be counted", touches.threshold, touches.touches_max()),
            "raise --touch-bits or --touch-maps, or lower --touches",
        ));
    }
    let standard = |path: &&PathBuf| path.as_os_str() == traces::STANDARD_STREAM;
    if args.out.is_some() && args.traces.iter().any(|path| standard(&path)) {
        return Err(Failure::usage(
            "results of a trace on standard input cannot be kept, because nothing identifies the trace",
            "save the trace to a file, or leave --out away",
        ));
    }
    Ok(())
}

/// Default of `--dirty`, as a share of the cache.
const DIRTY: f64 = 0.5;

fn mode(args: &CacheArgs) -> WriteMode {
    // The argument parser accepts no other name, so the default is never used.
    WriteMode::named(&args.write_mode, args.dirty.unwrap_or(DIRTY)).unwrap_or(WriteMode::Through)
}

fn caches(args: &CacheArgs) -> Vec<Cache> {
    let settings = args.admission_settings.settings();
    let on_flash: Vec<_> = match args.on_flash.flash {
        true => args.on_flash.all().into_iter().map(Some).collect(),
        false => vec![None],
    };
    let (mut caches, mode) = (Vec::new(), mode(args));
    for (nth, eviction) in args.policy.iter().filter_map(|name| EvictionPolicy::by_name(name)).enumerate() {
        for admission in args.admission.iter().filter_map(|name| AdmissionPolicy::by_name(name)) {
            for size in &args.size {
                let config = CacheConfig { eviction, admission, settings, size: *size, mode };
                // The policies of the cache do not matter to garbage collection.
                let counts = |flash: &&Option<OnFlash>| nth == 0 || !flash.is_some_and(OnFlash::is_by_gc);
                caches.extend(on_flash.iter().filter(counts).map(|flash| Cache { config, flash: *flash }));
            }
        }
    }
    caches
}

fn key(args: &CacheArgs, sha256: &str, cache: &Cache) -> Key {
    let Cache { config, flash } = cache;
    Key {
        weir: format!("{}+{COUNTING_VERSION}", env!("CARGO_PKG_VERSION")),
        trace_sha256: sha256.into(),
        format: args.format.as_ref().map(|format| format.name.clone().into_owned()),
        strict: args.strict,
        block_bytes: args.block_size.bytes().0,
        policy: config.eviction.name.into(),
        admission: config.admission.name.into(),
        size: config.size.to_string(),
        write_mode: args.write_mode.clone(),
        dirty: config.mode.dirty().map(|dirty| dirty.to_string()),
        admission_settings: settings_key(&config.settings),
        flash: flash.map(|flash| args.on_flash.key(flash)),
    }
}

/// Replays as many traces at the same time as there are threads. With fewer traces, it replays several caches
/// of each trace at the same time.
fn run_jobs(
    args: &CacheArgs,
    jobs: &[Job<'_>],
    kept: Option<ResultsFile>,
) -> Result<Vec<Vec<Played>>, Failure> {
    let known = |job: &Job<'_>, key: &Option<Key>| {
        let played = kept.as_ref()?.get(key.as_ref()?)?;
        // The kept result may be from a file with the same contents and another name.
        Some(Played { trace: job.path.display().to_string(), ..played.clone() })
    };
    let of_job = |job: &Job<'_>| job.caches.iter().map(|(_, key)| known(job, key)).collect();
    let mut results: Vec<Vec<_>> = jobs.iter().map(of_job).collect();
    let missing = |job: usize| results[job].iter().enumerate().filter(|(_, known)| known.is_none());
    let todo: Vec<(usize, Vec<usize>)> =
        (0..jobs.len()).map(|job| (job, missing(job).map(|(at, _)| at).collect())).collect();
    let todo: Vec<_> = todo.into_iter().filter(|(_, caches)| !caches.is_empty()).collect();

    let threads = args.threads.unwrap_or_else(parallel::cores);
    let at_once = threads.min(todo.len()).max(1);
    let kept = Mutex::new(kept);
    let bar = progress::bar(todo.iter().map(|(_, caches)| caches.len()).sum(), "caches");
    bar.tick();
    let stop = Stop::default();
    let done = parallel::map(&todo, at_once, &stop, |(job, caches)| {
        let job = &jobs[*job];
        play_job(args, job, caches, ((threads / at_once).max(1), &stop), |at, played| {
            bar.inc(1);
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *kept, &job.caches[at].1) {
                (Some(kept), Some(key)) => kept.add(key, played),
                _ => Ok(()),
            }
        })
    });
    bar.finish_and_clear();
    for ((job, _), played) in todo.iter().zip(done?) {
        for (at, played) in played {
            results[*job][at] = Some(played);
        }
    }
    Ok(results.into_iter().map(|caches| caches.into_iter().flatten().collect()).collect())
}

/// Replays a trace on these of its caches and calls `tell` with each result. Starts no other cache once
/// `stop` is set.
fn play_job(
    args: &CacheArgs,
    job: &Job<'_>,
    caches: &[usize],
    (threads, stop): (usize, &Stop),
    tell: impl Fn(usize, &Played) -> Result<(), Failure> + Sync,
) -> Result<Vec<(usize, Played)>, Failure> {
    let (trace, tally) = load(job.path, args)?;
    let notes = tally.notes(trace.requests());
    let played = |at: usize, figures, flash, took: f64| {
        let played = Played {
            trace: job.path.display().to_string(),
            notes: notes.clone(),
            blocks: trace.blocks(),
            block_bytes: trace.block().bytes().0,
            figures,
            flash,
            cpu_seconds: took,
        };
        tell(at, &played)?;
        Ok((at, played))
    };
    if args.on_flash.flash {
        let on_flash = caches.iter().filter_map(|at| Some((*at, job.caches[*at].0.flash?)));
        let on_flash: Vec<_> = on_flash.collect();
        return parallel::map(&on_flash, threads, stop, |(at, on)| {
            let config = &job.caches[*at].0.config;
            let start = thread_time();
            let outcome = flash_cache::play(&trace, &args.on_flash.cache(config, *on, &trace));
            let outcome =
                outcome.map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))?;
            let took = thread_time().saturating_sub(start).as_secs_f64();
            played(*at, (&outcome.cache).into(), Some(outcome.flash), took)
        });
    }
    let setups: Vec<_> = caches.iter().map(|at| job.caches[*at].0.config.setup(&trace)).collect();
    let done = parallel::map(&passes(&setups), threads, stop, |pass| {
        let of_pass: Vec<_> = pass.iter().map(|at| setups[*at]).collect();
        let start = thread_time();
        let outcomes = play_pass(&trace, &of_pass);
        let took = thread_time().saturating_sub(start).as_secs_f64() / pass.len() as f64;
        let all =
            pass.iter().zip(&outcomes).map(|(at, outcome)| played(caches[*at], outcome.into(), None, took));
        all.collect::<Result<Vec<_>, Failure>>()
    });
    Ok(done?.into_iter().flatten().collect())
}

fn load(path: &Path, args: &CacheArgs) -> Result<(BlockTrace, Tally), Failure> {
    let reader = traces::open(path, args.format.as_ref(), "name a file")?;
    let read = BlockTrace::read(reader, args.block_size, args.strict);
    read.map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))
}

/// Returns the processor time of this thread. Other work on the machine changes it little.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl<'a> From<&'a Played> for TracePart<'a> {
    fn from(first: &'a Played) -> Self {
        Self {
            trace: &first.trace,
            notes: &first.notes,
            blocks: first.blocks,
            block_bytes: first.block_bytes,
            accesses: first.figures.all.counts.accesses,
            requests: first.figures.all.counts.requests,
        }
    }
}

impl CacheComparison {
    /// Returns the document that `--json` prints.
    pub(super) fn document(&self) -> CacheDocument<'_> {
        CacheDocument {
            traces: self
                .results
                .iter()
                .filter_map(|of_trace| of_trace.first())
                .map(TracePart::from)
                .collect(),
            write_mode: self.mode.name(),
            dirty_ratio: self.mode.dirty(),
            results: self.results.iter().flatten().collect(),
        }
    }

    /// Returns the text that is printed without `--json`: a table for each trace, with a row for each cache.
    pub(super) fn human(&self, width: Width) -> String {
        let mode = match self.mode {
            WriteMode::Through => "written through".to_owned(),
            WriteMode::Around => "written around".to_owned(),
            WriteMode::Back { dirty } => format!("written back, at most {} dirty", report::percent(dirty)),
        };
        let tables = self.results.iter().filter(|of_trace| !of_trace.is_empty());
        tables.map(|of_trace| report::text(of_trace, &mode, width)).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests;
