//! Decompresses traces; the compression is detected by its magic number.

use crate::TraceError;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Magic numbers of the compression formats.
const MAGICS: [(&[u8], Compression); 4] = [
    (b"\x1f\x8b", Compression::Gzip),
    (b"\x28\xb5\x2f\xfd", Compression::Zstd),
    (b"\xfd7zXZ\0", Compression::Xz),
    (b"BZh", Compression::Bzip2),
];
/// Length of the longest magic number.
const MAGIC_LEN: u64 = 6;

/// Memory limit for xz, in KiB: its largest usual dictionary, and some more.
const XZ_MEMORY: u32 = 128 << 10;

#[derive(Clone, Copy, Debug)]
enum Compression {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

impl Compression {
    const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        }
    }
}

/// Decompresses the input, if it is compressed with gzip, zstd, xz or bzip2; otherwise returns it unchanged.
/// Errors say near which byte of the input they occurred.
pub(crate) fn decompress<'a>(
    trace: &str,
    mut input: impl BufRead + Send + 'a,
) -> Result<Box<dyn Read + Send + 'a>, TraceError> {
    let cut = |error: io::Error| TraceError::Truncated {
        trace: trace.into(),
        line: 0,
        unit: "line",
        why: error.to_string(),
    };
    let mut first = Vec::new();
    input.by_ref().take(MAGIC_LEN).read_to_end(&mut first).map_err(cut)?;
    let packed = MAGICS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, packed)| *packed);
    let all = Cursor::new(first).chain(input);
    let Some(packed) = packed else { return Ok(Box::new(all)) };
    let used = Arc::new(AtomicU64::new(0));
    let all = CountingReader { input: all, consumed: used.clone() };
    let unpacked: Box<dyn Read + Send + 'a> = match packed {
        Compression::Gzip => Box::new(MultiGzDecoder::new(all)),
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(all)),
        Compression::Zstd => Box::new(zstd::Decoder::with_buffer(all).map_err(cut)?),
        // The decoder reads headers byte by byte.
        Compression::Xz => Box::new(XzReader::new_mem_limit(BufReader::new(all), true, XZ_MEMORY)),
    };
    Ok(Box::new(DecompressedInput { input: unpacked, consumed: used, compression: packed.name() }))
}

/// Counts the bytes taken from an input.
struct CountingReader<R> {
    input: R,
    consumed: Arc<AtomicU64>,
}

impl<R: BufRead> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.consumed.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for CountingReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.consumed.fetch_add(count as u64, Ordering::Relaxed);
        self.input.consume(count);
    }
}

/// Decompressed input. Its errors say where the input is damaged, unless the operating system failed to read
/// it.
struct DecompressedInput<'a> {
    input: Box<dyn Read + Send + 'a>,
    consumed: Arc<AtomicU64>,
    compression: &'static str,
}

impl Read for DecompressedInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ if error.raw_os_error().is_some() => error,
            kind => {
                let used = self.consumed.load(Ordering::Relaxed);
                let packed = self.compression;
                io::Error::new(
                    kind,
                    format!("the {packed} data is damaged or cut short near byte {used}: {error}"),
                )
            }
        })
    }
}
