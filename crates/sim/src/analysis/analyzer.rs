//! All of a trace's figures, in one pass.

use super::arrivals::{ArrivalTimes, Arrivals};
use super::curve::{Curve, sizes};
use super::distances::Distances;
use super::places::{Places, Timeline};
use super::runs::{Runs, Sequentiality};
use super::sample::{Sample, Sampler, Sampling};
use super::spots::{Popularity, popularity};
use super::spread::{Spread, Spreading};
use crate::cache::{AdmissionPolicy, BlockSize, BlockTraceError, EvictionPolicy, Numbers, Stack, homes};
use serde::Serialize;
use weir_model::{BLOCK, Nanos, Op};
use weir_policy::admission::{Admission, Asked};
use weir_policy::eviction::{Room, Use};
use weir_trace::Record;

/// Takes a trace request by request and tells what it is like.
///
/// Memory grows with the blocks that are accessed, not with requests: about 50 bytes a block, up to twice as much while tables
/// grow, and for the sample 4 bytes an access in it. An access takes time in proportion to the logarithm of the
/// number of blocks.
#[derive(Debug)]
pub struct Analyzer {
    timed: bool,
    numbers: Numbers,
    states: Vec<State>,
    reads: Counted,
    writes: Counted,
    trims: Counted,
    aligned: u64,
    accesses: u64,
    sizes: [Spreading; 2],
    times: [Spreading; 4],
    runs: Runs,
    arrivals: ArrivalTimes,
    places: Places,
    admissions: Vec<Box<dyn Admission>>,
    stack: Stack,
    distances: Distances,
    sampler: Sampler,
    error: Option<BlockTraceError>,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// When it was last accessed, doubled, and 1 more if it was written.
    last: u64,
    accesses: u32,
    /// [`READ`], [`WRITTEN`], and a bit for each admission policy that would have it in.
    flags: u16,
}

const READ: u16 = 1;
const WRITTEN: u16 = 2;
/// The bit of the first admission policy.
const ADMITTED: u32 = 2;

/// Requests of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Distinct blocks they touch; of trims none is counted.
    pub blocks: u64,
}

/// What a trace is like. Times are in nanoseconds, blocks of 4 KiB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// Requests to read.
    pub reads: Counted,
    /// Requests to write.
    pub writes: Counted,
    /// Trims. They do not count in anything else.
    pub trims: Counted,
    /// Reads to reads and writes, of requests.
    pub read_share: f64,
    /// The share of requests that begin and end with a block.
    pub aligned_share: f64,
    /// Accesses to blocks: one for each block of each request.
    pub accesses: u64,
    /// Distinct blocks: the footprint.
    pub blocks: u32,
    /// The share of accesses that are not the first of their blocks.
    pub reaccess_share: f64,
    /// For each admission policy the smallest cache that never evicts what it admits.
    pub critical: Vec<Critical>,
    /// Bytes of reads.
    pub read_sizes: Spread,
    /// … of writes.
    pub write_sizes: Spread,
    /// How requests follow one another.
    pub sequentiality: Sequentiality,
    /// When they come, if the trace says so.
    pub arrivals: Option<Arrivals>,
    /// Accesses to a block one after the other, and the time between them; nothing without times.
    pub reuse_times: Option<ReuseTimes>,
    /// Other blocks accessed between two accesses to a block.
    pub reuse_distances: Spread,
    /// How uneven blocks are asked for.
    pub popularity: Popularity,
    /// What happened when and where.
    pub timeline: Timeline,
    /// Miss ratios by size: LRU's exactly, others' from the sample.
    pub curves: Vec<Curve>,
}

/// A cache that has room for all that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Critical {
    /// The admission policy.
    pub admission: &'static str,
    /// The cache's size: distinct blocks that are admitted.
    pub blocks: u64,
}

/// Times between an access to a block and the one before it, by what they were.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReuseTimes {
    /// From a write to a read.
    pub read_after_write: Spread,
    /// From a write to a write.
    pub write_after_write: Spread,
    /// From a read to a read.
    pub read_after_read: Spread,
    /// From a read to a write.
    pub write_after_read: Spread,
}

/// How a trace is to be analysed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether it says when requests were made.
    pub timed: bool,
    /// What curves are from that are not exact.
    pub sampling: Sampling,
}

impl Analyzer {
    /// Nothing seen yet.
    pub fn new(settings: Settings) -> Self {
        // A cache that never evicts never asks which of two blocks is worth more.
        let room = Room { blocks: 1, capacity: 1 };
        let admissions = AdmissionPolicy::ALL.iter().map(|policy| policy.admission(room));
        Self {
            timed: settings.timed,
            numbers: Numbers::default(),
            states: Vec::new(),
            reads: Counted::default(),
            writes: Counted::default(),
            trims: Counted::default(),
            aligned: 0,
            accesses: 0,
            sizes: Default::default(),
            times: Default::default(),
            runs: Runs::default(),
            arrivals: ArrivalTimes::default(),
            places: Places::default(),
            admissions: admissions.collect(),
            stack: Stack::new(0),
            distances: Distances::default(),
            sampler: Sampler::new(settings.sampling),
            error: None,
        }
    }

