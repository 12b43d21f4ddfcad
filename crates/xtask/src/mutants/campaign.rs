//! Runs the crash campaign in a process of its own.

use super::suite::wait;
use super::{Args, Found};
use crate::mix::Mix;
use clap::ValueEnum;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use weir_model::Seed;
use weir_world::Mutant;

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

/// Runs histories until one fails, or the processor time or the number of histories is up, and prints a
/// line: the next seed, the time, the crashes, and, for a failure, the mix and a description.
pub(super) fn work(args: &Args, mutant: Mutant, first: u64) -> ExitCode {
    // A panic of the engine is a result like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut seed, mut crashes) = (first, 0);
    let end = first.saturating_add(args.histories);
    while processor_time() < args.minutes && seed < end {
        let mut history = args.mix.history(Seed(seed), true).with_copies(args.copies);
        history.setup.planted = super::planted(mutant);
        let outcome = history.run();
        crashes += outcome.statistics.crashes;
        let failure = outcome.failure.map(|(failure, _)| failure.to_string().replace(['\n', '\t'], " "));
        if let Some(mut failure) = failure {
            failure.truncate(failure.floor_char_boundary(DESCRIPTION_MAX));
            let mut by = name(args.mix.of(Seed(seed)));
            let without = args.mix.history(Seed(seed), true).with_copies(args.copies);
            if without.run().failure.is_some() {
                by += NEEDS_NO_MUTANT;
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
    println!("{seed}\t{}\t{crashes}", processor_time().as_secs_f64());
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

/// Continues the campaign in another process, up to a total processor time. A process that does not end has
/// found something, too.
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
        return Some(Found { by, time: until, crashes: None, symptom: how, is_bug: false });
    };
    let mut fields = out.trim_end().splitn(5, '\t');
    let (seed, spent, crashes) = (fields.next()?, fields.next()?, fields.next()?);
    let seed = seed.parse().ok()?;
    position.histories += seed - position.seed;
    position.seed = seed;
    position.spent += Duration::try_from_secs_f64(spent.parse().ok()?).ok()?;
    position.crashes += crashes.parse::<u64>().ok()?;
    let (by, how) = (format!("campaign, {}", fields.next()?), fields.next()?.to_owned());
    let is_bug = by.ends_with(NEEDS_NO_MUTANT);
    Some(Found { by, time: position.spent, crashes: Some(position.crashes), symptom: how, is_bug })
}
