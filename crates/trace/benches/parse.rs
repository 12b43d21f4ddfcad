//! Benchmark of trace parsing in memory: every text format and a described one, and the binary formats that
//! can be written. The target for MSR Cambridge's format is 400 MB/s.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_model::{Bytes, Hint, Nanos, Op, VolumeOffset};
use weir_trace::{Disk, Format, Reader, Record, Writer, writable};

const REQUESTS: u64 = 100_000;

/// Makes requests with numbers as long as those of real traces, in an order that a branch predictor cannot
/// learn.
fn requests() -> impl Iterator<Item = Record> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    (0..REQUESTS).map(move |n| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = random >> 24;
        Record {
            at: Nanos(n * 213_500 + bits % 100_000),
            disk: Disk(0),
            op: if bits.is_multiple_of(3) { Op::Read } else { Op::Write },
            offset: VolumeOffset(bits % 30_000_000 * 4096),
            len: Bytes(4096 << ((bits >> 32) % 5)),
            hint: Hint::None,
        }
    })
}

/// Formats a request as a line of a read-only format.
type Line = fn(&Record) -> String;

/// Heading and line of the read-only text formats, and of a described one.
const READ_ONLY: [(&str, &str, Line); 10] = [
    ("systor", "Timestamp,Response,IOType,LUN,Offset,Size\n", |r| {
        let op = if r.op == Op::Read { 'R' } else { 'W' };
        format!("{},0.000806000,{op},3,{},{}", seconds(r), r.offset.0, r.len.0)
    }),
    ("hpl", "time_us,disk,start_256b,size_bytes,type,flags_hex,service_start_us,done_us,queue_len\n", |r| {
        let op = if r.op == Op::Read { 'R' } else { 'W' };
        format!("{},1,{},{},{op},1b,174,19687,1", r.at.0 / 1000, r.offset.0 / 256, r.len.0)
    }),
    ("tencent", "", |r| {
        let at = 1_538_323_200 + r.at.0 / 1_000_000_000;
        format!("{at},{},{},{},1063", r.offset.0 / 512, r.len.0 / 512, u8::from(r.op != Op::Read))
    }),
    ("fio-latency", "", |r| {
        let (at, op) = (1 + r.at.0 / 1_000_000, u8::from(r.op != Op::Read));
        format!("{at}, 374323, {op}, {}, {}, 0", r.len.0, r.offset.0)
    }),
    ("replayed", "", |r| {
        let at = format!("{}.{:03}", r.at.0 / 1_000_000, r.at.0 / 1000 % 1000);
        format!("{at},120,{},{},{},{at},{}", u8::from(r.op == Op::Read), r.len.0, r.offset.0, r.len.0)
    }),
    ("ms-bytes", "", |r| {
        let at = format!("{}.{:03}", r.at.0 / 1_000_000, r.at.0 / 1000 % 1000);
        format!("{at} 0 {} {} {}", r.offset.0, r.len.0, u8::from(r.op == Op::Read))
    }),
    ("blkev", "", |r| {
        let op = if r.op == Op::Read { "read" } else { "write" };
        format!("39949 D {op} {} {} {} 0.000122793 False", r.offset.0, r.len.0, seconds(r))
    }),
    ("arc-pages", "", |r| format!("{} 1 0 0", r.offset.0 / 4096)),
    ("arc", "", |r| format!("{} {} 0 {}", r.offset.0 / 512, r.len.0 / 512, r.at.0 / 213_500)),
    ("csv:time_us,disk,op,offset,size", "", |r| {
        let op = if r.op == Op::Read { "read" } else { "write" };
        format!("{},sda,{op},{},{}", r.at.0 / 1000, r.offset.0, r.len.0)
    }),
];

/// Formats this event as a line of blkparse.
fn event(r: &Record, action: char) -> String {
    let op = if r.op == Op::Read { "R" } else { "WS" };
    let (sector, sectors) = (r.offset.0 / 512, r.len.0 / 512);
    format!("  8,0    1        7     {}  4162  {action}  {op} {sector} + {sectors} [fio]", seconds(r))
}

fn seconds(r: &Record) -> String {
    format!("{}.{:09}", r.at.0 / 1_000_000_000, r.at.0 % 1_000_000_000)
}

/// Returns the same requests in all formats.
fn traces() -> Vec<(String, Vec<u8>)> {
    let lines = |heading: &str, line: &dyn Fn(&Record) -> String| {
        let lines = requests().map(|record| line(&record) + "\n");
        std::iter::once(heading.to_owned()).chain(lines).collect::<String>().into_bytes()
    };
    let written = writable().map(|name| {
        let format = weir_trace::format(name).expect("a format");
        let mut writer = Writer::new(format, Vec::new()).expect("begun");
        for record in requests() {
            writer.write(&record, "host,0").expect("written");
        }
        (name.to_owned(), writer.finish().expect("whole"))
    });
    let read_only = READ_ONLY.iter().map(|(name, heading, line)| (name.to_string(), lines(heading, line)));
    // Each queued request is also issued and completed.
    let blkparse = [("blkparse", "QDC"), ("blkparse-issued", "DC")].map(|(name, events)| {
        let all = |r: &Record| events.chars().map(|action| event(r, action)).collect::<Vec<_>>().join("\n");
        (name.to_owned(), lines("", &all))
    });
    written.chain(read_only).chain(blkparse).collect()
}

fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    for (name, trace) in traces() {
        let format = Format::named(&name).expect("a format");
        let read = || Reader::open("bench", &trace[..], Some(&format)).expect("a trace");
        assert_eq!(read().filter_map(Result::ok).count() as u64, REQUESTS, "{name}");
        group.throughput(Throughput::BytesDecimal(trace.len() as u64));
        group.bench_function(&*name, |b| {
            b.iter(|| {
                for record in read() {
                    black_box(record.expect("a good line"));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
