//! Reproduces Hystor: an SSD holds a part of the working set and buffers writes (the paper's section 7).

use super::experiment::{Experiment, MakeLoad, pool};
use super::loads::{DirtyLimits, ProcessLoad, WRITERS, postmark, shape, words};
use super::{Measures, Reproduction, Setting};
use weir_engine::Percent;
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::file_system::FileSystemConfig;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "hystor",
    about: "the costly blocks of a disk also on an SSD, and writes buffered there",
    data: include_str!("data/hystor.toml"),
    measures: Measures::Pools(experiments),
    notes: |_| Vec::new(),
};

const EXTENT: Bytes = Bytes::kib(128);
/// The disk, behind a RAID controller that acknowledges a write once it is on the media. See
/// `docs/policies/reproductions.md`.
const DISK: (&str, Bytes) = ("hdd-15k-through", Bytes(73_400_000_000));
const SSD: (&str, Bytes) = ("intel-x25-e-fresh", Bytes(32_000_000_000));

/// Sizes of the SSD in percent of the working set, and of the write-back area in percent of the SSD.
const SSD_PERCENTS: [u64; 5] = [20, 40, 60, 80, 100];
const BUFFER_PERCENTS: [u64; 2] = [0, 30];

/// Shares of the time at which the pause begins and ends. The paper measured second runs: a first run, a
/// pause in which the mover migrates by what it has learned, and the run that counts.
const PAUSE_START: f64 = 0.3;
const PAUSE_END: f64 = 0.6;

/// A load, with its duration and the settings for it.
struct LoadCase {
    name: &'static str,
    /// Size of the set of blocks that the load was observed to access.
    working_set: Bytes,
    make_load: fn() -> MakeLoad,
    processes: usize,
    duration: Nanos,
    /// Period of the policy's selection in seconds, which the paper does not state.
    period: f64,
    /// Share of a device's time for migration and scrubbing while clients use it.
    mover_share: Percent,
}

const LOADS: [LoadCase; 3] = [
    // The paper's mover waits for idle times.
    LoadCase {
        name: "postmark",
        working_set: Bytes::mib(250),
        make_load: mail,
        processes: 1,
        duration: Nanos::secs(300),
        period: 2.0,
        mover_share: Percent(5),
    },
    // In the paper's worst case for scrubbing, nothing limits the scrubbing.
    LoadCase {
        name: "email",
        working_set: Bytes::mib(157),
        make_load: email,
        processes: 1,
        duration: Nanos::secs(20),
        period: 10.0,
        mover_share: Percent(100),
    },
    LoadCase {
        name: "scan",
        working_set: Bytes::mib(1230),
        make_load: scan,
        processes: 1,
        duration: Nanos::secs(300),
        period: 2.0,
        mover_share: Percent(5),
    },
];

/// Returns a file system with the journal that it has by default.
fn ext3(size: Bytes, memory: Bytes) -> FileSystemConfig {
    FileSystemConfig {
        journal: Bytes::mib(128),
        age: Nanos::secs(5),
        ..shape(size, memory, DirtyLimits::LINUX_BEFORE_2_6_22)
    }
}

fn second_run(shape: FileSystemConfig) -> ProcessLoad {
    ProcessLoad { pause: PAUSE_START..PAUSE_END, ..ProcessLoad::of(1, shape) }
}

/// Returns the load of Postmark with 20,000 files in 100 directories. The memory is so small that reads reach
/// the drives, as they did in the paper.
fn mail() -> MakeLoad {
    second_run(ext3(Bytes::mib(512), Bytes::mib(240))).mixed(postmark(20_000, 100, 10_000))
}

/// Returns the load of a mail server: 500 files in 500 directories, most of them small, with appends. Each
/// change is synced.
fn email() -> MakeLoad {
    let mut mix = postmark(500, 500, 40_000);
    (mix.mostly_small, mix.sync) = (true, true);
    second_run(ext3(Bytes::mib(256), Bytes::mib(128))).mixed(mix)
}

/// Returns the load of a query that reads one table from start to end and computes after each piece.
fn scan() -> MakeLoad {
    words("scan size=128KiB over=1230MiB think=300us".into())
}

fn experiments(_: &Setting) -> Vec<Experiment> {
    let mut all = Vec::new();
    for load in &LOADS {
        let mut add = |name: String, drives: &[(&str, Bytes)], policy, tuning: Vec<_>| {
            all.push(Experiment {
                name: format!("{}, {name}", load.name),
                pool: PoolSpec { mover_share: load.mover_share, ..pool(EXTENT, drives) },
                policy,
                tuning,
                load: (load.make_load)(),
                clients: load.processes + if load.name == "scan" { 0 } else { WRITERS },
                duration: load.duration,
                warm_up_share: PAUSE_END,
            });
        };
        add("disk".into(), &[DISK], "sequential", Vec::new());
        add("ssd".into(), &[SSD], "sequential", Vec::new());
        for space in SSD_PERCENTS {
            for buffer in BUFFER_PERCENTS {
                // The policy uses 85 % of the fast device, which also needs space for metadata.
                let room = load.working_set.0 * space / 85 + Bytes::mib(64).0;
                let fast = (SSD.0, Bytes(room.next_multiple_of(EXTENT.0)));
                let tuning = vec![("write_back", buffer as f64 / 100.0), ("period", load.period)];
                add(experiment_name(space, buffer), &[fast, DISK], "hystor", tuning);
            }
        }
    }
    all
}

fn experiment_name(space: u64, buffer: u64) -> String {
    format!("{space} %, {buffer} % for writes")
}
