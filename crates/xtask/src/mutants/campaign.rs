//! The crash campaign, in a process of its own.

use super::suite::wait;
use super::{Args, Found};
use crate::mix::Mix;
use clap::ValueEnum;
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use weir_model::Seed;
use weir_world::Mutant;

/// How many times longer than the processor time it has a campaign may take before it is ended: the machine may be
/// busy.
const PATIENCE: u32 = 20;

/// Runs histories until one fails or the processor time is up, and says so in a line: the mix, the time, the crashes,
/// and the failure.
pub(super) fn work(args: &Args, mutant: Mutant, first: u64) -> ExitCode {
    // A panic of the engine is a result like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let mut crashes = 0;
    for seed in (first..).map(Seed).take_while(|_| processor_time() < args.minutes) {
        let mut history = args.mix.history(seed, true).with_copies(args.copies);
        history.setup.planted = super::planted(mutant);
        let outcome = history.run();
        crashes += outcome.statistics.crashes;
        if let Some((failure, _)) = outcome.failure {
            let failure = failure.to_string().replace('\n', " ");
            let after = processor_time().as_secs_f64();
            println!("{}\t{after}\t{crashes}\tseed {seed}: {failure}", name(args.mix.of(seed)));
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::FAILURE
}

/// The processor time this process has had; the time since it was first asked for where the system does not tell.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    let spent = || std::fs::read_to_string("/proc/self/schedstat").ok()?.split(' ').next()?.parse().ok();
    spent().map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn name(mix: Mix) -> String {
    mix.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Has another process run the campaign. One that does not end has found something, too.
pub(super) fn find(args: &Args, mutant: Mutant, mix: Mix, seed: u64) -> Option<Found> {
    let time = args.minutes;
    let minutes = (time.as_secs_f64() / 60.0).to_string();
    let (mix_name, seed_text, copies) = (name(mix), seed.to_string(), args.copies.to_string());
    let args = ["mutants", "--worker", "--only", mutant.name(), "--mix", &mix_name];
    let more = ["--seed", &seed_text, "--minutes", &minutes, "--copies", &copies];
    let child = Command::new(std::env::current_exe().ok()?)
        .args(args.iter().chain(&more))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let found = |by: &str, after, crashes, how: &str| {
        Some(Found { by: format!("campaign, {by}"), after, crashes, how: how.to_owned() })
    };
    let Some((_, out)) = wait(child, PATIENCE * time) else {
        return found(&mix_name, time, None, "a history that does not end");
    };
    let mut fields = out.trim_end().splitn(4, '\t');
    let (by, after, crashes, how) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    found(by, Duration::try_from_secs_f64(after.parse().ok()?).ok()?, crashes.parse().ok(), how)
}
