use super::*;
use crate::{FORMATS, Trace, format};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use std::io::{BufReader, Write as _};
use weir_model::{Bytes, Nanos, Op, VolumeOffset};

/// Time, disk, operation, offset, length.
type Told = (u64, u32, Op, u64, u64);

/// For each format some lines, and what they say.
const SAMPLES: &[(&str, &str, &[Told])] = &[
    (
        "msr",
        "128166372003061629,src1,0,Read,7014609920,24576,41286\n\
         128166372016382155,src1,1,Write,2657792,512,703\n\
         128166372026382245,src1,0,Write,7014609920,4096,1331\n",
        &[
            (12_816_637_200_306_162_900, 0, Op::Read, 7_014_609_920, 24_576),
            (12_816_637_201_638_215_500, 1, Op::Write, 2_657_792, 512),
            (12_816_637_202_638_224_500, 0, Op::Write, 7_014_609_920, 4096),
        ],
    ),
    (
        "vscsi",
        "version,time,op,size,lbn\r\n1,1000,28,4096,8\r\n1,1500,2a,512,17\r\n1,1600,12,36,0\r\n",
        &[(1_000_000, 0, Op::Read, 4096, 4096), (1_500_000, 0, Op::Write, 8704, 512)],
    ),
    (
        "systor",
        "Timestamp,Response,IOType,LUN,Offset,Size\n\
         1456095145.133076000,0.000806000,R,0,899056122368,131072\n\
         1456095145.126285,,W,3,0,4096\n",
        &[
            (1_456_095_145_133_076_000, 0, Op::Read, 899_056_122_368, 131_072),
            (1_456_095_145_126_285_000, 1, Op::Write, 0, 4096),
        ],
    ),
    (
        "hpl",
        "time_us,disk,start_256b,size_bytes,type,flags_hex,service_start_us,done_us,queue_len\n\
         17,1,1057,8192,R,1b,174,19687,1\n\
         22479,0,3,2048,W,0,76,10038,1\n",
        &[(17_000, 0, Op::Read, 270_592, 8192), (22_479_000, 1, Op::Write, 768, 2048)],
    ),
    (
        "tencent",
        "1538323200,12910952,128,0,1063\n1538323201,6265662,8,1,1064\n",
        &[
            (1_538_323_200_000_000_000, 0, Op::Read, 6_610_407_424, 65_536),
            (1_538_323_201_000_000_000, 1, Op::Write, 3_208_018_944, 4096),
        ],
    ),
    (
        "replayed",
        "0.000,120,1,4096,4923392,0.091,4096\n1000.000,98,0,8192,0,1003.5,8192\n",
        &[(91_000, 0, Op::Read, 4_923_392, 4096), (1_003_500_000, 0, Op::Write, 0, 8192)],
    ),
    (
        "mqsim",
        "11413000 0 657728 16 1\n11565001 5 31244784 64 0\n",
        &[(11_413_000, 0, Op::Read, 336_756_736, 8192), (11_565_001, 1, Op::Write, 15_997_329_408, 32_768)],
    ),
    (
        "ms-bytes",
        "0.000 0 3242508288 4096 0\n22.810 0 2205343744 512 1\n",
        &[(0, 0, Op::Write, 3_242_508_288, 4096), (22_810_000, 0, Op::Read, 2_205_343_744, 512)],
    ),
    (
        "blkev",
        "39949 D read 299008 4096 0.000000000 0 False\n\
         0 C read 299008 4096 0.000122793 0.000122793 False\n\
         77 D discard 0 1048576 1.5 7.3902e-05 True\n",
        &[(0, 0, Op::Read, 299_008, 4096), (1_500_000_000, 0, Op::Trim, 0, 1_048_576)],
    ),
    ("arc-pages", "1 1 0 0\n  71 1 0 0\n", &[(0, 0, Op::Read, 4096, 4096), (0, 0, Op::Read, 290_816, 4096)]),
    (
        "arc",
        "3050771 25 0 0\n2461851 8 0 1\n",
        &[(0, 0, Op::Read, 1_561_994_752, 12_800), (0, 0, Op::Read, 1_260_467_712, 4096)],
    ),
    (
        "spc",
        "0,20941264,8192,W,0.551706\n2,20939840,8192,r,0.554041,more\n",
        &[
            (551_706_000, 0, Op::Write, 10_721_927_168, 8192),
            (554_041_000, 1, Op::Read, 10_721_198_080, 8192),
        ],
    ),
    (
        "alibaba",
        "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,4096,1577808144360813\n",
        &[
            (1_577_808_144_360_767_000, 0, Op::Write, 8_792_731_648, 16_384),
            (1_577_808_144_360_813_000, 1, Op::Read, 59_110_326_272, 4096),
        ],
    ),
    (
        "blkparse",
        "  8,0    1        1     0.000000000  4162  A   R 2048 + 8 <- (8,1) 0\n\
         \u{20} 8,0    1        2     0.000001000  4162  Q   R 2048 + 8 [fio]\n\
         \u{20} 8,0    1        3     0.000002000  4162  D   R 2048 + 8 [fio]\n\
         259,16   0        4     0.5  0  Q FWS [kworker/0:1H]\n\
         259,16   0        5     1.000000007     0  Q  WS 16 + 16 [swapper/0]\n\
         \u{20} 8,0    1        6     2.000000000  4162  Q   D 0 + 1024 [fstrim]\n\
         CPU1 (8,0):\n Reads Queued:           2,        8KiB\t Writes Queued:           0,        0KiB\n",
        &[
            (1_000, 0, Op::Read, 1_048_576, 4096),
            (1_000_000_007, 1, Op::Write, 8192, 8192),
            (2_000_000_000, 0, Op::Trim, 0, 524_288),
        ],
    ),
    (
        "blkparse-issued",
        "8,0 1 3 0.000002000 4162 D R 2048 + 8 [fio]\n8,0 1 3 0.000002500 4162 D R 36 (12 00 00 00) [smartd]\n8,0 1 4 0.000003000 4162 C R 2048 + 8 [0]\n",
        &[(2_000, 0, Op::Read, 1_048_576, 4096)],
    ),
    (
        "fio-2",
        "fio version 2 iolog\n/tmp/a add\n/tmp/a open\n/tmp/a read 4096 8192\n/tmp/a wait 1500 0\n\
         /dev/b write 0 512\n/tmp/a sync 0 0\n/tmp/a trim 4096 4096\n/tmp/a close\n",
        &[
            (0, 0, Op::Read, 4096, 8192),
            (1_500_000, 1, Op::Write, 0, 512),
            (1_500_000, 0, Op::Trim, 4096, 4096),
        ],
    ),
    (
        "fio-3",
        "fio version 3 iolog\n18 /tmp/a add\n116 /tmp/a open\n119 /tmp/a read 61440 4096\n\
         3950 /tmp/a write 774144 4096\n32071 /tmp/a close\n",
        &[(119_000, 0, Op::Read, 61_440, 4096), (3_950_000, 0, Op::Write, 774_144, 4096)],
    ),
    (
        "fio-latency",
        "3, 3743234, 0, 4096, 61440, 0\n11, 14041, 1, 4096, 491520, 0x6004\n",
        &[(0, 0, Op::Read, 61_440, 4096), (10_985_959, 0, Op::Write, 491_520, 4096)],
    ),
];

