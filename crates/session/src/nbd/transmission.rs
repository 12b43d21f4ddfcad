//! The transmission: requests in, replies out.
//!
//! A request is 28 bytes ([`Header::parse`]); the payload of a write follows it. [`Header::command`] returns
//! the request's meaning, or the [`Fault`] to answer it with. [`simple_reply`] and the `*_chunk` functions
//! build replies; their result is sent unchanged, followed by the payload.

use super::PAYLOAD_MAX;
use super::handshake::NegotiatedExport;
use super::wire::{CHUNK_MAGIC, REQUEST_MAGIC, Reader, SIMPLE_REPLY_MAGIC, chunk, command, flag};
use thiserror::Error;
use weir_engine::RunKind;
use weir_model::{Bytes, Errno, IoError, IoKind, Op, RequestError, VolumeOffset};

/// Length of a request without its payload, in bytes.
pub const HEADER_LEN: usize = 28;

/// Longest read that a client may request as one chunk. The protocol requires at least 64 KiB.
pub const SINGLE_CHUNK_MAX: u32 = 128 << 10;

/// A request as received: only its magic number has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bits of [`flag`].
    pub flags: u16,
    /// One of [`command`].
    pub kind: u16,
    /// The client's identifier of the request, returned with the reply.
    pub cookie: u64,
    /// Offset of the first byte.
    pub offset: VolumeOffset,
    /// Length; for a write also that of the payload that follows.
    pub len: u32,
}

/// A request's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// An operation for the engine.
    Engine {
        /// The operation.
        op: Op,
        /// True if it must be durable before the reply.
        fua: bool,
        /// True for a read whose data must be in one chunk.
        single_chunk: bool,
    },
    /// A query for the runs that hold data.
    BlockStatus {
        /// True if one descriptor is enough.
        single_descriptor: bool,
    },
    /// A read or change of zero bytes within the export. It succeeds and has no effect, as in qemu-nbd.
    NoOp,
    /// Answer the requests in flight, then close.
    Disconnect,
}

/// Reason for the failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// An error of the engine, or one that the engine would report.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A command or flag that the server has not advertised.
    #[error("command {kind} with flags {flags:#x} is not supported")]
    Unsupported {
        /// The request's type.
        kind: u16,
        /// Its flags.
        flags: u16,
    },
    /// The payload is longer than advertised.
    #[error("a request has {0} of payload; at most 32 MiB are accepted")]
    TooLong(Bytes),
    /// The data does not fit one chunk.
    #[error("a request asks for {0} in one chunk; at most 128 KiB are sent")]
    TooLongForOneChunk(Bytes),
}

impl Fault {
    /// Returns the protocol's error code. `kind` is the type of the failed request. An access beyond the end
    /// is ENOSPC for a write and EINVAL for others. A device without free space (a sparse file on a full file
    /// system) is ENOSPC for a write and EIO for others; for a durable write it may concern an earlier write
    /// that was lost, so it is EIO.
    pub const fn error_code(&self, kind: u16) -> u32 {
        const EIO: u32 = 5;
        const EINVAL: u32 = 22;
        const ENOSPC: u32 = 28;
        const EOVERFLOW: u32 = 75;
        const ESHUTDOWN: u32 = 108;
        let writes = matches!(kind, command::WRITE | command::WRITE_ZEROES);
        match self {
            Self::Request(RequestError::Io {
                kind: IoKind::Write { fua: false },
                error: IoError::Os(Errno::ENOSPC),
                ..
            }) if writes => ENOSPC,
            Self::Request(
                RequestError::Io { .. } | RequestError::InDoubt { .. } | RequestError::FlushFailed(_),
            ) => EIO,
            Self::Request(RequestError::NoSpace) => ENOSPC,
            Self::Request(RequestError::Misaligned { .. }) => EINVAL,
            Self::Request(RequestError::OutOfRange { .. }) if writes => ENOSPC,
            Self::Request(RequestError::OutOfRange { .. }) => EINVAL,
            Self::Request(RequestError::NoVolume | RequestError::ReadOnly) => ESHUTDOWN,
            Self::Unsupported { .. } | Self::TooLong(_) => EINVAL,
            Self::TooLongForOneChunk(_) => EOVERFLOW,
        }
    }
}

