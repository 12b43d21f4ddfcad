//! Computes all figures of a trace in one pass.

use super::addresses::{AddressCollector, Addresses};
use super::arrivals::{ArrivalTimes, Arrivals};
use super::blocks::{Blocks, LookedAt, ReuseTimes};
use super::curve::{Curve, sizes};
use super::distribution::{DistributionCollector, Spread};
use super::popularity::{Popularity, REGIONS_COUNTED_MAX, Regions, shares};
use super::runs::{Runs, Sequentiality};
use super::sample::{Sample, Sampler, Sampling};
use super::timeline::{Timeline, TimelineCollector};
use crate::cache::{AdmissionPolicy, BlockSize, BlockTraceError, EvictionPolicy, block_keys};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::{BLOCK, Op};
use weir_policy::admission::{Admission, BlockRequest};
use weir_policy::eviction::{AccessKind, CacheSize};
use weir_trace::Record;

/// Analyses a trace request by request.
///
/// Memory does not grow with requests, and grows with accessed blocks up to a limit: about 50 bytes per
/// [tracked](Settings::blocks) block, up to twice as much while tables grow, 24 to 48 bytes for each 4 MiB
/// touched, and the [sample](Sampler). An access takes time logarithmic in the number of blocks.
#[derive(Debug)]
pub struct Analyzer {
    timed: bool,
    blocks: Blocks,
    reads: Counted,
    writes: Counted,
    trims: Counted,
    aligned: u64,
    accesses: u64,
    sizes: [DistributionCollector; 2],
    /// Sizes of reads and of writes, each of those that are not sequential and of those that are.
    sizes_apart: [[DistributionCollector; 2]; 2],
    addresses: AddressCollector,
    runs: Runs,
    arrivals: ArrivalTimes,
    timeline: TimelineCollector,
    regions: Regions,
    admissions: Vec<Box<dyn Admission>>,
    sampler: Sampler,
    error: Option<BlockTraceError>,
}

/// Requests of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Requests")]
pub struct Counted {
    /// How many requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Distinct blocks that they touch; 0 for TRIMs, whose blocks are not counted.
    pub blocks: u64,
}

/// The figures of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Analysis {
    /// Reads.
    pub reads: Counted,
    /// Writes.
    pub writes: Counted,
    /// TRIMs. No other figure counts them.
    pub trims: Counted,
    /// Share of requests that are reads, 0 to 1.
    pub read_share: f64,
    /// Share of requests that begin and end at block boundaries, 0 to 1.
    pub aligned_share: f64,
    /// Accesses: one for each block of each request.
    pub accesses: u64,
    /// Number of distinct blocks: the footprint.
    pub blocks: u64,
    /// The sample that figures of single blocks are computed from; `null` if they are from all blocks.
    pub sampled: Option<LookedAt>,
    /// Share of accesses that are not the first of their blocks, 0 to 1.
    pub reaccess_share: f64,
    /// For each admission policy, the smallest cache that never evicts a block it admits.
    pub critical: Vec<Critical>,
    /// Sizes of reads, in bytes.
    pub read_sizes: Spread,
    /// Sizes of writes, in bytes.
    pub write_sizes: Spread,
    /// Sizes of sequential and of other requests apart, in bytes.
    pub sizes_apart: SizesApart,
    /// Addresses of sequential and of other requests apart.
    pub addresses: Addresses,
    /// Sequential requests and runs.
    pub sequentiality: Sequentiality,
    /// Times of requests; `null` if the trace has none.
    pub arrivals: Option<Arrivals>,
    /// Times between consecutive accesses to a block; `null` if the trace has no times.
    pub reuse_times: Option<ReuseTimes>,
    /// Distinct other blocks accessed between two accesses to a block.
    pub reuse_distances: Spread,
    /// How unevenly blocks are accessed.
    pub popularity: Popularity,
    /// Requests and accesses by time and region.
    pub timeline: Timeline,
    /// Miss-ratio curves: that of LRU, and of the other policies named.
    pub curves: Vec<Curve>,
}

/// Sizes of requests by direction, and by whether they begin where any of the last 32 requests to the same
/// disk ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SizesApart {
    /// Reads that are sequential.
    pub sequential_reads: Spread,
    /// All other reads.
    pub other_reads: Spread,
    /// Writes that are sequential.
    pub sequential_writes: Spread,
    /// All other writes.
    pub other_writes: Spread,
}

/// A cache with room for every block that an admission policy admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "CriticalSize")]
pub struct Critical {
    /// Admission policy.
    pub admission: &'static str,
    /// Size of the cache: the distinct blocks that the policy admits.
    pub blocks: u64,
}

/// Settings of an analysis.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether the trace has arrival times.
    pub timed: bool,
    /// Number of blocks to track. If there are more, between half this number and all of it are tracked and
    /// stand for all.
    pub blocks: u32,
    /// Sampling for the curves of policies other than LRU.
    pub sampling: Sampling,
}

impl Default for Settings {
    /// Arrival times are present; 2^22 blocks are tracked, which are 16 GiB.
    fn default() -> Self {
        Self { timed: true, blocks: 1 << 22, sampling: Sampling::default() }
    }
}

