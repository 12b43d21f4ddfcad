//! What a trace asks, made ready for the search.

use super::{AdviseError, EXTENT};
use crate::cache::{BlockSize, homes};
use rustc_hash::FxHashMap;
use weir_model::{BLOCK, Bytes, Nanos, Op};
use weir_trace::{Record, Trace};

/// A trace whose extents are numbered in the order of their addresses. Takes 32 bytes a request.
#[derive(Debug)]
pub struct Demand {
    /// Extents it touches.
    extents: u32,
    /// All to read and write, in order of time.
    requests: Vec<Asked>,
    measured: Measured,
    /// From one repetition's start to the next one's.
    period: Nanos,
}

/// A request to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) at: Nanos,
    pub(super) is_write: bool,
    /// Its first extent.
    pub(super) extent: u32,
    /// Its first byte, from the extent's.
    pub(super) within: Bytes,
    pub(super) len: Bytes,
}

impl Asked {
    /// The extents it touches, and of each the blocks as bits.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u32, u32)> {
        let (first, end) = (self.within.0 / BLOCK, (self.within.0 + self.len.0).div_ceil(BLOCK));
        (self.extent..).zip((0..end).step_by(BLOCKS)).map(move |(extent, start)| {
            let blocks = first.max(start)..end.min(start + BLOCKS as u64);
            (extent, blocks.fold(0, |bits, block| bits | 1 << (block - start)))
        })
    }
}

/// Blocks of an extent: as many as a number has bits.
pub(super) const BLOCKS: usize = u32::BITS as usize;
const _: () = assert!(EXTENT.bytes().0 == BLOCKS as u64 * BLOCK);

/// Of a trace, what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// What comes after the first third of the time.
    LastTwoThirds,
    /// It is repeated: all of it after so many times.
    After(u32),
}

impl Demand {
    /// Of this trace. `measured` says what of it counts.
    ///
    /// # Errors
    /// If an address is out of reach, or nothing is read or written in what counts.
    pub fn new(trace: &Trace, measured: Measured) -> Result<Self, AdviseError> {
        let requests = || trace.records.iter().filter(|record| record.op != Op::Trim);
        let grain = BlockSize::new(EXTENT.bytes()).unwrap_or_default();
        let mut touched = Vec::new();
        for record in requests() {
            touched.extend(homes(record, grain)?);
            if touched.len() > TOUCHED_MOST {
                touched.sort_unstable();
                touched.dedup();
            }
        }
        touched.sort_unstable();
        touched.dedup();
        let numbers: FxHashMap<u64, u32> = touched.iter().copied().zip(0..).collect();
        let asked = |record: &Record| -> Result<Asked, AdviseError> {
            let number = numbers.get(homes(record, grain)?.start()).copied();
            Ok(Asked {
                at: record.at,
                is_write: record.op == Op::Write,
                // All are there.
                extent: number.unwrap_or_default(),
                within: Bytes(record.offset.0 % EXTENT.bytes().0),
                len: record.len.max(Bytes(1)),
            })
        };
        let requests = requests().map(asked).collect::<Result<Vec<_>, _>>()?;
        let gap = Nanos(trace.duration().0 / (trace.records.len() as u64 - 1).max(1)) + Nanos(1);
        let demand =
            Self { extents: touched.len() as u32, requests, measured, period: trace.duration() + gap };
        if demand.measured_requests().is_empty() {
            return Err(AdviseError::Nothing);
        }
        Ok(demand)
    }

    /// The bytes of the extents it touches.
    pub fn footprint(&self) -> Bytes {
        Bytes(u64::from(self.extents) * EXTENT.bytes().0)
    }

    /// The extents it touches.
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// How long what is measured takes.
    pub fn lasts(&self) -> Nanos {
        match self.measured {
            Measured::LastTwoThirds => Nanos(self.period.0 - self.period.0 / 3),
            Measured::After(_) => self.period,
        }
    }

    /// What comes before what is measured: so many times all, and so many requests.
    pub(super) fn warm_up(&self) -> (u32, usize) {
        match self.measured {
            Measured::LastTwoThirds => {
                let third = Nanos(self.period.0 / 3);
                (0, self.requests.partition_point(|request| request.at < third))
            }
            Measured::After(rounds) => (rounds, 0),
        }
    }

    pub(super) fn requests(&self) -> &[Asked] {
        &self.requests
    }

    pub(super) fn measured_requests(&self) -> &[Asked] {
        &self.requests[self.warm_up().1..]
    }

    /// Bytes written.
    pub fn written(&self) -> Bytes {
        let writes = self.measured_requests().iter().filter(|request| request.is_write);
        Bytes(writes.map(|request| request.len.0).sum())
    }
}

/// Homes collected before those that came twice are left out.
const TOUCHED_MOST: usize = 1 << 24;
