//! `weir sim logs` simulates a log on a log, such as a log-structured file system on flash: what the layers
//! write together.
//!
//! It converts the arguments to stacks of logs, one for each capacity ratio and pair of segment sizes.

mod args;
mod report;
#[cfg(test)]
mod tests;

pub use args::LogsArgs;

use super::loads::LoadSource;
use crate::failure::Failure;
use crate::files::{self, OutputKind};
use crate::{parallel, picture, progress};
use report::LogsComparison;
pub(crate) use report::LogsDocument;
use report::StackResult;
use weir_model::{Bytes, ErrorKind, Seed};
use weir_policy::reclaim::{self, ReclaimPolicy};
use weir_sim::SimError;
use weir_sim::logs::{
    DefragTime, Defragger, LayerPlan, LogMetadata, Repetition, StackPlan, StackPrecondition, data_size,
    simulate,
};

/// Default of `--upper-size`, in sizes of the load's data.
const UPPER_SIZE: f64 = 1.5;
/// Defaults of `--upper-segment` and `--lower-segment`, for logs of [`SEGMENTS_MIN`] of them or more.
const UPPER_SEGMENT: Bytes = Bytes::mib(2);
const LOWER_SEGMENT: Bytes = Bytes::mib(8);
/// The fewest segments of a log by default: cleaning a few large ones gains no space.
const SEGMENTS_MIN: u64 = 16;

/// What differs between stacks.
#[derive(Clone, Copy, Debug)]
struct Variant {
    ratio: f64,
    upper_segment: Bytes,
    lower_segment: Bytes,
}

/// Simulates the stacks.
///
/// # Errors
/// Fails if the load is invalid, or if no stack can be simulated.
pub(super) fn run(args: &LogsArgs) -> Result<LogsComparison, Failure> {
    args.plot.iter().try_for_each(|path| files::refuse_foreign_content(path, OutputKind::Picture))?;
    let mut source = LoadSource::read(&args.load, &args.trace_options)?;
    if !source.is_timed() && args.defrag_idle.is_some() {
        let help = "run the defragger after so many overwrites of the data: --defrag-every 1";
        return Err(Failure::usage(format!("{} has no times", args.load), help));
    }
    let total: f64 = args.divide.iter().sum();
    if !args.divide.is_empty() && (total - 1.0).abs() > 1e-6 {
        let message = format!("the shares of --divide add up to {:.1} %", total * 100.0);
        return Err(Failure::usage(message, "give shares that add up to 100 %, such as 10%,90%"));
    }
    let data = data_size(&*source.new_load(1.0, args.seed)?);
    let variants = variants(args, data);
    let what = format!("{} stacks of logs in virtual time", variants.len());
    let one = |variant: &Variant| {
        let plan = plan(args, *variant, data);
        let mut load = source.new_load(1.0, args.seed)?;
        let segments = plan.layers.iter().map(|layer| layer.segment.0).collect();
        let outcome = simulate(&mut *load, &plan);
        Ok::<_, Failure>((
            StackResult {
                capacity_ratio: variant.ratio,
                segment_bytes: segments,
                outcome: None,
                error: None,
            },
            outcome,
        ))
    };
    let stop = parallel::Stop::default();
    let done = progress::during(&what, || parallel::map(&variants, parallel::cores(), &stop, one))?;
    let results = results(done)?;
    let comparison = LogsComparison::new(args, data, source.take_notes(), results);
    if let Some(path) = &args.plot {
        picture::write(path, &comparison.svg())?;
    }
    Ok(comparison)
}

/// Adds outcomes and errors to the results.
///
/// # Errors
/// Fails with the first error if no stack could be simulated.
fn results(
    done: Vec<(StackResult, Result<weir_sim::logs::StackOutcome, SimError>)>,
) -> Result<Vec<StackResult>, Failure> {
    let mut results = Vec::new();
    let mut first_error = None;
    for (mut result, outcome) in done {
        match outcome {
            Ok(outcome) => result.outcome = Some(outcome),
            Err(error) => {
                result.error = Some(error.to_string());
                first_error.get_or_insert(error);
            }
        }
        results.push(result);
    }
    match first_error {
        Some(error) if results.iter().all(|result| result.outcome.is_none()) => Err(failure(&error)),
        _ => Ok(results),
    }
}