impl Header {
    /// Parses a request. Returns `None` if the magic number is wrong: client and server no longer agree where
    /// requests begin, and the connection cannot continue.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: reader.u16()?,
            kind: reader.u16()?,
            cookie: reader.u64()?,
            offset: VolumeOffset(reader.u64()?),
            len: reader.u32()?,
        })
    }

    /// Returns the number of payload bytes that follow the header.
    #[inline]
    pub const fn payload(&self) -> u32 {
        if self.kind == command::WRITE { self.len } else { 0 }
    }

    /// Returns the request's meaning, if it is valid for this export.
    #[inline]
    pub fn command(&self, negotiated: &NegotiatedExport) -> Result<Command, Fault> {
        // FUA is valid on every command, even where it has no effect.
        let flags = self.flags & !flag::FUA;
        let command = self.command_of_any_length(flags, negotiated)?;
        let of_no_bytes = match command {
            Command::Engine { op: Op::Flush, .. } | Command::Disconnect | Command::NoOp => false,
            Command::Engine { .. } | Command::BlockStatus { .. } => self.len == 0,
        };
        match command {
            Command::BlockStatus { .. } if of_no_bytes => {
                Err(RequestError::Misaligned { offset: self.offset, len: Bytes(0) }.into())
            }
            _ if of_no_bytes => Ok(Command::NoOp),
            _ => Ok(command),
        }
    }

    #[inline]
    fn command_of_any_length(&self, flags: u16, negotiated: &NegotiatedExport) -> Result<Command, Fault> {
        let engine = |op| Ok(Command::Engine { op, fua: self.flags & flag::FUA != 0, single_chunk: false });
        let unsupported = Err(Fault::Unsupported { kind: self.kind, flags: self.flags });
        match self.kind {
            command::READ if flags & !flag::DF == 0 => {
                let whole = flags & flag::DF != 0 && negotiated.structured;
                self.check_payload()?;
                if whole && self.len > SINGLE_CHUNK_MAX {
                    return Err(Fault::TooLongForOneChunk(Bytes(self.len.into())));
                }
                self.check_range(negotiated)?;
                Ok(Command::Engine { op: Op::Read, fua: false, single_chunk: whole })
            }
            command::WRITE if flags == 0 => {
                self.check_payload()?;
                self.check_range(negotiated)?;
                engine(Op::Write)
            }
            command::FLUSH if flags == 0 => engine(Op::Flush),
            command::TRIM if flags == 0 => {
                self.check_range(negotiated)?;
                engine(Op::Trim)
            }
            command::WRITE_ZEROES if flags & !(flag::NO_HOLE | flag::FAST_ZERO) == 0 => {
                self.check_range(negotiated)?;
                // Zeros are written in the map, which is always fast.
                engine(Op::WriteZeroes { no_hole: flags & flag::NO_HOLE != 0 })
            }
            command::BLOCK_STATUS if flags & !flag::REQ_ONE == 0 && negotiated.allocation => {
                self.check_range(negotiated)?;
                Ok(Command::BlockStatus { single_descriptor: flags & flag::REQ_ONE != 0 })
            }
            command::DISC => Ok(Command::Disconnect),
            _ => unsupported,
        }
    }

    fn check_payload(&self) -> Result<(), Fault> {
        if self.len > PAYLOAD_MAX { Err(Fault::TooLong(Bytes(self.len.into()))) } else { Ok(()) }
    }

    #[inline]
    fn check_range(&self, negotiated: &NegotiatedExport) -> Result<(), RequestError> {
        let (offset, len) = (self.offset, Bytes(self.len.into()));
        match offset.0.checked_add(len.0) {
            Some(end) if end <= negotiated.size.0 => Ok(()),
            _ => Err(RequestError::OutOfRange { offset, len, size: negotiated.size }),
        }
    }
}

/// Builds a simple reply: the whole reply of a request other than a read, or the header before a read's data.
/// `error` 0 is success.
#[inline]
pub fn simple_reply(cookie: u64, error: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Builds the header of a chunk with `len` bytes to follow.
#[inline]
fn chunk_header(cookie: u64, kind: u16, done: bool, len: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&(if done { chunk::DONE } else { 0 }).to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Builds the header of `len` bytes of data at `offset`.
#[inline]
pub fn data_chunk(cookie: u64, done: bool, offset: VolumeOffset, len: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..20].copy_from_slice(&chunk_header(cookie, chunk::OFFSET_DATA, done, len + 8));
    bytes[20..].copy_from_slice(&offset.0.to_be_bytes());
    bytes
}

/// Builds the chunk that reports `len` zero bytes at `offset`.
#[inline]
pub fn hole_chunk(cookie: u64, done: bool, offset: VolumeOffset, len: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..20].copy_from_slice(&chunk_header(cookie, chunk::OFFSET_HOLE, done, 12));
    bytes[20..28].copy_from_slice(&offset.0.to_be_bytes());
    bytes[28..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Builds the chunk that reports the failure of a request of this kind, with the offset if it is known.
pub fn error_chunk(cookie: u64, done: bool, kind: u16, fault: &Fault, at: Option<VolumeOffset>) -> Vec<u8> {
    let number = fault.error_code(kind);
    let mut why = fault.to_string();
    why.truncate(why.floor_char_boundary(512));
    let (kind, extra) = if at.is_some() { (chunk::ERROR_OFFSET, 8) } else { (chunk::ERROR, 0) };
    let mut bytes = chunk_header(cookie, kind, done, 6 + why.len() as u32 + extra).to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(why.len() as u16).to_be_bytes());
    bytes.extend_from_slice(why.as_bytes());
    if let Some(at) = at {
        bytes.extend_from_slice(&at.0.to_be_bytes());
    }
    bytes
}

/// Builds the header of `count` [`descriptor`]s of the allocation context: the only chunk of its reply.
pub fn status_chunk(cookie: u64, count: u32) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..20].copy_from_slice(&chunk_header(cookie, chunk::BLOCK_STATUS, true, 4 + 8 * count));
    bytes[20..].copy_from_slice(&super::handshake::ALLOCATION_ID.to_be_bytes());
    bytes
}

/// Builds the status descriptor of the next `len` bytes.
pub fn descriptor(len: u32, kind: RunKind) -> [u8; 8] {
    const HOLE: u32 = 1;
    const ZERO: u32 = 2;
    let flags = match kind {
        RunKind::Data => 0,
        RunKind::Zeros => ZERO,
        RunKind::Hole => HOLE | ZERO,
    };
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes[4..].copy_from_slice(&flags.to_be_bytes());
    bytes
}

/// Builds the whole structured reply to a read of zero bytes.
pub fn empty_chunk(cookie: u64) -> [u8; 20] {
    chunk_header(cookie, chunk::NONE, true, 0)
}

#[cfg(test)]
mod tests;
