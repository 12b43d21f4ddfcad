//! Runs the crash campaign in a process of its own.

use super::Args;
use super::search::{Evidence, Found, Search};
use super::suite::wait;
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

/// Plants the mutants together, and runs histories until each is found, or the processor time or the number
/// of histories is up. Where a history fails, the mutants are planted in halves of halves, until each that
/// fails it alone is known: only those are found, and the others go on. Prints a line for each mutant found,
/// and one at the end: the name of the mutant, if any, the next seed, the time, the crashes, the mix and a
/// description of the failure.
///
/// One mutant that makes the engine panic goes on, too; among several, it leaves them.
pub(super) fn work(args: &Args, mutants: &[Mutant], first: u64) -> ExitCode {
    // A panic of the engine is reported with its history.
    std::panic::set_hook(Box::new(|_| {}));
    let mut worker = Worker { args, left: mutants.to_vec(), position: Position::from(first), panic: None };
    while worker.position.spent < args.minutes
        && worker.position.histories < args.histories
        && !worker.left.is_empty()
    {
        worker.advance();
    }
    if !worker.left.is_empty() {
        worker.print("", worker.panic.as_deref().unwrap_or_default());
    }
    ExitCode::SUCCESS
}

struct Worker<'a> {
    args: &'a Args,
    /// The mutants not found yet.
    left: Vec<Mutant>,
    position: Position,
    /// The first panic of the only mutant.
    panic: Option<String>,
}

/// A history's result.
#[derive(Clone)]
struct Played {
    failure: Option<Symptom>,
    time: Duration,
    crashes: u64,
}

/// How a history failed.
#[derive(Clone)]
struct Symptom {
    text: String,
    is_panic: bool,
}

impl From<Failure> for Symptom {
    fn from(failure: Failure) -> Self {
        let mut text = failure.to_string().replace(['\n', '\t'], " ");
        text.truncate(text.floor_char_boundary(DESCRIPTION_MAX));
        Self { text, is_panic: is_panic(&failure) }
    }
}

impl Worker<'_> {
    /// Runs the next history.
    fn advance(&mut self) {
        let seed = Seed(self.position.seed);
        let together = self.play(seed, &self.left);
        self.position.seed += 1;
        self.position.histories += 1;
        self.position.crashes += together.crashes;
        if together.failure.is_none() {
            self.position.spent += together.time;
            return;
        }
        let needs_mutant = self.play(seed, &[]).failure.is_none();
        let mut alone = Vec::new();
        self.isolate(seed, &self.left, &together, &mut alone);
        // As if each had been planted alone.
        self.position.spent += alone.iter().map(|(_, played)| played.time).max().unwrap_or(together.time);
        for (mutant, played) in alone {
            if let Some(symptom) = played.failure {
                self.failed_alone(mutant, seed, &symptom, needs_mutant);
            }
        }
    }

    /// Adds the mutants that fail this history alone, by halving the set that fails it. One that others
    /// conceal is not among them.
    fn isolate(&self, seed: Seed, mutants: &[Mutant], played: &Played, alone: &mut Vec<(Mutant, Played)>) {
        match mutants {
            _ if played.failure.is_none() => {}
            [mutant] => alone.push((*mutant, played.clone())),
            mutants => {
                for half in mutants.chunks(mutants.len().div_ceil(2)) {
                    self.isolate(seed, half, &self.play(seed, half), alone);
                }
            }
        }
    }

    /// Handles a history that fails with this mutant alone.
    fn failed_alone(&mut self, mutant: Mutant, seed: Seed, symptom: &Symptom, needs_mutant: bool) {
        let Symptom { text, is_panic } = symptom;
        let only_panics = needs_mutant && *is_panic;
        let remark = if only_panics {
            ONLY_PANICS
        } else if needs_mutant {
            ""
        } else {
            NEEDS_NO_MUTANT
        };
        let line = format!("{}{remark}\tseed {seed}: {text}", name(self.args.mix.of(seed)));
        if only_panics && self.left.len() == 1 {
            self.panic.get_or_insert(line);
        } else {
            self.print(mutant.name(), &line);
            self.left.retain(|&left| left != mutant);
        }
    }

    fn play(&self, seed: Seed, mutants: &[Mutant]) -> Played {
        let start = processor_time();
        let mut history = self.args.mix.history(seed, true, self.args.copies);
        history.setup.planted = super::planted(mutants);
        let outcome = history.run();
        Played {
            failure: outcome.failure.map(|(failure, _)| failure.into()),
            time: processor_time().saturating_sub(start),
            crashes: outcome.statistics.crashes,
        }
    }

    fn print(&self, mutant: &str, how: &str) {
        let Position { seed, spent, crashes, .. } = self.position;
        println!("{mutant}\t{seed}\t{}\t{crashes}\t{how}", spent.as_secs_f64());
    }
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