/// An event of blktrace with so much data behind it.
fn event(at: u64, sector: u64, len: u32, action: u32, device: u32, data: u16) -> Vec<u8> {
    let mut bytes = 0x6561_7407_u32.to_le_bytes().to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(at.to_le_bytes());
    bytes.extend(sector.to_le_bytes());
    [len, action, 4162, device, 0].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes.extend(0_u16.to_le_bytes());
    bytes.extend(data.to_le_bytes());
    bytes.extend(vec![b'x'; data.into()]);
    bytes
}

/// Numbers one after the other, each with its bytes.
fn packed(fields: &[(u64, usize)]) -> Vec<u8> {
    fields.iter().flat_map(|(value, len)| value.to_le_bytes()[..*len].to_vec()).collect()
}

/// For each format of bytes some records, and what they say.
fn binary_samples() -> Vec<(&'static str, Vec<u8>, Vec<Told>)> {
    let (read, write, discard) = (1 << 16, 1 << 17, 1 << 29);
    let (queue, issue) = (1 | 1 << 20, 7 | 1 << 22);
    let sda = 8 << 20;
    let blktrace = [
        event(0, 0, 0, 1 << 26, 0, 12),
        event(1000, 2048, 4096, queue | read | 1 << 8, sda, 8),
        event(2000, 2048, 4096, issue | read, sda, 20),
        event(3000, 16, 8192, queue | write, 259 << 20 | 16, 0),
        event(4000, 0, 524_288, queue | discard | write, sda, 0),
    ];
    let vscsi_1 = |op, len, sector, time| {
        packed(&[(7, 4), (len, 4), (1, 4), (op, 2), (0x0100, 2), (sector, 8), (time, 8)])
    };
    let vscsi_2 = |op, len, sector, time| {
        packed(&[(op, 2), (0x0200, 2), (7, 4), (len, 4), (1, 4), (sector, 8), (time, 8), (90, 8)])
    };
    let oracle = |time, object, next: i64| packed(&[(time, 4), (object, 8), (4096, 4), (next as u64, 8)]);
    let vscsi_told = vec![(1_000_000, 0, Op::Read, 4096, 4096), (1_500_000, 0, Op::Write, 8704, 512)];
    let mut own = crate::Writer::new(format("weir").expect("a format"), Vec::new()).expect("begun");
    let own_told = vec![(7, 0, Op::Write, 4096, 512), (5, 1, Op::Trim, 1, 3), (9, 0, Op::Read, 4608, 512)];
    for told in &own_told {
        assert!(own.write(&record(told), &format!("disk {}", told.1)).expect("written"));
    }
    let own = zstd::decode_all(&own.finish().expect("whole")[..]).expect("packed");
    vec![
        ("weir", own, own_told),
        (
            "blktrace",
            blktrace.concat(),
            vec![
                (1000, 0, Op::Read, 1_048_576, 4096),
                (3000, 1, Op::Write, 8192, 8192),
                (4000, 0, Op::Trim, 0, 524_288),
            ],
        ),
        (
            "vscsi-1",
            [vscsi_1(0x28, 4096, 8, 1000), vscsi_1(0x2a, 512, 17, 1500), vscsi_1(0x12, 36, 0, 1600)].concat(),
            vscsi_told.clone(),
        ),
        (
            "vscsi-2",
            [vscsi_2(0x28, 4096, 8, 1000), vscsi_2(0x2a, 512, 17, 1500), vscsi_2(0x12, 36, 0, 1600)].concat(),
            vscsi_told,
        ),
        (
            "oracle",
            [oracle(0, 5, 3), oracle(0, u64::MAX, -1), oracle(2, 5, -1)].concat(),
            vec![
                (0, 0, Op::Read, 20_480, 4096),
                (0, 0, Op::Read, ((1 << 49) - 1) * 4096, 4096),
                (2_000_000_000, 0, Op::Read, 20_480, 4096),
            ],
        ),
    ]
}

