//! `weir sim fs` simulates a file system over NVM and tiers of existing file systems, under programs.
//!
//! It converts the arguments to simulations, one for each combination of NVM and policies.

mod args;
mod report;
#[cfg(test)]
mod tests;

pub use args::FsArgs;

use crate::failure::Failure;
use crate::{parallel, progress};
use args::{NvmSize, TierDrive};
pub(crate) use report::FsDocument;
use report::{Combination, FsComparison};
use weir_model::{Bytes, ErrorKind};
use weir_policy::Watermarks;
use weir_policy::distribution::{DistributionPolicy, DistributionSettings};
use weir_policy::eviction::items::{ItemEvictionPolicy, ItemSettings};
use weir_policy::promotion::PromotionPolicy;
use weir_sim::fs::{BottomFs, FastTier, FsPlan, Machine, RateSource, TierPlan, load, simulate};

/// Without NVM, write-back stops at half of the changes from which on it begins, as Linux's does.
const DIRTY: Watermarks = Watermarks { high: 1.0, low: 0.5 };

/// Simulates each combination.
///
/// # Errors
/// Fails if the load or the machine is invalid.
pub(super) fn run(args: &FsArgs) -> Result<FsComparison, Failure> {
    let usage = |error: String| Failure::from_message(ErrorKind::Usage, &error);
    load::parse(&args.load, args.seed).map_err(|error| usage(error.to_string()))?;
    let tiers = tiers(args)?;
    refuse_settings_without_effect(args)?;
    if Watermarks::new(args.high, args.low).is_none() {
        let message = format!("--low {:.0}% is above --high {:.0}%", args.low * 100.0, args.high * 100.0);
        return Err(Failure::usage(message, "lower it: eviction stops at --low"));
    }
    let combinations = combinations(args);
    let work = |combination: &Combination| {
        let mut load = load::parse(&args.load, args.seed)?;
        simulate(&mut *load, &plan(args, combination, &tiers))
    };
    let outcomes = progress::during(&format!("{} file systems in virtual time", combinations.len()), || {
        parallel::map(&combinations, parallel::cores(), &parallel::Stop::default(), work)
    });
    let outcomes = outcomes.map_err(|error| usage(error.to_string()))?;
    Ok(FsComparison::new(args, combinations.into_iter().zip(outcomes).collect()))
}

/// Refuses settings that no combination uses.
fn refuse_settings_without_effect(args: &FsArgs) -> Result<(), Failure> {
    let defaults = FsArgs::without_options(&args.load);
    let nvm = args.nvm.iter().any(|size| size.0.is_some());
    let memory = args.nvm.iter().any(|size| size.0.is_none());
    let trident = args.eviction.iter().any(|name| name == "trident");
    let by_size = args.distribution.iter().any(|name| name == "by_size");
    let of_nvm = (nvm, "with --nvm none", "give --nvm a size");
    let of_memory = (memory, "without --nvm none", "add none to --nvm");
    let of_trident = (trident, "without --eviction trident", "add trident to --eviction");
    let of_by_size = (by_size, "without --distribution by_size", "add by_size to --distribution");
    let omega = args.omega != defaults.omega;
    let settings = [
        ("--eviction", args.eviction != defaults.eviction, of_nvm),
        ("--promotion", args.promotion != defaults.promotion, of_nvm),
        ("--high", args.high != defaults.high, of_nvm),
        ("--low", args.low != defaults.low, of_nvm),
        ("--omega", omega, of_nvm),
        ("--omega", omega, of_trident),
        ("--dirty", args.dirty != defaults.dirty, of_memory),
        ("--size-threshold", args.size_threshold != defaults.size_threshold, of_by_size),
    ];
    for (option, is_set, (is_used, why, help)) in settings {
        if is_set && !is_used {
            let message = format!("{option} does nothing {why}");
            return Err(Failure::usage(message, format!("leave {option} out, or {help}")));
        }
    }
    Ok(())
}

fn tiers(args: &FsArgs) -> Result<Vec<TierPlan>, Failure> {
    let default = || {
        let of = |drive: &str, gigabytes: u64| TierDrive {
            drive: drive.to_owned(),
            size: Bytes(gigabytes * 1_000_000_000),
        };
        vec![of("intel-x25-m-g2", 80), of("st3750528as", 750)]
    };
    let drives = if args.tier.is_empty() { default() } else { args.tier.clone() };
    if !args.rates.is_empty() && args.rates.len() != drives.len() {
        let message = format!("--rates has {} rates for {} tiers", args.rates.len(), drives.len());
        return Err(Failure::usage(message, "give one for each tier"));
    }
    let bottom =
        |nth: usize| args.bottom.get(nth).or(args.bottom.last()).and_then(|name| BottomFs::by_name(name));
    let plan = |(nth, TierDrive { drive, size }): (usize, TierDrive)| TierPlan {
        drive,
        size,
        bottom: bottom(nth).unwrap_or_default(),
    };
    Ok(drives.into_iter().enumerate().map(plan).collect())
}

/// Returns all combinations; policies have no choice without NVM but where changes are distributed.
fn combinations(args: &FsArgs) -> Vec<Combination> {
    let mut all: Vec<Combination> = Vec::new();
    for NvmSize(nvm) in &args.nvm {
        for eviction in args.eviction.iter().filter_map(|name| ItemEvictionPolicy::by_name(name)) {
            for omega in &args.omega {
                for distribution in
                    args.distribution.iter().filter_map(|name| DistributionPolicy::by_name(name))
                {
                    for promotion in args.promotion.iter().filter_map(|name| PromotionPolicy::by_name(name)) {
                        let combination = Combination {
                            nvm: *nvm,
                            eviction: nvm.map(|_| eviction.name),
                            omega: nvm.filter(|_| eviction.name == "trident").map(|_| *omega),
                            distribution: distribution.name,
                            promotion: nvm.map(|_| promotion.name),
                        };
                        if !all.contains(&combination) {
                            all.push(combination);
                        }
                    }
                }
            }
        }
    }
    all
}

fn plan(args: &FsArgs, combination: &Combination, tiers: &[TierPlan]) -> FsPlan {
    let eviction = |name: &str| ItemEvictionPolicy::by_name(name);
    let promotion = |name: &str| PromotionPolicy::by_name(name);
    let fast = combination.nvm.map_or(FastTier::Memory(args.dirty), FastTier::Nvm);
    let defaults = FsPlan::new(fast, tiers.to_vec());
    FsPlan {
        eviction: combination.eviction.map_or(eviction("fifo"), eviction).unwrap_or(defaults.eviction),
        eviction_settings: combination
            .omega
            .map_or_else(ItemSettings::default, |omega| ItemSettings { omega }),
        distribution: DistributionPolicy::by_name(combination.distribution).unwrap_or(defaults.distribution),
        distribution_settings: DistributionSettings { size_threshold: args.size_threshold },
        promotion: combination.promotion.map_or(promotion("never"), promotion).unwrap_or(defaults.promotion),
        watermarks: match combination.nvm {
            Some(_) => Watermarks { high: args.high, low: args.low },
            None => DIRTY,
        },
        rates: match &*args.rates {
            [] => RateSource::Measured,
            rates => RateSource::Given(rates.iter().map(|rate| rate.0 as f64).collect()),
        },
        machine: Machine { memory: args.memory, ..Machine::default() },
        duration: args.duration,
        ..defaults
    }
}
