//! Unpacks what a trace may be compressed with, known by how it begins.

use crate::TraceError;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use std::io::{BufRead, BufReader, Cursor, Read};

/// What begins how.
const MAGICS: [(&[u8], Packed); 4] = [
    (b"\x1f\x8b", Packed::Gzip),
    (b"\x28\xb5\x2f\xfd", Packed::Zstd),
    (b"\xfd7zXZ\0", Packed::Xz),
    (b"BZh", Packed::Bzip2),
];
/// The longest of these.
const MAGIC: u64 = 6;

/// What unpacking xz may take, in KiB: its largest usual dictionary, and some.
const XZ_MEMORY: u32 = 128 << 10;

#[derive(Clone, Copy, Debug)]
enum Packed {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

/// The input as it was before it was compressed with gzip, zstd, xz or bzip2; as it is if it was not.
pub(crate) fn unpack<'a>(
    trace: &str,
    mut input: impl BufRead + Send + 'a,
) -> Result<Box<dyn Read + Send + 'a>, TraceError> {
    let cut =
        |error: std::io::Error| TraceError::Cut { trace: trace.into(), line: 0, why: error.to_string() };
    let mut first = Vec::new();
    input.by_ref().take(MAGIC).read_to_end(&mut first).map_err(cut)?;
    let packed = MAGICS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, packed)| *packed);
    let all = Cursor::new(first).chain(input);
    Ok(match packed {
        None => Box::new(all),
        Some(Packed::Gzip) => Box::new(MultiGzDecoder::new(all)),
        Some(Packed::Bzip2) => Box::new(MultiBzDecoder::new(all)),
        Some(Packed::Zstd) => Box::new(zstd::Decoder::with_buffer(all).map_err(cut)?),
        // It asks for single bytes of headers.
        Some(Packed::Xz) => Box::new(XzReader::new_mem_limit(BufReader::new(all), true, XZ_MEMORY)),
    })
}
