//! Tests of format detection on synthetic traces in every format and unit, including the notes.

use super::super::PAGES_32;
use super::*;
use crate::{Reader, Record};
use weir_model::Op;

/// A generated request: nanoseconds, bytes.
#[derive(Clone, Copy)]
struct GeneratedRequest {
    at: u64,
    disk: u64,
    op: Op,
    offset: u64,
    len: u64,
}

/// Parameters of a generated trace.
#[derive(Clone, Copy, Debug)]
struct TraceParameters {
    requests: u64,
    /// Unit of offsets and sizes, in bytes.
    unit: u64,
    /// Maximum size in units.
    max_units: u64,
    /// Mean time between two requests, in nanoseconds.
    gap: u64,
    /// Time of the first request.
    start: u64,
}

/// Parameters of a typical trace: aligned, 4 to 64 KiB, 200 requests per second.
const TYPICAL: TraceParameters =
    TraceParameters { requests: 24, unit: 4096, max_units: 16, gap: 5_000_000, start: 0 };

fn generate(kind: TraceParameters) -> Vec<GeneratedRequest> {
    let mut state = 7u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut at = kind.start;
    (0..kind.requests)
        .map(|_| {
            at += 1 + draw(2 * kind.gap);
            GeneratedRequest {
                at,
                disk: draw(3),
                op: if draw(3) > 0 { Op::Read } else { Op::Write },
                offset: (1 + draw(90_000_000_000 / kind.unit)) * kind.unit,
                len: (1 + draw(kind.max_units)) * kind.unit,
            }
        })
        .collect()
}

/// Formats a time in a unit, with a fraction of `digits` digits.
fn time(at: u64, unit: u64, digits: u32) -> String {
    let fraction = at % unit * 10u64.pow(digits) / unit;
    if digits == 0 {
        format!("{}", at / unit)
    } else {
        format!("{}.{fraction:0width$}", at / unit, width = digits as usize)
    }
}

/// Formats a line with the columns of a description.
fn line(columns: &str, separator: &str, made: &GeneratedRequest, digits: u32) -> String {
    let column = |name: &str| match name {
        "time_s" => time(made.at, 1_000_000_000, digits),
        "time_ms" => time(made.at, 1_000_000, digits),
        "time_us" => time(made.at, 1_000, digits),
        "time_100ns" => time(made.at, 100, 0),
        "time_ns" => time(made.at, 1, 0),
        "disk" => made.disk.to_string(),
        "op" => if made.op == Op::Read { "R" } else { "W" }.into(),
        "read" => u8::from(made.op == Op::Read).to_string(),
        "write" => u8::from(made.op == Op::Write).to_string(),
        "offset" => made.offset.to_string(),
        "sector" => (made.offset / 512).to_string(),
        "block" => (made.offset / 4096).to_string(),
        "size" => made.len.to_string(),
        "sectors" => (made.len / 512).to_string(),
        "blocks" => (made.len / 4096).to_string(),
        "-" => "host".into(),
        other => panic!("{other}"),
    };
    columns.split(',').map(column).collect::<Vec<_>>().join(separator) + "\n"
}

fn text(columns: &str, separator: &str, all: &[GeneratedRequest], digits: u32) -> String {
    all.iter().map(|made| line(columns, separator, made, digits)).collect()
}

fn read(text: &str) -> (String, Option<String>, Vec<Record>) {
    let mut reader =
        Reader::open("t", text.as_bytes(), None).unwrap_or_else(|error| panic!("{error}\n{text:.300}"));
    let records = reader.by_ref().map(|record| record.expect("a good line")).collect();
    (reader.format().name.clone().into_owned(), reader.note().map(str::to_owned), records)
}

/// Reports whether the records are the generated requests, to the precision of the time.
fn matches_generated(records: &[Record], all: &[GeneratedRequest], grain: u64) -> bool {
    records.len() == all.len()
        && records.iter().zip(all).all(|(record, made)| {
            (record.op, record.offset.0, record.len.0) == (made.op, made.offset, made.len)
                && record.at.0 / grain == made.at / grain
        })
}

fn time_resolution(columns: &str, digits: u32) -> u64 {
    let unit = match columns.split(',').find(|column| column.starts_with("time")) {
        Some("time_s") => 1_000_000_000,
        Some("time_ms") => 1_000_000,
        Some("time_us") => 1_000,
        _ => return 100,
    };
    (unit / 10u64.pow(digits)).max(1)
}

