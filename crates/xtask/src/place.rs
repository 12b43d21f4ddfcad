//! `cargo place`: runs every placement policy on a fixed list of loads in virtual time and compares
//! `adaptive` with the best of the others. It fails with [`UNFIT`] if `adaptive` is too far from the best
//! or a load's bound is violated, and with [`INCOMPLETE`] if a load failed or its trace is missing. See
//! `docs/policies/comparison.md`.

mod harm;
mod loads;
mod report;

use loads::{Loaded, ROWS, Row};
use report::Figures;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use weir_policy::placement::{ALL, Placement, by_name};
use weir_sim::place::hindsight;
use weir_sim::{Arrival, Hindsight, Outcome, PoolSpec, VolumeData};

/// Folder of the traces, relative to the repository.
const TRACES: &str = "../shared/traces";
/// File that `--record` updates.
const RECORD: &str = "docs/policies/comparison.md";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only loads whose names contain one of these
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    load: Vec<String>,
    /// Run only these policies
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<String>,
    /// Run a minute of each load, for a quick look: the figures mean little
    #[arg(long)]
    short: bool,
    /// Use N threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Read the figures of policies that are not run from this file, and add those of each run
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Compare the estimated benefit of moves with the measured effect of moving nothing, for the named loads
    /// and policies [default: adaptive and hystor]
    #[arg(long, conflicts_with_all = ["keep", "record"])]
    harm: bool,
    /// Also print the devices' activity
    #[arg(long)]
    devices: bool,
    /// Read traces from this directory [default: ../shared/traces, relative to the repository]
    #[arg(long, value_name = "DIRECTORY")]
    traces: Option<PathBuf>,
    /// Write the table to docs/policies/comparison.md
    #[arg(long, conflicts_with = "short")]
    record: bool,
}

/// Known figures, by the names of load and policy.
type Known = BTreeMap<(String, String), Figures>;

/// Exit code if `adaptive` is too far from the best of the others, or if a load's bound is violated.
const UNFIT: u8 = 1;
/// Exit code if a load failed, or if its trace is missing: the figures are not complete.
const INCOMPLETE: u8 = 3;

pub(crate) fn run(args: &Args) -> ExitCode {
    match judge(args) {
        Ok(missing) if missing.is_empty() => ExitCode::SUCCESS,
        Ok(missing) => {
            missing.iter().for_each(|error| eprintln!("error: {error}"));
            ExitCode::from(INCOMPLETE)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(UNFIT)
        }
    }
}

/// Runs the loads; returns those that are missing or failed, and why.
///
/// # Errors
/// Fails if the arguments are wrong, if a file cannot be used, or if the figures violate a bound.
fn judge(args: &Args) -> Result<Vec<String>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    let traces = args.traces.clone().unwrap_or_else(|| root.join(TRACES));
    let wanted =
        |row: &&Row| args.load.is_empty() || args.load.iter().any(|part| row.name.contains(&part[..]));
    let mut missing = Vec::new();
    let mut rows: Vec<&'static Row> = Vec::new();
    for row in ROWS.iter().filter(wanted) {
        match row.load(&traces) {
            Ok(_) => rows.push(row),
            Err(error) => missing.push(format!("{} is left out: {error}", row.name)),
        }
    }
    missing.iter().for_each(|error| eprintln!("{error}"));
    if rows.is_empty() && missing.is_empty() {
        return Err(format!("there is no load with a name like {:?}", args.load.join(",")));
    }
    let policies = policies(args)?;
    if args.harm {
        missing.extend(check_estimates(args, &rows, &policies, &traces));
        return Ok(missing);
    }
    let known = match &args.keep {
        Some(path) if path.exists() => report::read(path)?,
        _ => Known::new(),
    };
    let cases: Vec<(&Row, &str)> =
        rows.iter().flat_map(|row| policies.iter().map(move |policy| (*row, *policy))).collect();
    let (next, known, failed) = (AtomicUsize::new(0), Mutex::new(known), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                while let Some((row, policy)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = judge_one(row, policy, &traces, args, &known);
                    if let Err(error) = done {
                        let error = format!("{} {policy}: failed: {error}", row.name);
                        eprintln!("{error}");
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                    }
                }
            });
        }
    });
    let known = known.into_inner().map_err(|_| "a run ended in a panic")?;
    let table = format!("{}\n\n{}", report::table(&rows, &known), report::costs(&rows, &known));
    println!("{table}");
    if args.record {
        report::record(&root.join(RECORD), &rows, &table)?;
    }
    missing.extend(failed.into_inner().unwrap_or_else(PoisonError::into_inner));
    let broken = if args.short { Vec::new() } else { report::violated_bounds(&rows, &known) };
    match broken.is_empty() {
        true => Ok(missing),
        false => Err(missing.into_iter().chain(broken).collect::<Vec<_>>().join("\nerror: ")),
    }
}

