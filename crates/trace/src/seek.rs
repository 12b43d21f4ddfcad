//! Seeks to a part of a trace in weir's own format with the table at its end, without reading the rest.

use crate::chunk::{self, BODY_MAX, LENGTH_FIELD_SIZE, MAGIC};
use crate::record::{Disk, Span};
use crate::writer::{COUNTS_MAGIC, SEEKABLE_MAGIC, SKIPPABLE_HEADER_LEN, SKIPPABLE_MAGIC};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use weir_model::Nanos;

/// Length of the table's footer: number of frames, flags, magic number.
const FOOTER_LEN: u64 = 9;
/// Length of a frame's entry: its packed and unpacked lengths.
const ENTRY_LEN: usize = 8;
/// Maximum length of a valid table: 32 million chunks.
const TABLE_MAX: u64 = 1 << 28;

/// A part of a trace that contains a span of it, and possibly more.
#[derive(Debug)]
pub struct SpanInput<R> {
    /// The trace, without chunks that contain nothing of the span.
    pub input: io::Chain<Cursor<Vec<u8>>, io::Take<R>>,
    /// Time of the whole trace's first record.
    pub first: Nanos,
}

/// Seeks to the part of a trace that contains a span, if the trace is in weir's own format and ends with its
/// table; otherwise returns the input, to be read from the start. Chunks are located by the times of their
/// first records. Traces are expected in time order; records out of order by less than a chunk, usually
/// 16,384 records, are found nevertheless. Cost: a few reads and the memory of the table, 8 bytes per chunk.
///
/// # Errors
/// As `input`, whose position is then undefined.
pub fn seek<R: Read + Seek>(mut input: R, span: Span) -> io::Result<Result<SpanInput<R>, R>> {
    let Some(Chunks { magic, chunks, .. }) = Chunks::read_from(&mut input)? else { return Ok(Err(input)) };
    let Some(first) = chunks.first() else { return Ok(Err(input)) };
    let Some(first) = first.first_time(&mut input)? else { return Ok(Err(input)) };
    // Counts the chunks that begin before a time; one that cannot be read counts, and its error appears on
    // reading.
    let mut before = |time: Nanos| {
        let (mut low, mut high) = (0, chunks.len());
        while low < high {
            let middle = low.midpoint(high);
            match chunks[middle].first_time(&mut input)? {
                Some(begins) if begins >= time => high = middle,
                _ => low = middle + 1,
            }
        }
        Ok::<_, io::Error>(low)
    };
    let start = before(first + span.start)?.saturating_sub(2);
    let end = (before(Nanos(first.0.saturating_add(span.end.0)))? + 1).min(chunks.len());
    let from = chunks[start].at;
    let until = chunks[end - 1].at + u64::from(chunks[end - 1].packed);
    input.seek(SeekFrom::Start(from))?;
    Ok(Ok(SpanInput { input: Cursor::new(magic).chain(input.take(until.saturating_sub(from))), first }))
}

/// The rest of a trace, from the chunk that contains a record.
#[derive(Debug)]
pub struct SuffixInput<R> {
    /// The trace, without the chunks before.
    pub input: io::Chain<Cursor<Vec<u8>>, R>,
    /// Number of records in the chunks before.
    pub preceding_records: u64,
}

/// Seeks to the chunk that contains the record of this number, from 0, if the trace is in weir's own format
/// and ends with its tables; otherwise returns the input, to be read from the start, as with traces written
/// before the table of record counts existed. The chunks before are neither read nor unpacked. If there are
/// no more records, the rest has no chunk. Cost: a few reads and the memory of the tables, 12 bytes per
/// chunk.
///
/// # Errors
/// As `input`, whose position is then undefined.
pub fn seek_number<R: Read + Seek>(mut input: R, number: u64) -> io::Result<Result<SuffixInput<R>, R>> {
    let Some(Chunks { magic, chunks, counts }) = Chunks::read_from(&mut input)? else {
        return Ok(Err(input));
    };
    let counts = match counts {
        Some(frame) => frame.counts(chunks.len(), &mut input)?,
        None => None,
    };
    let (Some(counts), Some(last)) = (counts, chunks.last()) else { return Ok(Err(input)) };
    let (mut before, mut from) = (0, last.at + u64::from(last.packed));
    for (chunk, records) in chunks.iter().zip(counts) {
        if number < before + u64::from(records) {
            from = chunk.at;
            break;
        }
        before += u64::from(records);
    }
    input.seek(SeekFrom::Start(from))?;
    Ok(Ok(SuffixInput { input: Cursor::new(magic).chain(input), preceding_records: before }))
}

