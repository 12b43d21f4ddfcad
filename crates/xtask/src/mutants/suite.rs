//! The tests of model, map, engine and session, built once with all mutants.

use super::search::{Evidence, Found};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_world::Mutant;

/// Time limit of a test program, a hundred times what it needs.
const LIMIT: Duration = Duration::from_secs(1800);

/// A test program.
pub(super) struct Program(PathBuf);

/// Builds the test programs.
pub(super) fn build() -> Result<Vec<Program>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = ["weir-model", "weir-map", "weir-engine", "weir-session"];
    let features = packages.map(|package| format!("{package}/mutants")).join(",");
    let output = Command::new(cargo)
        .args(["test", "--quiet", "--no-run", "--message-format", "json", "--lib", "--tests"])
        .args(["--features", &features])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .stderr(Stdio::inherit())
        .output();
    let output = output.map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = |message: serde_json::Value| Some(Program(message["executable"].as_str()?.into()));
    Ok(messages.filter_map(program).collect())
}

/// Runs the tests, or the one of this name, until a program fails. Only a test that fails by itself counts. A
/// name that no test has is reported, and does not count.
pub(super) fn find(mutant: Mutant, programs: &[Program], name: Option<&str>) -> Option<Found> {
    let start = Instant::now();
    let mut has_run = name.is_none();
    let failure = programs.iter().find_map(|Program(path)| {
        let child = Command::new(path)
            .args(["--test-threads", "2"])
            .args(name.iter().flat_map(|name| [name, "--exact"]))
            .env("WEIR_MUTANT", mutant.name())
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        match wait(child, |_| start.elapsed() > LIMIT) {
            Some((true, out)) => {
                has_run |= name.is_some_and(|name| out.contains(&format!("test {name} ... ok")));
                None
            }
            Some((false, out)) => Some(failed_tests(&out)),
            None => Some((Evidence::NoVerdict, "a test that does not end".to_owned())),
        }
    });
    let unknown = || (Evidence::NoVerdict, "no test has this name".to_owned());
    let (evidence, symptom) = failure.or_else(|| (!has_run).then(unknown))?;
    Some(Found { by: "tests".to_owned(), time: start.elapsed(), crashes: None, symptom, evidence })
}

/// Returns the first failed test and the number of others.
fn failed_tests(out: &str) -> (Evidence, String) {
    let failed = out.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let failed: Vec<_> = failed.collect();
    match failed[..] {
        [] => (Evidence::NoVerdict, "a test program that ends abnormally".to_owned()),
        [one] => (Evidence::Verdict, one.to_owned()),
        [first, ..] => (Evidence::Verdict, format!("{first} and {} more", failed.len() - 1)),
    }
}

/// Returns the output of the process, and whether it succeeded; kills it and returns `None` if it takes too
/// long.
pub(super) fn wait(mut child: Child, takes_too_long: impl Fn(&Child) -> bool) -> Option<(bool, String)> {
    let mut stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut out = Vec::new();
        let _what_could_be_read = stdout.as_mut().map(|stdout| stdout.read_to_end(&mut out));
        String::from_utf8_lossy(&out).into_owned()
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if !takes_too_long(&child) => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ended_already = child.kill().and_then(|()| child.wait());
                return None;
            }
        }
    };
    Some((status, reader.join().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_fails_counts() {
        let out = "test map::a ... ok\ntest map::b ... FAILED\ntest map::c ... FAILED\n";
        assert_eq!(failed_tests(out), (Evidence::Verdict, "map::b and 1 more".to_owned()));
        assert_eq!(failed_tests("test map::a ... ok\n").0, Evidence::NoVerdict, "it was killed");
    }
}
