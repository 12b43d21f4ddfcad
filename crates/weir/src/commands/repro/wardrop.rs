//! Reproduces equal response times (the dissertation's chapter III) on an SSD of 2008 and disks of 15,000
//! rpm.
//!
//! The loads are dbench, a file server's mix of operations, and a load that grows from one process to ten.

use super::experiment::{Experiment, Results, WARM_UP_DEFAULT, pool};
use super::loads::{DirtyLimits, ProcessLoad, WRITERS, shape};
use super::{Figure, Measures, Published, Reproduction, Setting};
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::file_system::FileSystemConfig;
use weir_sim::load::mix::{Mix, Weights};

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "wardrop",
    about: "Wardrop equilibrium of an SSD and disks: equal response times",
    source: "dissertation, chapter III: figures 13 to 19, table V",
    measures: Measures::Pools { experiments, figures },
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

fn figures(results: &Results) -> Vec<Figure> {
    use Published::{Between, Less, More, Size};
    let mut all = Vec::new();
    let netapp =
        |other: &str| results.ratio("netapp, ssd+disk, wardrop", &format!("netapp, {other}, striped"));
    all.push(Figure::new("NetApp, 10 processes: throughput to SSD alone", Size(1.38), netapp("ssd")));
    all.push(Figure::new("… to striped", Size(1.16), netapp("ssd+disk")));
    all.push(Figure::new("… latency to SSD alone", Size(0.72), 1.0 / netapp("ssd")));
    all.push(Figure::new("… latency to striped", Size(0.83), 1.0 / netapp("ssd+disk")));
    let share = results.first_device_share("netapp, ssd+disk, wardrop");
    all.push(Figure::new("… the SSD's share", Size(0.5), share));
    // A window is a thirtieth of the time. The ranges are from within the warm-up to the change, and well
    // after the change.
    let (one, ten) = (6..15, 20..30);
    let wardrop = "1 to 10, ssd+disk, wardrop";
    for (name, published_one, published_ten) in
        [("disk", 11.5769 / 12.3106, 36.8594 / 25.9799), ("ssd", 11.5769 / 12.413, 36.8594 / 23.6754)]
    {
        let other = format!("1 to 10, {name}, striped");
        let to = |windows: std::ops::Range<usize>| {
            results.rate_in(wardrop, windows.clone()) / results.rate_in(&other, windows)
        };
        all.push(Figure::new(
            format!("1 process: throughput to {name} alone"),
            Size(published_one),
            to(one.clone()),
        ));
        all.push(Figure::new(
            format!("… grown to 10: to {name} alone"),
            Size(published_ten),
            to(ten.clone()),
        ));
    }
    let dbench = |clients: usize, of: &str, other: &str| {
        results.ratio(
            &format!("dbench {clients}, {of}, wardrop"),
            &format!("dbench {clients}, {other}, striped"),
        )
    };
    for (of, alone) in [("ssd", "ssd"), ("memoright", "memoright"), ("transcend", "transcend")] {
        let pool = format!("{of}+disk");
        all.push(Figure::new(
            format!("dbench, 10 processes: {pool} to {alone} alone"),
            More,
            dbench(10, &pool, alone),
        ));
        all.push(Figure::new("… to disk alone (dbench)", More, dbench(10, &pool, "disk")));
    }
    all.push(Figure::new("dbench, 2 processes: ssd+disk to SSD alone", Less, dbench(2, "ssd+disk", "ssd")));
    let share = |pool: &str| results.first_device_share(&format!("dbench 10, {pool}, wardrop"));
    all.push(Figure::new("dbench: the SSD's share, one disk", Between(0.65, 0.70), share("ssd+disk")));
    all.push(Figure::new(
        "dbench: the SSD's share, four disks to one",
        Less,
        share("ssd+4 disks") / share("ssd+disk"),
    ));
    let four = dbench(10, "ssd+4 disks", "ssd+4 disks");
    all.push(Figure::new("dbench: four disks, throughput to striped", More, four));
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
