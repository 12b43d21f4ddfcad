//! Any bytes as a trace, of the format the first byte names or of one found out: records and errors
//! that come to an end, never a panic.
#![no_main]

use weir_trace::{FORMATS, Reader, Trace};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let format = FORMATS.get(usize::from(*first));
    match Reader::open("fuzzed", rest, format).and_then(|reader| Trace::load(reader, false)) {
        Ok(trace) => {
            assert!(trace.records.len() <= rest.len());
            assert!(trace.records.iter().all(|r| r.len.0 > 0 && (r.disk.0 as usize) < trace.disks.len()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
