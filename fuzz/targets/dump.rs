//! Reads arbitrary bytes as a dump, also with corrected checksums of its parts so that their contents are
//! reached. The reader reaches the end or returns an error.
#![no_main]

use weir::commands::pool::dump::dump_format::{Part, Reader};

const HEADER: usize = 40;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut dump = bytes.to_vec();
    let (mut at, mut number) = (0, 0u64);
    while let Some(header) = dump.get(at..at + HEADER) {
        let length = usize::from(u16::from_le_bytes([header[32], header[33]]));
        let end = (at + HEADER + length).min(dump.len());
        let part = &mut dump[at..end];
        part[..8].copy_from_slice(b"weirDP01");
        part[8..12].fill(0);
        part[16..24].copy_from_slice(&number.to_le_bytes());
        part[32..40].copy_from_slice(&(length as u64).to_le_bytes());
        let crc = weir_map::crc32c(part);
        part[8..12].copy_from_slice(&crc.to_le_bytes());
        (at, number) = (end, number + 1);
    }
    for bytes in [bytes, &dump] {
        let mut reader = Reader::new(bytes);
        while let Ok(part) = reader.read_part() {
            if part == Part::End {
                break;
            }
        }
    }
});
