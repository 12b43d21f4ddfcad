//! Compresses output; the counterpart of the decompression in [`Reader`](crate::Reader).

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};

/// An output, with or without gzip compression.
pub enum MaybeGzip<W: Write> {
    /// No compression.
    Plain(W),
    /// gzip, at its default level.
    Gzip(GzEncoder<W>),
}

impl<W: Write> MaybeGzip<W> {
    /// Creates an output to `out`, compressed if `gzip` is set.
    pub fn new(out: W, gzip: bool) -> Self {
        if gzip { Self::Gzip(GzEncoder::new(out, Compression::default())) } else { Self::Plain(out) }
    }

    /// Writes the remaining data; returns the output, not flushed.
    ///
    /// # Errors
    /// Fails if writing to the output fails.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(packer) => packer.finish(),
        }
    }
}

impl<W: Write> Write for MaybeGzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(packer) => packer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(packer) => packer.flush(),
        }
    }
}
