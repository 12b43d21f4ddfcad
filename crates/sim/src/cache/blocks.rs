//! A trace as accesses to blocks.

use super::numbers::Numbers;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use thiserror::Error;
use weir_model::{Bytes, Op, VolumeOffset};
use weir_policy::admission::Asked;
use weir_policy::eviction::{Block, Future, Use};
use weir_trace::{Reader, Record, Tally, TraceError};

/// The size of a cache's blocks: a power of two from 512 bytes to 1 GiB, 4 KiB unless told otherwise.
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
    /// The smallest.
    pub const MIN: Bytes = Bytes(512);
    /// The largest.
    pub const MAX: Bytes = Bytes(1 << 30);

    /// `None` unless `bytes` is a power of two from [`Self::MIN`] to [`Self::MAX`].
    pub fn new(bytes: Bytes) -> Option<Self> {
        let is_one = bytes.0.is_power_of_two() && (Self::MIN..=Self::MAX).contains(&bytes);
        is_one.then_some(Self { shift: bytes.0.trailing_zeros() as u8 })
    }

    /// The size itself.
    #[inline]
    pub const fn bytes(self) -> Bytes {
        Bytes(1 << self.shift)
    }

    /// The blocks, counted from the start of the disk, that a record touches: partly covered ones at its ends, too.
    pub fn touched(self, record: &Record) -> RangeInclusive<u64> {
        let first = record.offset.0 >> self.shift;
        first..=(record.offset.0 + record.len.0.max(1) - 1) >> self.shift
    }

    /// The end of what can be told apart on a disk.
    fn reach(self) -> Bytes {
        Bytes(1 << (BLOCK_BITS + u32::from(self.shift)).min(62))
    }
}

/// A trace's accesses to blocks, in the order of its records, made by a [`Loader`].
///
/// Takes 4 bytes an access, 12 a request and 8 a block.
#[derive(Debug, Default)]
pub struct BlockTrace {
    block: BlockSize,
    accesses: Vec<Block>,
    requests: Vec<Request>,
    trims: Vec<Trim>,
    trimmed: Vec<Block>,
    /// Disk and block, by number.
    homes: Vec<u64>,
    future: OnceLock<Future>,
    stop: Arc<AtomicBool>,
}

/// A request to read or write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The index after that of its last access.
    end: u32,
    /// Bytes of the first block before the request.
    before: u32,
    /// Bytes of the last block behind it; [`WRITE`] besides for a write.
    behind: u32,
}

/// More than any part of a block.
const WRITE: u32 = 1 << 31;

impl Request {
    #[inline]
    pub(super) fn used(self) -> Use {
        if self.behind & WRITE == 0 { Use::Read } else { Use::Write }
    }

    /// Bytes of its first block that are not part of it.
    #[inline]
    pub(super) fn before(self) -> u64 {
        u64::from(self.before)
    }

    /// Bytes of its last block that are not part of it.
    #[inline]
    pub(super) fn behind(self) -> u64 {
        u64::from(self.behind & !WRITE)
    }

    #[inline]
    pub(super) fn end(self) -> usize {
        self.end as usize
    }
}

/// Blocks become unused between two requests.
#[derive(Clone, Copy, Debug)]
struct Trim {
    /// The index of the request after it.
    before: u32,
    /// The index after its last in `trimmed`.
    end: u32,
}

/// What a trace cannot have. Messages have the form "what is wrong; the way out".
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlockTraceError {
    /// Too many accesses, or blocks that are trimmed.
    #[error(
        "there are more than {} accesses to blocks, or trims of them; take a shorter trace",
        BlockTrace::MOST
    )]
    TooLong,
    /// An address or a disk's number is too large.
    #[error(
        "disk {disk} at byte {offset} is out of reach (16384 disks of {reach} each); \
         check the format of the trace (--format)"
    )]
    TooFar {
        /// The number of the disk, in the order of appearance.
        disk: u32,
        /// The offset.
        offset: u64,
        /// How far blocks of the size go.
        reach: Bytes,
    },
    /// A request longer than any machine makes: rather a line that is damaged.
    #[error(
        "a request at byte {offset} of disk {disk} has {len} bytes, more than 4 GiB; check the format of the trace (--format)"
    )]
    TooLarge {
        /// The number of the disk, in the order of appearance.
        disk: u32,
        /// The offset.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// Nothing is read or written.
    #[error("nothing is read or written in it; take another trace")]
    Empty,
}

