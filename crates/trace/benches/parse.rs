//! How fast traces are parsed: MSR Cambridge CSV, in memory. The target is 400 MB/s.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::fmt::Write as _;
use weir_trace::Reader;

fn msr(lines: u64) -> String {
    let mut text = String::new();
    for line in 0..lines {
        let op = if line % 3 == 0 { "Read" } else { "Write" };
        let (at, offset) = (128_166_385_295_514_663 + line * 215, (line * 7_919_999 % 30_000_000) * 512);
        let _ = writeln!(text, "{at},hm,0,{op},{offset},{},{}", 4096 << (line % 5), 2833 + line % 1000);
    }
    text
}

fn parse(c: &mut Criterion) {
    let text = msr(200_000);
    let mut group = c.benchmark_group("parse");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("msr", |b| {
        b.iter(|| {
            let reader = Reader::open("bench", text.as_bytes(), None).expect("a trace");
            reader.map(|record| record.expect("a good line").len.0).sum::<u64>()
        });
    });
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
