//! Reproduces logs on logs (the dissertation's chapter 4): the write amplification of two layers of logs, by
//! their segments, their capacities and the number of upper logs.
//!
//! The traces are not available. Their writes are synthetic, with the published amounts and request sizes;
//! what the publication leaves open is fitted. The experiments are those that rows name. Those on F2FS replay
//! recordings (`bench/record-f2fs`).

use super::parameters::{Parameters, unusable};
use super::results::{ExperimentId, Metrics, Results, finite};
use super::runner::Runner;
use super::{Measures, Reproduction, Setting};
use crate::failure::{Failure, REPORT_DEFECT};
use crate::pool_file;
use std::collections::BTreeMap;
use weir_model::{Bytes, ErrorKind, Nanos, Seed};
use weir_policy::reclaim;
use weir_sim::load::parse;
use weir_sim::logs::{
    LayerFigures, LayerPlan, LogMetadata, Repetition, StackOutcome, StackPlan, StackPrecondition, simulate,
};

mod experiment;
mod recordings;
#[cfg(test)]
mod tests;

use experiment::{Derived, Experiment, Stack, Uppers};
use recordings::{Device, Recorded};

pub(super) use recordings::Recordings;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "log-on-log",
    about: "a log on a log: write amplification of both, by segments and capacities",
    data: include_str!("data/log_on_log.toml"),
    measures: Measures::Logs(run),
    notes,
};

/// Metrics of an experiment with stacked logs.
#[cfg(test)]
pub(super) const LOG_METRICS: [&str; 10] = [
    "fswa",
    "flwa",
    "tcwa",
    "upper cleaning",
    "cleaning",
    "copied",
    "erases",
    "erased",
    "growth",
    "turning point",
];

fn notes(setting: &Setting) -> Vec<String> {
    let scale = setting.parameters.share("scale").map_or(1.0, |scale| 1.0 / scale);
    let mut notes = vec![
        format!("sizes and writes are 1/{scale:.0} of the published ones; --duration has no effect"),
        "the traces prn_0, prn_1 and tpce are not available: their writes are synthetic (see the parameters)"
            .into(),
    ];
    let all = REPRODUCTION
        .publication()
        .and_then(|publication| publication.parse_experiments(Experiment::parse))
        .unwrap_or_default();
    let recorded = all.values().filter_map(|experiment| match experiment {
        Experiment::Recorded(recorded) => Some(recorded),
        _ => None,
    });
    notes.extend(setting.recordings.notes(recorded));
    notes
}

/// Returns the unit of the published segments: MB are MiB, at the scale.
fn megabytes(p: &Parameters, count: u32) -> Result<Bytes, Failure> {
    Ok(Bytes((f64::from(count) * 1_048_576.0 * p.share("scale")?).round() as u64))
}

fn scaled(p: &Parameters, size: Bytes) -> Result<Bytes, Failure> {
    Ok(Bytes((size.0 as f64 * p.share("scale")?).round() as u64))
}

/// Returns a size in whole extents of 64 KiB, at least one.
fn extents(size: Bytes) -> u64 {
    ((size.0 as f64 / 65_536.0).round() as u64).max(1) * 65_536
}

/// What an experiment runs.
#[derive(Clone, Debug)]
struct Prepared {
    words: String,
    plan: StackPlan,
}

/// A load of writes: its words, its data and what it writes, at the scale.
struct Writes {
    words: String,
    data: Bytes,
    written: Bytes,
}

fn trace(p: &Parameters, name: &str) -> Result<Writes, Failure> {
    let nth = ["tpce", "prn_0", "prn_1"].iter().position(|known| *known == name).unwrap_or(0);
    let of = |what: &str| format!("{name}_{what}");
    let written = scaled(p, p.several_sizes::<3>("writes")?[nth])?;
    let data = Bytes(extents(scaled(p, p.size(&format!("written_of_{name}"))?)?));
    let [small, large]: [Bytes; 2] = p.several_sizes(&of("requests"))?;
    let [few, many]: [u64; 2] = p.counts(&of("request_weights"))?;
    let [short, long]: [u64; 2] = p.counts(&of("runs"))?;
    let [often, seldom]: [u64; 2] = p.counts(&of("run_weights"))?;
    let words = format!(
        "{} reads=0% size={}B:{few},{}B:{many} run={short}:{often},{long}:{seldom} over={}B",
        p.text("pattern")?,
        small.0,
        large.0,
        data.0
    );
    Ok(Writes { words, data, written })
}

