//! Formats an analysis as tables, the same on the terminal and on the page.

use crate::output::{Table, Width, grouped};
use weir_model::{BLOCK, Bytes, Nanos};
use weir_sim::analysis::{
    Analysis, Arrivals, Counted, Curve, REGION_BLOCKS, ReuseTimes, Spread, TraceAnalysis,
};

/// A table with a title.
pub(super) struct TitledTable {
    pub(super) title: &'static str,
    pub(super) heading: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl TitledTable {
    fn new<const N: usize>(title: &'static str, heading: [&str; N], rows: Vec<[String; N]>) -> Self {
        let rows = rows.into_iter().map(Vec::from).collect();
        Self { title, heading: heading.map(str::to_owned).into(), rows }
    }

    pub(super) fn text(&self, width: Width) -> String {
        let table = Table::new(&self.heading, &self.rows);
        // In a table of two columns only the second one is folded, so that names stay whole.
        let table = if self.heading.len() == 2 { table.prose_at(1) } else { table };
        table.text(width)
    }
}

/// Returns all tables.
pub(super) fn all(analyzed: &TraceAnalysis) -> Vec<TitledTable> {
    let of = &analyzed.analysis;
    let mut parts = vec![requests(of), caches(of), curves(&of.curves, of.blocks), spreads(of)];
    parts.extend(of.reuse_times.as_ref().map(reuse));
    parts.extend(of.arrivals.as_ref().map(arrivals));
    parts.push(hot_spots(analyzed));
    parts
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn blocks(count: u64) -> String {
    Bytes(count * BLOCK).to_string()
}

fn requests(of: &Analysis) -> TitledTable {
    let row = |name: &str, counted: &Counted| {
        [name.into(), counted.requests.to_string(), Bytes(counted.bytes).to_string(), blocks(counted.blocks)]
    };
    let all = Counted {
        requests: of.reads.requests + of.writes.requests,
        bytes: of.reads.bytes.saturating_add(of.writes.bytes),
        blocks: of.blocks,
    };
    let mut rows = vec![row("reads", &of.reads), row("writes", &of.writes), row("both", &all)];
    if of.trims.requests > 0 {
        rows.push([
            "trims".into(),
            of.trims.requests.to_string(),
            Bytes(of.trims.bytes).to_string(),
            "-".into(),
        ]);
    }
    TitledTable::new("Requests", ["", "REQUESTS", "BYTES", "FOOTPRINT"], rows)
}

fn caches(of: &Analysis) -> TitledTable {
    let row = |critical: &weir_sim::analysis::Critical| {
        let share = critical.blocks as f64 / of.blocks.max(1) as f64;
        [critical.admission.into(), critical.blocks.to_string(), blocks(critical.blocks), percent(share)]
    };
    TitledTable::new(
        "Critical cache size: the smallest that never evicts what is admitted",
        ["ADMISSION", "BLOCKS", "SIZE", "OF THE FOOTPRINT"],
        of.critical.iter().map(row).collect(),
    )
}

/// Shares of the footprint that the curves show, in thousandths.
const CURVE_SHARES: [u64; 7] = [10, 50, 100, 200, 300, 500, 1000];

fn curves(curves: &[Curve], all: u64) -> TitledTable {
    let sizes = CURVE_SHARES.map(|n| (u128::from(all) * u128::from(n) / 1000).max(1) as u64);
    let mut heading = vec!["POLICY".to_owned()];
    heading.extend(CURVE_SHARES.iter().zip(sizes).map(|(n, size)| format!("{} % {}", n / 10, blocks(size))));
    heading.push("FROM".into());
    let cell = |curve: &Curve, size: u64| {
        let point = curve.points.iter().find(|point| point.size_blocks == size);
        point.map_or("-".into(), |point| match point.error {
            Some(error) if error > 0.0 => format!("{:.3}±{error:.3}", point.miss_ratio),
            _ => format!("{:.3}", point.miss_ratio),
        })
    };
    let row = |curve: &Curve| {
        let from = match curve.rate {
            rate if rate < 1.0 => format!("{:.3} %: {} blocks", rate * 100.0, curve.sampled_blocks),
            _ => "all blocks".into(),
        };
        let cells = sizes.iter().map(|size| cell(curve, *size));
        std::iter::once(curve.policy.to_owned()).chain(cells).chain([from]).collect()
    };
    let title = "Miss ratios by cache size, ± one standard error where blocks were sampled";
    TitledTable { title, heading, rows: curves.iter().map(row).collect() }
}

/// Returns the row of a spread, with its numbers formatted by `show`.
fn spread(name: &str, spread: &Spread, show: impl Fn(u64) -> String) -> [String; 7] {
    let numbers = [spread.mean as u64, spread.min, spread.p50, spread.p90, spread.p99, spread.max];
    let [mean, min, p50, p90, p99, max] = numbers.map(|number| match spread.count {
        0 => "-".into(),
        _ => show(number),
    });
    [name.into(), mean, min, p50, p90, p99, max]
}

const SPREAD: [&str; 7] = ["", "MEAN", "MIN", "50 %", "90 %", "99 %", "MAX"];

fn spreads(of: &Analysis) -> TitledTable {
    let size = |number| Bytes(number).to_string();
    let runs = &of.sequentiality;
    let rows = vec![
        spread("read size", &of.read_sizes, size),
        spread("write size", &of.write_sizes, size),
        spread("sequential read size", &of.sizes_apart.sequential_reads, size),
        spread("other read size", &of.sizes_apart.other_reads, size),
        spread("sequential write size", &of.sizes_apart.sequential_writes, size),
        spread("other write size", &of.sizes_apart.other_writes, size),
        spread("sequential run", &runs.run_bytes, size),
        spread("requests of a run", &runs.run_requests, |n| n.to_string()),
        spread("reuse distance", &of.reuse_distances, blocks),
    ];
    TitledTable::new("Sizes, runs and reuse distances", SPREAD, rows)
}

fn time(nanos: u64) -> String {
    Nanos(nanos).to_string()
}

fn reuse(times: &ReuseTimes) -> TitledTable {
    let rows = vec![
        spread("read after write", &times.read_after_write, time),
        spread("write after write", &times.write_after_write, time),
        spread("read after read", &times.read_after_read, time),
        spread("write after read", &times.write_after_read, time),
    ];
    TitledTable::new("Time since the access to the same block before", SPREAD, rows)
}

fn arrivals(of: &Arrivals) -> TitledTable {
    let mut rows = vec![
        [
            "rate".into(),
            of.rate.map_or("unknown: all requests have the same time".into(), |rate| {
                format!("{rate:.3} requests/s for {:.3} s", of.seconds)
            }),
        ],
        [
            "gap, mean, 50 %, 99 %".into(),
            format!("{}, {}, {}", time(of.gaps.mean as u64), time(of.gaps.p50), time(of.gaps.p99)),
        ],
        [
            "coefficient of variation of gaps".into(),
            of.variation.map_or("-".into(), |variation| format!("{variation:.2} (Poisson: 1)")),
        ],
    ];
    rows.extend(of.bursts.iter().map(|burst| {
        [
            format!("windows of {} s", burst.window_seconds),
            format!(
                "index of dispersion {:.2} (Poisson: 1), peak to mean {:.1}",
                burst.dispersion, burst.peak_to_mean
            ),
        ]
    }));
    TitledTable::new("Arrivals", ["", ""], rows)
}

fn hot_spots(analyzed: &TraceAnalysis) -> TitledTable {
    let of = &analyzed.analysis;
    let mut rows = vec![
        ["reads of all requests".into(), percent(of.read_share)],
        ["requests that are whole blocks".into(), percent(of.aligned_share)],
        ["accesses to a block again".into(), percent(of.reaccess_share)],
        ["requests after the one before".into(), percent(of.sequentiality.after_previous)],
        ["requests after one of the last 32".into(), percent(of.sequentiality.after_recent)],
    ];
    let shares = of.popularity.shares.iter();
    rows.extend(shares.map(|share| {
        [
            format!("accesses to the hottest {} % of blocks", share.of_blocks * 100.0),
            percent(share.of_accesses),
        ]
    }));
    for region in of.popularity.regions.iter().take(3) {
        let disk = analyzed.disk(region.disk);
        // The position is in MiB, whatever its magnitude, so that adjacent regions differ.
        let at = grouped(region.first_block / REGION_BLOCKS);
        let share = region.accesses as f64 / of.accesses.max(1) as f64;
        rows.push([format!("accesses to the MiB at {at} MiB of disk {disk}"), percent(share)]);
    }
    TitledTable::new("Shares", ["", ""], rows)
}