/// Why a trace cannot be played.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What is in it cannot be had.
    #[error("{trace} cannot be played: {error}")]
    Blocks {
        /// The trace's name.
        trace: String,
        /// What it is.
        error: BlockTraceError,
    },
}

/// Bits of a home that are the block's; the disk's are above them.
const BLOCK_BITS: u32 = 50;
/// Bytes of the longest request to read or write.
const LONGEST: u64 = 4 << 30;

/// What the blocks a record touches are called: by disk and block in one number.
///
/// # Errors
/// If they are out of reach, or too many to be meant.
pub(crate) fn homes(record: &Record, block: BlockSize) -> Result<RangeInclusive<u64>, BlockTraceError> {
    let (disk, offset, len) = (record.disk.0, record.offset.0, record.len.0.max(1));
    let reach = block.reach();
    let in_reach = offset.checked_add(len).is_some_and(|end| end <= reach.0);
    if !in_reach || disk >> (64 - BLOCK_BITS) > 0 {
        return Err(BlockTraceError::TooFar { disk, offset, reach });
    }
    if record.op != Op::Trim && len > LONGEST {
        return Err(BlockTraceError::TooLarge { disk, offset, len });
    }
    let (first, last) = block.touched(record).into_inner();
    let disk = u64::from(disk) << BLOCK_BITS;
    Ok(disk + first..=disk + last)
}

/// The disk, and the block on it, that are called so.
pub(crate) const fn place(home: u64) -> (u32, u64) {
    ((home >> BLOCK_BITS) as u32, home & ((1 << BLOCK_BITS) - 1))
}

/// Accesses are numbered as soon as there are so many: loads of what they are numbered by overlap.
const PENDING: usize = 4096;

/// So many requests are played without looking whether to stop.
const PIECE: usize = 1 << 16;

/// Makes a [`BlockTrace`], record by record. Takes up to 12 bytes a block more than that.
#[derive(Debug, Default)]
pub struct Loader {
    trace: BlockTrace,
    /// Of homes.
    numbers: Numbers,
    /// The homes of the last accesses, which have no numbers yet.
    pending: Vec<u64>,
    error: Option<BlockTraceError>,
}

impl Loader {
    /// For blocks of this size.
    pub fn new(block: BlockSize) -> Self {
        Self { trace: BlockTrace { block, ..BlockTrace::default() }, ..Self::default() }
    }

    /// Adds what a record asks for. Blocks that are trimmed whole leave caches then; trims of blocks not accessed before
    /// change nothing. What cannot be had is told by [`Self::finish`].
    pub fn take(&mut self, record: &Record) {
        if self.error.is_none() {
            self.error = self.add(record).err();
        }
    }

    /// The trace.
    ///
    /// # Errors
    /// If there was too much, or nothing.
    pub fn finish(mut self) -> Result<BlockTrace, BlockTraceError> {
        self.number_pending();
        match self.error {
            Some(error) => Err(error),
            None if self.trace.accesses.is_empty() => Err(BlockTraceError::Empty),
            None => Ok(BlockTrace { homes: self.numbers.into_keys(), ..self.trace }),
        }
    }

