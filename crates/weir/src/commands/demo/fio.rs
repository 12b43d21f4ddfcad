//! The demo's client: fio, over NBD, as anybody would run it.

use crate::failure::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weir_model::{Bytes, Nanos};

/// Requests in flight of the mixed workload.
pub(super) const DEPTH: u32 = 4;
/// The most the sequential reader takes, so that it does not crowd out everything else.
pub(super) const SEQUENTIAL: Bytes = Bytes::mib(16);

/// Which blocks are busy: the same ones at any seed.
const BUSY: &str = "random_distribution=zipf:1.1:0\nnorandommap=1";

/// What fio is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Write here and there, as often to each block as [`Work::Mixed`] will ask for it.
    Begin,
    /// Write the whole span once, sequentially.
    Fill,
    /// Seven reads to three writes of 4 KiB, some blocks far more often than others (Zipf), besides
    /// a sequential reader of 128 KiB.
    Mixed {
        /// How long.
        seconds: u64,
    },
}

/// A running fio.
#[derive(Debug)]
pub(super) struct Fio {
    child: Child,
    output: PathBuf,
}

/// What the mixed workload got, as its client saw it; no times of what was never answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// 4 KiB reads and writes a second.
    pub(super) requests_per_second: f64,
    /// Mean latency of the 4 KiB reads.
    pub(super) read_mean: Option<Nanos>,
    /// Nine of ten of them were faster.
    pub(super) read_p90: Option<Nanos>,
    /// 99 of 100 of them were faster.
    pub(super) read_p99: Option<Nanos>,
    /// Mean latency of the 4 KiB writes.
    pub(super) write_mean: Option<Nanos>,
    /// The sequential reader, bytes a second.
    pub(super) sequential_per_second: f64,
}

/// What fio measured. Times are `null` if no request was answered.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Measured")]
pub(super) struct MeasuredPart {
    /// Reads and writes of 4 KiB a second.
    requests_per_second: f64,
    /// Mean response time of reads of 4 KiB.
    read_mean_ns: Option<u64>,
    /// 90th percentile of the response times of reads of 4 KiB.
    read_p90_ns: Option<u64>,
    /// 99th percentile of the response times of reads of 4 KiB.
    read_p99_ns: Option<u64>,
    /// Mean response time of writes of 4 KiB.
    write_mean_ns: Option<u64>,
    /// Throughput of the sequential reader.
    sequential_bytes_per_second: f64,
}

impl Measured {
    /// As in the demo's JSON document.
    pub(super) fn document(self) -> MeasuredPart {
        let ns = |time: Option<Nanos>| time.map(Nanos::get);
        MeasuredPart {
            requests_per_second: self.requests_per_second,
            read_mean_ns: ns(self.read_mean),
            read_p90_ns: ns(self.read_p90),
            read_p99_ns: ns(self.read_p99),
            write_mean_ns: ns(self.write_mean),
            sequential_bytes_per_second: self.sequential_per_second,
        }
    }
}

/// Refuses to begin without fio and its NBD engine.
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
    pub(super) fn start(folder: &Path, uri: &str, span: Bytes, work: Work) -> Result<Self, Failure> {
        let (job, output) = (folder.join("job.fio"), folder.join("fio.json"));
        std::fs::write(&job, job_file(uri, span, work))
            .map_err(|error| Failure::os("write", &job, &error))?;
        let child = Command::new("fio")
            .args(["--output-format=json", "--output=fio.json", "job.fio"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C is for the demo, which then ends fio itself.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::environment(format!("fio does not start: {error}"), ""))?;
        Ok(Self { child, output })
    }

    /// Whether it is still at work.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end and reads what it measured.
    pub(super) fn finish(mut self) -> Result<Measured, Failure> {
        let failed = |said: String| Failure::environment(format!("fio failed: {}", said.trim()), "");
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
        measured(&text).ok_or_else(|| failed("its report could not be understood".into()))
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn job_file(uri: &str, span: Bytes, work: Work) -> String {
    let span = span.get();
    let mut job = format!("[global]\nioengine=nbd\nuri={uri}\nsize={span}\nrandseed=1\n");
    let _ = match work {
        Work::Begin => write!(job, "[begin]\nrw=randwrite\nbs=4k\niodepth={DEPTH}\nio_size=48m\n{BUSY}\n"),
        Work::Fill => write!(job, "[fill]\nrw=write\nbs=1m\niodepth=4\nend_fsync=1\n"),
        Work::Mixed { seconds } => write!(
            job,
            "time_based=1\nruntime={seconds}\n\
             [mixed]\nrw=randrw\nrwmixread=70\nbs=4k\niodepth={DEPTH}\n{BUSY}\n\
             [sequential]\nrw=read\nbs=128k\niodepth=2\nrate={}\n",
            SEQUENTIAL.get()
        ),
    };
    job
}

/// Reads fio's JSON, of which only the part from the first brace on is JSON.
fn measured(text: &str) -> Option<Measured> {
    let report: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    let jobs = report["jobs"].as_array()?;
    let job = |name: &str| jobs.iter().find(|job| job["jobname"] == name);
    let Some(mixed) = job("mixed") else { return Some(Measured::default()) };
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    // fio has 0 where nothing was answered.
    let nanos = |value: &Value| Some(number(value) as u64).filter(|ns| *ns > 0).map(Nanos);
    let reads = &mixed["read"]["clat_ns"];
    Some(Measured {
        requests_per_second: number(&mixed["read"]["iops"]) + number(&mixed["write"]["iops"]),
        read_mean: nanos(&reads["mean"]),
        read_p90: nanos(&reads["percentile"]["90.000000"]),
        read_p99: nanos(&reads["percentile"]["99.000000"]),
        write_mean: nanos(&mixed["write"]["clat_ns"]["mean"]),
        sequential_per_second: job("sequential").map_or(0.0, |job| number(&job["read"]["bw_bytes"])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_also_behind_a_warning() {
        let text = r#"note: something
            {"jobs": [
              {"jobname": "mixed",
               "read": {"iops": 70.5, "clat_ns": {"mean": 1500.5, "percentile": {"90.000000": 2000, "99.000000": 9000}}},
               "write": {"iops": 29.5, "clat_ns": {"mean": 800.0}}},
              {"jobname": "sequential", "read": {"bw_bytes": 16777216}}]}"#;
        let found = measured(text).expect("it is a report");
        assert_eq!(found.requests_per_second, 100.0);
        assert_eq!(
            (found.read_mean, found.read_p99, found.write_mean),
            (Some(Nanos(1500)), Some(Nanos(9000)), Some(Nanos(800)))
        );
        assert_eq!(found.sequential_per_second, 16777216.0);
        assert!(measured("fio: failed").is_none());
        let idle = text.replace("1500.5", "0.0").replace("9000", "0");
        let found = measured(&idle).expect("it is a report");
        assert_eq!((found.read_mean, found.read_p99), (None, None), "nothing was read, which took no time");
        assert!(found.document().read_mean_ns.is_none());
    }

    #[test]
    fn jobs_say_what_they_do() {
        let job = job_file("nbd+unix:///demo?socket=nbd.sock", Bytes::mib(64), Work::Mixed { seconds: 5 });
        for line in ["ioengine=nbd", "uri=nbd+unix:///demo?socket=nbd.sock", "runtime=5", "rwmixread=70"] {
            assert!(job.lines().any(|found| found == line), "{line} in {job}");
        }
    }
}
