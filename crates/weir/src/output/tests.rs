//! Every report with long names and large figures, on terminals of many widths.

use super::Width;
use crate::args::{Cli, Command, SimCommand, TraceCommand};
use crate::sim::Comparison;
use crate::status::{Commands, DevicePart, LoadPart, ResponsesPart, Status, Traffic, VolumePart};
use crate::{explain, repro, sim, traces};
use clap::Parser as _;
use std::collections::BTreeSet;
use unicode_width::UnicodeWidthStr as _;
use weir_model::{Bytes, Nanos, Seed};
use weir_serve::explain::{Explanation, PlacePart};
use weir_sim::outcome::DirectionOutcome;
use weir_sim::{DeviceOutcome, Mode, Outcome, Plan, Responses};

const LONG: &str = "nvme-SAMSUNG_MZVL21T0HCLR-00BL7_S64NNX0T123456-part1-of-the-machine-in-the-cellar";

/// Checks that no line of a report is too long, and that no word or number of it is broken.
#[track_caller]
pub(crate) fn assert_fits(human: impl Fn(Width) -> String) {
    let whole = human(Width::UNLIMITED);
    let whole: BTreeSet<_> = whole.split_whitespace().collect();
    for columns in [40, 60, 80, 100, 200] {
        let width = Width::columns(columns);
        let text = width.fold(&human(width));
        for line in text.lines() {
            let is_whole_word = line.split_whitespace().count() == 1;
            assert!(
                line.width() <= columns || is_whole_word,
                "{} columns of {columns}: {line:?} in\n{text}",
                line.width()
            );
        }
        let broken = |word: &&str| !whole.contains(word) && !word.contains('…');
        let table = text.lines().filter(|line| !line.starts_with("(--wide") && !line.ends_with("names)"));
        for word in table.flat_map(str::split_whitespace).filter(broken) {
            // What is left out of a table is named below it.
            assert!(text.contains("(--wide") && word.ends_with([',', ')']), "{word:?} is broken in\n{text}");
        }
    }
}

fn status() -> Status {
    let commands = Commands { count: 123_456_789_012, bytes: 1 << 50, response_ns: Some(999_900_000) };
    let load = LoadPart { busy_share: 1.0, queue_depth: 1234.5, ..LoadPart::default() };
    let traffic = Traffic {
        reads: commands,
        writes: commands,
        flushes: 987_654_321,
        failed: 123_456,
        load,
        figures_invalid: true,
        ..Traffic::default()
    };
    let device = |name: &str| DevicePart {
        name: name.into(),
        class: "remote".into(),
        used_bytes: (1u64 << 50) - 1,
        data_bytes: 1 << 50,
        pace: Some("intel-x25-m-g1-log".into()),
        metadata: true,
        lost_why: Some("it did not answer in time".into()),
        lost_ns: Some(61_000_000_000),
        doubtful_blocks: 3,
        traffic: Some(traffic),
        responses: vec![ResponsesPart { of: "writes".into(), count: 123_456_789_012, ..Default::default() }],
        ..DevicePart::default()
    };
    let volume = |name: &str| VolumePart {
        name: name.into(),
        size_bytes: 1 << 50,
        used_bytes: (1 << 45) + 1,
        copies: 2,
        degraded_bytes: Some(1 << 41),
        ..VolumePart::default()
    };
    let mut status = Status::default();
    status.pool.name = LONG.into();
    status.devices = vec![device("fast"), device(LONG), device("磁盘阵列中的第一块磁盘")];
    status.volumes = vec![volume("v"), volume(LONG), volume("卷")];
    status
}

fn outcome() -> Outcome {
    let time = Nanos(999_900_000);
    let all = Responses { count: 1 << 40, mean: time, p50: time, p99: time, p999: time, max: time };
    let direction = DirectionOutcome { count: 1 << 40, bytes: Bytes(1 << 60), mean: time };
    let device = DeviceOutcome {
        name: LONG.into(),
        model: "intel-x25-m-g1-log".into(),
        room: Bytes(1 << 50),
        used: Bytes(1 << 50),
        share: 1.0,
        served: 1.0,
        load: 1.0,
        queue: 123_456.78,
        reads: direction,
        writes: direction,
        metadata: Bytes(0),
    };
    Outcome {
        policy: "a-policy-with-a-very-long-name-indeed".into(),
        rate: 123_456_789.0,
        bytes_rate: 1e12,
        all,
        reads: all,
        writes: all,
        devices: vec![device.clone(), device],
        moved: Bytes(1 << 50),
        ..Outcome::default()
    }
}

