//! `cargo xtask crash`: long runs of the simulated world on several threads.

use crate::build::IS_SHIPPED;
use crate::mix::Mix;
use crate::{mutants, table};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_model::Seed;
use weir_world::campaign::{self, History, Outcome};
use weir_world::{Mutant, Statistics};

/// Time limit for shrinking a failing history.
const SHRINK_TIME: Duration = Duration::from_secs(60);

/// Interval of progress output: on a terminal, and in a log.
const PROGRESS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run these seeds, A..B without B [default: from the clock]
    #[arg(long, value_name = "A..B", value_parser = range)]
    pub(crate) seeds: Option<Range<u64>>,
    /// Stop after N minutes, even if seeds are left
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Stop after N crashes
    #[arg(long, value_name = "N")]
    crashes: Option<u64>,
    /// Use N threads
    #[arg(long, value_name = "N", default_value = "2", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    jobs: usize,
    /// Continue after a failure, and only name the failing seeds
    #[arg(long)]
    keep_going: bool,
    /// Use only power losses and kills: no device fails
    #[arg(long)]
    no_faults: bool,
    /// Crash N copies at random moments for each crash of a pool, besides those that the mix aims at; 0
    /// crashes only the pools themselves [default: 3]
    #[arg(long, value_name = "N")]
    copies: Option<u64>,
    /// Select the kind of histories
    #[arg(long, value_enum, default_value = "general")]
    mix: Mix,
    /// Run the engine as it is shipped, without debug assertions
    #[arg(long, conflicts_with = "mutant")]
    pub(crate) shipped: bool,
    /// Repeat the run of seed N, and show it step by step if it fails
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "minutes", "crashes"])]
    seed: Option<u64>,
    /// Activate this mutant (see `cargo xtask mutants --list`)
    #[arg(long, value_name = "NAME", value_parser = mutants::by_name)]
    pub(crate) mutant: Option<Mutant>,
    /// Print the history of --seed without running it
    #[arg(long, requires = "seed")]
    print: bool,
}

impl Args {
    /// Returns the options that reproduce a history, in addition to its seed.
    fn reproduction_options(&self) -> String {
        let mix = self.mix.to_possible_value().filter(|_| self.mix != Mix::General);
        let mix = mix.map(|mix| format!(" --mix {}", mix.get_name()));
        let mutant = self.mutant.map(|mutant| format!(" --mutant {}", mutant.name()));
        let copies = self.copies.map(|copies| format!(" --copies {copies}"));
        let flags = [(self.no_faults, " --no-faults"), (IS_SHIPPED, " --shipped")];
        let flags = flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag.to_owned());
        mix.into_iter().chain(mutant).chain(copies).chain(flags).collect()
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let (from, to) = text.split_once("..").ok_or("write it as FIRST..END, for example 0..1000")?;
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("there is no seed in it".to_owned()) } else { Ok(range) }
}

/// Returns the history of a seed in a campaign.
fn history(args: &Args, seed: Seed) -> History {
    let mut history = args.mix.history(seed, !args.no_faults, args.copies);
    history.setup.planted = mutants::planted(args.mutant.as_slice());
    history
}

pub(crate) fn run(args: &Args) -> ExitCode {
    // A panic of the engine is a result like any other, reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    match args.seed {
        Some(seed) if args.print => {
            println!("{}", history(args, Seed(seed)));
            ExitCode::SUCCESS
        }
        Some(seed) => run_seed(args, Seed(seed)),
        None => run_campaign(args),
    }
}

fn run_seed(args: &Args, seed: Seed) -> ExitCode {
    let outcome = history(args, seed).run();
    println!("seed {seed}: {}, digest {:016x}", outcome.statistics, outcome.digest);
    if outcome.failure.is_some() { failed(args, seed, &outcome) } else { ExitCode::SUCCESS }
}

/// State shared by all threads.
struct Campaign<'a> {
    args: &'a Args,
    seeds: Range<u64>,
    next: AtomicU64,
    until: Option<Instant>,
    crashes_max: u64,
    stop: AtomicBool,
    total: Mutex<Statistics>,
    /// Digest of all histories: independent of their order, and equal in any build with the same behaviour.
    digest: AtomicU64,
    failed: Mutex<Option<(Seed, Outcome)>>,
}

