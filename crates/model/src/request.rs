//! What a client may ask, and what it is told.

use crate::{Buffer, Bytes, Nanos, RequestError, VolumeOffset};

/// Names a request among those in flight; chosen by whoever submits it, returned in the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A volume of the pool. Never reused within a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read `len` bytes into the request's buffer.
    Read,
    /// Write the request's buffer.
    Write,
    /// Make everything acknowledged before this was submitted durable. Offset and length are 0.
    Flush,
    /// The bytes are no longer needed: whole blocks in the range are given back and read as
    /// zeros once flushed; parts of blocks are left alone.
    Trim,
    /// The bytes become zeros.
    WriteZeroes {
        /// Keep (or take) the space, so that a later write there cannot run out of it.
        no_hole: bool,
    },
}

impl Op {
    /// Changes the volume's contents.
    #[inline]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes { .. })
    }
    /// Carries or fetches bytes in a buffer.
    #[inline]
    pub const fn has_payload(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// What the submitter knows about the data, where its protocol says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hint {
    /// Nothing.
    #[default]
    None,
    /// File-system metadata.
    Metadata,
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Returned with the reply.
    pub id: RequestId,
    /// The volume.
    pub volume: VolumeId,
    /// What to do.
    pub op: Op,
    /// Where: any byte of the volume. What is shorter than a sector is read-modify-write.
    pub offset: VolumeOffset,
    /// How much: any number of bytes but zero. Reads and writes: what the buffer was taken for.
    /// Trim and write-zeroes: any length within the volume.
    pub len: Bytes,
    /// Do not reply before the change is durable.
    pub fua: bool,
    /// What the submitter knows of the data.
    pub hint: Hint,
    /// Reads and writes: a buffer of whole blocks from the pool's [`Memory`](crate::Memory),
    /// covering the blocks the request touches. Byte `offset` of the volume is at
    /// `offset % 4096` in the buffer, so part-blocks at the ends are completed in place.
    /// Owned by the engine until the reply returns it.
    pub buffer: Option<Buffer>,
}

impl Request {
    /// Bytes a read or write buffer must have: the touched blocks, whole.
    #[inline]
    pub const fn buffer_len(offset: VolumeOffset, len: Bytes) -> Bytes {
        let start = offset.0 & !(crate::BLOCK - 1);
        let end = (offset.0 + len.0).next_multiple_of(crate::BLOCK);
        Bytes(end - start)
    }
}

/// What a read found, so that holes need not cross the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadShape {
    /// The buffer holds the data.
    Data,
    /// Nothing was ever written there (or it was trimmed): all zeros. The buffer's contents mean
    /// nothing.
    Zeros,
    /// Some blocks hold data, the others were filled with zeros in the buffer.
    Mixed,
}

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The request's id.
    pub id: RequestId,
    /// For reads the shape; for everything else [`ReadShape::Data`] without meaning.
    pub result: Result<ReadShape, RequestError>,
    /// The request's buffer, back in the submitter's hands. If a device that does not answer may still use
    /// that, the engine gives it back to the memory itself, once that is over, and this is `None` or, for a
    /// read, another buffer of the same length, taken from the memory and now the submitter's.
    pub buffer: Option<Buffer>,
    /// From submission to this reply.
    pub response: Nanos,
}