/// Samples of all formats.
fn samples() -> Vec<(&'static str, Vec<u8>, Vec<Told>)> {
    let text = SAMPLES.iter().map(|(name, text, told)| (*name, text.as_bytes().to_vec(), told.to_vec()));
    text.chain(binary_samples()).collect()
}

fn read(bytes: &[u8]) -> Vec<Result<Record, TraceError>> {
    Reader::open("t", bytes, None).expect("a trace").collect()
}

fn record(&(at, disk, op, offset, len): &Told) -> Record {
    Record { at: Nanos(at), disk: Disk(disk), op, offset: VolumeOffset(offset), len: Bytes(len) }
}

#[test]
fn every_format_is_known_by_its_contents_and_read() {
    assert_eq!(samples().len(), FORMATS.len(), "a sample for each");
    for (name, bytes, told) in samples() {
        let reader = Reader::open("t", &bytes[..], None).expect("a trace");
        assert_eq!(reader.format().name, name);
        let read: Vec<_> = reader.map(|record| record.expect("a good line")).collect();
        assert_eq!(read, told.iter().map(record).collect::<Vec<_>>(), "{name}");
    }
}

/// With whatever it is compressed, and however few bytes the input has ready at a time.
#[test]
fn what_is_compressed_is_unpacked_and_small_pieces_are_put_together() {
    for (name, bytes, told) in samples() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bytes).expect("packed");
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bzip2.write_all(&bytes).expect("packed");
        let zstd = zstd::encode_all(&bytes[..], 1).expect("packed");
        // Two frames, as two files one behind the other.
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

/// "0 0 4096 512 1\n1 0 8192 512 1\n" as `xz` packs it.
const XZ: &[u8] = include_bytes!("tests/mqsim.xz");