fn layer(p: &Parameters, size: Bytes, segment: u32, shares: Vec<f64>) -> Result<LayerPlan, Failure> {
    let name = p.word("policy")?;
    let policy = reclaim::by_name(name)
        .ok_or_else(|| Failure::environment(format!("there is no victim policy {name}"), REPORT_DEFECT))?;
    Ok(LayerPlan {
        size,
        segment: megabytes(p, segment)?,
        shares,
        reserve: p.share("reserve")?,
        policy,
        metadata: LogMetadata::default(),
        trim: p.word("trim")? != "off",
    })
}

/// Returns how the logs are filled before the writes.
fn precondition(p: &Parameters) -> Result<StackPrecondition, Failure> {
    let name = p.word("precondition")?;
    let known = StackPrecondition::ALL.iter().find(|(known, _)| *known == name);
    known.map(|(_, how)| *how).ok_or_else(|| unusable("precondition", "is none of empty, fill and age"))
}

fn prepare(p: &Parameters, stack: &Stack, seed: u64) -> Result<Prepared, Failure> {
    let reserve = p.share("reserve")?;
    let plan = |writes: &Writes, layers| {
        Ok::<_, Failure>(StackPlan {
            page: p.size("page")?,
            layers,
            defragger: None,
            precondition: precondition(p)?,
            repetition: Repetition {
                warm_up_max: 0.0,
                measured: writes.written.0 as f64 / writes.data.0 as f64,
            },
            seed: Seed(seed),
        })
    };
    let (writes, upper_size, lower_size, shares, segments) = match stack {
        Stack::Trace { trace: name, uppers, ratio, segments } => {
            let writes = trace(p, name)?;
            let shares = match uppers {
                Uppers::Two => {
                    let first = p.share("division")?;
                    vec![first, 1.0 - first]
                }
                Uppers::LowerFixed | Uppers::UpperFixed | Uppers::One => vec![1.0],
            };
            let (upper, lower) = if *uppers == Uppers::LowerFixed {
                let lower = scaled(p, p.several_sizes::<2>("lower_size").map(|[size, _]| size)?)?;
                (Bytes((lower.0 as f64 * (1.0 - reserve) * ratio).round() as u64), lower)
            } else {
                let upper = Bytes((writes.data.0 as f64 * p.number("upper_size")?).round() as u64);
                (upper, LayerPlan::size_for_ratio(upper, *ratio, reserve))
            };
            (writes, upper, lower, shares, *segments)
        }
        Stack::Activity { logs } => {
            let (writes, shares) = activity(p, *logs)?;
            let upper = Bytes((writes.data.0 as f64 * p.number("upper_size")?).round() as u64);
            let lower = LayerPlan::size_for_ratio(upper, p.share("activity_ratio")?, reserve);
            let [of_upper, of_lower] = p.counts("activity_segments")?.map(|count: u64| count as u32);
            (writes, upper, lower, shares, (of_upper, of_lower))
        }
    };
    let layers =
        vec![layer(p, upper_size, segments.0, shares)?, layer(p, lower_size, segments.1, vec![1.0])?];
    let plan = plan(&writes, layers)?;
    Ok(Prepared { words: writes.words, plan })
}