    fn add(&mut self, record: &Record) -> Result<(), BlockTraceError> {
        let (offset, len) = (record.offset.0, record.len.0.max(1));
        let BlockSize { shift } = self.trace.block;
        let homes = homes(record, self.trace.block)?;
        if record.op == Op::Trim {
            let disk = homes.start() - (offset >> shift);
            return self.trim(disk + offset.div_ceil(1 << shift)..disk + ((offset + len) >> shift));
        }
        let accesses = self.trace.accesses.len() + self.pending.len();
        if homes.end() - homes.start() >= u64::from(BlockTrace::MOST) - accesses as u64 {
            return Err(BlockTraceError::TooLong);
        }
        let end = accesses as u64 + (homes.end() - homes.start()) + 1;
        self.pending.extend(homes);
        if self.pending.len() >= PENDING {
            self.number_pending();
        }
        let blocks = self.trace.block.touched(record);
        let is_write = if record.op == Op::Write { WRITE } else { 0 };
        self.trace.requests.push(Request {
            end: end as u32,
            before: (offset - (blocks.start() << shift)) as u32,
            behind: (((blocks.end() + 1) << shift) - offset - len) as u32 | is_write,
        });
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
            return Err(BlockTraceError::TooLong);
        }
        if homes.end.saturating_sub(homes.start) < known.len() as u64 {
            trace.trimmed.extend(homes.filter_map(|home| self.numbers.find(home)));
        } else {
            let all = known.iter().zip(0..).filter(|(home, _)| homes.contains(home));
            trace.trimmed.extend(all.map(|(_, n)| Block(n)));
        }
        let trim = Trim { before: trace.requests.len() as u32, end: trace.trimmed.len() as u32 };
        trace.trims.push(trim);
        Ok(())
    }
}

impl BlockTrace {
    /// The most accesses a trace can have.
    pub const MOST: u32 = u32::MAX - (1 << 16);

    /// Reads a trace to its end, in blocks of this size.
    ///
    /// # Errors
    /// As [`Tally::read`] and [`Loader::finish`].
    pub fn read(mut reader: Reader<'_>, block: BlockSize, strict: bool) -> Result<(Self, Tally), ReadError> {
        let mut loader = Loader::new(block);
        let tally = Tally::read(&mut reader, strict, |record| loader.take(&record))?;
        // Damaged data may unpack to any request: where it is damaged says more.
        let cannot = |error| match tally.cut.clone() {
            Some(cut) => ReadError::Trace(cut),
            None => ReadError::Blocks { trace: reader.name().to_owned(), error },
        };
        Ok((loader.finish().map_err(cannot)?, tally))
    }

    /// As soon as this is set, whoever plays the trace meets its end, within [`PIECE`] requests: what comes of it is of no use then.
    pub fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// The size of its blocks.
    pub fn block(&self) -> BlockSize {
        self.block
    }

    /// Distinct blocks accessed.
    pub fn blocks(&self) -> u32 {
        self.homes.len() as u32
    }

    /// Accesses to blocks, in order.
    pub fn accesses(&self) -> &[Block] {
        &self.accesses
    }

    /// Requests to read or write.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// When each access's block is used next; found out on the first call.
    pub(super) fn future(&self) -> &Future {
        self.future.get_or_init(|| Future::new(&self.accesses, self.blocks()))
    }

    /// Stretches of requests, each with the blocks that are trimmed after it; none after the trace was stopped.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (&[Request], &[Block])> {
        let (mut request, mut trimmed) = (0, 0);
        let last = Trim { before: self.requests.len() as u32, end: self.trimmed.len() as u32 };
        let stretches = self.trims.iter().copied().chain([last]).flat_map(move |trim| {
            let requests = &self.requests[request..trim.before as usize];
            let blocks = &self.trimmed[trimmed..trim.end as usize];
            (request, trimmed) = (trim.before as usize, trim.end as usize);
            let pieces = requests.chunks(PIECE).map(|piece| (piece, &[][..]));
            pieces.chain([(&[][..], blocks)])
        });
        stretches.take_while(|_| !self.stop.load(Ordering::Relaxed))
    }

    /// A request as admission sees it; its first access has this index.
    #[inline]
    pub(super) fn asked(&self, request: Request, first: usize) -> Asked {
        let home = self.homes[self.accesses[first].index()];
        let BlockSize { shift } = self.block;
        let offset = ((home & ((1 << BLOCK_BITS) - 1)) << shift) + request.before();
        let len = (((request.end() - first) as u64) << shift) - request.before() - request.behind();
        Asked { disk: (home >> BLOCK_BITS) as u32, offset: VolumeOffset(offset), len: Bytes(len) }
    }
}
