//! A trace prepared for the search.

use super::{AdviseError, EXTENT};
use crate::cache::{BlockSize, block_keys};
use rustc_hash::FxHashMap;
use weir_model::{BLOCK, Bytes, Nanos, Op};
use weir_trace::{Record, Trace};

/// A trace whose extents are numbered in address order. Uses 32 bytes per request.
#[derive(Debug)]
pub struct Demand {
    /// Number of extents that it touches.
    extents: u32,
    /// All reads and writes, in time order.
    requests: Vec<ExtentAccess>,
    measured_part: MeasuredPart,
    /// Time between the starts of two repetitions.
    period: Nanos,
}

/// A read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentAccess {
    pub(super) at: Nanos,
    pub(super) is_write: bool,
    /// Its first extent.
    pub(super) extent: u32,
    /// Offset of its first byte within the extent.
    pub(super) within: Bytes,
    pub(super) len: Bytes,
}

impl ExtentAccess {
    /// Returns the extents that it touches, each with a bit mask of the blocks.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u32, u32)> {
        let (first, end) = (self.within.0 / BLOCK, (self.within.0 + self.len.0).div_ceil(BLOCK));
        (self.extent..).zip((0..end).step_by(BLOCKS)).map(move |(extent, start)| {
            let blocks = first.max(start)..end.min(start + BLOCKS as u64);
            (extent, blocks.fold(0, |bits, block| bits | 1 << (block - start)))
        })
    }
}

/// Blocks per extent: the number of bits of a mask.
pub(super) const BLOCKS: usize = u32::BITS as usize;
const _: () = assert!(EXTENT.bytes().0 == BLOCKS as u64 * BLOCK);

/// The measured part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredPart {
    /// Everything after the first third of the time.
    LastTwoThirds,
    /// The trace is repeated: one whole repetition after this many.
    After(u32),
}

impl Demand {
    /// Prepares a trace; `measured` selects the part that counts.
    ///
    /// # Errors
    /// Fails if an address is out of range, or the measured part has no reads or writes.
    pub fn new(trace: &Trace, measured: MeasuredPart) -> Result<Self, AdviseError> {
        let requests = || trace.records.iter().filter(|record| record.op != Op::Trim);
        let grain = BlockSize::new(EXTENT.bytes()).unwrap_or_default();
        let mut touched = Vec::new();
        for record in requests() {
            touched.extend(block_keys(record, grain)?);
            if touched.len() > COLLECTED_MAX {
                touched.sort_unstable();
                touched.dedup();
            }
        }
        touched.sort_unstable();
        touched.dedup();
        let numbers: FxHashMap<u64, u32> = touched.iter().copied().zip(0..).collect();
        let asked = |record: &Record| -> Result<ExtentAccess, AdviseError> {
            let number = numbers.get(block_keys(record, grain)?.start()).copied();
            Ok(ExtentAccess {
                at: record.at,
                is_write: record.op == Op::Write,
                // Every extent has a number.
                extent: number.unwrap_or_default(),
                within: Bytes(record.offset.0 % EXTENT.bytes().0),
                len: record.len.max(Bytes(1)),
            })
        };
        let requests = requests().map(asked).collect::<Result<Vec<_>, _>>()?;
        let gap = Nanos(trace.duration().0 / (trace.records.len() as u64 - 1).max(1)) + Nanos(1);
        let demand = Self {
            extents: touched.len() as u32,
            requests,
            measured_part: measured,
            period: trace.duration() + gap,
        };
        if demand.measured_requests().is_empty() {
            return Err(AdviseError::NoRequests);
        }
        Ok(demand)
    }

    /// Returns the bytes of the extents that it touches.
    pub fn footprint(&self) -> Bytes {
        Bytes(u64::from(self.extents) * EXTENT.bytes().0)
    }

    /// Returns the number of extents that it touches.
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// Returns the duration of the measured part.
    pub fn duration(&self) -> Nanos {
        match self.measured_part {
            MeasuredPart::LastTwoThirds => Nanos(self.period.0 - self.period.0 / 3),
            MeasuredPart::After(_) => self.period,
        }
    }

    /// Returns the warm-up: a number of whole repetitions, and a number of requests.
    pub(super) fn warm_up(&self) -> (u32, usize) {
        match self.measured_part {
            MeasuredPart::LastTwoThirds => {
                let third = Nanos(self.period.0 / 3);
                (0, self.requests.partition_point(|request| request.at < third))
            }
            MeasuredPart::After(rounds) => (rounds, 0),
        }
    }

    pub(super) fn requests(&self) -> &[ExtentAccess] {
        &self.requests
    }

    pub(super) fn measured_requests(&self) -> &[ExtentAccess] {
        &self.requests[self.warm_up().1..]
    }

    /// Returns the bytes written.
    pub fn written(&self) -> Bytes {
        let writes = self.measured_requests().iter().filter(|request| request.is_write);
        Bytes(writes.map(|request| request.len.0).sum())
    }
}

/// Number of homes collected before duplicates are removed.
const COLLECTED_MAX: usize = 1 << 24;
