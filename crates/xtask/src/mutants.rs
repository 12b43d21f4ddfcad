//! `cargo xtask mutants`: checks whether the tests find planted faults, and how soon.
//!
//! Each mutant runs in processes of its own, so that one that never ends can be killed.

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
    /// List the mutants, one per line, without running anything
    #[arg(long)]
    list: bool,
    /// Run only these mutants, separated by commas
    #[arg(long, value_name = "NAME", value_parser = by_name, value_delimiter = ',')]
    only: Vec<Mutant>,
    /// Select the tests that look for the mutants
    #[arg(long, value_enum, default_value = "named")]
    net: Wanted,
    /// Limit the campaign to N minutes of processor time per mutant
    #[arg(long, value_name = "N", default_value = "10", value_parser = minutes)]
    minutes: Duration,
    /// Limit the campaign to N histories per mutant
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    histories: u64,
    /// Stop once N mutants are found; search in rounds, each twice as long as the one before
    #[arg(long, value_name = "N")]
    enough: Option<usize>,
    /// Look for N mutants in parallel
    #[arg(long, value_name = "N", default_value = "2", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    jobs: usize,
    /// Select the kind of the campaign's histories
    #[arg(long, value_enum, default_value = "all")]
    mix: Mix,
    /// Crash N copies for each crash of the pool
    #[arg(long, value_name = "N", default_value = "3")]
    copies: u64,
    /// First seed of the campaign [default: from the clock]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Run the campaign in this process, for the only mutant
    #[arg(long, hide = true)]
    worker: bool,
}

/// The tests that look for mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// For each mutant, the test that must find it
    Named,
    /// The crash campaign
    Campaign,
    /// All tests of map and engine
    Tests,
    /// The campaign, and all tests if it finds nothing
    All,
}

/// How a mutant was found.
struct Found {
    by: String,
    time: Duration,
    crashes: Option<u64>,
    /// The symptom.
    symptom: String,
    evidence: Evidence,
}

/// What a failure says about a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// The campaign's oracle or a test states a fault: the mutant is found.
    Verdict,
    /// A panic, a history or test that does not end, or a program that ends abnormally. It does not count: it
    /// depends on assertions that other builds lack, and on time limits.
    NoVerdict,
    /// The same seed fails without the mutant: a bug of weir.
    Bug,
}

/// Returns the mutant of that name.
pub(crate) fn by_name(name: &str) -> Result<Mutant, String> {
    Mutant::by_name(name).ok_or_else(|| "`cargo xtask mutants --list` shows those there are".to_owned())
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

/// Returns the set of active mutants with this one.
#[cfg(feature = "mutants")]
pub(crate) fn planted(mutant: Mutant) -> Planted {
    Planted::one(mutant)
}

/// Returns the empty set: this build has no mutants. Commands that need them run in another build.
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
        return build::run_as(&build::WITH_MUTANTS);
    }
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() << 24);
    let seed = args.seed.unwrap_or_else(fresh);
    let wanted: &[Mutant] = if args.only.is_empty() { Mutant::ALL } else { &args.only };
    match wanted {
        [mutant] if args.worker => campaign::work(args, *mutant, seed),
        _ => search(args, wanted, seed),
    }
}

/// The search for a mutant, with its progress.
struct Search {
    mutant: Mutant,
    campaign: campaign::Position,
    found: Option<Found>,
}

impl Search {
    fn is_found(&self) -> bool {
        self.has(Evidence::Verdict)
    }

    fn has(&self, evidence: Evidence) -> bool {
        self.found.as_ref().is_some_and(|found| found.evidence == evidence)
    }
}

fn search(args: &Args, wanted: &[Mutant], seed: u64) -> ExitCode {
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
    let from = campaign::Position::from(seed);
    let mut searches: Vec<_> =
        wanted.iter().map(|&mutant| Search { mutant, campaign: from, found: None }).collect();
    // The campaign finds mutants that it must find sooner than others: these come first in each round. Others
    // are searched for in the first and the last round only.
    let is_for_tests = |search: &Search| matches!(search.mutant.net(), Net::Test(_) | Net::Property(_));
    searches.sort_by_key(is_for_tests);
    let for_campaign = searches.partition_point(|search| !is_for_tests(search));
    let enough = args.enough.unwrap_or(usize::MAX);
    let rounds = if args.enough.is_some() && args.net == Wanted::Campaign { ROUNDS } else { 1 };
    for round in (0..rounds).rev() {
        let is_between = round > 0 && round + 1 < rounds;
        let count = if is_between { for_campaign } else { searches.len() };
        search_once(args, args.minutes / (1 << round), enough, &mut searches, count, &programs);
    }
    report(&searches, enough)
}

