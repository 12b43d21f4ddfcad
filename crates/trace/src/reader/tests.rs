use super::*;
use crate::{FORMATS, Trace, format};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use std::io::{BufReader, Write as _};
use weir_model::{Bytes, Hint, Nanos, Op, VolumeOffset};

/// Time, disk, operation, offset, length.
type ExpectedRequest = (u64, u32, Op, u64, u64);

/// Samples of all formats with the expected requests: `tests/samples/NAME.trace`, and a file beside it with a
/// line per request.
fn samples() -> Vec<(&'static str, Vec<u8>, Vec<ExpectedRequest>)> {
    FORMATS.iter().map(|format| sample(&format.name)).collect()
}

/// Samples of the binary formats.
fn binary_samples() -> Vec<(&'static str, Vec<u8>, Vec<ExpectedRequest>)> {
    let is_binary = |format: &&Format| matches!(format.encoding, Encoding::Records { .. });
    FORMATS.iter().filter(is_binary).map(|format| sample(&format.name)).collect()
}

#[expect(clippy::disallowed_methods, reason = "a test may read a file")]
fn sample(name: &str) -> (&str, Vec<u8>, Vec<ExpectedRequest>) {
    let file = |kind: &str| {
        let path = format!("{}/tests/samples/{name}.{kind}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; every format has a sample"))
    };
    let expected = String::from_utf8(file("expected")).expect("text");
    (name, file("trace"), expected.lines().map(parse_expected).collect())
}

/// Parses `TIME DISK read|write|trim OFFSET LENGTH`, in nanoseconds and bytes.
fn parse_expected(line: &str) -> ExpectedRequest {
    let fields: Vec<_> = line.split(' ').collect();
    let [at, disk, op, offset, len] = fields[..] else { panic!("{line:?}") };
    let op = match op {
        "read" => Op::Read,
        "write" => Op::Write,
        "trim" => Op::Trim,
        other => panic!("{other:?} in {line:?}"),
    };
    let number = |text: &str| text.parse().expect("a number");
    (number(at), disk.parse().expect("a disk"), op, number(offset), number(len))
}

fn read(bytes: &[u8]) -> Vec<Result<Record, TraceError>> {
    Reader::open("t", bytes, None).expect("a trace").collect()
}

fn record(&(at, disk, op, offset, len): &ExpectedRequest) -> Record {
    let (offset, len) = (VolumeOffset(offset), Bytes(len));
    Record { at: Nanos(at), disk: Disk(disk), op, offset, len, hint: Hint::None }
}

#[test]
fn every_format_is_detected_and_read() {
    for (name, bytes, told) in samples() {
        let reader = Reader::open("t", &bytes[..], None).expect("a trace");
        assert_eq!(reader.format().name, name);
        let read: Vec<_> = reader.map(|record| record.expect("a good line")).collect();
        assert_eq!(read, told.iter().map(record).collect::<Vec<_>>(), "{name}");
    }
}

/// Every compression is recognised, however few bytes the input returns at a time.
#[test]
fn compressed_input_is_read_in_small_pieces() {
    for (name, bytes, told) in samples() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bytes).expect("packed");
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bzip2.write_all(&bytes).expect("packed");
        let zstd = zstd::encode_all(&bytes[..], 1).expect("packed");
        // Two frames, as from two concatenated files.
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let frames = [head, tail].map(|half| zstd::encode_all(half, 1).expect("packed")).concat();
        let packed = [gzip.finish().expect("packed"), bzip2.finish().expect("packed"), zstd, frames];
        for size in [1, 3, 7, 4096] {
            for bytes in [&bytes].into_iter().chain(&packed) {
                let reader = Reader::open("t", BufReader::with_capacity(size, &bytes[..]), None);
                let reader = reader.expect("a trace");
                assert_eq!(reader.format().name, name);
                let read: Vec<_> = reader.map(|record| record.expect("a good line")).collect();
                assert_eq!(read, told.iter().map(record).collect::<Vec<_>>(), "{name}, {size}");
            }
        }
    }
}

/// "0 0 4096 512 1\n1 0 8192 512 1\n" compressed by `xz`.
const XZ: &[u8] = include_bytes!("tests/mqsim.xz");

