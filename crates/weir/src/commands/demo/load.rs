//! Defines the demo's load, which is the same for every configuration.

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;
use weir_model::Bytes;

/// Divisor of the data's size that gives the size of the hot range.
const HOT_DIVISOR: u64 = 10;
/// Duration of the sequential read, in seconds.
const SCAN_SECONDS: u64 = 1;

/// The load that fio generates.
///
/// Chosen for a pool: the hot data fits on its SSD and not in the read buffer of the modelled disk (64 MiB),
/// and the disk alone does not reach the rate. Ten loads were tried (4 to 128 KiB; Zipf, one hot range, five
/// hot ranges; 384 and 768 MiB of data; with and without flushes): with less data the disk answers from its
/// buffer; with smaller requests, or with five hot ranges, the pool takes longer than a run to learn which
/// blocks are hot. Without flushes the disk alone keeps what it writes in its volatile cache, while the pool
/// makes its map durable.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(super) struct Load {
    /// Data in the volume, written once before the run.
    pub(super) data_bytes: u64,
    /// Size of a request.
    pub(super) request_bytes: u64,
    /// Requests a second that fio issues as long as the devices keep up; what was missed is issued later.
    pub(super) requests_per_second: u64,
    /// Reads among the requests, in percent; the rest are writes.
    pub(super) read_percent: u64,
    /// Requests in flight at most.
    pub(super) queue_depth: u64,
    /// Writes between two flushes.
    pub(super) writes_per_flush: u64,
    /// Size of the hot range.
    pub(super) hot_bytes: u64,
    /// Requests to the hot range, in percent; the rest go to the other data.
    pub(super) hot_percent: u64,
    /// Seconds that the load lasts.
    pub(super) seconds: u64,
}

/// A job of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FioJob {
    /// Writes a volume once, sequentially.
    Fill(Bytes),
    /// Runs the load.
    Run,
    /// Reads the volume from its start, sequentially.
    Scan,
}

impl FioJob {
    /// Returns a phrase that describes the job.
    pub(super) fn heading(self, load: &Load) -> String {
        match self {
            Self::Fill(size) => format!("writing {size} sequentially"),
            Self::Run => format!("running the load for {} s", load.seconds),
            Self::Scan => "reading sequentially".into(),
        }
    }
}

impl Load {
    pub(super) fn new(data: Bytes, seconds: u64) -> Self {
        Self {
            data_bytes: data.get(),
            request_bytes: 128 << 10,
            requests_per_second: 1000,
            read_percent: 70,
            queue_depth: 8,
            writes_per_flush: 32,
            hot_bytes: data.get() / HOT_DIVISOR,
            hot_percent: 95,
            seconds,
        }
    }

    /// Returns a sentence that describes the load.
    pub(super) fn description(&self) -> String {
        format!(
            "Load: {} requests/s of {} for {} s, {} % reads, a flush every {} writes; {} % of the \
             requests go to {} of {} of data. It is one that a pool is for: the hot data fits on the \
             pool's SSD.",
            crate::output::grouped(self.requests_per_second),
            Bytes(self.request_bytes),
            self.seconds,
            self.read_percent,
            self.writes_per_flush,
            self.hot_percent,
            Bytes(self.hot_bytes),
            Bytes(self.data_bytes),
        )
    }

    /// Returns the job file for fio.
    pub(super) fn job(&self, uri: &str, work: FioJob) -> String {
        let Self { request_bytes, requests_per_second: rate, read_percent, queue_depth, .. } = *self;
        let size = if let FioJob::Fill(size) = work { size.get() } else { self.data_bytes };
        let mut job = format!("[global]\nioengine=nbd\nuri={uri}\nsize={size}\nrandseed=1\n");
        let _ = match work {
            FioJob::Fill(_) => write!(job, "[fill]\nrw=write\nbs=1m\niodepth=4\nend_fsync=1\n"),
            FioJob::Run => {
                let (hot, cold, hot_size) = (self.hot_percent, 100 - self.hot_percent, 100 / HOT_DIVISOR);
                let (before, after) = (cold / 2, cold - cold / 2);
                let beside = (100 - hot_size) / 2;
                let reads = rate * read_percent / 100;
                write!(
                    job,
                    "[run]\nrw=randrw\nrwmixread={read_percent}\nbs={request_bytes}\niodepth={queue_depth}\n\
                     rate_iops={reads},{}\nfsync={}\nnorandommap=1\n\
                     random_distribution=zoned:{before}/{beside}:{hot}/{hot_size}:{after}/{beside}\n\
                     time_based=1\nruntime={}\n",
                    rate - reads,
                    self.writes_per_flush,
                    self.seconds,
                )
            }
            FioJob::Scan => {
                write!(job, "[scan]\nrw=read\nbs=1m\niodepth=2\ntime_based=1\nruntime={SCAN_SECONDS}\n")
            }
        };
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_match_the_description() {
        let load = Load::new(Bytes::mib(768), 12);
        let job = load.job("nbd+unix:///demo?socket=nbd.sock", FioJob::Run);
        for line in [
            "ioengine=nbd",
            "uri=nbd+unix:///demo?socket=nbd.sock",
            "size=805306368",
            "runtime=12",
            "rwmixread=70",
            "rate_iops=700,300",
            "fsync=32",
            "random_distribution=zoned:2/45:95/10:3/45",
        ] {
            assert!(job.lines().any(|found| found == line), "{line} in {job}");
        }
        let sentence = load.description();
        assert!(sentence.starts_with("Load: 1,000 requests/s of 128 KiB for 12 s, 70 % reads"), "{sentence}");
        assert!(sentence.contains("95 % of the requests go to 76.8 MiB of 768 MiB"), "{sentence}");
        assert!(load.job("", FioJob::Fill(Bytes::mib(5))).contains("size=5242880\n"));
    }
}
