//! Constants of the protocol, and a reader of big-endian fields.

/// First eight bytes that the server sends.
pub const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Starts every option, and follows the greeting.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Starts every answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request of the transmission.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts every chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, the same bits in both directions.
pub mod hello {
    /// The fixed newstyle handshake.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The answer to EXPORT_NAME ends without 124 bytes of padding.
    pub const NO_ZEROES: u16 = 2;
}

/// Options a client may send.
pub mod option {
    /// Choose an export and start, the old way.
    pub const EXPORT_NAME: u32 = 1;
    /// End the handshake.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of answers to an option.
pub mod answer {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information on an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = (1 << 31) | 1;
    /// Malformed option, or one that is invalid at this point.
    pub const ERR_INVALID: u32 = (1 << 31) | 3;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) | 6;
    /// Option too long.
    pub const ERR_TOO_BIG: u32 = (1 << 31) | 9;
}

/// Kinds of information on an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Its canonical name.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub mod export {
    /// The flags are valid.
    pub const HAS_FLAGS: u16 = 1;
    /// FLUSH is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// DF is supported (with structured replies only).
    pub const SEND_DF: u16 = 1 << 7;
    /// All connections see one consistent volume.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// FAST_ZERO is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of requests.
pub mod command {
    /// Read bytes.
    pub const READ: u16 = 0;
    /// Write bytes.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Make writes durable.
    pub const FLUSH: u16 = 3;
    /// Discard data and free its space.
    pub const TRIM: u16 = 4;
    /// Write zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report which parts hold data.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod flag {
    /// The change is durable before the reply.
    pub const FUA: u16 = 1;
    /// Keep the space allocated.
    pub const NO_HOLE: u16 = 2;
    /// Do not fragment the reply.
    pub const DF: u16 = 4;
    /// One status descriptor is enough.
    pub const REQ_ONE: u16 = 8;
    /// Fail if writing zeros would be slow.
    pub const FAST_ZERO: u16 = 16;
}

/// Chunks of structured replies.
pub mod chunk {
    /// Chunk flag: the last chunk of its reply.
    pub const DONE: u16 = 1;
    /// A chunk without content.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// A run of zeros.
    pub const OFFSET_HOLE: u16 = 2;
    /// Status descriptors of one context.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error that concerns the whole request.
    pub const ERROR: u16 = (1 << 15) | 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) | 2;
}

/// Reads fields from the front of a byte slice; each method returns `None` if the bytes end early.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    /// Returns a 16-bit number.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    /// Returns a 32-bit number.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    /// Returns a 64-bit number.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    /// Returns a string: a 32-bit length followed by its bytes, at most [`NAME_MAX`](super::NAME_MAX).
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        if len > super::NAME_MAX { None } else { self.take(len) }
    }
    /// Reports whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
