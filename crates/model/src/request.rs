//! Requests of clients, and their replies.

use crate::{Buffer, Bytes, Nanos, RequestError, VolumeOffset};

/// The id of a request in flight, chosen by the submitter and returned in the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A volume of the pool. Never reused within a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read `len` bytes into the request's buffer.
    Read,
    /// Write the request's buffer.
    Write,
    /// Make everything acknowledged before this was submitted durable. Offset and length are 0.
    Flush,
    /// Discard the bytes: whole blocks in the range are freed and read as zeros once flushed; parts of blocks
    /// are left alone.
    Trim,
    /// Make the bytes zeros.
    WriteZeroes {
        /// Whether to keep (or allocate) the space, so that a later write there cannot run out of it.
        no_hole: bool,
    },
}

impl Op {
    /// Whether it changes the volume's contents.
    #[inline]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes { .. })
    }
    /// Whether it transfers bytes in a buffer.
    #[inline]
    pub const fn has_payload(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The submitter's knowledge about the data, where its protocol conveys it.
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
    /// The id, returned with the reply.
    pub id: RequestId,
    /// The volume.
    pub volume: VolumeId,
    /// The operation.
    pub op: Op,
    /// The offset: any byte of the volume. Writes shorter than a sector are read-modify-write.
    pub offset: VolumeOffset,
    /// The length: any number of bytes except zero. Reads and writes: the length the buffer was taken for.
    /// Trim and write-zeroes: any length within the volume.
    pub len: Bytes,
    /// Whether the reply must wait until the change is durable.
    pub fua: bool,
    /// The submitter's knowledge about the data.
    pub hint: Hint,
    /// For reads and writes: a buffer of whole blocks from the pool's [`Memory`](crate::Memory), which covers
    /// the blocks that the request touches. Byte `offset` of the volume is at `offset % 4096` in the buffer,
    /// so that part-blocks at the ends are completed in place. The engine owns it until the reply returns it.
    pub buffer: Option<Buffer>,
}

impl Request {
    /// Returns the length of a read or write buffer: the touched blocks, whole.
    #[inline]
    pub const fn buffer_len(offset: VolumeOffset, len: Bytes) -> Bytes {
        let start = offset.0 & !(crate::BLOCK - 1);
        let end = (offset.0 + len.0).next_multiple_of(crate::BLOCK);
        Bytes(end - start)
    }
}

/// The content that a read found, so that holes need not be transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadShape {
    /// The buffer contains the data.
    Data,
    /// Nothing was ever written there (or it was trimmed): all zeros. The buffer's contents are meaningless.
    Zeros,
    /// Some blocks have data, the others were filled with zeros in the buffer.
    Mixed,
}

/// The reply to a request.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The request's id.
    pub id: RequestId,
    /// For reads the shape; for all others [`ReadShape::Data`], without meaning.
    pub result: Result<ReadShape, RequestError>,
    /// The request's buffer, which belongs to the submitter again. If an unresponsive device may still use
    /// it, the engine returns it to the memory itself once that is over, and this is `None` or, for a read,
    /// another buffer of the same length, taken from the memory, which now belongs to the submitter.
    pub buffer: Option<Buffer>,
    /// The time from submission to this reply.
    pub response: Nanos,
}