#[test]
fn xz_is_decompressed() {
    for size in [1, 4096] {
        // The format is given, because these numbers could be sectors as well as bytes.
        let reader = Reader::open("t", BufReader::with_capacity(size, XZ), format("mqsim")).expect("a trace");
        let read: Vec<_> = reader.map(|record| record.expect("a good line").offset.0).collect();
        assert_eq!(read, [4096 * 512, 8192 * 512]);
    }
    let half = &XZ[..XZ.len() / 2];
    let cut = Reader::open("t", half, None).map(|reader| Trace::load(reader, true).map(|_| ()));
    assert!(
        matches!(cut, Err(TraceError::Truncated { .. }) | Ok(Err(TraceError::Truncated { .. }))),
        "{cut:?}"
    );
}

#[test]
fn disks_have_the_names_the_trace_gives_them() {
    for (name, bytes, _) in samples() {
        let trace =
            Trace::load(Reader::open("t", &bytes[..], None).expect("a trace"), true).expect("a trace");
        let expected: &[&str] = match name {
            "blktrace" | "blkparse" => &["8,0", "259,16"],
            "fio-2" => &["/tmp/a", "/dev/b"],
            "msr" => &["src1,0", "src1,1"],
            _ => continue,
        };
        assert_eq!(trace.disks, expected, "{name}");
    }
}

#[test]
fn one_disk_can_be_selected() {
    for (name, bytes, told) in samples() {
        let all = || Reader::open("t", &bytes[..], None).expect("a trace");
        let mut first = all();
        let disk = first.next().map(|record| record.expect("a good line").disk).expect("a record");
        let alone = first.disk(disk).expect("a name");
        let found: Vec<_> = all().select_disk(alone).map(|record| record.expect("a good line")).collect();
        let expected: Vec<_> = told.iter().filter(|told| told.1 == disk.0).map(record).collect();
        assert_eq!(found, expected, "{name}");
        assert_eq!(all().select_disk("another").count(), 0);
    }
}

