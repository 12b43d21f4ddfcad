//! Runs the demo's client: fio over NBD, as users run it.

use super::load::{FioJob, Load};
use super::report::Measured;
use crate::failure::{Failure, REPORT_KERNEL};
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weir_model::Nanos;

/// A running fio process, killed when dropped.
#[derive(Debug)]
pub(super) struct Fio {
    child: Child,
    output: PathBuf,
}

/// Fails if fio or its NBD engine is not installed.
pub(super) fn check_installed() -> Result<(), Failure> {
    let help = "install it (Debian: apt-get install fio), or run scripts/demo, which does";
    let engines = Command::new("fio").arg("--enghelp").output().map_err(|error| {
        Failure::environment(format!("fio, the demo's NBD client, does not run: {error}"), help)
    })?;
    match String::from_utf8_lossy(&engines.stdout).lines().any(|line| line.trim() == "nbd") {
        true => Ok(()),
        false => Err(Failure::environment("this fio has no NBD engine", help)),
    }
}

impl Fio {
    /// Starts fio on an export.
    pub(super) fn start(folder: &Path, uri: &str, load: &Load, work: FioJob) -> Result<Self, Failure> {
        let (job, output) = (folder.join("job.fio"), folder.join("fio.json"));
        std::fs::write(&job, load.job(uri, work)).map_err(|error| Failure::os("write", &job, &error))?;
        let mut command = Command::new("fio");
        if work == FioJob::Run {
            command.arg("--status-interval=1");
        }
        let child = command
            .args(["--output-format=json", "--output=fio.json", "job.fio"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C must reach the demo only, which then ends fio itself.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::environment(format!("fio does not start: {error}"), REPORT_KERNEL))?;
        Ok(Self { child, output })
    }

    /// Returns whether fio is still running.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the mean response time of reads in each second so far, as fio reported it.
    pub(super) fn reads(&self) -> Vec<Nanos> {
        reads_by_second(&documents(&std::fs::read_to_string(&self.output).unwrap_or_default()))
    }

    /// Waits until fio ends, and returns its measurements.
    pub(super) fn finish(mut self) -> Result<Measured, Failure> {
        let failed =
            |said: String| Failure::environment(format!("fio failed: {}", said.trim()), REPORT_KERNEL);
        let status = self.child.wait().map_err(|error| failed(error.to_string()))?;
        if !status.success() {
            let mut said = String::new();
            if let Some(stderr) = &mut self.child.stderr {
                let _ = std::io::Read::read_to_string(stderr, &mut said);
            }
            return Err(failed(format!("{status}: {said}")));
        }
        let text = std::fs::read_to_string(&self.output)
            .map_err(|error| Failure::os("read", &self.output, &error))?;
        measured(&documents(&text)).ok_or_else(|| failed("its report is not JSON that weir reads".into()))
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses the JSON documents in fio's output: one for each second, and one at the end. Text before the first
/// brace is a warning. An incomplete document ends the list.
fn documents(text: &str) -> Vec<Value> {
    let start = text.find('{').unwrap_or(text.len());
    serde_json::Deserializer::from_str(&text[start..]).into_iter().map_while(Result::ok).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Returns the mean response time of reads between consecutive documents, each of which counts from the
/// start.
fn reads_by_second(documents: &[Value]) -> Vec<Nanos> {
    let sums = documents.iter().map(|document| {
        let reads = &document["jobs"][0]["read"];
        let (count, mean) = (number(&reads["total_ios"]), number(&reads["clat_ns"]["mean"]));
        (count, count * mean)
    });
    let mut before = (0.0, 0.0);
    let mean = |sum: (f64, f64)| {
        let (count, time) = (sum.0 - before.0, sum.1 - before.1);
        before = sum;
        (count >= 1.0 && time > 0.0).then(|| Nanos((time / count) as u64))
    };
    sums.filter_map(mean).collect()
}

/// Returns the measurements of the first job in the last document.
fn measured(documents: &[Value]) -> Option<Measured> {
    // The last document is not that of a second: it adds the requests that were in flight at the end.
    let (last, seconds) = documents.split_last()?;
    let job = last["jobs"].as_array()?.first()?;
    let (read, write) = (&job["read"], &job["write"]);
    // fio reports 0 if nothing was answered.
    let nanos = |value: &Value| Some(number(value) as u64).filter(|ns| *ns > 0);
    Some(Measured {
        requests_per_second: number(&read["iops"]) + number(&write["iops"]),
        read_bytes_per_second: number(&read["bw_bytes"]),
        read_mean_ns: nanos(&read["clat_ns"]["mean"]),
        read_p99_ns: nanos(&read["clat_ns"]["percentile"]["99.000000"]),
        write_mean_ns: nanos(&write["clat_ns"]["mean"]),
        read_mean_ns_by_second: reads_by_second(seconds).into_iter().map(Nanos::get).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"jobs": [{"jobname": "run",
        "read": {"iops": 70.5, "bw_bytes": 4096, "total_ios": 10,
                 "clat_ns": {"mean": 1500.5, "percentile": {"99.000000": 9000}}},
        "write": {"iops": 29.5, "clat_ns": {"mean": 800.0}}}]}"#;

    #[test]
    fn report_after_a_warning_is_parsed() {
        let found = measured(&documents(&format!("note: something\n{REPORT}"))).expect("it is a report");
        assert_eq!((found.requests_per_second, found.read_bytes_per_second), (100.0, 4096.0));
        assert_eq!(
            (found.read_mean_ns, found.read_p99_ns, found.write_mean_ns),
            (Some(1500), Some(9000), Some(800))
        );
        assert!(measured(&documents("fio: failed")).is_none());
        assert!(found.read_mean_ns_by_second.is_empty(), "the last report is of no second");
        let idle = REPORT.replace("1500.5", "0.0").replace("9000", "0");
        let found = measured(&documents(&idle)).expect("it is a report");
        assert_eq!(
            (found.read_mean_ns, found.read_p99_ns),
            (None, None),
            "nothing was read, which took no time"
        );
    }

    #[test]
    fn responses_by_second_are_differences_of_reports() {
        let first = REPORT.replace("1500.5", "1000");
        let second = REPORT.replace("1500.5", "600").replace(": 10,", ": 30,");
        let half = &REPORT[..40];
        let reads = reads_by_second(&documents(&format!("{first}\n{second}\n{second}\n{half}")));
        assert_eq!(
            reads,
            [Nanos(1000), Nanos(400)],
            "nothing is read in the third, and the fourth is not complete"
        );
    }
}
