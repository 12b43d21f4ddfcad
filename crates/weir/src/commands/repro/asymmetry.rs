//! Reproduces measurement-driven migration between a flash drive of 2008 and a disk (the dissertation's
//! chapter II).
//!
//! The flash drive writes better or worse than the disk. The configurations are each drive alone, both
//! striped, both striped with migration, and two disks.

use super::experiment::{Experiment, WARM_UP_DEFAULT, pool};
use super::loads::{DirtyLimits, ProcessLoad, WRITERS, postmark, shape, words};
use super::{Measures, Reproduction, Setting};
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::mix::{Mix, Weights};

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "asymmetry",
    about: "measurement-driven migration between flash and disk",
    data: include_str!("data/asymmetry.toml"),
    measures: Measures::Pools(experiments),
    notes: |_| Vec::new(),
};

const CHUNK: Bytes = Bytes::kib(64);
const DISK: (&str, Bytes) = ("sp2504c", Bytes(250_000_000_000));
const MEMORIGHT: (&str, Bytes) = ("memoright-gt", Bytes(32_000_000_000));
const TRANSCEND: (&str, Bytes) = ("transcend-ts16g", Bytes(16_000_000_000));

/// Returns the compared pools, by name.
fn pools() -> Vec<(&'static str, PoolSpec)> {
    vec![
        ("disk", pool(CHUNK, &[DISK])),
        ("two disks", pool(CHUNK, &[DISK, DISK])),
        ("transcend", pool(CHUNK, &[TRANSCEND])),
        ("transcend+disk", pool(CHUNK, &[TRANSCEND, DISK])),
        ("memoright", pool(CHUNK, &[MEMORIGHT])),
        ("memoright+disk", pool(CHUNK, &[MEMORIGHT, DISK])),
    ]
}

/// A policy and its tuning: the name in experiments, the policy, and the keys that differ from the defaults.
type PolicyTuning = (&'static str, &'static str, &'static [(&'static str, f64)]);
const STRIPED: PolicyTuning = ("striped", "stripe", &[]);
const MIGRATION: PolicyTuning = ("migration", "asymmetry", &[TOKENS]);
const MIGRATION_2: PolicyTuning = ("migration-2", "asymmetry", &[TOKENS, ("large_stay", 1.0)]);
/// Moves a second. The dissertation says only that there were few; the same group's next publication has 4 a
/// second.
const TOKENS: (&str, f64) = ("tokens", 4.0);

/// Returns a mix of NFS operations in SPECsfs 3.0's proportions.
///
/// Memory answers repeated reads, so the drives see about one read to four writes.
fn sfs() -> Mix {
    Mix {
        weights: Weights { stat: 66, touch: 3, read: 18, append: 0, overwrite: 9, create: 2, remove: 2 },
        files: 4000,
        directories: 30,
        sizes: 1024..=262_144,
        mostly_small: true,
        theta: 0.9,
        read: Some(4096..=8192),
        write: 4096..=8192,
        updates_atime: true,
        sync: false,
        cpu_time: Nanos::micros(200),
    }
}

const CLIENTS: usize = 12;

/// Duration of the long experiments. At four moves a second it takes hours until most of the requested data
/// has moved; the paper shows its NFS load after 12,000 seconds.
const LONG: Nanos = Nanos::secs(3 * 3600);
/// Duration of the short experiments. Postmark's 400,000 transactions took half an hour.
const SHORT: Nanos = Nanos::secs(1800);

fn experiments(_: &Setting) -> Vec<Experiment> {
    let mut all = Vec::new();
    for (pool_name, pool) in pools() {
        let alone = pool.devices.len() == 1;
        let is_disks = pool_name == "two disks";
        let both = [STRIPED, MIGRATION];
        let ways: &[PolicyTuning] = if alone || is_disks { &both[..1] } else { &both };
        let mut add = |load: &str, way: &PolicyTuning, make, clients, lasts| {
            all.push(Experiment {
                name: format!("{load}, {pool_name}, {}", way.0),
                pool: pool.clone(),
                policy: way.1,
                tuning: way.2.to_vec(),
                load: make,
                clients,
                duration: lasts,
                warm_up_share: WARM_UP_DEFAULT,
            });
        };
        for way in ways {
            add("nfs", way, nfs(), CLIENTS + WRITERS, LONG);
            if alone {
                continue;
            }
            add("postmark", way, small_files(), 2 + WRITERS, SHORT);
            for readers in 0..=4 {
                add(&format!("{readers}R{}W", 4 - readers), way, zipf(readers), 4, LONG);
            }
            add("large files", way, large_files(), 2 + WRITERS, SHORT);
        }
        if !alone && !is_disks {
            add("large files", &MIGRATION_2, large_files(), 2 + WRITERS, SHORT);
        }
    }
    all
}

fn nfs() -> super::experiment::MakeLoad {
    ProcessLoad::of(CLIENTS, shape(Bytes::gib(6), Bytes::mib(600), DirtyLimits::LINUX_BEFORE_2_6_22))
        .mixed(sfs())
}

fn small_files() -> super::experiment::MakeLoad {
    ProcessLoad::of(2, shape(Bytes::gib(2), Bytes::mib(200), DirtyLimits::BUSY_MEMORY))
        .mixed(postmark(20_000, 1, 10_000))
}

fn large_files() -> super::experiment::MakeLoad {
    ProcessLoad::of(2, shape(Bytes::gib(6), Bytes::mib(600), DirtyLimits::BUSY_MEMORY))
        .mixed(postmark(4000, 1, 500_000))
}

/// Returns the load of four processes, of which `readers` read and the others write.
///
/// Each has a file of 512 MiB and bypasses the memory. It selects records by Zipf's law, the first one most
/// often, so frequent records are adjacent.
fn zipf(readers: usize) -> super::experiment::MakeLoad {
    let of = |number: usize| {
        let reads = if number < readers { 100 } else { 0 };
        format!("zipf theta=0.9 hot=first reads={reads}% size=4KiB over=512MiB")
    };
    words((0..4).map(of).collect::<Vec<_>>().join(" | "))
}