fn comparison(outcomes: Vec<Outcome>) -> Comparison {
    let plan = Plan {
        mode: Mode::Open,
        lasts: Nanos::secs(1),
        requests: 1,
        warm_up: None,
        windows: 1,
        seed: Seed(1),
    };
    Comparison { load: LONG.into(), seed: 1, notes: vec![], plan, outcomes }
}

#[test]
fn reports_fit_the_terminal() {
    let status = status();
    assert_fits(|width| status.human(width));
    let place = PlacePart {
        device: LONG.into(),
        kind: "whole".into(),
        address_bytes: Some(1 << 60),
        blocks: (0..16).map(|run| (2 * run, 2 * run)).collect(),
        age_ns: Some(u64::MAX),
    };
    let told = Explanation { volume: LONG.into(), places: vec![place], ..Explanation::default() };
    assert_fits(|width| explain::human(&told, width));
    let comparison = comparison(vec![outcome(), outcome()]);
    assert_fits(|width| comparison.human(width));
    assert_fits(|width| traces::list(&traces::formats(), width));
    assert_fits(repro::list);
}

#[test]
fn a_pool_at_80_columns_shows_what_matters_in_its_table() {
    let text = status().human(Width::columns(80));
    assert!(text.contains("\nDEVICE  "), "{text}");
    let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("DEVICE")).collect();
    for heading in ["CLASS", "USED", "OF", "READS"] {
        assert!(lines[0].contains(heading), "{heading} in {}", lines[0]);
    }
    assert!(lines.iter().any(|line| line.starts_with("  ") && line.contains("FAILED 123456")), "{text}");
    // Nothing is lost: what is not a column is below.
    assert!(text.contains("LOST for 61.00 s: it did not answer in time"), "{text}");
}

#[test]
fn what_was_not_answered_took_no_time_that_could_be_told() {
    let idle = Outcome { requests: 10, unanswered: 10, measured: Nanos::secs(1), ..Outcome::default() };
    let comparison = comparison(vec![idle]);
    let text = comparison.human(Width::UNLIMITED);
    assert!(!text.contains("0 ns") && !text.contains("NaN"), "{text}");
    assert!(text.contains("cannot keep up: 0 of 10 requests/s answered"), "{text}");
    let json = comparison.to_json();
    assert!(json["results"][0]["all"]["p99_ns"].is_null(), "{json}");
}

#[test]
fn a_trace_and_its_caches_fit_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.csv");
    let line = |n: u64| {
        format!(
            "{},sda,{},{},8192\n",
            n * 1000,
            if n.is_multiple_of(3) { "W" } else { "R" },
            (n * n % 977) << 30
        )
    };
    std::fs::write(&path, (0..2000).map(line).collect::<String>()).expect("written");
    let path = path.to_str().expect("text");
    let parsed = |words: &[&str]| {
        let format = ["--format", "csv:time_us,disk,op,offset,size"];
        Cli::parse_from(words.iter().chain(&[path]).chain(&format)).command
    };
    let Command::Sim(SimCommand::Cache(args)) = parsed(&["weir", "sim", "cache"]) else {
        panic!("another command")
    };
    let caches = sim::cache::run(&args).expect("caches");
    assert_fits(|width| caches.human(width));
    let text = caches.human(Width::columns(80));
    assert!(
        text.contains("POLICY") && text.contains(" HITS") && text.contains("\n(--wide also shows "),
        "{text}"
    );
    let Command::Trace(TraceCommand::Analyze(args)) = parsed(&["weir", "trace", "analyze"]) else {
        panic!("another command")
    };
    let analyzed = traces::analyze(&args).expect("an analysis");
    assert_fits(|width| traces::human(&analyzed, width));
}