/// Returns the load of metadata and data, and the share of each upper log.
fn activity(p: &Parameters, logs: u32) -> Result<(Writes, Vec<f64>), Failure> {
    let [data, written]: [Bytes; 2] = p.several_sizes("activity_data")?;
    let (data, written) = (scaled(p, data)?, scaled(p, written)?);
    let [share, of_writes]: [f64; 2] = p.shares("activity_metadata")?;
    let [hot, hits]: [f64; 2] = p.shares("activity_hot")?;
    let metadata = extents(Bytes((data.0 as f64 * share) as u64));
    let rest = extents(Bytes(data.0.saturating_sub(metadata)));
    let one = |over: u64, at: u64, rate: f64| {
        let at = if at == 0 { String::new() } else { format!(" at={at}B") };
        format!(
            "hotcold hot=first part={}% hits={}% reads=0% over={over}B{at} rate={:.0}",
            hot * 100.0,
            hits * 100.0,
            rate * 10_000.0
        )
    };
    let words = format!("{} & {}", one(metadata, 0, of_writes), one(rest, metadata, 1.0 - of_writes));
    let total = metadata + rest;
    let [metadata, rest] = [metadata, rest].map(|size| size as f64 / total as f64);
    // Hot, warm and cold.
    let parts = |of: f64| [of * hot, of * (1.0 - hot) / 2.0, of * (1.0 - hot) / 2.0];
    let shares = match logs {
        2 => vec![metadata, rest],
        3 => vec![metadata * hot, metadata * (1.0 - hot), rest],
        _ => [parts(metadata), parts(rest)].concat(),
    };
    Ok((Writes { words, data: Bytes(total), written }, shares))
}

/// Runs an experiment.
fn play(prepared: &Prepared, seed: u64) -> Result<StackOutcome, Failure> {
    let failure = |error: String| Failure::from_message(ErrorKind::Usage, &error);
    let mut load = parse(&prepared.words, seed, pool_file::size, pool_file::duration)
        .map_err(|error| failure(error.to_string()))?;
    simulate(&mut *load, &prepared.plan).map_err(|error| failure(error.to_string()))
}

fn metrics(outcome: &StackOutcome) -> Metrics {
    let [upper, lower] = &outcome.layers[..] else { return Metrics::new() };
    let user = outcome.user_pages as f64;
    // A cleaner that copied nothing counts as one that copied a page: 0 has no place among ratios.
    let copied =
        |layer: &LayerFigures| layer.logs.iter().map(|log| log.copied_pages).sum::<u64>().max(1) as f64;
    let erases: u64 = lower.logs.iter().map(|log| log.erases).sum();
    let segment = lower.logs.first().map_or(0, |log| log.segment_bytes);
    let values = [
        ("fswa", outcome.first_amplification),
        ("flwa", outcome.last_amplification),
        ("tcwa", outcome.total_amplification),
        ("upper cleaning", copied(upper) / user),
        ("cleaning", copied(lower) / lower.received_pages as f64),
        ("erases", erases as f64),
        ("erased", (erases * segment) as f64 / (user * outcome.page_bytes as f64)),
    ];
    finite(values.into_iter().map(|(name, value)| (name.to_owned(), value)))
}

/// Returns the names of all experiments.
///
/// # Errors
/// Fails if a parameter is unusable.
#[cfg(test)]
pub(super) fn names(setting: &Setting) -> Result<Vec<String>, Failure> {
    let all = REPRODUCTION.publication()?.parse_experiments(Experiment::parse)?;
    Device::new(&setting.parameters)?;
    for experiment in all.values() {
        for stack in experiment.stacks(&setting.parameters)? {
            prepare(&setting.parameters, &stack, 1)?;
        }
    }
    Ok(all.into_keys().collect())
}