/// Number of rounds when the number of mutants to find is limited.
const ROUNDS: u32 = 8;

/// Continues the search for those of the first `count` mutants that are not found yet, up to a total
/// processor time for each, until `enough` of all are found.
fn search_once(
    args: &Args,
    until: Duration,
    enough: usize,
    searches: &mut [Search],
    count: usize,
    programs: &[suite::Program],
) {
    let found = AtomicUsize::new(searches.iter().filter(|search| search.is_found()).count());
    let is_left = |search: &&mut Search| !search.is_found() && !search.has(Evidence::Bug);
    let left = Mutex::new(searches[..count].iter_mut().filter(is_left));
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                while found.load(Ordering::Relaxed) < enough {
                    let Some(search) = left.lock().ok().and_then(|mut left| left.next()) else { break };
                    search.found = find(args, until, search, programs);
                    let Some(how) = &search.found else { continue };
                    let name = search.mutant.name();
                    match how.evidence {
                        Evidence::Bug => println!("{name}: a bug that needs no mutant: {}", how.symptom),
                        Evidence::NoVerdict => println!("{name}: does not count: {}", how.symptom),
                        Evidence::Verdict => {
                            found.fetch_add(1, Ordering::Relaxed);
                            println!("{name}: {}", how.symptom);
                        }
                    }
                }
            });
        }
    });
}

/// Runs the selected tests on a mutant until one finds it.
fn find(args: &Args, until: Duration, search: &mut Search, programs: &[suite::Program]) -> Option<Found> {
    let mutant = search.mutant;
    let mix = if mutant.net() == Net::Served { Mix::Served } else { args.mix };
    let mut campaign = || campaign::find(args, mutant, mix, until, &mut search.campaign);
    let suite = |name| suite::find(mutant, programs, name);
    match (args.net, mutant.net()) {
        (Wanted::Named, Net::Test(name) | Net::Property(name)) => suite(Some(name)),
        (Wanted::Named, Net::Check) => campaign().filter(|found| found.symptom.contains("the check finds")),
        (Wanted::Named | Wanted::Campaign, _) => campaign(),
        (Wanted::Tests, _) => suite(None),
        (Wanted::All, _) => match campaign() {
            Some(found) if found.evidence != Evidence::NoVerdict => Some(found),
            other => suite(None).or(other),
        },
    }
}

/// Prints the table of results; fails if fewer mutants are found than required.
fn report(searches: &[Search], enough: usize) -> ExitCode {
    let mut table = Table::new();
    let header =
        ["mutant", "rule", "must be found by", "found by", "processor seconds", "crash points", "seen as"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    let mut searches: Vec<_> = searches.iter().collect();
    searches.sort_by_key(|search| search.mutant);
    for Search { mutant, campaign, found } in &searches {
        let start = [mutant.name().to_owned(), mutant.rule().to_owned(), mutant.net().to_string()];
        let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
        let end = match found {
            Some(Found { by, time: after, crashes, symptom: how, evidence }) => {
                let crashes = crashes.map(|crashes| crashes.to_string()).unwrap_or_default();
                let by = match evidence {
                    Evidence::Verdict | Evidence::Bug => by.clone(),
                    Evidence::NoVerdict => format!("NOT FOUND; without a verdict: {by}"),
                };
                [by, seconds(*after), crashes, how.clone()]
            }
            None => {
                ["NOT FOUND".to_owned(), seconds(campaign.spent), campaign.crashes.to_string(), String::new()]
            }
        };
        table.add_row(start.into_iter().chain(end));
    }
    let found = searches.iter().filter(|search| search.is_found()).count();
    println!("\n{table}\n\n{found} of {} found", searches.len());
    let bugs =
        searches.iter().filter_map(|search| search.found.as_ref().filter(|_| search.has(Evidence::Bug)));
    let symptoms: std::collections::BTreeSet<_> = bugs.map(|bug| &bug.symptom).collect();
    symptoms.iter().for_each(|symptom| println!("a bug of weir, without any mutant: {symptom}"));
    if !symptoms.is_empty() {
        return ExitCode::FAILURE;
    }
    if found >= enough.min(searches.len()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
