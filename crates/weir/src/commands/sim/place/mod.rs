//! `weir sim place` replays a load on a simulated pool, under one placement policy or several, in virtual
//! time.
//!
//! It converts the arguments and the pool file to simulations.

mod args;
mod report;

pub use args::PlaceArgs;

use super::loads::LoadSource;
use crate::devices::PoolDescription;
use crate::failure::Failure;
use crate::files::{self, OutputKind};
use crate::{picture, progress};
use args::{RampRates, Scale};
use report::Comparison;
pub(crate) use report::PlaceDocument;
use std::path::Path;
use weir_model::{Bytes, DeviceSet, ErrorKind, Nanos, Seed};
use weir_policy::harm::MoveControl;
use weir_policy::placement::Placement;
use weir_sim::place::run::DURATION_MIN;
use weir_sim::{
    DeviceSize, DeviceSpec, Load, Mode, Outcome, Plan, PoolSpec, Ramp, SimError, budgeted, place,
    place_with_endurance, plot,
};

/// Simulates the load under each policy.
///
/// # Errors
/// Fails if the load, the pool or the plan is invalid.
pub(super) fn run(pool: &Path, args: &PlaceArgs) -> Result<Comparison, Failure> {
    args.plot.iter().try_for_each(|path| files::refuse_foreign_content(path, OutputKind::Picture))?;
    if let Some(option) = args.flash.rating_option().filter(|_| !reports_endurance(args)) {
        let help = format!("add --endurance, or leave {option} out");
        return Err(Failure::usage(
            format!("{option} does nothing without --endurance or --write-budget"),
            help,
        ));
    }
    let described = PoolDescription::read(pool)?;
    let spec = pool_spec(&described, args)?;
    if args.flash.write_budget.is_some() && spec.flash() == DeviceSet::default() {
        let help = "leave --write-budget out, or give a device the pace of an SSD";
        return Err(Failure::usage("no device of the pool is flash, which a write budget is for", help));
    }
    let mut policies = args.policy.clone();
    if policies.is_empty() {
        policies.push(described.file.policy.to_owned());
    }
    let mut loaded = LoadSource::read(&args.load, &args.trace_options)?;
    let plan = plan(args, &loaded)?;
    let mut outcomes = Vec::new();
    for name in &policies {
        for budget in std::iter::once(None).chain(args.flash.write_budget.map(Some)) {
            let policy = weir_policy::placement::by_name(name).ok_or_else(|| unknown_policy(name))?;
            let mut load = loaded.new_load(time_scale(args), args.seed)?;
            let run = || simulate(args, &spec, (policy, budget), &mut *load, &plan);
            let outcome = progress::during(&format!("{name} in virtual time"), run);
            let failed = |error: SimError| Failure::from_message(ErrorKind::Usage, &error.to_string());
            outcomes.push(outcome.map_err(failed)?);
        }
    }
    if let Some(path) = &args.plot {
        picture::write(path, &plot::svg(&args.load, &outcomes))?;
    }
    let notes = loaded.take_notes();
    Ok(Comparison { load: args.load.clone(), seed: args.seed, notes, plan, limit: args.limit, outcomes })
}

/// Simulates the load under a policy, with a budget of bytes per day for flash if there is one.
fn simulate(
    args: &PlaceArgs,
    spec: &PoolSpec,
    (policy, budget): (Box<dyn Placement>, Option<Bytes>),
    load: &mut dyn Load,
    plan: &Plan,
) -> Result<Outcome, SimError> {
    let policy = match budget {
        Some(budget) => budgeted(policy, spec.flash(), budget),
        None => policy,
    };
    if !reports_endurance(args) {
        return place(spec, policy, load, plan);
    }
    let outcome = place_with_endurance(spec, policy, load, plan, args.flash.rating())?;
    Ok(Outcome { write_budget_bytes: budget.map(|budget| budget.0), ..outcome })
}

fn reports_endurance(args: &PlaceArgs) -> bool {
    args.endurance || args.flash.write_budget.is_some()
}

fn unknown_policy(name: &str) -> Failure {
    let all: Vec<_> = weir_policy::placement::ALL.iter().map(|known| known.name).collect();
    Failure::usage(format!("there is no policy {name:?}"), format!("there are {}", all.join(", ")))
}