/// Batches equal the iterator's records for every selection and length of trace.
#[test]
fn batches_equal_the_iterator() {
    type Selection = fn(Reader<'_>) -> Reader<'_>;
    let wanted: [Selection; 6] = [
        |reader| reader,
        |reader| reader.select_disk("0"),
        |reader| reader.select_disk("another"),
        |reader| reader.select_span(Span { start: Nanos(1), end: Nanos(u64::MAX) }, None),
        |reader| reader.select_numbers(1..3000, 0),
        |reader| reader.with_responses(),
    ];
    const WITH_RESPONSES: usize = 5;
    for (name, bytes, _) in samples() {
        let is_binary = format(name).is_some_and(|f| matches!(f.encoding, Encoding::Records { .. }));
        for times in [1, 2000].into_iter().take(1 + usize::from(is_binary)) {
            let bytes = bytes.repeat(times);
            for (nth, want) in wanted.iter().enumerate() {
                let open = || want(Reader::open("t", &bytes[..], format(name)).expect("a trace"));
                let (mut one_by_one, mut batches) = (open(), open());
                let expected: Vec<_> = one_by_one.by_ref().collect();
                let (mut found, mut batch) = (Vec::new(), Vec::new());
                while let Some(next) = batches.next_batch(&mut batch) {
                    // A reader returns the response time of a single record.
                    let is_told = nth == WITH_RESPONSES && is_binary && batches.format().has_response_times();
                    assert!(!is_told || batch.len() <= 1, "{name}: {}", batch.len());
                    found.extend(batch.drain(..).map(Ok).chain(next.err().map(Err)));
                }
                assert_eq!(found, expected, "{name}, {times} times, wanted {nth}");
                let counts = |reader: &Reader<'_>| (reader.lines(), reader.skipped(), reader.unselected());
                assert_eq!(counts(&batches), counts(&one_by_one), "{name}, {times} times, wanted {nth}");
                assert_eq!(batches.response(), one_by_one.response(), "{name}");
            }
        }
    }
}

#[test]
fn truncated_binary_records_report_their_position() {
    for (name, bytes, told) in binary_samples() {
        let short = &bytes[..bytes.len() - 3];
        let trace = Trace::load(Reader::open("t", short, format(name)).expect("told"), false).expect("some");
        let Some(TraceError::Truncated { line, why, .. }) = &trace.tally.truncation else {
            panic!("{:?}", trace.tally)
        };
        assert!(trace.records.len() <= told.len() && *line > 0, "{name}");
        assert!(why.contains("whole"), "{why}");
    }
    let (_, mut events, _) = sample("blktrace");
    let second = 48 + 12;
    events[second..second + 4].copy_from_slice(b"\x65\x61\x74\x07");
    let error =
        Trace::load(Reader::open("t", &events[..], None).expect("known"), false).unwrap_err().to_string();
    assert!(error.contains(
        "after record 1: at byte 60, an event of blktrace, version 7, of a little-endian machine expected, "
    ));
    assert!(error.contains("65 61 74 07"), "{error}");
}

/// Linux marks metadata in the category of an event, and blkparse with an `M`.
#[test]
fn metadata_is_marked() {
    let hints = |bytes: &[u8]| -> Vec<_> {
        read(bytes).into_iter().map(|record| record.expect("a good line").hint).collect()
    };
    let (_, mut events, _) = sample("blktrace");
    assert_eq!(hints(&events), [Hint::None; 3]);
    // The category of the first read, whose event begins at byte 60, has bit 12.
    events[60 + 31] |= 1 << 4;
    assert_eq!(hints(&events), [Hint::Metadata, Hint::None, Hint::None]);
    let (_, lines, _) = sample("blkparse");
    let lines = String::from_utf8(lines).expect("text").replace("Q  WS ", "Q WSM ");
    assert_eq!(hints(lines.as_bytes()), [Hint::None, Hint::Metadata, Hint::None]);
}

/// An input that delivers more only after the previous bytes were consumed.
struct LiveInput(Option<Vec<u8>>);

impl std::io::Read for LiveInput {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.0.take().expect("nothing more is needed yet");
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

#[test]
fn records_are_returned_as_they_arrive() {
    for (name, bytes, told) in binary_samples().into_iter().chain([sample("mqsim")]) {
        let live = BufReader::new(LiveInput(Some(bytes)));
        let reader = Reader::open("t", live, format(name)).expect("told");
        let read: Vec<_> = reader.take(told.len()).map(|record| record.expect("good")).collect();
        assert_eq!(read, told.iter().map(record).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn described_columns_may_have_a_heading() {
    let text = "when;where\nt,o,what\n5,8,w\n6,16,r\n";
    let format = Format::named("csv:time_ms,sector,op").expect("a format");
    let mut reader = Reader::open("t", &text.as_bytes()[11..], Some(&format)).expect("told");
    let first = reader.next().expect("a record").expect("a good line");
    assert_eq!((first.at, first.op, first.offset), (Nanos::millis(5), Op::Write, VolumeOffset(4096)));
    assert_eq!(reader.count(), 1);
}

#[test]
fn malformed_line_reports_position_and_reading_continues() {
    let read = read(b"version,time,op,size,lbn\n1,1000,28,4096,8\n1,1500,2a,5l2,17\n1,1700,28,512,0\n");
    assert_eq!(read.len(), 3);
    assert!(read[0].is_ok() && read[2].is_ok());
    let error = read[1].clone().unwrap_err().to_string();
    let told = "t, line 3, column 11: a size in bytes expected, \"5l2\" found; \
                correct the line, leave it out, or name another format than vscsi";
    assert_eq!(error, told);
}

#[test]
fn truncation_is_reported_after_valid_records() {
    let text: String = (0..20_000).map(|i| format!("{i}.000 0 {} 4096 1\n", i * 40_961)).collect();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).expect("packed");
    let packed = packed.finish().expect("packed");
    let half = &packed[..packed.len() / 2];
    let trace = Trace::load(Reader::open("t", half, None).expect("a trace"), false).expect("half a trace");
    let records = trace.records.len() as u64;
    assert!((5_000..15_000).contains(&records), "{records}");
    let Some(TraceError::Truncated { line, .. }) = &trace.tally.truncation else {
        panic!("{:?}", trace.tally)
    };
    assert_eq!(*line, records);
    assert!(Trace::load(Reader::open("t", half, None).expect("a trace"), true).is_err());
    // The same without gzip: a partial last line is a truncation, not a malformed line.
    let trace = Trace::load(Reader::open("t", &text.as_bytes()[..995], None).expect("a trace"), false);
    let tally = trace.expect("a trace").tally;
    assert_eq!((tally.malformed, tally.truncation.is_some()), (0, true));
}

#[test]
fn loaded_traces_are_sorted_and_start_at_zero() {
    let text = "5.000 7 0 4096 1\n4.000 8 4096 4096 1\nx\n6.000 7 8192 4096 0\n";
    let reader = Reader::open("t", text.as_bytes(), format("ms-bytes")).expect("a trace");
    let trace = Trace::load(reader, false).expect("a trace");
    let times: Vec<_> = trace.records.iter().map(|r| (r.at, r.disk.0)).collect();
    assert_eq!(times, [(Nanos(0), 1), (Nanos::millis(1), 0), (Nanos::millis(2), 0)]);
    assert_eq!(trace.disks, ["7", "8"]);
    assert_eq!((trace.tally.out_of_order, trace.tally.malformed), (1, 1));
    assert_eq!(trace.duration(), Nanos::millis(2));
}

#[test]
fn selection_with_few_malformed_lines_is_valid() {
    let lines = (0..50).map(|n| format!("{n}.000 {} 0 4096 1\n{}", n % 25, if n < 3 { "x\n" } else { "" }));
    let text: String = lines.collect();
    let open = || Reader::open("t", text.as_bytes(), format("ms-bytes")).expect("a trace");
    let span = |from, to| Span { start: Nanos::millis(from), end: Nanos::millis(to) };
    for part in [open().select_span(span(30, 32), None), open().select_disk("7")] {
        let trace = Trace::load(part, false).expect("more good lines than bad ones");
        assert_eq!((trace.records.len(), trace.tally.malformed), (2, 3));
    }
    let none = Trace::load(open().select_span(span(50, 60), None), false).unwrap_err();
    assert_eq!(none, TraceError::EmptySelection { trace: "t".into() });
    let other = Trace::load(open().select_disk("25"), false).unwrap_err();
    assert_eq!(other, TraceError::Empty { trace: "t".into() });
}

#[test]
fn invalid_traces_are_rejected_with_advice() {
    let refused = |bytes: &[u8]| Reader::open("t", bytes, None).unwrap_err().to_string();
    assert!(refused(b"").starts_with("t holds no request"));
    assert!(refused(b"\n \n").starts_with("t holds no request"));
    assert!(refused(b"hello, world\n").contains("one of weir, msr, vscsi,"));
    assert!(refused(b"\x28\xb5\x2f\xfdxxxx").contains("t breaks off after line 0"));
    assert!(refused(b"two words\n\x00\x01").contains("first line is \"two words\""));
    assert!(refused(b"\x1f\x8b").contains("breaks off after line 0"));
    let heading = Reader::open("t", &b"version,time,op,size,lbn\n"[..], None).expect("a format");
    assert!(matches!(Trace::load(heading, false), Err(TraceError::Empty { .. })));
    let bad = Reader::open("t", &b"1 2 3\n4 5 6\n1.0 0 0 512 1\n"[..], format("ms-bytes")).expect("told");
    assert!(matches!(Trace::load(bad, false), Err(TraceError::MostlyMalformed { bad: 2, lines: 3, .. })));
    let long = [b"1.0 0 0 512 1\n".to_vec(), vec![b'7'; LINE_MAX + 2]].concat();
    let cut = read(&long).pop().expect("an error").unwrap_err();
    assert!(cut.to_string().contains("after line 1: the next line is longer"), "{cut}");
}

#[test]
fn response_times_are_those_of_the_trace() {
    let expected: [(&str, &[Option<u64>]); 8] = [
        ("msr", &[Some(4_128_600), Some(70_300), Some(133_100)]),
        ("systor", &[Some(806_000), None]),
        ("hpl", &[Some(19_687_000), Some(10_038_000)]),
        ("fio-latency", &[Some(3_743_234), Some(14_041)]),
        ("replayed", &[Some(120_000), Some(98_000)]),
        ("disksim-validate", &[Some(15_362_000), Some(3_024_500), Some(7_285_000)]),
        ("vscsi-2", &[Some(90_000), Some(90_000)]),
        ("mqsim", &[None, None]),
    ];
    for (name, expected) in expected {
        let (_, bytes, _) = sample(name);
        let open = || Reader::open("t", &bytes[..], format(name)).expect("a trace");
        assert_eq!(open().format().has_response_times(), name != "mqsim", "{name}");
        let responses = |mut reader: Reader<'_>| {
            let mut found = Vec::new();
            while let Some(record) = reader.next() {
                record.expect("a good record");
                found.push(reader.response().map(|response| response.0));
            }
            found
        };
        assert_eq!(responses(open().with_responses())[..expected.len()], *expected, "{name}");
        assert!(responses(open()).iter().all(Option::is_none), "{name}: nobody asked");
    }
    let described = Format::named("csv:response_ms,offset,time_us").expect("a format");
    let mut reader =
        Reader::open("t", &b"1.5,4096,7\n,0,8\n"[..], Some(&described)).expect("told").with_responses();
    let first = reader.next().expect("a record").expect("a good line");
    assert_eq!((first.at, reader.response()), (Nanos::micros(7), Some(Nanos::micros(1500))));
    assert!(reader.next().is_some_and(|record| record.is_ok()) && reader.response().is_none());
    // Zero means that the response time was not measured.
    let zero = b"128166372003061629,h,0,Read,0,4096,0\n";
    let mut reader = Reader::open("t", &zero[..], None).expect("a trace").with_responses();
    assert!(reader.next().is_some() && reader.response().is_none());
}

/// The error for a compressed trace of 20,000 lines that is damaged or truncated names the last line, and the
/// approximate byte of the file.
#[test]
fn damaged_compressed_file_reports_line_and_byte() {
    let text: String =
        (0..20_000u64).map(|i| format!("{i}.000 0 {} 4096 1\n", i * i * 7919 % 1_000_003 * 4096)).collect();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).expect("packed");
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text.as_bytes()).expect("packed");
    let mut zstd = zstd::Encoder::new(Vec::new(), 3).expect("begun");
    zstd.include_checksum(true).expect("told");
    zstd.write_all(text.as_bytes()).expect("packed");
    let all = [
        ("gzip", gzip.finish().expect("packed")),
        ("bzip2", bzip2.finish().expect("packed")),
        ("xz", XZ.to_vec()),
        ("zstd", zstd.finish().expect("packed")),
    ];
    for (name, packed) in all {
        let mut damaged = packed.clone();
        let middle = packed.len() / 2;
        damaged[middle..(middle + 32).min(packed.len())].fill(0x55);
        for bytes in [&packed[..packed.len() * 3 / 4], &damaged] {
            let error = match Reader::open("t", bytes, None).and_then(|reader| Trace::load(reader, false)) {
                Err(error) => error,
                Ok(trace) => trace.tally.truncation.unwrap_or_else(|| panic!("{name}: nothing is said")),
            };
            let TraceError::Truncated { line, why, .. } = &error else { panic!("{name}: {error}") };
            assert!(*line < 20_000, "{error}");
            let near = format!("the {name} data is damaged or cut short near byte ");
            let byte =
                why.split_once(&near).and_then(|(_, rest)| rest.split(':').next()?.parse::<usize>().ok());
            assert!(byte.is_some_and(|byte| byte <= bytes.len() && byte > 0), "{name}: {error}");
        }
    }
}

#[test]
fn comments_are_skipped() {
    let text = "# of a server\n0.000 0 0 4096 1\n// the second day\n1.000 0 4096 4096 1\n; end\n";
    let trace = Trace::load(Reader::open("t", text.as_bytes(), format("ms-bytes")).expect("told"), true);
    let tally = trace.expect("no bad line").tally;
    assert_eq!((tally.skipped, tally.malformed), (3, 0));
}

#[test]
fn odd_sizes_and_doubts_are_noted() {
    let text: String =
        (0..40).map(|n| format!("{n}.000 0 {} {} 1\n", n * 8, if n < 30 { 8 } else { 512 })).collect();
    let load = |format| {
        Trace::load(Reader::open("t", text.as_bytes(), format).expect("told"), true).expect("a trace")
    };
    let notes = load(format("ms-bytes")).tally.notes(40);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with(
            "30 of 40 requests have a size that is no multiple of 512 bytes, the first of 8 bytes"
        )
    );
    let found = load(None);
    assert_eq!(found.format.name, "disksim");
    assert!(found.tally.notes(40).iter().any(|note| note.contains("took disksim")), "{:?}", found.tally);
}

proptest! {
    /// Any bytes, also behind the beginning of a valid format, give records or errors and an end, never a
    /// panic.
    #[test]
    fn arbitrary_bytes_are_read_to_the_end(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        known in 0..FORMATS.len() + 1,
    ) {
        if let Ok(reader) = Reader::open("t", &bytes[..], FORMATS.get(known)) {
            prop_assert!(reader.count() <= bytes.len() + 1);
        }
    }

    #[test]
    fn damaged_samples_are_read_to_their_end(sample in 0..FORMATS.len(), at in 0..300usize, byte: u8) {
        let (name, mut bytes, _) = samples().swap_remove(sample);
        let at = at % bytes.len();
        bytes[at] = byte;
        for record in Reader::open("t", &bytes[..], format(name)).expect("told").flatten() {
            prop_assert!(record.offset.0.checked_add(record.len.0).is_some());
        }
    }
}