/// Contents of the tables at a trace's end.
struct Chunks {
    /// The trace's first frame, as stored.
    magic: Vec<u8>,
    chunks: Vec<Frame>,
    /// The frame with the record counts of the chunks.
    counts: Option<Frame>,
}

impl Chunks {
    /// Reads the tables; returns `None` unless the input is a trace in weir's own format that ends with its
    /// table.
    fn read_from(input: &mut (impl Read + Seek)) -> io::Result<Option<Self>> {
        let Some(mut chunks) = table(input)? else { return Ok(None) };
        // The table of another program may have frames as large as a disk.
        if chunks.first().is_none_or(|head| head.unpacked as usize != MAGIC.len()) {
            return Ok(None);
        }
        let magic = chunks.remove(0).bytes(input)?;
        let is_own = zstd::bulk::decompress(&magic, MAGIC.len()).is_ok_and(|unpacked| unpacked == MAGIC);
        let counts = chunks.pop_if(|frame| frame.unpacked == 0);
        Ok(is_own.then_some(Self { magic, chunks, counts }))
    }
}

/// Position and lengths of a frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    at: u64,
    packed: u32,
    unpacked: u32,
}

impl Frame {
    /// Reads the frame as stored.
    fn bytes(&self, input: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.packed as usize];
        input.seek(SeekFrom::Start(self.at))?;
        input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the record counts of the chunks, if this frame contains them; `None` if it cannot be read.
    fn counts(&self, chunks: usize, input: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u32>>> {
        let bytes = self.bytes(input)?;
        let Some((head, packed)) = bytes.split_first_chunk::<SKIPPABLE_HEADER_LEN>() else { return Ok(None) };
        let is_counts = head.starts_with(&COUNTS_MAGIC.to_le_bytes());
        let unpacked = zstd::bulk::decompress(packed, chunks * size_of::<u32>()).ok().filter(|_| is_counts);
        let counts = unpacked.map(|unpacked| {
            let words = unpacked.as_chunks().0.iter();
            words.map(|word| u32::from_le_bytes(*word)).collect::<Vec<_>>()
        });
        Ok(counts.filter(|counts| counts.len() == chunks))
    }

    /// Returns the time of the first record of the frame's chunk; `None` if it cannot be read.
    fn first_time(&self, input: &mut (impl Read + Seek)) -> io::Result<Option<Nanos>> {
        if self.unpacked as usize > LENGTH_FIELD_SIZE + BODY_MAX {
            return Ok(None);
        }
        let bytes = self.bytes(input)?;
        let Ok(unpacked) = zstd::bulk::decompress(&bytes, self.unpacked as usize) else { return Ok(None) };
        let mut records = Vec::new();
        let body = unpacked.get(LENGTH_FIELD_SIZE..).unwrap_or_default();
        let read = chunk::decode(body, &mut records, |_| Disk(0));
        Ok(records.first().filter(|_| read.is_ok()).map(|record| record.at))
    }
}

/// Reads the positions of the frames; returns `None` if the input does not end with a table.
fn table(input: &mut (impl Read + Seek)) -> io::Result<Option<Vec<Frame>>> {
    let len = input.seek(SeekFrom::End(0))?;
    let Some(foot_at) = len.checked_sub(FOOTER_LEN) else { return Ok(None) };
    let mut foot = [0; FOOTER_LEN as usize];
    input.seek(SeekFrom::Start(foot_at))?;
    input.read_exact(&mut foot)?;
    let [a, b, c, d, flags, magic @ ..] = foot;
    let size = u64::from(u32::from_le_bytes([a, b, c, d])) * ENTRY_LEN as u64;
    let start = foot_at.checked_sub(size + 8);
    let Some(start) = start.filter(|_| flags == 0 && u32::from_le_bytes(magic) == SEEKABLE_MAGIC) else {
        return Ok(None);
    };
    if size > TABLE_MAX {
        return Ok(None);
    }
    let mut entries = vec![0; size as usize + 8];
    input.seek(SeekFrom::Start(start))?;
    input.read_exact(&mut entries)?;
    let mut words = entries.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
    if words.next() != Some(SKIPPABLE_MAGIC) || words.next().map(u64::from) != Some(size + FOOTER_LEN) {
        return Ok(None);
    }
    let mut at = 0;
    let mut frames = Vec::new();
    while let (Some(packed), Some(unpacked)) = (words.next(), words.next()) {
        frames.push(Frame { at, packed, unpacked });
        at += u64::from(packed);
    }
    // The frames must fill everything before the table.
    Ok((at == start).then_some(frames))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reader, Record, Writer, format};
    use proptest::prelude::*;
    use std::io::BufReader;
    use weir_model::{Bytes, Hint, Op, VolumeOffset};