    /// The next request. What cannot be had is told by [`Self::finish`].
    pub fn take(&mut self, record: &Record) {
        if self.error.is_none() {
            self.error = self.add(record).err();
        }
    }

    fn add(&mut self, record: &Record) -> Result<(), BlockTraceError> {
        let len = record.len.0;
        if record.op == Op::Trim {
            self.trims.requests += 1;
            self.trims.bytes = self.trims.bytes.saturating_add(len);
            return Ok(());
        }
        let block = BlockSize::default();
        let homes = homes(record, block)?;
        let is_write = record.op == Op::Write;
        let counted = if is_write { &mut self.writes } else { &mut self.reads };
        counted.requests += 1;
        counted.bytes = counted.bytes.saturating_add(len);
        self.sizes[usize::from(is_write)].add(len);
        self.aligned += u64::from((record.offset.0 | len).is_multiple_of(BLOCK));
        self.runs.add(record);
        let since = self.arrivals.add(record.at);
        let asked = Asked { disk: record.disk.0, offset: record.offset, len: record.len };
        let admitted = self.admissions.iter_mut().enumerate();
        let admitted = admitted.fold(0, |bits, (at, policy)| bits | u16::from(policy.request(asked)) << at);
        for key in homes {
            self.access(key, is_write, since, admitted)?;
        }
        let clock = if self.timed { since.0 } else { self.reads.requests + self.writes.requests - 1 };
        self.places.add(clock, block.touched(record), is_write, self.states.len() as u64);
        Ok(())
    }

    fn access(&mut self, key: u64, is_write: bool, at: Nanos, admitted: u16) -> Result<(), BlockTraceError> {
        let block = self.numbers.number(key);
        let now = at.0.min(u64::MAX >> 1) << 1 | u64::from(is_write);
        self.accesses += 1;
        if block.index() == self.states.len() {
            if block.0 >= MOST {
                return Err(BlockTraceError::TooLong);
            }
            self.states.push(State::default());
        } else {
            let last = self.states[block.index()].last;
            self.times[(last & 1) as usize | usize::from(is_write) << 1]
                .add((now >> 1).saturating_sub(last >> 1));
        }
        let state = &mut self.states[block.index()];
        state.last = now;
        state.accesses = state.accesses.saturating_add(1);
        state.flags |= if is_write { WRITTEN } else { READ } | admitted << ADMITTED;
        self.distances.add(self.stack.touch(block));
        self.sampler.take(key, if is_write { Use::Write } else { Use::Read });
        Ok(())
    }

    /// What the trace is like, and the sample its other curves are from.
    ///
    /// # Errors
    /// If there was too much, or nothing.
    pub fn finish(self) -> Result<(Analysis, Sample), BlockTraceError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.accesses == 0 {
            return Err(BlockTraceError::Empty);
        }
        let with = |flag: u16| self.states.iter().filter(|state| state.flags & flag != 0).count() as u64;
        let critical = AdmissionPolicy::ALL.iter().enumerate().map(|(at, policy)| Critical {
            admission: policy.name,
            blocks: with(1 << (ADMITTED + at as u32)),
        });
        let mut reuse_distances = Spreading::default();
        for (distance, count) in (0..).zip(self.distances.counts()) {
            reuse_distances.add_many(distance, *count);
        }
        let [read_after_read, read_after_write, write_after_read, write_after_write] =
            self.times.each_ref().map(Spreading::spread);
        let times = ReuseTimes { read_after_write, write_after_write, read_after_read, write_after_read };
        let requests = (self.reads.requests + self.writes.requests) as f64;
        let blocks = self.states.len() as u32;
        let analysis = Analysis {
            reads: Counted { blocks: with(READ), ..self.reads },
            writes: Counted { blocks: with(WRITTEN), ..self.writes },
            trims: self.trims,
            read_share: self.reads.requests as f64 / requests,
            aligned_share: self.aligned as f64 / requests,
            accesses: self.accesses,
            blocks,
            reaccess_share: 1.0 - f64::from(blocks) / self.accesses as f64,
            critical: critical.collect(),
            read_sizes: self.sizes[0].spread(),
            write_sizes: self.sizes[1].spread(),
            sequentiality: self.runs.finish(),
            arrivals: self.timed.then(|| self.arrivals.finish()).flatten(),
            reuse_times: self.timed.then_some(times),
            reuse_distances: reuse_distances.spread(),
            popularity: popularity(self.numbers.keys(), self.states.iter().map(|state| state.accesses)),
            timeline: self.places.finish(),
            curves: vec![Curve::exact(&self.distances, &sizes(blocks))],
        };
        Ok((analysis, self.sampler.finish().of(blocks)))
    }
}

/// At most so many blocks.
const MOST: u32 = u32::MAX - (1 << 16);

impl Analysis {
    /// A policy's miss ratios at the sizes of the other curves.
    ///
    /// # Errors
    /// If the sample has more accesses than can be played.
    pub fn curve(&self, sample: &Sample, policy: &'static EvictionPolicy) -> Result<Curve, BlockTraceError> {
        Curve::sampled(sample, policy, &sizes(self.blocks))
    }
}