/// Continues the campaign for a group of mutants in another process, up to a total processor time for each. A
/// process that does not end is reported, and does not count.
pub(super) fn find(args: &Args, group: &mut [&mut Search], until: Duration) {
    // Not all have run as many histories: none is skipped.
    let Some(first) = group.iter().map(|search| search.campaign).min_by_key(|position| position.seed) else {
        return;
    };
    let spent = group.iter().map(|search| search.campaign.spent).max().unwrap_or_default();
    let time = until.saturating_sub(spent);
    let mix = name(group[0].mix(args));
    let Some(output) = run_worker(args, group, &mix, first, time) else {
        for search in group {
            let (by, symptom) = (format!("campaign, {mix}"), "a history that does not end".to_owned());
            let evidence = Evidence::NoVerdict;
            search.found = Some(Found { by, time: until, crashes: None, symptom, evidence });
        }
        return;
    };
    for line in output.lines() {
        let Some((mutant, at, found)) = parse(line) else { continue };
        let position = Position {
            seed: at.seed,
            histories: first.histories + at.seed.saturating_sub(first.seed),
            spent: spent + at.spent,
            crashes: first.crashes + at.crashes,
        };
        let is_it = |search: &&mut &mut Search| match mutant {
            "" => !search.is_found() && !search.has(Evidence::Bug),
            name => search.mutant.name() == name,
        };
        for search in group.iter_mut().filter(is_it) {
            search.campaign = position;
            if let Some((by, symptom, evidence)) = &found {
                let (by, symptom, evidence) = (format!("campaign, {by}"), (*symptom).to_owned(), *evidence);
                let crashes = Some(position.crashes);
                search.found = Some(Found { by, time: position.spent, crashes, symptom, evidence });
            }
        }
    }
}

/// Runs a worker; returns its output, or nothing if it does not end.
fn run_worker(
    args: &Args,
    group: &[&mut Search],
    mix: &str,
    from: Position,
    time: Duration,
) -> Option<String> {
    let names: Vec<_> = group.iter().map(|search| search.mutant.name()).collect();
    let (names, minutes) = (names.join(","), (time.as_secs_f64() / 60.0).to_string());
    let seed = from.seed.to_string();
    let copies = args.copies.map(|copies| format!("--copies={copies}"));
    let histories = args.histories.saturating_sub(from.histories).to_string();
    let arguments = ["mutants", "--worker", "--only", &names, "--mix", mix, "--histories", &histories];
    let more = ["--seed", &seed, "--minutes", &minutes];
    let child = Command::new(std::env::current_exe().ok()?)
        .args(arguments.iter().chain(&more))
        .args(copies)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // By its processor time, because the machine may be busy or suspended. Failing histories are run again.
    let limit = 3 * (time + HISTORY_MAX);
    let never_ends = |child: &Child| spent_by(child.id()).is_some_and(|spent| spent > limit);
    Some(wait(child, never_ends)?.1)
}

/// What a worker's line says: the mutant, how far the campaign is, and how the mutant was found.
type Line<'a> = (&'a str, Position, Option<(&'a str, &'a str, Evidence)>);

fn parse(line: &str) -> Option<Line<'_>> {
    let mut fields = line.splitn(6, '\t');
    let (mutant, seed, spent) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let crashes = fields.next()?.parse().ok()?;
    let spent = Duration::try_from_secs_f64(spent).ok()?;
    let found = fields.next().zip(fields.next()).map(|(by, symptom)| {
        let evidence = match by {
            by if by.ends_with(NEEDS_NO_MUTANT) => Evidence::Bug,
            by if by.ends_with(ONLY_PANICS) => Evidence::NoVerdict,
            _ => Evidence::Verdict,
        };
        (by, symptom, evidence)
    });
    Some((mutant, Position { seed, histories: 0, spent, crashes }, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_workers_are_understood() {
        let (mutant, at, found) = parse("flush-skipped\t42\t1.5\t7\tlosing\tseed 41: x\ty").expect("a line");
        assert_eq!(
            (mutant, at.seed, at.spent, at.crashes),
            ("flush-skipped", 42, Duration::from_millis(1500), 7)
        );
        assert_eq!(found, Some(("losing", "seed 41: x\ty", Evidence::Verdict)));
        let evidence = |line| parse(line).and_then(|line| line.2).map(|(.., evidence)| evidence);
        assert_eq!(evidence("\t42\t1.5\t7\tall, panics only\tseed 41"), Some(Evidence::NoVerdict));
        assert_eq!(evidence("\t42\t1.5\t7\tall, without the mutant too\tseed 41"), Some(Evidence::Bug));
        assert_eq!(parse("\t42\t1.5\t7\t").map(|line| line.2), Some(None), "nothing is found");
        assert!(parse("an error message").is_none());
    }
}
