//! Decodes arbitrary bytes as a journal frame, with identity and checksum corrected so that the deltas are
//! reached. An accepted frame encodes to bytes that decode to the same deltas.
#![no_main]

use weir_map::PoolId;
use weir_map::journal::Frame;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let pool = PoolId([0; 16]);
    let blocks = 16u16 << (bytes.first().copied().unwrap_or(0) % 7);
    let mut frame = bytes.to_vec();
    if frame.len() >= 64 {
        frame[..4].copy_from_slice(b"wJF1");
        frame[4..24].fill(0);
        let length = frame.len() as u32;
        frame[48..52].copy_from_slice(&length.to_le_bytes());
        let crc = weir_map::crc32c(&frame);
        frame[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    if let Some(decoded) = Frame::decode(&frame, pool, blocks) {
        let mut again = frame[..64].to_vec();
        again[4..8].fill(0);
        decoded.deltas.iter().for_each(|delta| delta.encode(blocks, &mut again));
        let length = again.len() as u32;
        again[48..52].copy_from_slice(&length.to_le_bytes());
        let crc = weir_map::crc32c(&again);
        again[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Frame::decode(&again, pool, blocks).map(|f| f.deltas), Some(decoded.deltas));
    }
});