/// Returns the failure for a stack that cannot be simulated. The way out names the options of the layer.
fn failure(error: &SimError) -> Failure {
    let text = error.to_string();
    let (SimError::LogTooSmall { layer, .. } | SimError::StackedLog { layer, .. }) = error else {
        return Failure::from_message(ErrorKind::Usage, &text);
    };
    let (message, _) = text.rsplit_once("; ").or(text.rsplit_once(": ")).unwrap_or((&text, ""));
    let help = match layer {
        1 => "raise --upper-size, or lower --upper-segment or --reserve",
        2 => "lower --lower-segment, --ratio or --reserve, or raise --lower-size",
        _ => "lower --ratio or --reserve, or give --layer smaller segments",
    };
    Failure::usage(message, format!("{help}: weir sim logs --help"))
}

fn variants(args: &LogsArgs, data: Bytes) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &ratio in &args.ratio {
        let [upper, lower] = sizes(args, ratio, data);
        let upper_logs = args.divide.len().max(args.upper_logs as usize);
        let upper = segments(&args.upper_segment, UPPER_SEGMENT, upper.0 / upper_logs as u64, args.page);
        let lower =
            segments(&args.lower_segment, LOWER_SEGMENT, lower.0 / u64::from(args.lower_logs), args.page);
        for &upper_segment in &upper {
            let of_lower = lower.iter();
            variants.extend(of_lower.map(|&lower_segment| Variant { ratio, upper_segment, lower_segment }));
        }
    }
    variants
}

/// Returns the given segment sizes, or else the default for a log of this size.
fn segments(given: &[Bytes], default: Bytes, log: u64, page: Bytes) -> Vec<Bytes> {
    if given.is_empty() {
        let most = (log / SEGMENTS_MIN).max(2 * page.0);
        vec![Bytes(default.0.min(most - most % page.0))]
    } else {
        given.to_vec()
    }
}

/// Returns the sizes of the first two layers.
fn sizes(args: &LogsArgs, ratio: f64, data: Bytes) -> [Bytes; 2] {
    let upper = match (args.upper_size, args.lower_size) {
        (Some(size), _) => size,
        (None, Some(lower)) => Bytes((lower.0 as f64 * (1.0 - args.reserve) * ratio).round() as u64),
        (None, None) => Bytes((data.0 as f64 * UPPER_SIZE).round() as u64),
    };
    let lower = args.lower_size.unwrap_or_else(|| LayerPlan::size_for_ratio(upper, ratio, args.reserve));
    [upper, lower]
}

fn policy(name: &str) -> &'static ReclaimPolicy {
    // The argument parser accepts no other name.
    reclaim::by_name(name).unwrap_or(&reclaim::ALL[0])
}

fn precondition(name: &str) -> StackPrecondition {
    // The argument parser accepts no other name.
    StackPrecondition::ALL.iter().find(|(known, _)| *known == name).map(|(_, how)| *how).unwrap_or_default()
}

/// Returns the plan of a stack.
fn plan(args: &LogsArgs, variant: Variant, data: Bytes) -> StackPlan {
    let [upper_size, lower_size] = sizes(args, variant.ratio, data);
    let of_divide =
        if args.divide.is_empty() { vec![1.0; args.upper_logs as usize] } else { args.divide.clone() };
    let upper = LayerPlan {
        size: upper_size,
        segment: variant.upper_segment,
        shares: of_divide,
        reserve: args.reserve,
        policy: policy(&args.policy),
        metadata: LogMetadata {
            summary: args.summary,
            journal_every: args.journal,
            checkpoint_every: args.checkpoint,
            shift: 0,
        },
        trim: args.trim,
    };
    let lower_policy = policy(args.lower_policy.as_ref().unwrap_or(&args.policy));
    let mut size = upper_size;
    let mut layers = vec![upper.clone()];
    for (nth, &segment) in std::iter::once(&variant.lower_segment).chain(&args.layer).enumerate() {
        let is_first = nth == 0;
        size = match is_first {
            true => lower_size,
            false => LayerPlan::size_for_ratio(size, variant.ratio, args.reserve),
        };
        layers.push(LayerPlan {
            size,
            segment,
            shares: vec![1.0; if is_first { args.lower_logs as usize } else { 1 }],
            policy: lower_policy,
            metadata: LogMetadata { shift: if is_first { args.shift } else { 0 }, ..LogMetadata::default() },
            ..upper.clone()
        });
    }
    let time = match (args.defrag_idle, args.defrag_every) {
        (Some(idle), _) => Some(DefragTime::Idle(idle)),
        (None, every) => every.map(DefragTime::Every),
    };
    StackPlan {
        page: args.page,
        layers,
        defragger: time.map(|time| Defragger {
            time,
            share: args.defrag_share,
            classes: args.defrag_classes,
        }),
        precondition: precondition(&args.precondition),
        repetition: Repetition { warm_up_max: args.warm_up, measured: args.overwrites },
        seed: Seed(args.seed),
    }
}
