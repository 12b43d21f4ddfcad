//! Synthetic loads in phases, which everyone can reproduce without a trace.
//!
//! A load is one or several *phases*, written as words: `zipf theta=1.1 reads=70% size=4KiB over=1GiB`.
//! Phases are separated by `/` and follow one another, each for its time; after the last one the first begins
//! again.
//!
//! | word | meaning | default |
//! |---|---|---|
//! | `zipf` | blocks with frequencies by Zipf's law | one of these five is required, first |
//! | `hotcold` | some blocks hot, the others cold | |
//! | `uniform` | all blocks equally often | |
//! | `scan` | blocks in sequence | |
//! | `sweep` | uniform reads, and writes in address order with gaps, as from a page cache | |
//! | `theta=` | Zipf's exponent, 0.1 to 5 | `1.1` |
//! | `hot=` | a number that selects the hot blocks; `first`: frequency by block order | `0` |
//! | `part=`, `hits=` | share of hot blocks, and share of requests to them; for `hotcold` | `20%`, `80%` |
//! | `run=` | requests of one direction from one position, or several with weights; not for a scan | `1` |
//! | `streams=` | concurrent scans, evenly spaced | `1` |
//! | `pieces=` | scan in pieces of this size, see [`Pattern::Pieces`] | all in sequence |
//! | `gap=` | largest gap between two writes of a sweep; uniformly distributed | `64KiB` |
//! | `reads=` | share of reads | `100%` |
//! | `size=` | request size; or several with weights: `4KiB:3,64KiB:1` | `4KiB` (`256KiB` for a scan) |
//! | `writes=` | write sizes, if they differ | as `size=` |
//! | `written=` | share of the data, from its start, that writes go to; not for a scan | `100%` |
//! | `over=` | amount of data | `1GiB`, or that of the previous phase |
//! | `at=` | offset of the data on the volume | its start |
//! | `rate=` | requests per second, for an open loop, with exponential gaps | `1000` |
//! | `for=` | duration of the phase | `600s` |

use crate::{Arrival, Load, SimError, VolumeData};
use rand::RngCore;
use rand_distr::{Distribution as _, Exp1, Zipf};
use weir_model::{BLOCK, Bytes, ExtentSize, Hint, Nanos, Op, Rng, Seed, VolumeOffset};

/// A synthetic load.
#[derive(Clone, Debug)]
pub struct Synthetic {
    phases: Vec<Phase>,
    size: Bytes,
    random: LoadRng,
    /// End of the current phase, from the load's start, and its index.
    phase_end: Nanos,
    phase: usize,
    /// Next position of each stream of a scan, and the stream whose turn it is.
    streams: Vec<u64>,
    turn: usize,
    /// Pieces that a scan has not read in this round.
    pieces: Vec<u64>,
    /// The rest of a run.
    run: Option<RequestRun>,
}

/// A run in progress.
#[derive(Clone, Copy, Debug)]
struct RequestRun {
    op: Op,
    at: u64,
    remaining: u64,
}

/// A phase of a load: a time in which its character stays the same.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Access pattern.
    pub pattern: Pattern,
    /// Share of reads, 0 to 1.
    pub reads: f64,
    /// Request sizes in whole sectors, with their weights.
    pub sizes: Vec<(Bytes, u32)>,
    /// Write sizes, if they differ.
    pub write_sizes: Option<Vec<(Bytes, u32)>>,
    /// Numbers of consecutive requests from one position, at least 1, with their weights.
    pub runs: Vec<(u32, u32)>,
    /// Amount of data.
    pub data_size: Bytes,
    /// Where writes go, if not to all of the data.
    pub written: Option<WrittenPart>,
    /// Offset of the data on the volume; whole sectors.
    pub at: VolumeOffset,
    /// Requests per second, in an open loop.
    pub rate: f64,
    /// Duration.
    pub duration: Nanos,
}

/// The part of the data, from its start, that writes go to.
#[derive(Clone, Copy, Debug)]
pub struct WrittenPart {
    /// Access pattern of the writes.
    pub pattern: Pattern,
    /// Amount of data that is written.
    pub size: Bytes,
}

/// Access pattern of a phase.
#[derive(Clone, Copy, Debug)]
pub enum Pattern {
    /// The k-th most frequent block in proportion to 1 / k^theta; [`RankPermutation`] maps ranks to blocks.
    Zipf {
        /// Draws the rank.
        law: Zipf<f64>,
        /// Maps ranks to blocks.
        blocks: RankPermutation,
    },
    /// A set of equally hot blocks; the others are equally cold.
    HotCold {
        /// Number of hot blocks: those with ranks below this.
        hot: u64,
        /// Share of the requests to hot blocks.
        hits: f64,
        /// Maps ranks to blocks.
        blocks: RankPermutation,
    },
    /// All blocks equally often.
    Uniform,
    /// This many streams, each reading sequentially.
    Scan(usize),
    /// Pieces of this size, a whole number of requests, each once a round, in random order. All requests of a
    /// piece arrive together, and the pieces at even intervals.
    Pieces(Bytes),
    /// Reads as with [`Pattern::Uniform`]; writes repeatedly in address order with gaps of at most this size.
    Sweep(Bytes),
}