impl Analyzer {
    /// Creates an analyzer.
    pub fn new(settings: Settings) -> Self {
        // A cache that never evicts never compares two blocks, so the size does not matter.
        let room = CacheSize { blocks: 1, capacity: 1 };
        let admissions = AdmissionPolicy::ALL.iter().map(|policy| policy.admission(room));
        Self {
            timed: settings.timed,
            blocks: Blocks::new(settings.blocks),
            reads: Counted::default(),
            writes: Counted::default(),
            trims: Counted::default(),
            aligned: 0,
            accesses: 0,
            sizes: Default::default(),
            sizes_apart: Default::default(),
            addresses: AddressCollector::default(),
            runs: Runs::default(),
            arrivals: ArrivalTimes::default(),
            timeline: TimelineCollector::default(),
            regions: Regions::new(REGIONS_COUNTED_MAX),
            admissions: admissions.collect(),
            sampler: Sampler::new(settings.sampling),
            error: None,
        }
    }

    /// Adds the next request. Errors are reported by [`Self::finish`].
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
        let homes = block_keys(record, block)?;
        let is_write = record.op == Op::Write;
        let counted = if is_write { &mut self.writes } else { &mut self.reads };
        counted.requests += 1;
        counted.bytes = counted.bytes.saturating_add(len);
        self.sizes[usize::from(is_write)].add(len);
        self.aligned += u64::from((record.offset.0 | len).is_multiple_of(BLOCK));
        let is_sequential = self.runs.add(record);
        self.sizes_apart[usize::from(is_write)][usize::from(is_sequential)].add(len);
        self.addresses.add(*block.touched(record).start(), is_write, is_sequential);
        let since = self.arrivals.add(record.at);
        let asked =
            BlockRequest { at: record.at, disk: record.disk.0, offset: record.offset, len: record.len };
        let admitted = self.admissions.iter_mut().enumerate();
        let admitted = admitted.fold(0, |bits, (at, policy)| bits | u16::from(policy.request(asked)) << at);
        self.regions.add(homes.clone());
        self.accesses += homes.end() - homes.start() + 1;
        let used = if is_write { AccessKind::Write } else { AccessKind::Read };
        for key in homes {
            self.blocks.access(key, is_write, since, admitted);
            self.sampler.take(key, used);
        }
        let clock = if self.timed { since.0 } else { self.reads.requests + self.writes.requests - 1 };
        self.timeline.add(clock, block.touched(record), is_write, self.blocks.count());
        Ok(())
    }

    /// Returns the characteristics of the trace, and the sample for further curves.
    ///
    /// # Errors
    /// Fails if a request was invalid or there were too many, or none.
    pub fn finish(self) -> Result<(Analysis, Sample), BlockTraceError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.accesses == 0 {
            return Err(BlockTraceError::Empty);
        }
        let critical = AdmissionPolicy::ALL.iter().enumerate();
        let critical = critical
            .map(|(nth, policy)| Critical { admission: policy.name, blocks: self.blocks.admitted(nth) });
        let mut reuse_distances = DistributionCollector::default();
        let distances = self.blocks.distances();
        distances.counts().for_each(|(distance, count)| reuse_distances.add_many(distance, count));
        let requests = (self.reads.requests + self.writes.requests) as f64;
        let (blocks, looked_at) = (self.blocks.count(), self.blocks.looked_at());
        let sample = self.sampler.finish().of(blocks);
        let lru =
            Curve::of_lru(distances, self.accesses, looked_at.map(|some| (some, &sample)), &sizes(blocks));
        let (regions, regions_undercount) = self.regions.hottest();
        let analysis = Analysis {
            reads: Counted { blocks: self.blocks.read(), ..self.reads },
            writes: Counted { blocks: self.blocks.written(), ..self.writes },
            trims: self.trims,
            read_share: self.reads.requests as f64 / requests,
            aligned_share: self.aligned as f64 / requests,
            accesses: self.accesses,
            blocks,
            sampled: looked_at,
            reaccess_share: (1.0 - blocks as f64 / self.accesses as f64).max(0.0),
            critical: critical.collect(),
            read_sizes: self.sizes[0].spread(),
            write_sizes: self.sizes[1].spread(),
            sizes_apart: SizesApart {
                sequential_reads: self.sizes_apart[0][1].spread(),
                other_reads: self.sizes_apart[0][0].spread(),
                sequential_writes: self.sizes_apart[1][1].spread(),
                other_writes: self.sizes_apart[1][0].spread(),
            },
            addresses: self.addresses.finish(),
            sequentiality: self.runs.finish(),
            arrivals: self.timed.then(|| self.arrivals.finish()).flatten(),
            reuse_times: self.timed.then(|| self.blocks.reuse_times()),
            reuse_distances: reuse_distances.spread(),
            popularity: Popularity { shares: shares(self.blocks.accesses()), regions, regions_undercount },
            timeline: self.timeline.finish(),
            curves: vec![lru],
        };
        Ok((analysis, sample))
    }
}

impl Analysis {
    /// Estimates a policy's miss ratios at the sizes of the other curves.
    ///
    /// # Errors
    /// Fails if the sample has more accesses than can be played.
    pub fn curve(&self, sample: &Sample, policy: &'static EvictionPolicy) -> Result<Curve, BlockTraceError> {
        Curve::sampled(sample, policy, &sizes(self.blocks))
    }
}