fn run_campaign(args: &Args) -> ExitCode {
    // This leaves room for as many runs as a campaign may have before the next campaign's seeds begin.
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() << 24);
    let seeds = args.seeds.clone().unwrap_or_else(|| fresh()..u64::MAX);
    let start = Instant::now();
    let campaign = Campaign {
        args,
        next: AtomicU64::new(seeds.start),
        seeds,
        until: args.minutes.map(|minutes| start + Duration::from_secs_f64(minutes.max(0.0) * 60.0)),
        crashes_max: args.crashes.unwrap_or(u64::MAX),
        stop: AtomicBool::new(false),
        total: Mutex::default(),
        digest: AtomicU64::new(0),
        failed: Mutex::default(),
    };
    let build = if IS_SHIPPED { "without" } else { "with" };
    println!("seeds from {} on, {} jobs, {build} debug assertions", campaign.seeds.start, args.jobs);
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..args.jobs).map(|_| scope.spawn(|| campaign.work())).collect();
        campaign.show_progress(start, || jobs.iter().all(|job| job.is_finished()));
    });
    let total = campaign.total.into_inner().unwrap_or_default();
    println!("{}", table::summary(&total, start.elapsed()));
    println!("digest of all: {:016x}", campaign.digest.into_inner());
    match campaign.failed.into_inner() {
        Ok(Some(_)) if args.keep_going => ExitCode::FAILURE,
        Ok(Some((seed, outcome))) => failed(args, seed, &outcome),
        _ => ExitCode::SUCCESS,
    }
}

/// Names the rarest pairs of strike and moment; the whole table is printed at the end.
fn rarest(total: &Statistics) -> String {
    let pairs = total.rarer_than(u64::MAX);
    let Some(least) = pairs.iter().map(|(_, _, hits)| *hits).min() else { return String::new() };
    let mut named = pairs.iter().filter(|(_, _, hits)| *hits == least);
    let first =
        named.next().map_or_else(String::new, |(strike, moment, _)| format!("{strike} while {moment}"));
    match named.count() {
        0 => format!(", rarest: {first} ({least})"),
        more => format!(", rarest: {first} and {more} more ({least})"),
    }
}

impl Campaign<'_> {
    fn work(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let late = self.until.is_some_and(|until| Instant::now() >= until);
            if late || !self.seeds.contains(&seed) {
                return;
            }
            let outcome = history(self.args, Seed(seed)).run();
            self.digest.fetch_xor(outcome.digest, Ordering::Relaxed);
            let crashes = self.total.lock().map_or(0, |mut total| {
                *total += &outcome.statistics;
                total.crashes
            });
            if let Some((failure, step)) = &outcome.failure {
                if self.args.keep_going {
                    println!("seed {seed} FAILED at step {step}: {failure}");
                }
                self.stop.store(!self.args.keep_going, Ordering::Relaxed);
                if let Ok(mut failed) = self.failed.lock() {
                    failed.get_or_insert((Seed(seed), outcome));
                }
            } else if crashes >= self.crashes_max {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn show_progress(&self, start: Instant, finished: impl Fn() -> bool) {
        let terminal = std::io::stderr().is_terminal();
        let (mut shown, mut last) = (Instant::now(), Statistics::default());
        while !finished() {
            std::thread::sleep(Duration::from_millis(50));
            if shown.elapsed() < PROGRESS[usize::from(!terminal)] {
                continue;
            }
            let Ok(total) = self.total.lock().map(|total| total.clone()) else { return };
            let seconds = shown.elapsed().as_secs_f64();
            let rate = |now: u64, before: u64| (now - before) as f64 / seconds;
            let line = format!(
                "{:5.0} s: {} runs, {} crashes ({:.0}/s), {} operations ({:.0}/s){}",
                start.elapsed().as_secs_f64(),
                total.runs,
                total.crashes,
                rate(total.crashes, last.crashes),
                total.requests,
                rate(total.requests, last.requests),
                rarest(&total),
            );
            let (before, after) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
            eprint!("{before}{line}{after}");
            let _shown_or_not = std::io::stderr().flush();
            (shown, last) = (Instant::now(), total);
        }
        if terminal {
            eprintln!();
        }
    }
}

/// Reports a failure, with a history that is as short as a reasonable time allows.
fn failed(args: &Args, seed: Seed, outcome: &Outcome) -> ExitCode {
    if let Some((failure, steps)) = &outcome.failure {
        println!("seed {seed} FAILED at step {steps}: {failure}");
    }
    println!("leaving out what does not matter, for at most {} s ...", SHRINK_TIME.as_secs());
    let start = Instant::now();
    match campaign::shrink(&history(args, seed), || start.elapsed() < SHRINK_TIME) {
        Some(shrunk) => println!("{shrunk}"),
        None => println!("run again, it does not fail: something depends on more than the seed"),
    }
    println!("repeat with: cargo xtask crash --seed {seed}{}", args.reproduction_options());
    println!("once it passes: add the seed, and what it was, to crates/world/seeds/failed.txt");
    ExitCode::FAILURE
}
