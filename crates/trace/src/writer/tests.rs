use super::*;
use crate::{FORMATS, Reader, Trace, format};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use weir_model::{BLOCK, Bytes, Hint, VolumeOffset};

fn write_and_read(format: &str, records: &[Record], disk: impl Fn(Disk) -> String) -> (Vec<u8>, Vec<Record>) {
    let format = crate::format(format).expect("a format");
    let mut writer = Writer::new(format, Vec::new()).expect("begun");
    let mut told = Vec::new();
    for record in records {
        if writer.write(record, &disk(record.disk)).expect("written") {
            told.push(*record);
        }
    }
    (writer.finish().expect("whole"), told)
}

fn read(name: &str, bytes: &[u8], known: bool) -> (Vec<Record>, Vec<String>) {
    let mut reader =
        Reader::open("t", bytes, known.then(|| format(name).expect("a format"))).expect("a trace");
    assert_eq!(reader.format().name, name);
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().expect("good records");
    (records, reader.disks().collect())
}

/// Returns the time resolution of the format.
fn time_resolution(format: &str) -> u64 {
    match format {
        "weir" | "spc" | "mqsim" | "systor" => 1,
        "msr" => 100,
        "tencent" | "oracle" => 1_000_000_000,
        _ => 1000,
    }
}

/// Returns the operation as the format can represent it.
fn op(format: &str, record: &Record) -> Op {
    if format == "oracle" { Op::Read } else { record.op }
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Trim)];
    let unit = prop_oneof![2 => Just(4096u64), 2 => Just(512u64), 1 => Just(1u64)];
    let record = (0..10_000_000_000u64, 0..3u32, op, unit, 0..1u64 << 30, 1..1u64 << 20);
    let record = record.prop_map(|(at, disk, op, unit, offset, len)| Record {
        at: Nanos(at),
        disk: Disk(disk),
        op,
        offset: VolumeOffset(offset * unit),
        len: Bytes(len * unit),
        hint: Hint::None,
    });
    prop::collection::vec(record, 1..60).prop_map(|mut records| {
        // In time order, as in most traces: delays cannot be negative.
        records.sort_by_key(|record| record.at);
        records
    })
}

proptest! {
    /// Every record that the format can represent is read back unchanged, and the others are reported.
    #[test]
    fn written_traces_are_read_back(
        records in records(), name in prop::sample::select(writable().collect::<Vec<_>>()),
    ) {
        let (bytes, told) = write_and_read(name, &records, |disk| format!("host,{}", disk.0));
        let says_all = ["weir", "fio-2", "fio-3"].contains(&name);
        prop_assert!(told.len() == records.len() || !says_all);
        prop_assume!(!told.is_empty());
        let (found, disks) = read(name, &bytes, true);
        prop_assert_eq!(found.len(), told.len());
        // A trace with delays begins at zero, and so does one with 32-bit times.
        let rounded = |time: u64| time / time_resolution(name) * time_resolution(name);
        let start = if ["fio-2", "oracle"].contains(&name) { rounded(told[0].at.0) } else { 0 };
        for (found, told) in found.iter().zip(&told) {
            prop_assert_eq!(found.at.0, rounded(told.at.0) - start, "{}", name);
            prop_assert_eq!((found.op, found.offset, found.len), (op(name, told), told.offset, told.len));
            let disk = &disks[found.disk.0 as usize];
            let number = told.disk.0.to_string();
            let other = (u32::MAX - told.disk.0).to_string();
            prop_assert!(["vscsi", "oracle"].contains(&name) || *disk == number || *disk == other || *disk == format!("host,{number}"), "{}", disk);
        }
    }
}

