//! Runs the crash campaign in a process of its own.

use super::suite::wait;
use super::{Args, Evidence, Found};
use crate::mix::Mix;
use clap::ValueEnum;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use weir_model::Seed;
use weir_world::Mutant;
use weir_world::driver::Failure;

/// Processor time limit of one history.
const HISTORY_MAX: Duration = Duration::from_secs(60);

/// Progress of the campaign's search for a mutant.
#[derive(Clone, Copy)]
pub(super) struct Position {
    /// The first seed not tried yet.
    seed: u64,
    /// Number of histories run.
    histories: u64,
    /// Processor time spent.
    pub(super) spent: Duration,
    pub(super) crashes: u64,
}

impl Position {
    pub(super) const fn from(seed: u64) -> Self {
        Self { seed, histories: 0, spent: Duration::ZERO, crashes: 0 }
    }
}

/// Maximum length of a failure's description, in bytes: some quote a whole page.
const DESCRIPTION_MAX: usize = 300;

/// Ends the name of the mix where the failing seed fails without the mutant, too.
const NEEDS_NO_MUTANT: &str = ", without the mutant too";
/// Ends the name of the mix where no history had a verdict of the oracle, but one a panic.
const ONLY_PANICS: &str = ", panics only";

/// Reports whether the engine panicked, which is no verdict of the oracle: assertions find a mutant only in
/// builds that have them.
fn is_panic(failure: &Failure) -> bool {
    match failure {
        Failure::InCopy(failure) => is_panic(failure),
        failure => matches!(failure, Failure::Panic(_)),
    }
}

/// Runs histories until the oracle finds a fault, or the processor time or the number of histories is up, and
/// prints a line: the next seed, the time, the crashes, and, for a failure, the mix and a description. The
/// first panic is described if nothing else is found.
pub(super) fn work(args: &Args, mutant: Mutant, first: u64) -> ExitCode {
    // A panic of the engine is reported with its history.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut seed, mut crashes, mut panic) = (first, 0, None);
    let end = first.saturating_add(args.histories);
    while processor_time() < args.minutes && seed < end {
        let mut history = args.mix.history(Seed(seed), true).with_copies(args.copies);
        history.setup.planted = super::planted(mutant);
        let outcome = history.run();
        crashes += outcome.statistics.crashes;
        if let Some((failure, _)) = outcome.failure {
            let is_panic = is_panic(&failure);
            let mut failure = failure.to_string().replace(['\n', '\t'], " ");
            failure.truncate(failure.floor_char_boundary(DESCRIPTION_MAX));
            let mut by = name(args.mix.of(Seed(seed)));
            let without = args.mix.history(Seed(seed), true).with_copies(args.copies);
            if without.run().failure.is_some() {
                by += NEEDS_NO_MUTANT;
            } else if is_panic {
                panic = panic.or(Some(format!("{by}{ONLY_PANICS}\tseed {seed}: {failure}")));
                seed += 1;
                continue;
            }
            println!(
                "{}\t{}\t{crashes}\t{by}\tseed {seed}: {failure}",
                seed + 1,
                processor_time().as_secs_f64()
            );
            return ExitCode::SUCCESS;
        }
        seed += 1;
    }
    let found = panic.map(|panic| format!("\t{panic}")).unwrap_or_default();
    println!("{seed}\t{}\t{crashes}{found}", processor_time().as_secs_f64());
    ExitCode::SUCCESS
}

/// Returns the processor time of this process; if the system does not provide it, the time since the first
/// call.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    spent_by(std::process::id()).unwrap_or_else(|| start.elapsed())
}

/// Returns the processor time of a process's first thread, on which histories run.
fn spent_by(process: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn name(mix: Mix) -> String {
    mix.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Continues the campaign in another process, up to a total processor time. A process that does not end is
/// reported, and does not count.
pub(super) fn find(
    args: &Args,
    mutant: Mutant,
    mix: Mix,
    until: Duration,
    position: &mut Position,
) -> Option<Found> {
    let time = until.saturating_sub(position.spent);
    let minutes = (time.as_secs_f64() / 60.0).to_string();
    let (mix_name, seed, copies) = (name(mix), position.seed.to_string(), args.copies.to_string());
    let histories = args.histories.saturating_sub(position.histories).to_string();
    let args = ["mutants", "--worker", "--only", mutant.name(), "--mix", &mix_name];
    let more = ["--histories", &histories, "--seed", &seed, "--minutes", &minutes, "--copies", &copies];
    let child = Command::new(std::env::current_exe().ok()?)
        .args(args.iter().chain(&more))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // By its processor time, because the machine may be busy or suspended.
    let never_ends = |child: &Child| spent_by(child.id()).is_some_and(|spent| spent > time + HISTORY_MAX);
    let Some((_, out)) = wait(child, never_ends) else {
        let (by, how) = (format!("campaign, {mix_name}"), "a history that does not end".to_owned());
        return Some(Found { by, time: until, crashes: None, symptom: how, evidence: Evidence::NoVerdict });
    };
    let mut fields = out.trim_end().splitn(5, '\t');
    let (seed, spent, crashes) = (fields.next()?, fields.next()?, fields.next()?);
    let seed = seed.parse().ok()?;
    position.histories += seed - position.seed;
    position.seed = seed;
    position.spent += Duration::try_from_secs_f64(spent.parse().ok()?).ok()?;
    position.crashes += crashes.parse::<u64>().ok()?;
    let (by, how) = (format!("campaign, {}", fields.next()?), fields.next()?.to_owned());
    let evidence = match &by {
        by if by.ends_with(NEEDS_NO_MUTANT) => Evidence::Bug,
        by if by.ends_with(ONLY_PANICS) => Evidence::NoVerdict,
        _ => Evidence::Verdict,
    };
    Some(Found { by, time: position.spent, crashes: Some(position.crashes), symptom: how, evidence })
}
