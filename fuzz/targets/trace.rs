//! Reads arbitrary bytes as a trace, in the format that the first byte names or that is detected. Records and
//! errors come to an end, without a panic. The records are then written in weir's own format and read again.
#![no_main]

use weir_trace::{FORMATS, Reader, Trace, Writer, format};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let format = FORMATS.get(usize::from(*first));
    match Reader::open("fuzzed", rest, format).and_then(|reader| Trace::load(reader.with_responses(), false)) {
        Ok(trace) => {
            assert!(trace.records.iter().all(|r| r.len.0 > 0 && (r.disk.0 as usize) < trace.disks.len()));
            write_and_read(&trace);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

/// Asserts that the records survive a round trip through weir's own format.
fn write_and_read(trace: &Trace) {
    let mut writer = Writer::new(format("weir").expect("a format"), Vec::new()).expect("begun");
    for record in &trace.records {
        assert!(writer.write(record, &trace.disks[record.disk.0 as usize]).expect("memory"));
    }
    let bytes = writer.finish().expect("memory");
    let again = Trace::load(Reader::open("again", &bytes[..], None).expect("its own"), true).expect("its own");
    assert_eq!(again.records.len(), trace.records.len());
    for (again, first) in again.records.iter().zip(&trace.records) {
        assert_eq!((again.at, again.op, again.offset, again.len), (first.at, first.op, first.offset, first.len));
    }
}