/// A trace that is written and read back with format detection has the same records.
#[test]
fn conversion_round_trips() {
    let records: Vec<_> = (0..50_000u64)
        .map(|n| Record {
            at: Nanos(n * 1_234_000),
            disk: Disk(0),
            op: if n % 3 == 0 { Op::Write } else { Op::Read },
            offset: VolumeOffset(n * 7919 % 100_000 * 4096),
            len: Bytes(4096 << (n % 4)),
            hint: Hint::None,
        })
        .collect();
    for name in writable() {
        let (bytes, told) = write_and_read(name, &records, |_| "sda".into());
        assert_eq!(told.len(), records.len());
        let (found, _) = read(name, &bytes, false);
        // Formats with words or a heading are detected without doubt.
        let has_words = ["weir", "msr", "vscsi", "systor", "fio-2", "fio-3", "oracle"].contains(&name);
        let reader = Reader::open("t", &bytes[..], None).expect("a trace");
        assert!(!has_words || reader.note().is_none(), "{name}: {:?}", reader.note());
        let at = |at: Nanos| Nanos(at.0 / time_resolution(name) * time_resolution(name));
        let meant =
            records.iter().map(|record| Record { at: at(record.at), op: op(name, record), ..*record });
        assert_eq!(found, meant.collect::<Vec<_>>(), "{name}");
        if name == "weir" {
            assert!(bytes.len() < 6 * records.len(), "{} bytes", bytes.len());
        }
    }
}

#[test]
fn seek_table_locates_each_chunk() {
    let record = |n: u64| Record {
        at: Nanos(n << 40),
        disk: Disk(0),
        op: Op::Read,
        offset: VolumeOffset(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2),
        len: Bytes(n + 1),
        hint: Hint::None,
    };
    let records: Vec<_> = (0..40_000).map(record).collect();
    let (bytes, _) = write_and_read("weir", &records, |_| "sda".into());
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let end = bytes.len();
    assert_eq!(word(end - 4), SEEKABLE_MAGIC as usize);
    let frames = word(end - 9);
    let table = end - 9 - 8 * frames;
    assert_eq!((word(table - 8), word(table - 4)), (SKIPPABLE_MAGIC as usize, end - table));
    assert!(frames > 2);
    let mut at = 0;
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for frame in 0..frames {
        let (packed, len) = (word(table + 8 * frame), word(table + 8 * frame + 4));
        let bytes = zstd::decode_all(&bytes[at..at + packed]).expect("a frame alone");
        assert_eq!(bytes.len(), len);
        let before = all.len();
        if len > 0 && frame > 0 {
            crate::chunk::decode(&bytes[crate::chunk::LENGTH_FIELD_SIZE..], &mut all, |_| Disk(0))
                .expect("a chunk alone");
            counts.push((all.len() - before) as u32);
        }
        at += packed;
    }
    // The last frame is skippable: the record counts of the chunks.
    let last = at - word(table + 8 * (frames - 1));
    assert_eq!((word(last), word(last + 4)), (COUNTS_MAGIC as usize, at - last - SKIPPABLE_HEADER_LEN));
    let told = zstd::decode_all(&bytes[last + SKIPPABLE_HEADER_LEN..at]).expect("numbers");
    let told: Vec<_> = told.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    assert_eq!(told, counts);
    assert_eq!((at, all), (table - 8, records));
}

#[test]
fn damage_and_truncation_are_reported() {
    let records: Vec<_> = (0..60_000)
        .map(|n| Record {
            at: Nanos(n),
            disk: Disk(0),
            op: Op::Read,
            offset: VolumeOffset(n * 0x9e37_79b9 % (1 << 40)),
            len: Bytes(512),
            hint: Hint::None,
        })
        .collect();
    let (mut bytes, _) = write_and_read("weir", &records, |_| "sda".into());
    let half = Trace::load(Reader::open("t", &bytes[..bytes.len() / 2], None).expect("half"), false);
    assert!(half.expect("half").tally.truncation.is_some());
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let damaged = Trace::load(Reader::open("t", &bytes[..], None).expect("known"), false);
    assert!(
        damaged.is_err() || damaged.is_ok_and(|trace| trace.tally.truncation.is_some()),
        "a checksum tells"
    );
}

