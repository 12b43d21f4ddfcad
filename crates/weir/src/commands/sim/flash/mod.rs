//! `weir sim flash` simulates a NAND device under a load: write amplification, wear, lifetime and response
//! times.
//!
//! It converts the arguments to simulations, one for each victim policy.

mod args;
mod report;

pub use args::FlashArgs;

use super::loads::LoadSource;
use crate::failure::Failure;
use crate::progress;
use report::FlashComparison;
pub(crate) use report::FlashDocument;
use weir_model::{ErrorKind, Seed};
use weir_policy::reclaim::{self, ReclaimPolicy};
use weir_sim::flash::{
    Cell, EraseUnit, FlashMode, FlashPlan, Nand, OverProvisioning, Precondition, Separation, Thresholds,
    WearLevelling, simulate,
};

/// Default of `--spare`.
const SPARE: f64 = 0.07;

/// Simulates the device under each policy.
///
/// # Errors
/// Fails if the load or the device is invalid.
pub(super) fn run(args: &FlashArgs) -> Result<FlashComparison, Failure> {
    let mut source = LoadSource::read(&args.load, &args.trace_options)?;
    if !source.is_timed() && args.closed.is_none() {
        let help = "replay it with so many requests in flight: --closed 16";
        return Err(Failure::usage(format!("{} has no times", args.load), help));
    }
    let mut outcomes = Vec::new();
    for policy in args.policy.iter().filter_map(|name| reclaim::by_name(name)) {
        let plan = plan(args, policy);
        let mut load = source.new_load(1.0, args.seed)?;
        let outcome =
            progress::during(&format!("{} in virtual time", policy.name), || simulate(&mut *load, &plan));
        outcomes.push(outcome.map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))?);
    }
    Ok(FlashComparison::new(args, source.take_notes(), outcomes))
}

/// Returns the value of this name; the argument parser accepts no other.
fn named<T: Copy + Default, const N: usize>(all: [(&str, T); N], name: &str) -> T {
    all.into_iter().find(|(known, _)| *known == name).map_or_else(T::default, |(_, value)| value)
}

fn plan(args: &FlashArgs, policy: &'static ReclaimPolicy) -> FlashPlan {
    let over_provisioning = match args.over_provisioning {
        Some(share) => OverProvisioning::OfUser(share),
        None => OverProvisioning::OfAll(args.spare.unwrap_or(SPARE)),
    };
    let nand = Nand {
        page: args.page,
        block: args.block,
        planes: args.planes,
        dies: args.dies,
        channels: args.channels,
        erase_unit: named(EraseUnit::ALL, &args.erase_unit),
        read: args.read_time,
        program: args.program_time,
        erase: args.erase_time,
        over_provisioning,
        ..Nand::default()
    };
    FlashPlan {
        nand,
        capacity: args.capacity,
        policy,
        separation: named(Separation::ALL, &args.separate),
        thresholds: Thresholds { start: args.reserve, stop: args.reserve },
        wear: WearLevelling { dynamic: args.level_wear, max_gap: args.wear_gap },
        precondition: named(Precondition::ALL, &args.precondition),
        warm_up_max: args.warm_up,
        measured: args.overwrites,
        mode: args.closed.map_or(FlashMode::Open, |clients| FlashMode::Closed(clients as usize)),
        rated_cycles: cycles(args),
        bytes_per_day: args.written_per_day.map(|bytes| bytes.0 as f64),
        seed: Seed(args.seed),
    }
}

fn cycles(args: &FlashArgs) -> u32 {
    args.cycles.or_else(|| Cell::by_name(&args.cell).map(|cell| cell.cycles)).unwrap_or(Cell::ALL[0].cycles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: FlashArgs,
    }

    /// The synthetic loads of the examples write: each is simulated, on a small device.
    #[test]
    fn examples_in_help_succeed() {
        let help = Words::command().get_after_help().expect("examples").to_string();
        let examples: Vec<_> = help.lines().filter(|line| line.contains('"')).collect();
        assert_eq!(examples.len(), 2, "{help}");
        for example in examples {
            let mut parts = example.splitn(3, '"').skip(1);
            let load = parts.next().expect("a load").replace(" over=1GiB", "") + " over=8MiB";
            let options = parts.next().unwrap_or_default().split_whitespace();
            let small = ["--block", "16", "--warm-up", "1", "--overwrites", "0.1"];
            let words = ["flash", &load].into_iter().chain(options).chain(small);
            let outcome = run(&Words::parse_from(words).args);
            assert!(outcome.is_ok(), "{example}: {}", outcome.expect_err("it fails"));
        }
    }
}
