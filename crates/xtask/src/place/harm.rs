//! `cargo place --harm`: compares the engine's estimate of the benefit of moves with the measured effect of
//! moving nothing. See `docs/policies/comparison.md`.

use super::loads::Row;
use std::fmt::Write as _;
use std::path::Path;
use weir_model::Nanos;
use weir_policy::harm::{MoveControl, Rules};
use weir_policy::placement::by_name;
use weir_sim::Outcome;

/// Estimate and measurement of one policy on one load.
pub(super) struct EstimateCheck {
    load: &'static str,
    policy: &'static str,
    /// Ratio of the times with moves to those without: estimated, and measured.
    estimated: Option<f64>,
    run: f64,
    /// Mean response times with moves, and without.
    times: [Nanos; 2],
    /// Number of times that moves would have been stopped.
    stops: u32,
}

/// Runs a policy with free moves, with judged moves, and without moves.
///
/// # Errors
/// Returns why a load cannot be run.
pub(super) fn check(
    row: &'static Row,
    policy: &'static str,
    traces: &Path,
    short: bool,
) -> Result<EstimateCheck, String> {
    let rules = Rules::default();
    let run = |moves| run(row, policy, traces, short, moves);
    let (free, never) = (run(MoveControl::NeverPaused(rules))?, run(MoveControl::Disabled)?);
    let judged = run(MoveControl::Judged(rules))?;
    let time = |outcome: &Outcome| match row.clients {
        0 => outcome.all.mean,
        clients => Nanos::from_secs_f64(clients as f64 / outcome.rate.max(1e-9)),
    };
    let times = [time(&free), time(&never)];
    Ok(EstimateCheck {
        load: row.name,
        policy,
        estimated: free.estimate.map(|it| it.mean.0 as f64 / it.without.0.max(1) as f64),
        run: times[0].0 as f64 / times[1].0.max(1) as f64,
        times,
        stops: judged.stops,
    })
}

fn run(row: &Row, policy: &str, traces: &Path, short: bool, moves: MoveControl) -> Result<Outcome, String> {
    let loaded = row.load(traces)?;
    let mut load = loaded.new_load()?;
    let plan = row.plan(&*load, short);
    let mut pool = row.pool();
    pool.moves = moves;
    let policy = by_name(policy).ok_or("there is no such policy")?;
    weir_sim::place(&pool, policy, &mut *load, &plan).map_err(|error| error.to_string())
}

/// Formats all results as a table.
pub(super) fn table(all: &[EstimateCheck]) -> String {
    let mut text = String::from(
        "| load | policy | with moves | without | really | estimated | same side | stopped |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for it in all {
        let estimated = it.estimated.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        // Differences below a twentieth do not matter.
        let clear = |ratio: f64| if (ratio - 1.0).abs() < 0.05 { 0 } else { (ratio - 1.0).signum() as i32 };
        let same = it.estimated.map(|ratio| clear(ratio) * clear(it.run) >= 0);
        let same = same.map_or("-", |same| if same { "yes" } else { "NO" });
        let [with, without] = it.times;
        let (load, policy, run, stops) = (it.load, it.policy, it.run, it.stops);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{load}` | `{policy}` | {with} | {without} | {run:.2} | {estimated} | {same} | {stops} |"
        );
    }
    text
}