/// Returns the pool file's devices as modelled drives, with the pool's settings.
fn pool_spec(described: &PoolDescription, args: &PlaceArgs) -> Result<PoolSpec, Failure> {
    let file = &described.file;
    let mut devices = Vec::new();
    for entry in &file.devices {
        let Some(model) = entry.pace else {
            let help = format!(
                "say in a copy of the pool file which drive it is like: pace = \"ssd-nvme\"; there are {}",
                weir_timing::drives::all().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
            );
            return Err(Failure::usage(format!("device {} has no pace", entry.name), help));
        };
        let share = args.scale.iter().rev().find_map(|scale| match scale {
            Scale::Device(name, share) if *name == entry.name => Some(*share),
            _ => None,
        });
        let size = match (share, entry.size) {
            (Some(share), _) => DeviceSize::Share(share),
            (None, Some(size)) => DeviceSize::Size(size),
            (None, None) => {
                let help = format!("add a size to it, or scale it to the load: --scale {}=20%", entry.name);
                return Err(Failure::usage(format!("device {} has no size", entry.name), help));
            }
        };
        devices.push(DeviceSpec {
            name: entry.name.clone(),
            model: model.into(),
            size,
            metadata: entry.metadata,
            noise: None,
        });
    }
    let known = |scale: &&Scale| match scale {
        Scale::Device(name, _) => !devices.iter().any(|device| device.name == *name),
        Scale::Time(_) => false,
    };
    if let Some(Scale::Device(name, _)) = args.scale.iter().find(known) {
        let names: Vec<_> = devices.iter().map(|device| &device.name[..]).collect();
        let help = format!("scale time or one of {}", names.join(", "));
        return Err(Failure::usage(format!("--scale names {name}, which is no device of the pool"), help));
    }
    let moves = if args.no_moves { MoveControl::Disabled } else { file.moves };
    Ok(PoolSpec {
        extent: file.extent,
        devices,
        mover_share: file.mover_share,
        extent_cache: file.extent_cache,
        moves,
    })
}

fn time_scale(args: &PlaceArgs) -> f64 {
    let scale = args.scale.iter().rev().find_map(|scale| match scale {
        Scale::Time(by) => Some(*by),
        Scale::Device(..) => None,
    });
    scale.unwrap_or(1.0)
}

fn plan(args: &PlaceArgs, loaded: &LoadSource) -> Result<Plan, Failure> {
    if !loaded.is_timed() && args.closed.is_none() && args.ramp.is_none() {
        let help = "replay it with so many requests under way: --closed 16";
        return Err(Failure::usage(format!("{} has no times", args.load), help));
    }
    let least = args.duration.unwrap_or(DURATION_MIN);
    let mode = match (args.closed, args.ramp) {
        (Some(depth), _) => Mode::Closed(vec![(Nanos(0), depth)]),
        (None, Some(RampRates { first, last, steps })) => {
            let too_short = || Failure::usage("the duration is too short for the steps", "raise --duration");
            Mode::Ramp(Ramp::new(Ramp::even(first, last, steps), least).ok_or_else(too_short)?)
        }
        (None, None) => Mode::Open,
    };
    let load = loaded.new_load(time_scale(args), args.seed)?;
    let lasts = match (&mode, args.duration) {
        (_, Some(duration)) => duration,
        // The load repeats as a whole, until it lasts at least [`LEAST`].
        (Mode::Open, None) => Nanos(load.duration().0 * least.0.div_ceil(load.duration().0.max(1)).max(1)),
        (Mode::Closed(_) | Mode::Ramp(_), None) => least,
    };
    let unlimited = if matches!(mode, Mode::Closed(_)) { CLOSED_REQUESTS } else { u64::MAX };
    Ok(Plan {
        mode,
        duration: lasts,
        requests: args.requests.unwrap_or(unlimited),
        warm_up: None,
        windows: args.windows,
        seed: Seed(args.seed),
    })
}

/// Default of `--requests` in a closed loop, because fast devices answer very many requests in ten minutes.
const CLOSED_REQUESTS: u64 = 3_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: PlaceArgs,
    }

    /// A rating of flash is refused where no endurance is reported, and taken where it is.
    #[test]
    fn ratings_without_endurance_are_refused() {
        let said = |options: &[&str]| {
            let words = [&["place", "zipf"], options].concat();
            let failure = run(Path::new("/nowhere/pool.toml"), &Words::parse_from(words).args);
            let failure = failure.expect_err("there is no pool file");
            format!("{} -> {}", failure.message, failure.help)
        };
        for (option, value) in [("--cell", "qlc"), ("--cycles", "100"), ("--spare", "10%")] {
            let refused = said(&[option, value]);
            assert!(refused.starts_with(&format!("{option} does nothing without --endurance")), "{refused}");
            for more in [&["--endurance"][..], &["--write-budget", "1GiB"]] {
                let taken = said(&[&[option, value], more].concat());
                assert!(taken.contains("/nowhere/pool.toml"), "{taken}");
            }
        }
    }
}