/// Runs the experiments that rows need with each seed, or those that `--only` names; with a changed parameter
/// those that use it.
fn run(setting: &Setting, runner: &Runner<'_>) -> Result<Results, Failure> {
    let (p, publication) = (&setting.parameters, REPRODUCTION.publication()?);
    let mut selected = publication.parse_experiments(Experiment::parse)?;
    let changed = runner.variant.and_then(|variant| variant.split(" x ").next());
    let changed = changed.and_then(|name| publication.parameters.iter().find(|one| one.name == name));
    selected.retain(|name, _| {
        let is_selected = runner.selects(name) && changed.is_none_or(|parameter| parameter.is_used_by(name));
        is_selected && setting.recordings.can_run(name)
    });
    let mut stacks: BTreeMap<String, Stack> = BTreeMap::new();
    for experiment in selected.values() {
        stacks.extend(experiment.stacks(p)?.into_iter().map(|stack| (stack.to_string(), stack)));
    }
    let mut jobs = Vec::new();
    for &seed in runner.seeds {
        for (name, stack) in &stacks {
            jobs.push((seed, name.clone(), prepare(p, stack, seed)?));
        }
    }
    let work = |(seed, name, prepared): &(u64, String, Prepared)| {
        let id = ExperimentId::new(name, [None, runner.variant], *seed, Nanos(0));
        let metrics = runner.file.get_or_run(&id, || Ok(metrics(&play(prepared, *seed)?)))?;
        Ok::<_, Failure>(((*seed, name.clone()), metrics))
    };
    let done = runner.run(&format!("{} stacks of logs in virtual time", jobs.len()), &jobs, work)?;
    let done: BTreeMap<(u64, String), Metrics> = done.into_iter().collect();
    let mut results = recorded(setting, runner, &selected)?;
    for &seed in runner.seeds {
        let of = |stack: &Stack| done.get(&(seed, stack.to_string())).cloned().unwrap_or_default();
        for (name, experiment) in &selected {
            let metrics = match experiment {
                Experiment::NoAmplification => no_amplification(),
                Experiment::Stack(stack) => of(stack),
                Experiment::Recorded(_) => continue,
                Experiment::Derived(derived) => derived_metrics(derived, p, &of)?,
            };
            results.add(ExperimentId { experiment: name.clone(), seed, duration_ns: 0 }, metrics);
        }
        // Every ratio to the user's or the upper log's writes needs this one.
        if !selected.is_empty() && changed.is_none() {
            let id = ExperimentId { experiment: experiment::NO_AMPLIFICATION.into(), seed, duration_ns: 0 };
            results.add(id, no_amplification());
        }
    }
    Ok(results)
}

/// Replays the recordings of the selected experiments.
fn recorded(
    setting: &Setting,
    runner: &Runner<'_>,
    selected: &BTreeMap<String, Experiment>,
) -> Result<Results, Failure> {
    let of_recordings = selected.iter().filter_map(|(name, experiment)| match experiment {
        Experiment::Recorded(recorded) => Some((name, recorded)),
        _ => None,
    });
    let mut results = Results::default();
    let jobs: Vec<(u64, &String, &Recorded)> = runner
        .seeds
        .iter()
        .flat_map(|&seed| of_recordings.clone().map(move |(name, recorded)| (seed, name, recorded)))
        .collect();
    if jobs.is_empty() {
        return Ok(results);
    }
    let (device, recordings) = (Device::new(&setting.parameters)?, &setting.recordings);
    let work = |&(seed, name, recorded): &(u64, &String, &Recorded)| {
        // Not kept in the file of results: another directory may have other recordings by the same names.
        Ok::<_, Failure>((seed, name.clone(), device.play(recorded, recordings.read(recorded)?, seed)?))
    };
    for (seed, experiment, metrics) in runner.run(&format!("{} recordings", jobs.len()), &jobs, work)? {
        results.add(ExperimentId { experiment, seed, duration_ns: 0 }, metrics);
    }
    Ok(results)
}

fn no_amplification() -> Metrics {
    ["fswa", "flwa", "tcwa", "upper cleaning", "cleaning", "erased"].map(|name| (name.to_owned(), 1.0)).into()
}

fn derived_metrics(
    derived: &Derived,
    p: &Parameters,
    of: &impl Fn(&Stack) -> Metrics,
) -> Result<Metrics, Failure> {
    let tcwa = |stack: &Stack| of(stack).get("tcwa").copied().unwrap_or(f64::NAN);
    let stacks = Experiment::Derived(derived.clone()).stacks(p)?;
    let value = match derived {
        Derived::Growth { .. } => {
            let ends = stacks.first().zip(stacks.last());
            ("growth", ends.map_or(f64::NAN, |(first, last)| tcwa(last) / tcwa(first)))
        }
        // Pairs of the small and the large upper segment, for each lower segment.
        Derived::TurningPoint { .. } => {
            let turned = stacks.chunks(2).find(|pair| tcwa(&pair[1]) < tcwa(&pair[0]));
            // If none is better with the larger one, the turning point is beyond the last.
            let last = stacks.last().map_or(f64::NAN, |stack| 2.0 * f64::from(stack.lower_segment()));
            ("turning point", turned.map_or(last, |pair| f64::from(pair[0].lower_segment())))
        }
    };
    Ok(finite(std::iter::once((value.0.to_owned(), value.1))))
}