/// For every layout in every unit, and several kinds of requests, the right format is detected, or named as
/// an alternative.
#[test]
fn every_layout_is_detected_or_suggested() {
    let kinds = [
        TYPICAL,
        // Single sectors, as behind an unaligned partition.
        TraceParameters { unit: 512, max_units: 128, ..TYPICAL },
        TraceParameters { max_units: 1, ..TYPICAL },
        TraceParameters { gap: 500_000, max_units: 4, ..TYPICAL },
        TraceParameters { gap: 100_000_000, ..TYPICAL },
        // With a date, in 2007.
        TraceParameters { start: 1_172_163_600_000_000_000, ..TYPICAL },
    ];
    let (mut wrong, mut all) = (Vec::new(), 0);
    for kind in kinds {
        let requests = generate(kind);
        for variant in VARIANTS.iter() {
            let name = &*variant.format.name;
            let (separator, columns) = name.split_once(':').expect("a description");
            if kind.unit < 4096 && columns.contains("block") {
                continue;
            }
            for digits in [0, 3, 6] {
                let is_whole = digits == 0 && !columns.contains("time_s");
                let is_fraction =
                    digits > 0 && ["time_s", "time_ms", "time_us"].iter().any(|unit| columns.contains(unit));
                if !(is_whole || is_fraction) || (columns.contains("time_us") && digits > 3) {
                    continue;
                }
                let text = text(columns, if separator == "csv" { "," } else { " " }, &requests, digits);
                let (found, note, records) = read(&text);
                all += 1;
                let right = matches_generated(&records, &requests, time_resolution(columns, digits));
                if !right && note.as_ref().is_none_or(|note| !names(note, name)) {
                    wrong.push(format!("{kind:?} {name} with {digits} digits: took {found}, {note:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {all}:\n{}", wrong.len(), wrong[..wrong.len().min(60)].join("\n"));
}

/// Reports whether a note names a format: each of its columns belongs to the detected format, or is named as
/// an alternative.
fn names(note: &str, description: &str) -> bool {
    let words: Vec<_> = note.split([' ', ';', ',', ':', '(', ')']).collect();
    let (_, columns) = description.split_once(':').expect("a description");
    columns.split(',').all(|column| words.contains(&column))
}

/// Milliseconds are expected with a fraction: whole times are read in the unit that gives plausible gaps.
#[test]
fn whole_times_are_not_fractional_milliseconds() {
    let all = generate(TraceParameters { gap: 8_000_000, ..TYPICAL });
    for columns in ["time_us,disk,sector,sectors,read", "time_us,disk,offset,size,read"] {
        let (found, note, records) = read(&text(columns, " ", &all, 0));
        assert!(matches_generated(&records, &all, 1_000), "{columns}: took {found}, {note:?}");
        assert!(note.is_some_and(|note| note.contains("time_ms")), "{columns}");
    }
}

/// Columns with sizes before offsets are recognised, because a request above 4 GiB is implausible.
#[test]
fn offsets_are_not_taken_for_sizes() {
    let all = generate(TYPICAL);
    for columns in ["time_s,size,offset,op", "time_us,op,size,offset", "time_us,disk,op,sectors,sector"] {
        let digits = if columns.starts_with("time_s") { 6 } else { 0 };
        let (found, note, records) = read(&text(columns, ",", &all, digits));
        assert!(matches_generated(&records, &all, 1_000), "{columns}: took {found}, {note:?}");
    }
}

/// An ambiguous meaning of 1 does not hide the note about implausible sizes.
#[test]
fn implausible_sizes_are_always_noted() {
    let mut all = generate(TYPICAL);
    all.iter_mut().for_each(|made| (made.offset, made.len) = (made.offset + 13, made.len - 100));
    let (_, note, _) = read(&text("time_ms,disk,offset,size,read", " ", &all, 3));
    assert!(note.is_some_and(|note| note.contains(", but ") && note.contains("also fit")), "a note");
}

/// Format, heading, separator, columns, fractional digits of a time.
const NAMED_LINES: [(&str, &str, &str, &str, u32); 8] = [
    ("mqsim", "", " ", "time_ns,disk,sector,sectors,read", 0),
    ("ms-bytes", "", " ", "time_ms,disk,offset,size,read", 3),
    ("disksim", "", " ", "time_ms,disk,sector,sectors,read", 6),
    ("tencent", "", ",", "time_s,sector,sectors,write,disk", 0),
    ("spc", "", ",", "disk,sector,size,op,time_s", 6),
    ("alibaba", "", ",", "disk,op,offset,size,time_us", 0),
    ("systor", "Timestamp,Response,IOType,LUN,Offset,Size\n", ",", "time_s,-,op,disk,offset,size", 6),
    ("systor", "", ",", "time_s,-,op,disk,offset,size", 6),
];

/// Named formats are detected in long and short traces, with comments, column names and Windows line
/// terminators.
#[test]
fn named_formats_are_detected() {
    for (name, heading, separator, columns, digits) in NAMED_LINES {
        for requests in [1, 2, 3, 60] {
            // Clocks of whole seconds and microseconds include a date.
            let start = if ["tencent", "alibaba"].contains(&name) { 1_172_163_600_000_000_000 } else { 0 };
            let gap = if name == "tencent" { 50_000_000 } else { TYPICAL.gap };
            let all = generate(TraceParameters { requests, start, gap, ..TYPICAL });
            let lines = text(columns, separator, &all, digits);
            let plain = format!("{heading}{lines}");
            let names = columns.replace(['-', ','], if separator == "," { ",x" } else { " x" });
            let mut texts =
                vec![plain.clone(), plain.replace('\n', "\r\n"), format!("# of a server\n\n{plain}")];
            if heading.is_empty() {
                texts.push(format!("x{names}\n{lines}"));
                texts.push(format!("// units: none\n; more\nx{names}\n{lines}"));
            }
            for text in texts {
                let (found, note, records) = read(&text);
                let is_it = found == name
                    || note
                        .as_ref()
                        .is_some_and(|note| note.contains(name) || self::names(note, &format!(":{columns}")));
                assert!(is_it, "{name}: took {found}, {note:?}:\n{text:.200}");
                assert!(requests < 60 || found == name, "{name}: took {found}, {note:?}:\n{text:.200}");
                assert!(
                    found != name || matches_generated(&records, &all, time_resolution(columns, digits)),
                    "{name}:\n{text:.200}"
                );
            }
        }
    }
}

/// Sectors are not mistaken for bytes, whatever else is unusual.
#[test]
fn sectors_are_not_taken_for_bytes() {
    for most in [1, 2, 16] {
        for requests in [1, 3, 60] {
            for digits in [3, 6] {
                let all = generate(TraceParameters { max_units: most, requests, ..TYPICAL });
                let (found, note, _) = read(&text("time_ms,disk,sector,sectors,read", " ", &all, digits));
                assert_eq!(found, "disksim", "{most} {requests} {digits}: {note:?}");
            }
        }
    }
    // All sizes are 8, in sectors; all sizes are 4096, in bytes.
    let lines = |size: u64, unit: u64| -> String {
        (0..60u64)
            .map(|n| format!("{}.250 0 {} {size} {}\n", 7 * n, n * n * 7919 % 100_000 * unit, n % 2))
            .collect()
    };
    assert_eq!(read(&lines(8, 8)).0, "disksim");
    assert_eq!(read(&lines(4096, 4096)).0, "ms-bytes");
    // Sizes that fit no unit give a note.
    let (_, note, _) = read(&lines(7_777_777, 13));
    assert!(note.is_some_and(|note| note.contains("doubtful") || note.contains("ambiguous")));
}

#[test]
fn a_heading_of_column_names_describes_the_columns() {
    let (found, note, records) = read("disk,time_us,block,write,response_us\nsda,5,3,1,90\n");
    assert_eq!((&*found, note), ("csv:disk,time_us,block,write,response_us", None));
    assert_eq!((records[0].op, records[0].offset.0, records[0].at), (Op::Write, 3 * 4096, Nanos(5000)));
}

#[test]
fn page_numbers_are_doubtful_and_garbage_is_rejected() {
    let pages: Vec<u8> = (0..500u32).flat_map(|n| (n * n * 31 % 70_000).to_le_bytes()).collect();
    let reader = Reader::open("t", &pages[..], None).expect("a trace");
    assert_eq!(reader.format().name, PAGES_32);
    assert!(reader.note().is_some_and(|note| note.contains("guess")));
    let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let others: [Vec<u8>; 5] = [
        (1..500).flat_map(random).collect(),
        // 64-bit numbers.
        (0..500u64).flat_map(u64::to_le_bytes).collect(),
        [&b"SQLite format 3\0\x10\0\x01\x01\0@  "[..], &[0; 76]].concat(),
        vec![0; 4096],
        pages[..999].to_vec(),
    ];
    for bytes in others {
        assert!(Reader::open("t", &bytes[..], None).is_err(), "{:?}", &bytes[..16]);
    }
}
