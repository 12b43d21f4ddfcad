//! Reproduces equal response times (the dissertation's chapter III) on an SSD of 2008 and disks of 15,000
//! rpm.
//!
//! The loads are dbench, a file server's mix of operations, and a load that grows from one process to ten.

use super::experiment::{Experiment, WARM_UP_DEFAULT, pool};
use super::loads::{DirtyLimits, ProcessLoad, WRITERS, shape};
use super::{Measures, Reproduction, Setting};
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::file_system::FileSystemConfig;
use weir_sim::load::mix::{Mix, Weights};

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "wardrop",
    about: "Wardrop equilibrium of an SSD and disks: equal response times",
    data: include_str!("data/wardrop.toml"),
    measures: Measures::Pools(experiments),
    notes,
};

const EXTENT: Bytes = Bytes::kib(128);
/// Size of the extent cache: a hundred extents, in every pool alike.
const CACHE: Bytes = Bytes(100 * EXTENT.0);
const DISK: (&str, Bytes) = ("mba3073", Bytes(73_500_000_000));
const SSD: (&str, Bytes) = ("intel-x25-m-g1", Bytes(80_000_000_000));
const MEMORIGHT: (&str, Bytes) = ("memoright-gt", Bytes(32_000_000_000));
const TRANSCEND: (&str, Bytes) = ("transcend-ts16g", Bytes(16_000_000_000));

/// Tuning of the policy. Beta is as published, and `step` lets shares change without a limit.
///
/// Alpha, published as 10 for each millisecond of response times of 0.2 to 0.9 ms, is 1 for each mean
/// response time. With 128 writes waiting at a drive, response times here are tens of milliseconds, and the
/// published value would make the shares of every round all or nothing.
const TUNING: &[(&str, f64)] = &[("alpha", 1.0), ("relative", 1.0), ("beta", 100.0), ("step", 1.0)];

const DURATION: Nanos = Nanos::secs(300);
/// Duration of the loads of dbench, which repeat every few seconds.
const DBENCH_DURATION: Nanos = Nanos::secs(90);
const PROCESSES: usize = 10;

/// Returns the operations of an engineering department's file server, with the counts of table III and the
/// sizes of table IV.
fn netapp() -> Mix {
    Mix {
        weights: Weights {
            stat: 287_274,
            touch: 50_527,
            read: 43_044,
            append: 0,
            overwrite: 47_626,
            create: 29,
            remove: 29,
        },
        files: 1070,
        directories: 40,
        sizes: 2048..=262_144,
        mostly_small: true,
        theta: 0.3,
        read: Some(4096..=32_114),
        write: 1024..=11_384,
        updates_atime: true,
        sync: false,
        cpu_time: Nanos::micros(200),
    }
}

/// Returns processes on a machine with four processors and 1 GiB of memory, on a file system that trims free
/// space.
fn processes(count: usize) -> ProcessLoad {
    let shape = FileSystemConfig {
        trim: true,
        ..shape(Bytes::gib(8), Bytes::mib(800), DirtyLimits::LINUX_SINCE_2_6_22)
    };
    ProcessLoad { processors: Some(4), ..ProcessLoad::of(count, shape) }
}

fn pools() -> Vec<(&'static str, PoolSpec, &'static [PolicyTuning])> {
    let pool = |extent, drives: &[_]| PoolSpec { extent_cache: CACHE, ..pool(extent, drives) };
    vec![
        ("disk", pool(EXTENT, &[DISK]), &[STRIPED]),
        ("ssd", pool(EXTENT, &[SSD]), &[STRIPED]),
        ("ssd+disk", pool(EXTENT, &[SSD, DISK]), &[STRIPED, WARDROP]),
        ("ssd+4 disks", pool(EXTENT, &[SSD, DISK, DISK, DISK, DISK]), &[STRIPED, WARDROP]),
        ("memoright", pool(EXTENT, &[MEMORIGHT]), &[STRIPED]),
        ("memoright+disk", pool(EXTENT, &[MEMORIGHT, DISK]), &[WARDROP]),
        ("transcend", pool(EXTENT, &[TRANSCEND]), &[STRIPED]),
        ("transcend+disk", pool(EXTENT, &[TRANSCEND, DISK]), &[WARDROP]),
    ]
}

/// A policy and its tuning: the name in experiments, the policy, and the keys that differ from the defaults.
type PolicyTuning = (&'static str, &'static str, &'static [(&'static str, f64)]);
const STRIPED: PolicyTuning = ("striped", "stripe", &[]);
const WARDROP: PolicyTuning = ("wardrop", "wardrop", TUNING);

fn experiments(setting: &Setting) -> Vec<Experiment> {
    let mut all = Vec::new();
    for (pool_name, pool, ways) in pools() {
        let with_intel = pool_name.contains("ssd") || pool_name == "disk";
        for way in ways {
            let mut add = |load: &str, make, clients, lasts| {
                all.push(Experiment {
                    name: format!("{load}, {pool_name}, {}", way.0),
                    pool: pool.clone(),
                    policy: way.1,
                    tuning: way.2.to_vec(),
                    load: make,
                    clients: clients + WRITERS,
                    duration: lasts,
                    warm_up_share: WARM_UP_DEFAULT,
                });
            };
            if with_intel {
                add("netapp", processes(PROCESSES).mixed(netapp()), PROCESSES, DURATION);
                let mut grown = processes(PROCESSES);
                // Nine other processes join the first one here; the warm-up is the first third.
                grown.start_shares[1..].fill(0.5);
                add("1 to 10", grown.mixed(netapp()), PROCESSES, DURATION);
            }
            if let Some(recording) = &setting.recording {
                for clients in [2, PROCESSES] {
                    let make = processes(clients).dbench(recording.clone(), Nanos::micros(30));
                    add(&format!("dbench {clients}"), make, clients, DBENCH_DURATION);
                }
            }
        }
    }
    all
}

fn notes(setting: &Setting) -> Vec<String> {
    if setting.recording.is_some() {
        return Vec::new();
    }
    let note = "figures of dbench are left out: name its load file with --dbench FILE; Debian's package dbench has it \
                as /usr/share/dbench/client.txt";
    vec![note.into()]
}
