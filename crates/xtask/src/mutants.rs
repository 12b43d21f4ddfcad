//! `cargo xtask mutants`: whether the tests find faults that are planted, and how soon.
//!
//! Each mutant runs in processes of its own, so that one that never ends can be ended.

mod campaign;
mod suite;

use crate::build;
use crate::mix::Mix;
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use comfy_table::{Table, presets};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_world::{Mutant, Net, Planted};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// List the mutants, one a line, without running anything
    #[arg(long)]
    list: bool,
    /// Run only these mutants, separated by commas
    #[arg(long, value_name = "NAME", value_parser = by_name, value_delimiter = ',')]
    only: Vec<Mutant>,
    /// Which tests look for them
    #[arg(long, value_enum, default_value = "named")]
    net: Wanted,
    /// Let the campaign look for a mutant for N minutes of processor time
    #[arg(long, value_name = "N", default_value = "10", value_parser = minutes)]
    minutes: Duration,
    /// Look for N mutants at a time
    #[arg(long, value_name = "N", default_value = "2", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    jobs: usize,
    /// What the campaign's histories are like
    #[arg(long, value_enum, default_value = "all")]
    mix: Mix,
    /// So many crashes of copies for each crash of the pool
    #[arg(long, value_name = "N", default_value = "3")]
    copies: u64,
    /// First seed of the campaign [default: a fresh one, by the clock]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Run the campaign in this process, for the only mutant
    #[arg(long, hide = true)]
    worker: bool,
}

/// Which tests are to look for mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// For each mutant the one that must find it
    Named,
    /// The crash campaign
    Campaign,
    /// All tests of map and engine
    Tests,
    /// The campaign, and all tests if it finds nothing
    All,
}

/// What became of a mutant.
struct Found {
    by: String,
    after: Duration,
    crashes: Option<u64>,
    /// How it showed itself.
    how: String,
}

/// The mutant of that name.
pub(crate) fn by_name(name: &str) -> Result<Mutant, String> {
    Mutant::by_name(name).ok_or_else(|| "`cargo xtask mutants --list` shows those there are".to_owned())
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

/// As a value to hand in.
#[cfg(feature = "mutants")]
pub(crate) fn planted(mutant: Mutant) -> Planted {
    Planted::one(mutant)
}

/// As a value to hand in. This build has none: another one runs whatever plants any.
#[cfg(not(feature = "mutants"))]
pub(crate) fn planted(_: Mutant) -> Planted {
    Planted::NONE
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if args.list {
        for mutant in Mutant::ALL {
            println!("{}: {} [{}] ({})", mutant.name(), mutant.fault(), mutant.rule(), mutant.net());
        }
        return ExitCode::SUCCESS;
    }
    if !cfg!(feature = "mutants") {
        return build::run_as(build::WITH_MUTANTS);
    }
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() << 24);
    let seed = args.seed.unwrap_or_else(fresh);
    let wanted: &[Mutant] = if args.only.is_empty() { Mutant::ALL } else { &args.only };
    match wanted {
        [mutant] if args.worker => campaign::work(args, *mutant, seed),
        _ => look_for(args, wanted, seed),
    }
}

fn look_for(args: &Args, wanted: &[Mutant], seed: u64) -> ExitCode {
    let needs_tests = |mutant: &Mutant| match args.net {
        Wanted::Named => matches!(mutant.net(), Net::Test(_) | Net::Property(_)),
        Wanted::Campaign => false,
        Wanted::Tests | Wanted::All => true,
    };
    let programs = match wanted.iter().any(needs_tests).then(suite::build).transpose() {
        Ok(programs) => programs.unwrap_or_default(),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} mutants, {} at a time, seeds from {seed} on, {:?} mix", wanted.len(), args.jobs, args.mix);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                while let Some(mutant) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = find(args, *mutant, seed, &programs);
                    println!("{}: {}", mutant.name(), found.as_ref().map_or("NOT FOUND", |found| &found.how));
                    if let Ok(mut results) = results.lock() {
                        results.push((*mutant, found));
                    }
                }
            });
        }
    });
    report(results.into_inner().unwrap_or_default())
}

/// Runs the tests wanted on a mutant until one finds it.
fn find(args: &Args, mutant: Mutant, seed: u64, programs: &[suite::Program]) -> Option<Found> {
    let mix = if mutant.net() == Net::Served { Mix::Served } else { args.mix };
    let campaign = || campaign::find(args, mutant, mix, seed);
    let suite = |name| suite::find(mutant, programs, name);
    match (args.net, mutant.net()) {
        (Wanted::Named, Net::Test(name) | Net::Property(name)) => suite(Some(name)),
        (Wanted::Named, Net::Check) => campaign().filter(|found| found.how.contains("the check finds")),
        (Wanted::Named | Wanted::Campaign, _) => campaign(),
        (Wanted::Tests, _) => suite(None),
        (Wanted::All, _) => campaign().or_else(|| suite(None)),
    }
}

/// The table of what was found by what; a failure if something was not.
fn report(mut results: Vec<(Mutant, Option<Found>)>) -> ExitCode {
    results.sort_by_key(|(mutant, _)| *mutant);
    let mut table = Table::new();
    let header =
        ["mutant", "rule", "must be found by", "found by", "processor seconds", "crash points", "seen as"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for (mutant, found) in &results {
        let start = [mutant.name().to_owned(), mutant.rule().to_owned(), mutant.net().to_string()];
        let end = match found {
            Some(Found { by, after, crashes, how }) => {
                let crashes = crashes.map(|crashes| crashes.to_string()).unwrap_or_default();
                [by.clone(), format!("{:.1}", after.as_secs_f64()), crashes, how.clone()]
            }
            None => ["NOT FOUND".to_owned(), String::new(), String::new(), String::new()],
        };
        table.add_row(start.into_iter().chain(end));
    }
    let found = results.iter().filter(|(_, found)| found.is_some()).count();
    println!("\n{table}\n\n{found} of {} found", results.len());
    if found == results.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