#[test]
fn xz_is_unpacked() {
    for size in [1, 4096] {
        let reader = Reader::open("t", BufReader::with_capacity(size, XZ), None).expect("a trace");
        assert_eq!(reader.format().name, "mqsim");
        let read: Vec<_> = reader.map(|record| record.expect("a good line").offset.0).collect();
        assert_eq!(read, [4096 * 512, 8192 * 512]);
    }
    let half = &XZ[..XZ.len() / 2];
    let cut = Reader::open("t", half, None).map(|reader| Trace::load(reader, true).map(|_| ()));
    assert!(matches!(cut, Err(TraceError::Cut { .. }) | Ok(Err(TraceError::Cut { .. }))), "{cut:?}");
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
fn records_of_bytes_that_break_off_say_where() {
    for (name, bytes, told) in binary_samples().into_iter().skip(1) {
        let short = &bytes[..bytes.len() - 3];
        let trace = Trace::load(Reader::open("t", short, format(name)).expect("told"), false).expect("some");
        let Some(TraceError::Cut { line, why, .. }) = &trace.tally.cut else { panic!("{:?}", trace.tally) };
        assert!(trace.records.len() <= told.len() && *line > 0, "{name}");
        assert!(why.contains("whole"), "{why}");
    }
    let (.., mut events, _) = binary_samples().swap_remove(1);
    let second = 48 + 12;
    events[second..second + 4].copy_from_slice(b"\x65\x61\x74\x07");
    let error =
        Trace::load(Reader::open("t", &events[..], None).expect("known"), false).unwrap_err().to_string();
    assert!(
        error
            .contains("after line 1: an event of blktrace, version 7, of a little-endian machine expected, ")
    );
    assert!(error.contains("65 61 74 07"), "{error}");
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
fn a_bad_line_is_named_by_line_and_column_and_the_next_one_is_read() {
    let read = read(b"version,time,op,size,lbn\n1,1000,28,4096,8\n1,1500,2a,5l2,17\n1,1700,28,512,0\n");
    assert_eq!(read.len(), 3);
    assert!(read[0].is_ok() && read[2].is_ok());
    let error = read[1].clone().unwrap_err().to_string();
    let told = "t, line 3, column 11: a size in bytes expected, \"5l2\" found; \
                mend the line, or leave it out, or name another format than vscsi";
    assert_eq!(error, told);
}

#[test]
fn what_comes_before_a_cut_is_counted_and_the_cut_is_said() {
    let text: String = (0..20_000).map(|i| format!("{i}.000 0 {} 4096 1\n", i * 40_961)).collect();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).expect("packed");
    let packed = packed.finish().expect("packed");
    let half = &packed[..packed.len() / 2];
    let trace = Trace::load(Reader::open("t", half, None).expect("a trace"), false).expect("half a trace");
    let records = trace.records.len() as u64;
    assert!((5_000..15_000).contains(&records), "{records}");
    let Some(TraceError::Cut { line, .. }) = &trace.tally.cut else { panic!("{:?}", trace.tally) };
    assert_eq!(*line, records);
    assert!(Trace::load(Reader::open("t", half, None).expect("a trace"), true).is_err());
    // The same without gzip: a last line that is not whole is a cut, no bad line.
    let trace = Trace::load(Reader::open("t", &text.as_bytes()[..995], None).expect("a trace"), false);
    let tally = trace.expect("a trace").tally;
    assert_eq!((tally.bad, tally.cut.is_some()), (0, true));
}

#[test]
fn traces_are_in_order_of_time_from_zero() {
    let text = "5.000 7 0 4096 1\n4.000 8 4096 4096 1\nx\n6.000 7 8192 4096 0\n";
    let reader = Reader::open("t", text.as_bytes(), format("ms-bytes")).expect("a trace");
    let trace = Trace::load(reader, false).expect("a trace");
    let times: Vec<_> = trace.records.iter().map(|r| (r.at, r.disk.0)).collect();
    assert_eq!(times, [(Nanos(0), 1), (Nanos::millis(1), 0), (Nanos::millis(2), 0)]);
    assert_eq!(trace.disks, ["7", "8"]);
    assert_eq!((trace.tally.out_of_order, trace.tally.bad), (1, 1));
    assert_eq!(trace.duration(), Nanos::millis(2));
}

#[test]
fn what_is_no_trace_is_refused_with_a_way_out() {
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
    assert!(matches!(Trace::load(bad, false), Err(TraceError::MostlyBad { bad: 2, lines: 3, .. })));
    let long = [b"1.0 0 0 512 1\n".to_vec(), vec![b'7'; LINE_MAX + 2]].concat();
    let cut = read(&long).pop().expect("an error").unwrap_err();
    assert!(cut.to_string().contains("after line 1: the next line is longer"), "{cut}");
}

proptest! {
    /// Any bytes give records or errors that end, never a panic, also in the shape of a format.
    #[test]
    fn any_bytes_are_read_to_their_end(
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
