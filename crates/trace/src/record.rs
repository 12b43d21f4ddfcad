//! A request of a trace.

use weir_model::{Bytes, Hint, Nanos, Op, VolumeOffset};

/// Requirement on a request's range.
pub(crate) const VALID_RANGE: &str = "a range that ends below 8 EiB";

/// A disk of the traced machine: an index into [`Reader::disks`](crate::Reader::disks), in order of first
/// appearance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk(pub u32);

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Arrival time, by the trace's own clock; zero in a format without times.
    pub at: Nanos,
    /// The disk.
    pub disk: Disk,
    /// [`Op::Read`], [`Op::Write`] or [`Op::Trim`].
    pub op: Op,
    /// Offset of its first byte, as in the trace; it need not be sector-aligned.
    pub offset: VolumeOffset,
    /// Length, at least 1; `offset + len` does not overflow.
    pub len: Bytes,
    /// What the trace knows about the data: [`Hint::Metadata`] in formats that mark metadata.
    pub hint: Hint,
}

/// A time span, counted from a trace's first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start of the span.
    pub start: Nanos,
    /// End of the span, exclusive.
    pub end: Nanos,
}

impl Span {
    /// Reports whether this time is in the span.
    #[inline]
    pub fn contains(self, at: Nanos) -> bool {
        (self.start..self.end).contains(&at)
    }
}
