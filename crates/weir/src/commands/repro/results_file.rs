//! The file in which results are kept, a line for each experiment and seed, so that a run that was
//! interrupted continues.

use super::results::{ExperimentId, Metrics};
use crate::failure::Failure;
use crate::files::{self, OutputKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::Hasher as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A line of the file in which results are kept.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// A digest of the program that ran the experiment.
    program: String,
    #[serde(flatten)]
    id: ExperimentId,
    metrics: Metrics,
}

/// Returns a digest of the running program: another one may come to other results.
///
/// # Errors
/// Fails if the program's file cannot be read.
pub(super) fn program() -> Result<String, Failure> {
    // Its file may have been replaced or removed since it began, hours ago.
    let path = Path::new("/proc/self/exe");
    let bytes = std::fs::read(path).map_err(|error| Failure::os("read", path, &error))?;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:016x}", hasher.finish()))
}

/// The file in which results are kept while experiments run.
#[derive(Debug)]
pub(super) struct ResultsFile {
    kept: BTreeMap<ExperimentId, Metrics>,
    program: String,
    file: Option<(PathBuf, Mutex<File>)>,
}

impl ResultsFile {
    /// Opens the file, or none. Lines of other builds of weir and damaged lines are left out, with a warning.
    ///
    /// # Errors
    /// Fails if the file holds anything but results, or if it cannot be read or written.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self { kept: BTreeMap::new(), program: String::new(), file: None });
        };
        let program = program()?;
        files::refuse_foreign_content(path, OutputKind::Results)?;
        let failure = |error: std::io::Error| Failure::os("write to", path, &error);
        let mut file = File::options().append(true).create(true).open(path).map_err(failure)?;
        // A device or a pipe has no results, and may have no end.
        let text = match path.is_file() {
            true => std::fs::read_to_string(path).map_err(|error| Failure::os("read", path, &error))?,
            false => String::new(),
        };
        let (kept, left_out) = read(&text, &program);
        if let Some(left_out) = left_out {
            tracing::warn!("{}: left out {left_out}; these experiments run again", path.display());
        }
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failure)?;
        }
        Ok(Self { kept, program, file: Some((path.to_owned(), Mutex::new(file))) })
    }

    /// Returns the kept result of the experiment, or runs it and keeps its result.
    ///
    /// # Errors
    /// Fails as `run` does, or if the result cannot be written.
    pub(super) fn get_or_run(
        &self,
        id: &ExperimentId,
        run: impl FnOnce() -> Result<Metrics, Failure>,
    ) -> Result<Metrics, Failure> {
        if let Some(metrics) = self.kept.get(id) {
            return Ok(metrics.clone());
        }
        let metrics = run()?;
        if let Some((path, file)) = &self.file {
            let line = Line { program: self.program.clone(), id: id.clone(), metrics: metrics.clone() };
            let failure = |error: std::io::Error| Failure::os("write to", path, &error);
            let mut line = serde_json::to_string(&line).map_err(|error| failure(error.into()))?;
            line.push('\n');
            let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            file.write_all(line.as_bytes()).map_err(failure)?;
        }
        Ok(metrics)
    }
}

/// Returns the results of a build of weir in a text, and what else is there.
fn read(text: &str, program: &str) -> (BTreeMap<ExperimentId, Metrics>, Option<String>) {
    let (mut kept, mut others, mut damaged) = (BTreeMap::new(), 0, 0);
    for line in text.lines() {
        match serde_json::from_str::<Line>(line) {
            Ok(line) if line.program == program => _ = kept.insert(line.id, line.metrics),
            Ok(_) => others += 1,
            Err(_) => damaged += 1,
        }
    }
    let counts = [("results of another build of weir", others), ("damaged lines", damaged)];
    let left_out: Vec<_> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{what}: {count}"))
        .collect();
    let left_out = (!left_out.is_empty()).then(|| left_out.join(", "));
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::repro::results::testing::{id, metrics};

    #[test]
    fn kept_results_are_not_run_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let file = ResultsFile::open(Some(&path)).expect("a new file");
        assert_eq!(file.get_or_run(&id("a", 1), || Ok(metrics(2.5))).ok(), Some(metrics(2.5)));
        // An interrupted run leaves an incomplete line.
        let mut text = std::fs::read_to_string(&path).expect("the file");
        text.push_str("{\"version\":");
        std::fs::write(&path, text).expect("written");
        let file = ResultsFile::open(Some(&path)).expect("the file");
        let never = || panic!("it is kept");
        assert_eq!(file.get_or_run(&id("a", 1), never).ok(), Some(metrics(2.5)));
        assert_eq!(
            file.get_or_run(&id("a", 2), || Ok(metrics(3.0))).ok(),
            Some(metrics(3.0)),
            "another seed"
        );
        let file = ResultsFile::open(Some(&path)).expect("the file");
        assert_eq!(file.get_or_run(&id("a", 2), never).ok(), Some(metrics(3.0)));
    }

    #[test]
    fn what_is_left_out_is_said() {
        let line = |program: &str, seed| {
            let line = Line { program: program.to_owned(), id: id("a", seed), metrics: metrics(1.0) };
            serde_json::to_string(&line).expect("a line")
        };
        let text =
            [line("this", 1), "{\"version\":".to_owned(), line("other", 2), line("this", 3)].join("\n");
        let (kept, left_out) = read(&text, "this");
        assert_eq!(kept.keys().map(|id| id.seed).collect::<Vec<_>>(), [1, 3]);
        let left_out = left_out.expect("two lines");
        assert_eq!(left_out, "results of another build of weir: 1, damaged lines: 1");
        assert_eq!(read(&line("this", 1), "this").1, None);
        assert_eq!(read(&line("this", 1), "other").1.as_deref(), Some("results of another build of weir: 1"));
        assert_eq!(read("x", "this").1.as_deref(), Some("damaged lines: 1"));
    }

    #[test]
    fn nothing_is_appended_to_other_files_and_a_full_disk_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "notes\n").expect("written");
        let refused = ResultsFile::open(Some(&path)).expect_err("it holds something else");
        assert!(refused.message.contains("notes.txt exists and is no file of results"), "{refused:?}");
        assert_eq!(std::fs::read(&path).expect("the file"), b"notes\n");
        let full = ResultsFile::open(Some(Path::new("/dev/full"))).expect("a device");
        let failed = full.get_or_run(&id("a", 1), || Ok(metrics(1.0))).expect_err("it is full");
        assert!(failed.message.contains("/dev/full"), "{failed:?}");
    }
}
