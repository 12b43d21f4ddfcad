//! Packing what is written, as [`Reader`](crate::Reader) unpacks what is read.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};

/// An output, packed with gzip or not.
pub enum Packing<W: Write> {
    /// As it is.
    Plain(W),
    /// By gzip, at its usual level.
    Gzip(GzEncoder<W>),
}

impl<W: Write> Packing<W> {
    /// Packs what is written to `out`, if `gzip`.
    pub fn new(out: W, gzip: bool) -> Self {
        if gzip { Self::Gzip(GzEncoder::new(out, Compression::default())) } else { Self::Plain(out) }
    }

    /// Writes what is left; the output, not flushed.
    ///
    /// # Errors
    /// If the output takes no more.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(packer) => packer.finish(),
        }
    }
}

impl<W: Write> Write for Packing<W> {
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
