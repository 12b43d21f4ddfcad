//! A trace as accesses to blocks.

use super::numbers::Numbers;
use super::requests::{Edges, Request, RequestStore, Requests};
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use thiserror::Error;
use weir_model::{Bytes, Nanos, Op, VolumeOffset};
use weir_policy::admission::BlockRequest;
use weir_policy::eviction::{AccessKind, Block, NextUses};
use weir_trace::{Reader, Record, Tally, TraceError};

/// Block size of a cache: a power of two from 512 bytes to 1 GiB; by default 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSize {
    shift: u8,
}

impl Default for BlockSize {
    fn default() -> Self {
        Self { shift: 12 }
    }
}

impl BlockSize {
    /// The smallest block size.
    pub const MIN: Bytes = Bytes(512);
    /// The largest block size.
    pub const MAX: Bytes = Bytes(1 << 30);

    /// Creates a block size; `None` unless `bytes` is a power of two from [`Self::MIN`] to [`Self::MAX`].
    pub fn new(bytes: Bytes) -> Option<Self> {
        let is_one = bytes.0.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&bytes);
        is_one.then_some(Self { shift: bytes.0.trailing_zeros() as u8 })
    }

    /// Returns the size in bytes.
    #[inline]
    pub const fn bytes(self) -> Bytes {
        Bytes(1 << self.shift)
    }

    /// Returns the blocks that a record touches, counted from the start of the disk, including partly covered
    /// ones.
    pub fn touched(self, record: &Record) -> RangeInclusive<u64> {
        let first = record.offset.0 >> self.shift;
        first..=(record.offset.0 + record.len.0.max(1) - 1) >> self.shift
    }

    /// Returns the end of the addressable part of a disk.
    fn address_limit(self) -> Bytes {
        Bytes(1 << (BLOCK_BITS + u32::from(self.shift)).min(62))
    }
}

/// A trace's accesses to blocks, in the order of its records, built by a [`Loader`].
///
/// Memory: 4 bytes per access, 4 to 16 per request ([`RequestStore`]) and 8 per block.
#[derive(Debug, Default)]
pub struct BlockTrace {
    block: BlockSize,
    accesses: Vec<Block>,
    requests: RequestStore,
    trims: Vec<Trim>,
    trimmed: Vec<Block>,
    /// Disk and block, by number.
    keys: Vec<u64>,
    future: OnceLock<NextUses>,
    stop: Arc<AtomicBool>,
}

/// Blocks that become unused between two requests.
#[derive(Clone, Copy, Debug)]
struct Trim {
    /// Index of the following request.
    next_request: u32,
    /// The index after its last block in `trimmed`.
    end: u32,
}

/// Why a trace cannot be loaded. Messages have the form "what is wrong; what to do".
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlockTraceError {
    /// There are too many accesses or trimmed blocks.
    #[error(
        "there are more than {} accesses to blocks, or trims of them; take a shorter trace",
        BlockTrace::MOST
    )]
    TooManyAccesses,
    /// An address or a disk number is too large.
    #[error(
        "disk {disk} at byte {offset} is out of reach (16384 disks of {reach} each); \
         check the format of the trace (--format)"
    )]
    OffsetOutOfReach {
        /// Number of the disk, in order of appearance.
        disk: u32,
        /// Offset of the request.
        offset: u64,
        /// Largest supported offset with this block size.
        reach: Bytes,
    },
    /// A request is longer than real ones are, which suggests a damaged line.
    #[error(
        "a request at byte {offset} of disk {disk} has {len} bytes, more than 4 GiB; check the format of the trace (--format)"
    )]
    RequestTooLong {
        /// Number of the disk, in order of appearance.
        disk: u32,
        /// Offset of the request.
        offset: u64,
        /// Length of the request.
        len: u64,
    },
    /// The trace has no reads or writes.
    #[error("nothing is read or written in it; take another trace")]
    Empty,
}

/// Why a trace cannot be read or loaded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace cannot be loaded.
    #[error("{trace} cannot be played: {error}")]
    Blocks {
        /// Trace name.
        trace: String,
        /// The reason.
        error: BlockTraceError,
    },
}

/// Number of bits of a home that hold the block; the disk is above them.
const BLOCK_BITS: u32 = 50;
/// Length of the longest read or write, in bytes.
const REQUEST_LEN_MAX: u64 = 4 << 30;

