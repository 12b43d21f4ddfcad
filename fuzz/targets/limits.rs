//! Decodes arbitrary bytes as the limits of users and groups, at times with a corrected checksum so that their
//! contents are reached. What is accepted is bounded, and encodes to the same bytes.
#![no_main]

use weir_fs::layout::quota::{BYTES_MAX, decode, encode};
use weir_fs::layout::superblock::checksum;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    if let Some((1, rest)) = bytes.split_first()
        && let Some((body, _)) = rest.split_last_chunk::<8>()
    {
        // The version and the number of entries are right, too.
        let mut body = body.to_vec();
        if let Some((header, entries)) = body.split_first_chunk_mut::<8>() {
            header[..4].copy_from_slice(&1_u32.to_le_bytes());
            header[4..].copy_from_slice(&(entries.len() as u32 / 24).to_le_bytes());
        }
        body.extend(checksum(&body).to_le_bytes());
        bytes = body;
    }
    if let Some(limits) = decode(&bytes) {
        assert!(bytes.len() <= BYTES_MAX);
        assert_eq!(encode(&limits), Some(bytes));
    }
});
