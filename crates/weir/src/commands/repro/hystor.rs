//! Hystor: part of the working set also on an SSD, and writes buffered there (the paper's section 7).

use super::lab::{Experiment, MakeLoad, Results, pool};
use super::loads::{Course, Dirty, WRITERS, postmark, shape, words};
use super::{Figure, Measures, Published, Reproduction, Setting};
use weir_engine::Percent;
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::files::Shape;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "hystor",
    about: "the costly blocks of a disk also on an SSD, and writes buffered there",
    source: "Hystor (ICS 2011), section 7: figure 5",
    measures: Measures::Pools { experiments, figures },
    notes: |_| Vec::new(),
};

const EXTENT: Bytes = Bytes::kib(128);
/// Behind a RAID controller that acknowledges what is on the media: see docs/policies/reproductions.md.
const DISK: (&str, Bytes) = ("hdd-15k-through", Bytes(73_400_000_000));
const SSD: (&str, Bytes) = ("intel-x25-e-fresh", Bytes(32_000_000_000));

/// Parts of the working set, and of the SSD's space for writes, in percent.
const SPACES: [u64; 5] = [20, 40, 60, 80, 100];
const BUFFERS: [u64; 2] = [0, 30];

/// The paper measured second runs: a run, a pause in which what it showed is moved, the run that counts; as
/// shares of the time.
const LEARNT: f64 = 0.3;
const RESTED: f64 = 0.6;

/// A load: its name, its working set, how it is made, and its processes.
struct Known {
    name: &'static str,
    /// The blocks it was seen to ask for.
    working_set: Bytes,
    make: fn() -> MakeLoad,
    processes: usize,
    lasts: Nanos,
    /// How often blocks are chosen, in seconds: the paper does not say.
    period: f64,
    /// Of a device's time, what moves and scrubbing take while clients use it.
    mover_share: Percent,
}

const LOADS: [Known; 3] = [
    // The paper's mover waits for idle times.
    Known {
        name: "postmark",
        working_set: Bytes::mib(250),
        make: mail,
        processes: 1,
        lasts: Nanos::secs(300),
        period: 2.0,
        mover_share: Percent(5),
    },
    // The paper's worst case for scrubbing, which is held back by nothing.
    Known {
        name: "email",
        working_set: Bytes::mib(157),
        make: email,
        processes: 1,
        lasts: Nanos::secs(20),
        period: 10.0,
        mover_share: Percent(100),
    },
    Known {
        name: "scan",
        working_set: Bytes::mib(1230),
        make: scan,
        processes: 1,
        lasts: Nanos::secs(300),
        period: 2.0,
        mover_share: Percent(5),
    },
];

/// With the journal such a file system has by default.
fn ext3(size: Bytes, memory: Bytes) -> Shape {
    Shape { journal: Bytes::mib(128), age: Nanos::secs(5), ..shape(size, memory, Dirty::MOST) }
}

fn second_run(shape: Shape) -> Course {
    Course { pause: LEARNT..RESTED, ..Course::of(1, shape) }
}

/// 20,000 files in 100 directories; the memory is so small that reads reach the drives, as they did.
fn mail() -> MakeLoad {
    second_run(ext3(Bytes::mib(512), Bytes::mib(240))).mixed(postmark(20_000, 100, 10_000))
}

/// 500 files in 500 directories, appended to, most of them small, as mails are; each change is synced.
fn email() -> MakeLoad {
    let mut mix = postmark(500, 500, 40_000);
    (mix.mostly_small, mix.sync) = (true, true);
    second_run(ext3(Bytes::mib(256), Bytes::mib(128))).mixed(mix)
}

/// One table read from start to end, by a query that takes its time over each piece.
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
                load: (load.make)(),
                clients: load.processes + if load.name == "scan" { 0 } else { WRITERS },
                lasts: load.lasts,
                warms_up: RESTED,
            });
        };
        add("disk".into(), &[DISK], "sequential", Vec::new());
        add("ssd".into(), &[SSD], "sequential", Vec::new());
        for space in SPACES {
            for buffer in BUFFERS {
                // The policy takes 85 % of the fast device, which has room for metadata besides.
                let room = load.working_set.0 * space / 85 + Bytes::mib(64).0;
                let fast = (SSD.0, Bytes(room.next_multiple_of(EXTENT.0)));
                let tuning = vec![("write_back", buffer as f64 / 100.0), ("period", load.period)];
                add(of(space, buffer), &[fast, DISK], "hystor", tuning);
            }
        }
    }
    all
}

fn of(space: u64, buffer: u64) -> String {
    format!("{space} %, {buffer} % for writes")
}

fn figures(results: &Results) -> Vec<Figure> {
    use Published::{Between, Less, Size};
    let mut all = Vec::new();
    let with = |load: &str, space, buffer| format!("{load}, {}", of(space, buffer));
    // Times: the inverse of rates.
    let mut time = |what: &str, published, one: &str, other: &str| {
        all.push(Figure::new(what, published, results.ratio(other, one)));
    };
    let postmark = |space, buffer| with("postmark", space, buffer);
    time("Postmark: time on the disk to SSD", Size(4.2), "postmark, disk", "postmark, ssd");
    time("… Hystor, 20 % of space, to disk", Less, &postmark(20, 0), "postmark, disk");
    time("… Hystor, 60 %, to 20 %", Less, &postmark(60, 0), &postmark(20, 0));
    time("… Hystor, 100 %, to SSD", Size(1.1), &postmark(100, 30), "postmark, ssd");
    let (without, buffered) = (postmark(80, 0), postmark(80, 30));
    time("… 80 %, with a write-back area to without", Size(24.0 / 34.0), &buffered, &without);
    let email = |space, buffer| with("email", space, buffer);
    time("Email: time on the disk to SSD", Size(18.8), "email, disk", "email, ssd");
    time("… 20 %, without a write-back area, to disk", Between(0.9, 1.1), &email(20, 0), "email, disk");
    time("… 20 %, with a write-back area to disk", Less, &email(20, 30), "email, disk");
    time("… 20 %, with a write-back area to without", Size(0.5), &email(20, 30), &email(20, 0));
    time("TPC-H Q1: time on the disk to SSD", Size(1.16), "scan, disk", "scan, ssd");
    let scan = |space, buffer| with("scan", space, buffer);
    time("… Hystor, 20 %, with a write-back area to disk", Between(1.02, 1.05), &scan(20, 30), "scan, disk");
    let mut hits = |what: &str, published, name: &str| {
        all.push(Figure::new(what, Size(published), results.served_first(name)));
    };
    hits("Hits: Postmark, 80 %, without a write-back area", 0.79, &without);
    hits("Hits: Postmark, 80 %, with one", 0.91, &buffered);
    hits("Hits: email, 20 %, without one", 0.124, &email(20, 0));
    hits("Hits: email, 20 %, with one", 0.9, &email(20, 30));
    hits("Hits: TPC-H, 40 %, without one", 0.35, &scan(40, 0));
    all
}