    /// Makes a trace of `records` records, one a microsecond from one second on, some slightly out of order.
    fn trace(records: u64) -> (Vec<u8>, Vec<Record>) {
        let record = |n: u64| Record {
            at: Nanos::secs(1) + Nanos::micros(if n % 100 == 7 { n - 5 } else { n }),
            disk: Disk(0),
            op: Op::Read,
            offset: VolumeOffset(n * 0x9e37_79b9 % (1 << 40)),
            len: Bytes(512),
            hint: Hint::None,
        };
        let all: Vec<_> = (0..records).map(record).collect();
        let mut writer = Writer::new(format("weir").expect("a format"), Vec::new()).expect("begun");
        all.iter().for_each(|record| assert!(writer.write(record, "sda").expect("written")));
        (writer.finish().expect("whole"), all)
    }

    /// Counts the bytes read from an input.
    #[derive(Debug)]
    struct CountingReader<R>(R, u64);

    impl<R: Read> Read for CountingReader<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.read(buffer)?;
            self.1 += count as u64;
            Ok(count)
        }
    }

    impl<R: Seek> Seek for CountingReader<R> {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    fn span(start: u64, end: u64) -> Span {
        Span { start: Nanos::micros(start), end: Nanos::micros(end) }
    }

    #[test]
    fn seeking_reads_only_the_span() {
        let (bytes, all) = trace(400_000);
        let mut counted = CountingReader(Cursor::new(&bytes), 0);
        for (start, end) in
            [(0, 5), (200_000, 200_010), (399_990, 1_000_000), (16_383, 16_385), (5, 5), (900_000, 900_001)]
        {
            let span = span(start, end);
            let part = seek(&mut counted, span).expect("read").expect("weir's own");
            assert_eq!(part.first, Nanos::secs(1));
            let reader = Reader::open("t", BufReader::new(part.input), None).expect("a trace");
            let found: Vec<_> =
                reader.select_span(span, Some(part.first)).map(|record| record.expect("good")).collect();
            let is_in = |record: &&Record| span.contains(record.at.since(Nanos::secs(1)));
            assert_eq!(found, all.iter().filter(is_in).copied().collect::<Vec<_>>(), "{start} to {end}");
        }
        assert!(counted.1 < 4 * bytes.len() as u64, "{} of {} bytes", counted.1, bytes.len());
    }

    #[test]
    fn input_without_table_is_read_from_the_start() {
        let (bytes, _) = trace(10);
        for other in
            [&b""[..], b"short", b"0.000 0 4096 512 1\n1.500 0 8192 512 0\n", &bytes[..bytes.len() - 1]]
        {
            assert!(seek(Cursor::new(other), span(0, 1)).expect("read").is_err());
        }
        // The frames of another program, the first of which is large.
        let mut other = zstd::encode_all(&vec![7; 1 << 20][..], 1).expect("packed");
        let packed = other.len() as u32;
        for word in [SKIPPABLE_MAGIC, 17, packed, 1 << 20, 1] {
            other.extend(word.to_le_bytes());
        }
        other.push(0);
        other.extend(SEEKABLE_MAGIC.to_le_bytes());
        let mut counted = CountingReader(Cursor::new(&other), 0);
        assert!(seek(&mut counted, span(0, 1)).expect("read").is_err());
        assert_eq!(counted.1, FOOTER_LEN + 16, "its table alone");

        let again = Reader::open("t", &b"5.000 0 0 512 1\n6.500 0 8192 512 0\n7.5 0 0 512 1\n"[..], None);
        let found = again.expect("a trace").select_span(span(1000, 2000), None);
        assert_eq!(found.map(|record| record.expect("good").offset.0).collect::<Vec<_>>(), [8192]);
    }

    /// Returns up to `most` records from number `skip` on, and the number of bytes read.
    fn numbered(bytes: &[u8], skip: u64, most: u64) -> (Vec<Record>, u64) {
        let mut counted = CountingReader(Cursor::new(bytes), 0);
        let rest = seek_number(&mut counted, skip).expect("read").expect("weir's own");
        let before = rest.preceding_records;
        let reader = Reader::open("t", BufReader::with_capacity(256, rest.input), None).expect("a trace");
        let found = reader.select_numbers(skip..skip.saturating_add(most), before);
        let found = found.map(|record| record.expect("good")).collect();
        (found, counted.1)
    }

    /// Makes a trace whose chunks have these numbers of records, each of one of three disks.
    fn trace_with_chunks(chunks: &[u16]) -> (Vec<u8>, Vec<Record>) {
        let mut writer = Writer::new(format("weir").expect("a format"), Vec::new()).expect("begun");
        let mut all = Vec::new();
        for records in chunks {
            for _ in 0..*records {
                let n = all.len() as u64;
                let (disk, offset) = (Disk(n as u32 % 3), VolumeOffset(n * 7 % 1000 * 512));
                let record = Record {
                    at: Nanos(n * n % 77),
                    disk,
                    op: Op::Write,
                    offset,
                    len: Bytes(512),
                    hint: Hint::None,
                };
                assert!(writer.write(&record, ["a", "b", "c"][disk.0 as usize]).expect("written"));
                all.push(record);
            }
            writer.flush().expect("a chunk of its own");
        }
        (writer.finish().expect("whole"), all)
    }

    #[test]
    fn seeking_by_number_skips_preceding_chunks() {
        let (bytes, all) = trace(400_000);
        for skip in [0, 1, 16_383, 16_384, 200_000, 399_999] {
            let (found, read) = numbered(&bytes, skip, 5);
            assert_eq!(found, all.iter().skip(skip as usize).take(5).copied().collect::<Vec<_>>(), "{skip}");
            // A chunk is a 25th of the trace.
            assert!(read < bytes.len() as u64 / 8, "{read} of {} bytes", bytes.len());
        }
        assert!(numbered(&bytes, 400_000, 5).0.is_empty());
        // Without the tables it is read from the start.
        let cut = &bytes[..bytes.len() - 1];
        assert!(seek_number(Cursor::new(cut), 7).expect("read").is_err());
        let reader = Reader::open("t", cut, None).expect("a trace").select_numbers(7..9, 0);
        assert_eq!(reader.map(|record| record.expect("good")).collect::<Vec<_>>(), &all[7..9]);
        // A program that unpacks the whole trace does not see the tables.
        let unpacked = zstd::decode_all(&bytes[..]).expect("zstd");
        let again = Reader::open("t", &unpacked[..], None).expect("a trace");
        assert_eq!(again.filter(Result::is_ok).count(), all.len());
    }

    proptest! {
        /// Compares with a reader that reads everything and skips.
        #[test]
        fn seeking_by_number_equals_sequential_reading(
            chunks in prop::collection::vec(0..40u16, 0..12),
            skip in 0..300u64,
            most in 0..100u64,
        ) {
            let (bytes, all) = trace_with_chunks(&chunks);
            prop_assume!(!all.is_empty());
            let (found, _) = numbered(&bytes, skip, most);
            let naive = Reader::open("t", &bytes[..], None).expect("a trace");
            let naive: Vec<_> = naive.map(|record| record.expect("good")).collect();
            prop_assert_eq!(naive.len(), all.len());
            // Disks are numbered in order of appearance.
            let plain = |record: &Record| Record { disk: Disk(0), ..*record };
            let expected: Vec<_> = naive.iter().skip(skip as usize).take(most as usize).map(plain).collect();
            prop_assert_eq!(found.iter().map(plain).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn damaged_counts_are_rejected_or_ignored(
            at in any::<prop::sample::Index>(), byte: u8, skip in 0..200u64,
        ) {
            let (mut bytes, all) = trace_with_chunks(&[10, 30, 1, 60]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(Ok(rest)) = seek_number(Cursor::new(&bytes), skip)
                && let before = rest.preceding_records
                && let Ok(reader) = Reader::open("t", BufReader::new(rest.input), None)
            {
                let found: Vec<_> = reader.select_numbers(skip..skip + 5, before).collect();
                prop_assert!(found.len() <= 5);
                let whole = found.iter().flatten().zip(all.iter().skip(skip as usize));
                // No skipped data is misinterpreted.
                prop_assert!(whole.clone().all(|(found, record)| found.offset == record.offset));
            }
        }

        #[test]
        fn damaged_traces_are_read_or_rejected(
            at in any::<prop::sample::Index>(), byte: u8, start in 0..20_000u64,
        ) {
            let (mut bytes, _) = trace(20_000);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(Ok(part)) = seek(Cursor::new(&bytes), span(start, start + 9))
                && let Ok(reader) = Reader::open("t", BufReader::new(part.input), None)
            {
                prop_assert!(reader.select_span(span(start, start + 9), Some(part.first)).count() <= 12);
            }
        }
    }
}
