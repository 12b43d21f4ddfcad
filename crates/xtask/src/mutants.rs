//! `cargo xtask mutants`: checks whether the tests find planted faults, and how soon.
//!
//! Each mutant runs in processes of its own, so that one that never ends can be killed.

mod campaign;
mod search;
mod suite;

use crate::build;
use crate::mix::Mix;
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use comfy_table::{Table, presets};
use search::{Evidence, Found, Search};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_world::{Mutant, Net, Planted};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// List the mutants, one per line, without running anything
    #[arg(long)]
    list: bool,
    /// Run only these mutants, separated by commas [default: all that are not harmless]
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
    /// After the first round, plant up to N mutants together; one is found that then fails alone
    #[arg(long, value_name = "N", default_value = "1", requires = "enough", value_parser = up_to_256())]
    together: usize,
    /// Look for N mutants in parallel
    #[arg(long, value_name = "N", default_value = "2", value_parser = up_to_256())]
    jobs: usize,
    /// Select the kind of the campaign's histories
    #[arg(long, value_enum, default_value = "all")]
    mix: Mix,
    /// Crash N copies at random moments for each crash of the pool, besides those that the mix aims at
    /// [default: 3]
    #[arg(long, value_name = "N")]
    copies: Option<u64>,
    /// First seed of the campaign [default: from the clock]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Run the campaign in this process
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
    /// All tests of model, map, engine and session
    Tests,
    /// The campaign, and all tests if it finds nothing
    All,
}

/// Returns the mutant of that name.
pub(crate) fn by_name(name: &str) -> Result<Mutant, String> {
    Mutant::by_name(name).ok_or_else(|| "`cargo xtask mutants --list` shows those there are".to_owned())
}

fn up_to_256() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=256)
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

/// Returns the value that plants these mutants.
#[cfg(feature = "mutants")]
pub(crate) fn planted(mutants: &[Mutant]) -> Planted {
    Planted::all(mutants)
}

/// Returns the empty set: this build has no mutants. Commands that need them run in another build.
#[cfg(not(feature = "mutants"))]
pub(crate) fn planted(_: &[Mutant]) -> Planted {
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
    let is_harmful = |mutant: &Mutant| !matches!(mutant.net(), Net::SecondLine(_));
    let harmful = || Mutant::ALL.iter().copied().filter(is_harmful).collect();
    let wanted = if args.only.is_empty() { harmful() } else { args.only.clone() };
    if args.worker {
        return campaign::work(args, &wanted, seed);
    }
    match search::run(args, &wanted, seed) {
        Ok(searches) => report(&searches, args.enough.unwrap_or(usize::MAX)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
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