impl Synthetic {
    /// Creates a load of these phases, one after the other; at least one.
    pub fn new(phases: Vec<Phase>, seed: u64) -> Self {
        let size =
            phases.iter().map(|phase| Bytes(phase.at.0 + phase.data_size.0)).max().unwrap_or(Bytes(BLOCK));
        Self {
            size,
            random: LoadRng::new(seed),
            phase_end: phases.first().map_or(Nanos::MAX, |phase| phase.duration),
            phase: 0,
            streams: Vec::new(),
            turn: 0,
            pieces: Vec::new(),
            run: None,
            phases,
        }
    }

    /// Parses a load from its words; `size` and `time` parse sizes and times and return what is allowed on an
    /// error.
    ///
    /// # Errors
    /// Returns what is wrong with the first invalid word, and what would be right.
    pub fn parse(
        words: &str,
        seed: u64,
        size: impl Fn(&str) -> Result<Bytes, String>,
        time: impl Fn(&str) -> Result<Nanos, String>,
    ) -> Result<Self, SimError> {
        let mut phases: Vec<Phase> = Vec::new();
        for text in words.split('/') {
            let over = phases.last().map_or(Bytes::gib(1), |phase| phase.data_size);
            phases.push(words::phase(text, phases.is_empty(), over, &size, &time).map_err(SimError::Load)?);
        }
        Ok(Self::new(phases, seed))
    }

    fn current_phase(&mut self, now: Nanos) -> usize {
        if now >= self.phase_end {
            // Whole rounds of phases in which no request arrived.
            let round = self.duration().0.max(1);
            self.phase_end += Nanos(now.since(self.phase_end).0 / round * round);
        }
        while now >= self.phase_end {
            self.phase = (self.phase + 1) % self.phases.len();
            self.phase_end += self.phases[self.phase].duration;
            self.streams.clear();
            self.pieces.clear();
            self.run = None;
        }
        self.phase
    }
}

/// The words with which phases begin.
pub(crate) const PATTERNS: [&str; 5] = ["zipf", "hotcold", "uniform", "scan", "sweep"];

impl Load for Synthetic {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        vec![VolumeData::filled(self.size, extent)]
    }

    fn duration(&self) -> Nanos {
        Nanos(self.phases.iter().map(|phase| phase.duration.0).fold(0, u64::saturating_add))
    }

    fn next_arrival(&mut self, now: Nanos) -> Arrival {
        let index = self.current_phase(now);
        let Self { phases, random, streams, turn, pieces, run, .. } = self;
        let phase = &phases[index];
        let at = now + phase.gap(run.is_some(), random);
        if let Some(RequestRun { op, at: offset, remaining: left }) = run.take() {
            let len = phase.size(op, random);
            if offset + len.0 <= phase.part(op).1.0 {
                *run = (left > 1).then_some(RequestRun { op, at: offset + len.0, remaining: left - 1 });
                return Arrival {
                    at,
                    volume: 0,
                    op,
                    offset: phase.at + Bytes(offset),
                    len,
                    hint: Hint::None,
                };
            }
        }
        let op = if random.share() < phase.reads { Op::Read } else { Op::Write };
        let (pattern, data_size) = phase.part(op);
        let len = phase.size(op, random).min(data_size);
        // Number of positions at which requests of this length may begin.
        let places = (data_size.0 / len.0.max(1)).max(1);
        let mut follow = u64::from(draw(&phase.runs, random).unwrap_or(1));
        let place = match pattern {
            Pattern::Zipf { law, blocks } => {
                let place = blocks.of_rank(law.sample(random) as u64 - 1) * BLOCK;
                place - place % len.0.max(BLOCK)
            }
            Pattern::HotCold { hot, hits, blocks } => {
                let is_hot = random.share() < hits;
                let rank =
                    if is_hot { random.below(hot) } else { hot + random.below(block_count(data_size) - hot) };
                let place = blocks.of_rank(rank) * BLOCK;
                place - place % len.0.max(BLOCK)
            }
            Pattern::Sweep(gap) if op == Op::Write => {
                let next = streams.first().copied().unwrap_or(0) + random.below(gap.0 / BLOCK + 1) * BLOCK;
                let place = if next + len.0 > data_size.0 { 0 } else { next };
                *streams = vec![place + len.0];
                place
            }
            Pattern::Uniform | Pattern::Sweep(_) => random.below(places) * len.0,
            Pattern::Scan(count) => {
                let count = count.max(1) as u64;
                if streams.is_empty() {
                    streams.extend((0..count).map(|stream| places * stream / count));
                }
                *turn = (*turn + 1) % streams.len();
                let place = streams[*turn] % places;
                streams[*turn] = place + 1;
                place * len.0
            }
            Pattern::Pieces(piece) => {
                let requests = (piece.0 / len.0.max(1)).max(1);
                if pieces.is_empty() {
                    pieces.extend(0..places.div_ceil(requests));
                }
                let drawn = random.below(pieces.len() as u64) as usize;
                let first = pieces.swap_remove(drawn) * requests;
                follow = requests.min(places - first);
                first * len.0
            }
        };
        let place = place.min(data_size.0 - len.0);
        *run = (follow > 1).then_some(RequestRun { op, at: place + len.0, remaining: follow - 1 });
        Arrival { at, volume: 0, op, offset: phase.at + Bytes(place), len, hint: Hint::None }
    }
}

