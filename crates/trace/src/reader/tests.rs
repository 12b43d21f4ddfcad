use super::*;
use crate::{Trace, format};
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
];

fn read(bytes: &[u8]) -> Vec<Result<Record, TraceError>> {
    Reader::open("t", bytes, None).expect("a trace").collect()
}

fn record(&(at, disk, op, offset, len): &Told) -> Record {
    Record { at: Nanos(at), disk: Disk(disk), op, offset: VolumeOffset(offset), len: Bytes(len) }
}

#[test]
fn every_format_is_known_by_its_contents_and_read() {
    assert_eq!(SAMPLES.len(), FORMATS.len(), "a sample for each");
    for (name, text, records) in SAMPLES {
        let reader = Reader::open("t", text.as_bytes(), None).expect("a trace");
        assert_eq!(reader.format().name, *name);
        let read: Vec<_> = reader.map(|record| record.expect("a good line")).collect();
        assert_eq!(read, records.iter().map(record).collect::<Vec<_>>(), "{name}");
    }
}

/// However few bytes the input has ready at a time.
#[test]
fn gzip_is_unpacked_and_small_pieces_are_put_together() {
    for (name, text, records) in SAMPLES {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text.as_bytes()).expect("packed");
        let packed = packed.finish().expect("packed");
        for size in [1, 3, 7, 4096] {
            for bytes in [text.as_bytes(), &packed] {
                let reader = Reader::open("t", BufReader::with_capacity(size, bytes), None).expect("a trace");
                assert_eq!(reader.format().name, *name);
                let read: Vec<_> = reader.map(|record| record.expect("a good line")).collect();
                assert_eq!(read, records.iter().map(record).collect::<Vec<_>>(), "{name}, {size}");
            }
        }
    }
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
    assert!(refused(b"hello, world\n").contains("one of msr, vscsi,"));
    assert!(refused(b"\x28\xb5\x2f\xfdxxxx").starts_with("t is compressed with zstd; unpack it"));
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
    fn damaged_samples_are_read_to_their_end(sample in 0..SAMPLES.len(), at in 0..200usize, byte: u8) {
        let (name, text, _) = SAMPLES[sample];
        let mut bytes = text.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        for record in Reader::open("t", &bytes[..], format(name)).expect("told").flatten() {
            prop_assert!(record.offset.0.checked_add(record.len.0).is_some());
        }
    }
}