/// Runs each policy on each load with and without moves; returns those that failed, and why.
fn check_estimates(
    args: &Args,
    rows: &[&'static Row],
    policies: &[&'static str],
    traces: &Path,
) -> Vec<String> {
    let wanted = |policy: &&str| !args.policy.is_empty() || ["adaptive", "hystor"].contains(policy);
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for row in rows {
        for policy in policies.iter().filter(|policy| wanted(policy)) {
            match harm::check(row, policy, traces, args.short) {
                Ok(checked) => all.push(checked),
                Err(error) => failed.push(format!("{} {policy}: failed: {error}", row.name)),
            }
        }
    }
    println!("{}", harm::table(&all));
    failed
}

/// Runs one policy on one load, prints its results and stores them at once.
fn judge_one(
    row: &Row,
    policy: &str,
    traces: &Path,
    args: &Args,
    known: &Mutex<Known>,
) -> Result<(), String> {
    let start = Instant::now();
    let case = Case::new(row, traces, args.short)?;
    let (outcome, figures, arrivals) = case.run(by_name(policy).ok_or("there is no such policy")?)?;
    eprintln!("{} {policy}: {figures} ({:.0} s)", row.name, start.elapsed().as_secs_f64());
    if args.devices {
        eprint!("{}", report::devices(&outcome));
    }
    let mut found = vec![(policy, figures)];
    if policy == report::JUDGED {
        found.extend(case.bounds(&arrivals)?);
        eprintln!("{}: bounds ({:.0} s)", row.name, start.elapsed().as_secs_f64());
    }
    let mut known = known.lock().map_err(|_| "another run ended in a panic")?;
    for (name, figures) in found {
        known.insert((row.name.to_owned(), name.to_owned()), figures);
    }
    args.keep.as_ref().map_or(Ok(()), |path| report::write(path, &known))
}

/// A load with its pool.
struct Case<'r> {
    row: &'r Row,
    pool: PoolSpec,
    loaded: Loaded,
    spaces: Vec<VolumeData>,
    short: bool,
}

impl<'r> Case<'r> {
    fn new(row: &'r Row, traces: &Path, short: bool) -> Result<Self, String> {
        let (pool, loaded) = (row.pool(), row.load(traces)?);
        let spaces = loaded.new_load()?.volumes(pool.extent);
        Ok(Self { row, pool, loaded, spaces, short })
    }

    /// Runs a policy; returns the outcome, the figures and the arrivals.
    fn run(&self, policy: Box<dyn Placement>) -> Result<(Outcome, Figures, Vec<Arrival>), String> {
        let mut load = self.loaded.new_load()?;
        let plan = self.row.plan(&*load, self.short);
        let mut arrivals = Vec::new();
        let outcome = weir_sim::place_and_record(&self.pool, policy, &mut *load, &plan, Some(&mut arrivals));
        let outcome = outcome.map_err(|error| error.to_string())?;
        let cost = hindsight::cost(&self.pool, &self.spaces, &outcome).map_err(|error| error.to_string())?;
        let figures = Figures::of(&outcome, cost / arrivals.len().max(1) as f64);
        Ok((outcome, figures, arrivals))
    }

    /// Returns the figures of the best static placement, with its cost by the model, and the lower bound.
    fn bounds(&self, arrivals: &[Arrival]) -> Result<[(&'static str, Figures); 2], String> {
        let bounds = Hindsight::of(&self.pool, &self.spaces, arrivals).map_err(|error| error.to_string())?;
        let (_, replayed, _) = self.run(bounds.static_policy())?;
        let each = |seconds: f64| seconds / arrivals.len().max(1) as f64;
        let best_static = Figures { cost: each(bounds.static_cost), ..replayed };
        let dynamic = Figures { cost: bounds.dynamic_bound.map_or(f64::NAN, each), ..Figures::default() };
        Ok([(report::STATIC, best_static), (report::DYNAMIC, dynamic)])
    }
}

/// With its default weights it is `stripe`.
const SAME_AS_STRIPE: &str = "weighted_stripe";

fn policies(args: &Args) -> Result<Vec<&'static str>, String> {
    let all = ALL.iter().map(|known| known.name);
    let unknown = args.policy.iter().find(|name| ALL.iter().all(|known| known.name != **name));
    match unknown {
        Some(name) => Err(format!("there is no policy {name:?}")),
        None => Ok(all
            .filter(|name| match args.policy.is_empty() {
                true => *name != SAME_AS_STRIPE,
                false => args.policy.iter().any(|policy| policy == name),
            })
            .collect()),
    }
}
