//! Hystor: part of the working set also on an SSD, and writes buffered there (the paper's section 7).

use super::lab::{Experiment, MakeLoad, Results, pool};
use super::loads::{WRITERS, mixed, postmark, shape, words};
use super::{Figure, Published, Reproduction, Setting};
use weir_model::{Bytes, Nanos};
use weir_sim::files::Shape;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "hystor",
    about: "the costly blocks of a disk also on an SSD, and writes buffered there",
    source: "Hystor (ICS 2011), section 7: figure 5",
    experiments,
    figures,
    notes: |_| Vec::new(),
};

const EXTENT: Bytes = Bytes::kib(128);
const DISK: (&str, Bytes) = ("hdd-15k", Bytes(73_400_000_000));
const SSD: (&str, Bytes) = ("intel-x25-e-fresh", Bytes(32_000_000_000));

/// Parts of the working set, and of the SSD's space for writes, in percent.
const SPACES: [u64; 3] = [20, 60, 100];
const BUFFERS: [u64; 2] = [0, 30];

/// A load: its name, its working set, how it is made, and its processes.
struct Known {
    name: &'static str,
    working_set: Bytes,
    make: fn() -> MakeLoad,
    processes: usize,
    /// The paper's runs of Postmark and email took less than a minute: what is written fills the write-back area,
    /// and is scrubbed afterwards.
    lasts: Nanos,
}

const LOADS: [Known; 3] = [
    Known {
        name: "postmark",
        working_set: Bytes::mib(388),
        make: mail,
        processes: 1,
        lasts: Nanos::secs(60),
    },
    Known { name: "email", working_set: Bytes::mib(135), make: email, processes: 1, lasts: Nanos::secs(20) },
    Known { name: "scan", working_set: Bytes::mib(1230), make: scan, processes: 1, lasts: Nanos::secs(600) },
];

fn ext3(size: Bytes, memory: Bytes) -> Shape {
    Shape { journal: Bytes::mib(16), age: Nanos::secs(5), ..shape(size, memory) }
}

/// 20,000 files in 100 directories; the memory is so small that reads reach the drives, as they did.
fn mail() -> MakeLoad {
    let mix = postmark(20_000, 100, 10_000, false);
    mixed(ext3(Bytes::mib(512), Bytes::mib(48)), mix, vec![Nanos(0)])
}

/// 500 files in 500 directories, appended to; each change is synced.
fn email() -> MakeLoad {
    let mix = postmark(500, 500, 200_000, true);
    mixed(ext3(Bytes::mib(256), Bytes::mib(128)), mix, vec![Nanos(0)])
}

/// One table read from start to end, by a query that takes its time over each piece.
fn scan() -> MakeLoad {
    words("scan size=128KiB over=1230MiB think=1ms".into())
}

fn experiments(_: &Setting) -> Vec<Experiment> {
    let mut all = Vec::new();
    for load in &LOADS {
        let mut add = |name: String, drives: &[(&str, Bytes)], policy, tuning: Vec<_>| {
            all.push(Experiment {
                name: format!("{}, {name}", load.name),
                pool: pool(EXTENT, drives),
                policy,
                tuning,
                load: (load.make)(),
                clients: load.processes + if load.name == "scan" { 0 } else { WRITERS },
                lasts: load.lasts,
            });
        };
        add("disk".into(), &[DISK], "sequential", Vec::new());
        add("ssd".into(), &[SSD], "sequential", Vec::new());
        for space in SPACES {
            for buffer in BUFFERS {
                // The policy takes 85 % of the fast device, which has room for metadata besides.
                let room = load.working_set.0 * space / 85 + Bytes::mib(64).0;
                let fast = (SSD.0, Bytes(room.next_multiple_of(EXTENT.0)));
                let tuning = vec![("write_back", buffer as f64 / 100.0)];
                add(format!("{space} %, {buffer} % for writes"), &[fast, DISK], "hystor", tuning);
            }
        }
    }
    all
}

fn figures(results: &Results) -> Vec<Figure> {
    use Published::{Between, Less, Size};
    let mut all = Vec::new();
    // Times: the inverse of rates.
    let mut add = |what: &str, published, one: &str, other: &str| {
        all.push(Figure::new(what, published, results.ratio(other, one)));
    };
    add("Postmark: time on the disk to SSD", Size(4.2), "postmark, disk", "postmark, ssd");
    add("… Hystor, 20 % of space, to disk", Less, "postmark, 20 %, 0 % for writes", "postmark, disk");
    add("… Hystor, 60 %, to 20 %", Less, "postmark, 60 %, 0 % for writes", "postmark, 20 %, 0 % for writes");
    add("… Hystor, 100 %, to SSD", Size(1.1), "postmark, 100 %, 30 % for writes", "postmark, ssd");
    add(
        "… 60 %, with a write-back area to without",
        Size(24.0 / 34.0),
        "postmark, 60 %, 30 % for writes",
        "postmark, 60 %, 0 % for writes",
    );
    add("Email: time on the disk to SSD", Size(18.8), "email, disk", "email, ssd");
    add("… 20 %, with a write-back area to disk", Less, "email, 20 %, 30 % for writes", "email, disk");
    add(
        "… 20 %, with a write-back area to without",
        Size(0.5),
        "email, 20 %, 30 % for writes",
        "email, 20 %, 0 % for writes",
    );
    add("TPC-H Q1: time on the disk to SSD", Size(1.16), "scan, disk", "scan, ssd");
    add("… Hystor, 60 %, to disk", Between(0.9, 1.05), "scan, 60 %, 0 % for writes", "scan, disk");
    all
}