/// Checks the length of a request, which a damaged line of a trace may have.
///
/// # Errors
/// Fails if a read or write is longer than real ones are: [`BlockTraceError::RequestTooLong`].
pub fn check_len(record: &Record) -> Result<(), BlockTraceError> {
    let (disk, offset, len) = (record.disk.0, record.offset.0, record.len.0);
    match record.op != Op::Trim && len > REQUEST_LEN_MAX {
        true => Err(BlockTraceError::RequestTooLong { disk, offset, len }),
        false => Ok(()),
    }
}

/// Returns the homes of the blocks that a record touches: disk and block in one number.
///
/// # Errors
/// Fails if they are out of range or implausibly many.
pub(crate) fn block_keys(record: &Record, block: BlockSize) -> Result<RangeInclusive<u64>, BlockTraceError> {
    let (disk, offset, len) = (record.disk.0, record.offset.0, record.len.0.max(1));
    let reach = block.address_limit();
    let in_reach = offset.checked_add(len).is_some_and(|end| end <= reach.0);
    if !in_reach || disk >> (64 - BLOCK_BITS) > 0 {
        return Err(BlockTraceError::OffsetOutOfReach { disk, offset, reach });
    }
    check_len(record)?;
    let (first, last) = block.touched(record).into_inner();
    let disk = u64::from(disk) << BLOCK_BITS;
    Ok(disk + first..=disk + last)
}

/// Returns the disk and the block of a home.
pub(crate) const fn split_key(home: u64) -> (u32, u64) {
    ((home >> BLOCK_BITS) as u32, home & ((1 << BLOCK_BITS) - 1))
}

/// Number of accesses that are numbered together, so that their memory loads overlap.
const PENDING: usize = 4096;

/// Number of requests played between two checks for a stop.
const STOP_CHECK_INTERVAL: usize = 1 << 16;

/// Builds a [`BlockTrace`], record by record. Uses up to 12 bytes per block in addition to the trace.
#[derive(Debug, Default)]
pub struct Loader {
    trace: BlockTrace,
    /// Numbers of homes.
    numbers: Numbers,
    /// Homes of the last accesses, not numbered yet.
    pending: Vec<u64>,
    error: Option<BlockTraceError>,
}

impl Loader {
    /// Creates a loader for blocks of this size.
    pub fn new(block: BlockSize) -> Self {
        Self { trace: BlockTrace { block, ..BlockTrace::default() }, ..Self::default() }
    }

    /// Adds a record. Entirely trimmed blocks leave caches at this point; trims of blocks that were not
    /// accessed before have no effect. Errors are reported by [`Self::finish`].
    pub fn take(&mut self, record: &Record) {
        if self.error.is_none() {
            self.error = self.add(record).err();
        }
    }

    /// Returns the trace.
    ///
    /// # Errors
    /// Fails if a record was invalid or there were too many, or none.
    pub fn finish(mut self) -> Result<BlockTrace, BlockTraceError> {
        self.number_pending();
        match self.error {
            Some(error) => Err(error),
            None if self.trace.accesses.is_empty() => Err(BlockTraceError::Empty),
            None => Ok(BlockTrace { keys: self.numbers.into_keys(), ..self.trace }),
        }
    }

    fn add(&mut self, record: &Record) -> Result<(), BlockTraceError> {
        let (offset, len) = (record.offset.0, record.len.0.max(1));
        let BlockSize { shift } = self.trace.block;
        let homes = block_keys(record, self.trace.block)?;
        if record.op == Op::Trim {
            let disk = homes.start() - (offset >> shift);
            return self.trim(disk + offset.div_ceil(1 << shift)..disk + ((offset + len) >> shift));
        }
        let accesses = self.trace.accesses.len() + self.pending.len();
        if homes.end() - homes.start() >= u64::from(BlockTrace::MOST) - accesses as u64 {
            return Err(BlockTraceError::TooManyAccesses);
        }
        let end = accesses as u64 + (homes.end() - homes.start()) + 1;
        self.pending.extend(homes);
        if self.pending.len() >= PENDING {
            self.number_pending();
        }
        let blocks = self.trace.block.touched(record);
        let used = if record.op == Op::Write { AccessKind::Write } else { AccessKind::Read };
        let edges = Edges {
            leading: (offset - (blocks.start() << shift)) as u32,
            trailing: (((blocks.end() + 1) << shift) - offset - len) as u32,
        };
        self.trace.requests.push(Request::new(end as u32, used, edges, record.at));
        Ok(())
    }

    fn number_pending(&mut self) {
        self.numbers.number_all(&self.pending, &mut self.trace.accesses);
        self.pending.clear();
    }

