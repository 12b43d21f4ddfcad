//! What a trace tells of a request.

use weir_model::{Bytes, Nanos, Op, VolumeOffset};

/// What is wanted of a request's range.
pub(crate) const BELOW: &str = "a range that ends below 8 EiB";

/// A disk of the traced machine: an index into [`Reader::disks`](crate::Reader::disks), in the order in
/// which they first appear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk(pub u32);

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was made, by the trace's own clock; zero in a format without times.
    pub at: Nanos,
    /// To which disk.
    pub disk: Disk,
    /// [`Op::Read`], [`Op::Write`] or [`Op::Trim`].
    pub op: Op,
    /// Its first byte. As the trace says: not always the start of a sector.
    pub offset: VolumeOffset,
    /// Its length, at least 1; `offset + len` does not overflow.
    pub len: Bytes,
}

/// A span of time, counted from a trace's first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it begins.
    pub start: Nanos,
    /// When it is over.
    pub end: Nanos,
}

impl Span {
    /// Whether this time is in it.
    #[inline]
    pub fn has(self, at: Nanos) -> bool {
        (self.start..self.end).contains(&at)
    }
}