impl Phase {
    /// Returns the access pattern of requests of this direction, and the amount of data they go to.
    fn part(&self, op: Op) -> (Pattern, Bytes) {
        match self.written {
            Some(WrittenPart { pattern, size }) if op == Op::Write => (pattern, size),
            _ => (self.pattern, self.data_size),
        }
    }

    /// Returns the time before the next request; `continues` says whether it continues a run.
    fn gap(&self, continues: bool, random: &mut LoadRng) -> Nanos {
        let gaps = match self.pattern {
            Pattern::Pieces(_) if continues => 0.0,
            Pattern::Pieces(piece) => {
                let size = self.sizes.first().map_or(piece, |(size, _)| *size);
                piece.0 as f64 / size.0 as f64
            }
            _ => random.gap(),
        };
        Nanos::from_secs_f64(gaps / self.rate)
    }

    fn size(&self, op: Op, random: &mut LoadRng) -> Bytes {
        let sizes = self.write_sizes.as_ref().filter(|_| op == Op::Write).unwrap_or(&self.sizes);
        draw(sizes, random).unwrap_or(Bytes(BLOCK))
    }
}

/// Returns one of the values, in proportion to their weights; `None` if there are none. A single value takes
/// no random number.
fn draw<T: Copy>(values: &[(T, u32)], random: &mut LoadRng) -> Option<T> {
    if let [(only, _)] = values {
        return Some(*only);
    }
    let weights: u64 = values.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut drawn = random.below(weights.max(1));
    for (value, weight) in values {
        match drawn.checked_sub(u64::from(*weight)) {
            Some(rest) => drawn = rest,
            None => return Some(*value),
        }
    }
    None
}

/// Returns the number of blocks of this amount of data, at least one.
const fn block_count(data: Bytes) -> u64 {
    if data.0 < BLOCK { 1 } else { data.0 / BLOCK }
}

/// A bijection from ranks to blocks: unless in order, neighbours in rank are not neighbours on the volume.
#[derive(Clone, Copy, Debug)]
pub struct RankPermutation {
    blocks: u64,
    first: u64,
    step: u64,
}

impl RankPermutation {
    /// Creates a mapping for `blocks` blocks, at least one; different values of `hot` give different
    /// mappings.
    pub fn new(blocks: u64, hot: u64) -> Self {
        // The step is near the golden ratio's share of all blocks, so that consecutive ranks are far apart,
        // and coprime to their number.
        let mut step = (blocks as f64 * 0.618_033_988_75) as u64 | 1;
        while gcd(step, blocks) != 1 {
            step += 2;
        }
        Self { blocks, first: Rng::new(Seed(hot)).below(blocks), step }
    }

    /// Creates the mapping in order: the first block has the first rank.
    pub const fn in_order(blocks: u64) -> Self {
        Self { blocks, first: 0, step: 1 }
    }

    /// Returns the block of a rank, from 0.
    pub fn of_rank(&self, rank: u64) -> u64 {
        let Self { blocks, first, step } = *self;
        ((u128::from(rank) * u128::from(step) + u128::from(first)) % u128::from(blocks.max(1))) as u64
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The policies' random generator, for the distributions of `rand`.
#[derive(Clone, Debug)]
pub(crate) struct LoadRng(Rng);

impl LoadRng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Rng::new(Seed(seed)))
    }

    /// Returns a number from 0 to `limit - 1`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// Returns a number from 0 to below 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.0.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an exponentially distributed gap with mean 1.
    pub(crate) fn gap(&mut self) -> f64 {
        Exp1.sample(self)
    }
}

impl RngCore for LoadRng {
    fn next_u32(&mut self) -> u32 {
        (self.0.word() >> 32) as u32
    }
    fn next_u64(&mut self) -> u64 {
        self.0.word()
    }
    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.0.word().to_le_bytes()[..piece.len()]);
        }
    }
}

pub(crate) mod words;