    fn trim(&mut self, homes: Range<u64>) -> Result<(), BlockTraceError> {
        self.number_pending();
        let (trace, known) = (&mut self.trace, self.numbers.keys());
        let most = (homes.end.saturating_sub(homes.start)).min(known.len() as u64);
        if most > u64::from(BlockTrace::MOST) - trace.trimmed.len() as u64 {
            return Err(BlockTraceError::TooManyAccesses);
        }
        if homes.end.saturating_sub(homes.start) < known.len() as u64 {
            trace.trimmed.extend(homes.filter_map(|home| self.numbers.find(home)));
        } else {
            let all = known.iter().zip(0..).filter(|(home, _)| homes.contains(home));
            trace.trimmed.extend(all.map(|(_, n)| Block(n)));
        }
        let trim = Trim { next_request: trace.requests.len() as u32, end: trace.trimmed.len() as u32 };
        trace.trims.push(trim);
        Ok(())
    }
}

impl BlockTrace {
    /// Maximum number of accesses of a trace.
    pub const MOST: u32 = u32::MAX - (1 << 16);

    /// Reads a trace to its end, in blocks of this size.
    ///
    /// # Errors
    /// As [`Tally::read`] and [`Loader::finish`].
    pub fn read(mut reader: Reader<'_>, block: BlockSize, strict: bool) -> Result<(Self, Tally), ReadError> {
        let mut loader = Loader::new(block);
        let tally = Tally::read(&mut reader, strict, |record| loader.take(&record))?;
        // Damaged data may unpack to arbitrary requests, so the location of the damage is more informative.
        let cannot = |error| match tally.truncation.clone() {
            Some(cut) => ReadError::Trace(cut),
            None => ReadError::Blocks { trace: reader.name().to_owned(), error },
        };
        Ok((loader.finish().map_err(cannot)?, tally))
    }

    /// Makes a run over the trace end early once the flag is set, within [`STOP_CHECK_INTERVAL`] requests.
    /// The run's results are then meaningless.
    pub fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// Returns the block size.
    pub fn block(&self) -> BlockSize {
        self.block
    }

    /// Returns the number of distinct blocks accessed.
    pub fn blocks(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Returns the time from the first request to the last one; 0 if the trace has no times.
    pub fn duration(&self) -> Nanos {
        let all = self.requests.range(0..self.requests());
        let at = |request: Option<Request>| request.map_or(Nanos(0), Request::at);
        at(all.iter().next_back()).since(at(all.iter().next()))
    }

    /// Returns the home of each block: disk and block in one number.
    pub(crate) fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Returns the accesses to blocks, in order.
    pub fn accesses(&self) -> &[Block] {
        &self.accesses
    }

    /// Returns the number of reads and writes.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Returns the next use of each access's block; computed on the first call.
    pub(super) fn future(&self) -> &NextUses {
        self.future.get_or_init(|| NextUses::new(&self.accesses, self.blocks()))
    }

    /// Returns runs of requests, each with the blocks trimmed after it; none after the trace was stopped.
    pub(crate) fn request_runs(&self) -> impl Iterator<Item = (Requests<'_>, &[Block])> {
        let (mut request, mut trimmed) = (0, 0);
        let last = Trim { next_request: self.requests.len() as u32, end: self.trimmed.len() as u32 };
        let stretches = self.trims.iter().copied().chain([last]).flat_map(move |trim| {
            let requests = self.requests.range(request..trim.next_request as usize);
            let blocks = &self.trimmed[trimmed..trim.end as usize];
            (request, trimmed) = (trim.next_request as usize, trim.end as usize);
            let pieces = requests.pieces(STOP_CHECK_INTERVAL).map(|piece| (piece, &[][..]));
            pieces.chain([(self.requests.range(request..request), blocks)])
        });
        stretches.take_while(|_| !self.stop.load(Ordering::Relaxed))
    }

    /// Returns a request in the form that admission policies take; `first` is the index of its first access.
    #[inline]
    pub(crate) fn admission_request(&self, request: Request, first: usize) -> BlockRequest {
        let home = self.keys[self.accesses[first].index()];
        let BlockSize { shift } = self.block;
        let offset = ((home & ((1 << BLOCK_BITS) - 1)) << shift) + request.leading_bytes();
        let len =
            (((request.end() - first) as u64) << shift) - request.leading_bytes() - request.trailing_bytes();
        BlockRequest {
            at: request.at(),
            disk: (home >> BLOCK_BITS) as u32,
            offset: VolumeOffset(offset),
            len: Bytes(len),
        }
    }
}