#[test]
fn flushed_records_can_be_read() {
    #[derive(Clone, Default)]
    struct SharedBuffer(Rc<RefCell<Vec<u8>>>);
    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let record = |n: u64| Record {
        at: Nanos::secs(n),
        disk: Disk((n % 2) as u32),
        op: if n < 3 { Op::Read } else { Op::Write },
        offset: VolumeOffset(n * BLOCK),
        len: Bytes(BLOCK),
        hint: Hint::None,
    };
    for name in writable().filter(|name| *name != ORACLE) {
        let there = SharedBuffer::default();
        let known = format(name).expect("a format");
        let mut writer = Writer::new(known, io::BufWriter::new(there.clone())).expect("begun");
        let places = || {
            let bytes = there.0.borrow().clone();
            let trace = Trace::load(Reader::open("t", &bytes[..], Some(known)).expect("known"), false);
            trace.expect(name).records.into_iter().map(|record| record.offset.0 / BLOCK).collect::<Vec<_>>()
        };
        for n in 0..3 {
            assert!(writer.write(&record(n), &(n % 2).to_string()).expect("written"), "{name}");
        }
        writer.flush().expect("flushed");
        writer.flush().expect("nothing new");
        assert_eq!(places(), [0, 1, 2], "{name}");
        for n in 3..5 {
            assert!(writer.write(&record(n), &(n % 2).to_string()).expect("written"), "{name}");
        }
        writer.finish().expect("whole").flush().expect("flushed");
        assert_eq!(places(), [0, 1, 2, 3, 4], "{name}");
    }
}

#[test]
fn read_only_formats_are_rejected_with_alternatives() {
    for format in FORMATS.iter().filter(|format| !writable().any(|name| name == format.name)) {
        let refused = Writer::new(format, Vec::new()).unwrap_err().to_string();
        assert!(refused.contains(&*format.name) && refused.contains("one of weir, msr,"), "{refused}");
    }
}

#[test]
fn oracle_records_have_the_next_use() {
    let record = |disk, page: u64| Record {
        at: Nanos::secs(100),
        disk: Disk(disk),
        op: Op::Write,
        offset: VolumeOffset(page * 4096),
        len: Bytes(512),
        hint: Hint::None,
    };
    let records = [record(0, 7), record(1, 7), record(0, 9), record(0, 7)];
    let (bytes, told) = write_and_read("oracle", &records, |_| "sda".into());
    assert_eq!(told.len(), 4);
    let nexts: Vec<_> =
        bytes.chunks_exact(24).map(|one| i64::from_le_bytes(one[16..].try_into().unwrap())).collect();
    assert_eq!(nexts, [4, -1, -1, -1]);
    let (_, told) =
        write_and_read("oracle", &[Record { offset: VolumeOffset(512), ..record(0, 0) }], |_| "sda".into());
    assert!(told.is_empty());
}

/// The error for a damaged trace in weir's own format names the chunk and its position.
#[test]
fn damaged_chunk_is_reported() {
    let record = |n: u64| Record {
        at: Nanos(n * 1000),
        disk: Disk(0),
        op: Op::Read,
        offset: VolumeOffset(n * n % 7919 * BLOCK),
        len: Bytes(BLOCK),
        hint: Hint::None,
    };
    let (bytes, _) = write_and_read("weir", &(0..40_000).map(record).collect::<Vec<_>>(), |_| "sda".into());
    let mut plain = zstd::decode_all(&bytes[..]).expect("whole");
    let second = 8 + 4 + u32::from_le_bytes(plain[8..12].try_into().expect("4 bytes")) as usize;
    let cut = |bytes: &[u8]| {
        let trace =
            Trace::load(Reader::open("t", bytes, None).expect("a trace"), false).expect("the first chunk");
        trace.tally.truncation.expect("damage").to_string()
    };
    let told = format!(
        "t breaks off after record 16384: in chunk 2, which begins at byte {second} of what is unpacked: "
    );
    let short = cut(&plain[..second + 1000]);
    assert_eq!(short.split(';').next(), Some(&*(told.clone() + "its last chunk is not whole")));
    plain[second + 4] = 3;
    assert!(cut(&plain).starts_with(&(told + "an operation from 0 to 2 expected")), "{}", cut(&plain));
    // In compressed data the frame's checksum or its truncation shows the damage, and the error names the
    // byte of the file.
    let packed = cut(&bytes[..bytes.len() / 2]);
    assert!(
        packed.contains("in chunk ") && packed.contains("the zstd data is damaged or cut short near byte "),
        "{packed}"
    );
}
