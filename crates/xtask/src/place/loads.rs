//! The loads on which every placement policy is judged, and their pools.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weir_model::{Bytes, ExtentSize, Nanos, Seed};
use weir_policy::harm::MoveControl;
use weir_sim::place::run::DURATION_MIN;
use weir_sim::{DeviceSize, DeviceSpec, Load, Mode, Plan, PoolSpec, Replay};
use weir_trace::{Reader, Trace};

/// Seed of all random choices.
const SEED: Seed = Seed(1);
/// Number of requests after which a closed loop on fast devices ends.
const REQUESTS: u64 = 6_000_000;
/// Size of the slow device, as a multiple of the data: enough for all of it, and copies.
const SLOW: f64 = 1.3;

/// A load with its pool.
#[derive(Debug)]
pub(super) struct Row {
    /// Name in the table.
    pub(super) name: &'static str,
    /// One-sentence description.
    pub(super) about: &'static str,
    source: Source,
    /// Number of clients of a closed loop; 0 for an open one.
    pub(super) clients: usize,
    /// Models of the fast and the slow device.
    models: [&'static str; 2],
    /// Share of the data that fits on the fast device.
    fast: f64,
    /// Model of a third device, and the share of the data that fits there.
    third: Option<(&'static str, f64)>,
    /// True if the slow device is the pool's first.
    slow_first: bool,
    /// True if the load exceeds the fast device's capability, so that classic caching should be beaten by
    /// far.
    pub(super) saturates: bool,
    /// The judged policy fails if a figure exceeds this multiple of the named policy's.
    pub(super) bound: Option<(&'static str, f64)>,
}

#[derive(Debug)]
enum Source {
    /// A file among the traces, and the factor by which its replay is slowed down.
    Trace(&'static str, f64),
    /// See [`weir_sim::load::synthetic`] and [`weir_sim::load::postmark`].
    Synthetic(&'static str),
}

use Source::{Synthetic, Trace as Recorded};

/// A current SSD and disk.
const CURRENT_DEVICES: [&str; 2] = ["ssd-sata", "hdd-7200"];
/// The devices of the papers.
const PAPER_DEVICES: [&str; 2] = ["intel-x25-m-g2", "hdd-15k"];
/// Persistent memory and a current disk; the third device is between them.
const MEMORY: [&str; 2] = ["nvm", "hdd-7200"];
/// An SSD and a disk with limits on commands per second, and equal response times for single commands.
const CAPPED: [&str; 2] = ["capped-600", "capped-200"];
/// A local SSD of its time and a current remote one, which responds later but has a higher throughput.
const REMOTE: [&str; 2] = ["intel-x25-m-g2", "remote-ssd-lan"];

const fn row(name: &'static str, source: Source, clients: usize, about: &'static str) -> Row {
    Row {
        name,
        about,
        source,
        clients,
        models: CURRENT_DEVICES,
        fast: 0.1,
        third: None,
        slow_first: false,
        saturates: false,
        bound: None,
    }
}

/// All loads.
pub(super) const ROWS: &[Row] = &[
    Row {
        fast: 0.2,
        ..row(
            "cloudphysics",
            Recorded("cloudphysics_vm.csv.gz", 4.0),
            0,
            "a virtual machine's disk; four times as slow as recorded",
        )
    },
    Row {
        fast: 0.05,
        ..row(
            "release-server",
            Recorded("dtrs_release_server.trace.gz", 1.0),
            0,
            "a release server: long streams of reads, most of them once",
        )
    },
    Row {
        bound: Some(("stripe", 1.05)),
        ..row(
            "file-server",
            Synthetic(
                "uniform size=64KiB run=4 over=2GiB rate=600 for=5s / uniform size=64KiB run=4 over=2GiB rate=1 for=15s | uniform reads=0% size=4KiB over=2GiB rate=100 for=5s / uniform reads=0% size=4KiB over=2GiB rate=0.1 for=15s",
            ),
            0,
            "large reads, most of them once, beside small writes, in bursts that the disk just answers",
        )
    },
    Row {
        bound: Some(("stripe", 1.05)),
        ..row(
            "file-server-turned",
            Synthetic(
                "uniform reads=0% size=4KiB over=2GiB rate=100 for=5s / \
                 uniform reads=0% size=4KiB over=2GiB rate=0.1 for=15s | \
                 uniform size=64KiB run=4 over=2GiB rate=600 for=5s / \
                 uniform size=64KiB run=4 over=2GiB rate=1 for=15s",
            ),
            0,
            "the same; the volume of the small writes was written first",
        )
    },
    row(
        "websearch",
        Recorded("websearch_small.trace.gz", 6.0),
        0,
        "a web search engine's reads, at random; six times as slow as recorded",
    ),
    row(
        "hm-20-80",
        Recorded("msr_hm_rw_20_80_105.trace.gz", 1.0),
        0,
        "a server's volume, one read for four writes",
    ),
    row(
        "hm-40-60",
        Recorded("msr_hm_rw_40_60_1370.trace.gz", 1.0),
        0,
        "a server's volume, two reads for three writes",
    ),
    Row {
        models: PAPER_DEVICES,
        fast: 0.25,
        ..row(
            "workstation",
            Recorded("hplajw_1week.csv.gz", 0.02),
            0,
            "a workstation's week in some three hours",
        )
    },
    Row {
        fast: 0.25,
        ..row(
            "database-commit",
            Recorded("sqlite_wal_ext4.blkev.gz", 10.0),
            0,
            "a database's log and its file system's, writes only; ten times as slow as recorded",
        )
    },
    row("zipf-0R4W", Synthetic("zipf theta=1.1 reads=0% size=4KiB over=1GiB"), 16, "writes by Zipf's law"),
    row(
        "zipf-1R3W",
        Synthetic("zipf theta=1.1 reads=25% size=4KiB over=1GiB"),
        16,
        "one read for three writes",
    ),
    row(
        "zipf-2R2W",
        Synthetic("zipf theta=1.1 reads=50% size=4KiB over=1GiB"),
        16,
        "as many reads as writes",
    ),
    row(
        "zipf-3R1W",
        Synthetic("zipf theta=1.1 reads=75% size=4KiB over=1GiB"),
        16,
        "three reads for a write",
    ),
    row("zipf-4R0W", Synthetic("zipf theta=1.1 reads=100% size=4KiB over=1GiB"), 16, "reads by Zipf's law"),
    Row {
        fast: 0.2,
        ..row("postmark", Synthetic("postmark files=20000 memory=50% rate=40"), 0, "many small files")
    },
    Row {
        fast: 0.2,
        ..row(
            "mail",
            Synthetic("postmark files=20000 memory=50% sync"),
            4,
            "many small files, each change flushed",
        )
    },
    row(
        "phases",
        Synthetic(
            "zipf theta=1.1 hot=1 reads=70% size=4KiB over=1GiB rate=150 for=200s / zipf theta=1.1 hot=2 reads=95% size=4KiB:3,64KiB:1 rate=150 for=200s / zipf theta=0.9 hot=3 reads=40% size=16KiB rate=80 for=200s",
        ),
        0,
        "changes character three times",
    ),
    row(
        "scan-beside",
        Synthetic(
            "zipf theta=1.1 reads=80% size=4KiB over=1GiB rate=100 | scan size=256KiB over=1GiB rate=40",
        ),
        0,
        "a scan beside reads and writes by Zipf's law",
    ),
    Row {
        models: PAPER_DEVICES,
        saturates: true,
        ..row(
            "saturated-writes",
            Synthetic(
                "uniform reads=10% size=64KiB over=48MiB | uniform reads=10% size=64KiB over=48MiB | uniform size=64KiB reads=10% over=928MiB think=2s",
            ),
            32,
            "more writes than the SSD can take",
        )
    },
    Row {
        models: REMOTE,
        saturates: true,
        ..row(
            "saturated-reads",
            Synthetic(
                "uniform size=256KiB over=48MiB | uniform size=256KiB over=48MiB | uniform size=256KiB over=928MiB think=2s",
            ),
            32,
            "more reads than the local SSD can answer",
        )
    },
    Row {
        models: MEMORY,
        fast: 0.05,
        third: Some(("ssd-sata", 0.15)),
        ..row(
            "three-kinds",
            Synthetic("zipf theta=1.1 reads=70% size=4KiB over=1GiB rate=100"),
            0,
            "by Zipf's law",
        )
    },
    Row {
        models: MEMORY,
        fast: 0.05,
        third: Some(("ssd-sata", 0.15)),
        ..row(
            "three-kinds-hm",
            Recorded("msr_hm_rw_40_60_1370.trace.gz", 1.0),
            0,
            "a server's volume, two reads for three writes",
        )
    },
    Row {
        fast: 0.05,
        third: Some(("ssd-sata", 0.05)),
        ..row(
            "two-ssds",
            Synthetic("zipf theta=1.1 reads=50% size=4KiB over=1GiB"),
            16,
            "as many reads as writes",
        )
    },
    Row {
        third: Some(("hdd-7200", SLOW)),
        ..row(
            "two-disks",
            Synthetic("zipf theta=1.1 reads=50% size=4KiB over=1GiB"),
            16,
            "as many reads as writes",
        )
    },
    Row {
        models: CAPPED,
        fast: 0.25,
        ..row(
            "capped",
            Synthetic("zipf theta=1.1 size=4KiB over=1GiB"),
            16,
            "reads by Zipf's law, of devices that load alone tells apart",
        )
    },
    Row {
        models: CAPPED,
        fast: 0.25,
        slow_first: true,
        ..row(
            "capped-turned",
            Synthetic("zipf theta=1.1 size=4KiB over=1GiB"),
            16,
            "the same, the slow device first",
        )
    },
    Row {
        models: CAPPED,
        fast: 0.25,
        slow_first: true,
        ..row(
            "capped-guest",
            Synthetic(
                "zipf theta=1.1 size=4KiB over=1GiB for=200s / zipf theta=1.1 reads=70% size=4KiB over=1GiB for=200s / scan size=256KiB over=1GiB for=50s / zipf theta=1.1 size=4KiB over=1GiB for=200s",
            ),
            16,
            "there reads by Zipf's law, three reads for a write or so, a scan, and reads again",
        )
    },
    Row {
        fast: 0.2,
        third: Some(("hdd-7200", SLOW)),
        ..row(
            "two-disks-postmark",
            Synthetic("postmark files=20000 memory=50% rate=60"),
            0,
            "many small files",
        )
    },
];

/// A trace in memory, or a synthetic load.
pub(super) enum Loaded {
    Trace(Box<Trace>, f64),
    Synthetic(&'static str),
}

impl Row {
    /// Returns name, model and share of the data for each device, in the pool's order.
    fn devices(&self) -> Vec<(&'static str, &'static str, f64)> {
        let [fast, slow] = self.models;
        let third = self.third.map(|(model, share)| ("third", model, share));
        let all = [Some(("fast", fast, self.fast)), third, Some(("slow", slow, SLOW))];
        let mut all: Vec<_> = all.into_iter().flatten().collect();
        all.rotate_right(usize::from(self.slow_first));
        all
    }

    /// Describes its devices: those with room for a part of the data, and those with room for all of it.
    pub(super) fn describe_devices(&self) -> [String; 2] {
        let (all, part): (Vec<_>, Vec<_>) = self.devices().into_iter().partition(|device| device.2 >= 1.0);
        let part: Vec<_> =
            part.iter().map(|(_, model, share)| format!("{model}, {:.0} %", share * 100.0)).collect();
        let all: Vec<_> = all.iter().map(|(_, model, _)| *model).collect();
        [part.join("; "), all.join("; ")]
    }

    /// Returns its pool.
    pub(super) fn pool(&self) -> PoolSpec {
        let device = |name: &str, model: &str, share| DeviceSpec {
            name: name.into(),
            model: model.into(),
            size: DeviceSize::Share(share),
            metadata: None,
            noise: None,
        };
        let devices =
            self.devices().into_iter().map(|(name, model, share)| device(name, model, share)).collect();
        PoolSpec {
            extent: ExtentSize::DEFAULT,
            devices,
            mover_share: weir_engine::MOVER_SHARE,
            extent_cache: Bytes(0),
            moves: MoveControl::default(),
        }
    }

    /// Reads its trace from the folder `traces`, if it has one.
    ///
    /// # Errors
    /// Returns why the trace cannot be read.
    pub(super) fn load(&self, traces: &Path) -> Result<Loaded, String> {
        match self.source {
            Synthetic(words) => Ok(Loaded::Synthetic(words)),
            Recorded(file, stretch) => {
                let path: PathBuf = traces.join("workloads").join(file);
                let open = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let reader = Reader::open(file, BufReader::new(open), None);
                let trace = reader.and_then(|reader| Trace::load(reader, false));
                trace.map(|trace| Loaded::Trace(Box::new(trace), stretch)).map_err(|error| error.to_string())
            }
        }
    }

    /// Returns the plan of the experiment: whole repetitions for at least ten minutes, or, with `short`, a
    /// minute.
    pub(super) fn plan(&self, load: &dyn Load, short: bool) -> Plan {
        let mode = if self.clients == 0 { Mode::Open } else { Mode::Closed(vec![(Nanos(0), self.clients)]) };
        let whole = load.duration().0.max(1);
        let lasts = match (&mode, short) {
            (_, true) => Nanos::secs(60),
            (Mode::Open, false) => Nanos(whole * DURATION_MIN.0.div_ceil(whole)),
            (Mode::Closed(_) | Mode::Ramp(_), false) => DURATION_MIN,
        };
        let requests = if mode == Mode::Open { u64::MAX } else { REQUESTS };
        Plan { mode, duration: lasts, requests, warm_up: None, windows: 30, seed: SEED }
    }
}

impl Loaded {
    /// Returns the load from its start.
    ///
    /// # Errors
    /// Fails if its words are invalid.
    pub(super) fn new_load(&self) -> Result<Box<dyn Load>, String> {
        match self {
            Self::Trace(trace, stretch) => Ok(Box::new(Replay::new((**trace).clone(), *stretch))),
            Self::Synthetic(words) => weir_sim::load::parse(words, SEED.0, weir_sim::units::size, time)
                .map_err(|error| error.to_string()),
        }
    }
}

/// Parses a time of the rows.
fn time(text: &str) -> Result<Nanos, String> {
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    seconds.map(Nanos::secs).ok_or_else(|| "a time such as 200s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique_and_described() {
        for (i, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..i].iter().all(|other| other.name != row.name), "{} twice", row.name);
            assert!((0.05..=0.25).contains(&row.fast), "{}", row.name);
            if let Synthetic(words) = row.source {
                let load = Loaded::Synthetic(words).new_load().expect("words that make sense");
                assert_eq!(row.plan(&*load, true).duration, Nanos::secs(60));
                assert!(row.plan(&*load, false).duration >= DURATION_MIN, "{}", row.name);
            }
        }
    }
}
