//! Parses a phase of a synthetic load from its words.

use super::{PATTERNS, Pattern, Phase, RankPermutation, WrittenPart, block_count};
use rand_distr::Zipf;
use weir_model::{BLOCK, Bytes, Nanos, SECTOR, VolumeOffset};

/// Maximum request size.
const SIZE_MAX: Bytes = Bytes::mib(16);
/// Maximum volume size.
const OVER_MAX: Bytes = Bytes::gib(64 << 10);

/// Maximum number of requests in a run.
const RUN_MAX: u32 = 100_000;
/// Maximum gap of a sweep.
const GAP_MAX: Bytes = Bytes::gib(1);
/// Maximum number of concurrent scans.
const STREAMS_MAX: u32 = 1024;
/// Maximum number of pieces of a scan.
const PIECES_MAX: u64 = 1_000_000;

/// Maximum weight of one of several sizes or run lengths.
const WEIGHT_MAX: u32 = 1_000_000;

const VALID_RUNS: &str =
    "from 1 to 100000 requests, or several lengths with weights from 1 to 1000000: 1:12,2:1";
const VALID_OFFSET: &str = "whole sectors of 512 bytes, up to 64TiB";

/// The default size of a scan's requests.
const SCAN_SIZE: Bytes = Bytes::kib(256);
const KEYS: &str = "theta, hot, part, hits, run, streams, pieces, gap, reads, size, writes, written, over, \
                    at, rate, for, think";

/// What is wrong with a word, and what would be right.
type Mistake = String;

/// The words that shape a pattern.
struct Shape {
    theta: f64,
    hot: Option<u64>,
    part: f64,
    hits: f64,
    streams: usize,
    gap: Bytes,
    pieces: Option<Bytes>,
}

impl Default for Shape {
    fn default() -> Self {
        let gap = Bytes::kib(64);
        Self { theta: 1.1, hot: Some(0), part: 0.2, hits: 0.8, streams: 1, gap, pieces: None }
    }
}

impl Shape {
    /// Returns the pattern of this name for requests to this amount of the phase's data.
    fn pattern(&self, name: &str, phase: &Phase, size: Bytes) -> Result<Pattern, Mistake> {
        let blocks = block_count(size);
        let scatter =
            || self.hot.map_or(RankPermutation::in_order(blocks), |hot| RankPermutation::new(blocks, hot));
        Ok(match name {
            "zipf" => Pattern::Zipf { law: law(self.theta, blocks)?, blocks: scatter() },
            "hotcold" if blocks > 1 => {
                // At least one block of each kind.
                let hot = ((blocks as f64 * self.part) as u64).clamp(1, blocks - 1);
                Pattern::HotCold { hot, hits: self.hits, blocks: scatter() }
            }
            "scan" => match self.pieces {
                Some(pieces) => pieces_pattern(phase, pieces, self.streams)?,
                None => Pattern::Scan(self.streams),
            },
            "sweep" => Pattern::Sweep(self.gap),
            _ => Pattern::Uniform,
        })
    }
}

pub(super) fn phase(
    text: &str,
    is_first: bool,
    over: Bytes,
    size: &impl Fn(&str) -> Result<Bytes, String>,
    time: &impl Fn(&str) -> Result<Nanos, String>,
) -> Result<Phase, Mistake> {
    let mut words = text.split_ascii_whitespace();
    let pattern = words.next().unwrap_or_default();
    check_pattern(pattern, is_first)?;
    let (mut shape, mut written) = (Shape::default(), None);
    let sizes = vec![(if pattern == "scan" { SCAN_SIZE } else { Bytes(BLOCK) }, 1)];
    let mut phase = Phase {
        pattern: Pattern::Uniform,
        reads: 1.0,
        sizes,
        write_sizes: None,
        runs: vec![(1, 1)],
        data_size: over,
        written: None,
        at: VolumeOffset(0),
        rate: 1000.0,
        duration: Nanos::secs(600),
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let wrong = |allowed: &str| format!("{word:?} in a load: {key} must be {allowed}");
        match key {
            "theta" => shape.theta = number(value, 0.1, 5.0).ok_or_else(|| wrong("from 0.1 to 5"))?,
            "hot" if value == "first" => shape.hot = None,
            "hot" => shape.hot = Some(value.parse().map_err(|_| wrong("a whole number, or first"))?),
            "part" => shape.part = share(value).ok_or_else(|| wrong("from 0% to 100%"))?,
            "hits" => shape.hits = share(value).ok_or_else(|| wrong("from 0% to 100%"))?,
            "gap" => {
                let most = size(value).map_err(|allowed| wrong(&allowed))?;
                shape.gap = Some(most).filter(|gap| *gap <= GAP_MAX).ok_or_else(|| wrong("up to 1GiB"))?;
            }
            "run" if !["scan", "sweep"].contains(&pattern) => {
                phase.runs = runs_of(value).ok_or_else(|| wrong(VALID_RUNS))?;
            }
            "streams" => {
                let many = count(value, STREAMS_MAX).ok_or_else(|| wrong("from 1 to 1024"))?;
                shape.streams = many as usize;
            }
            "pieces" if pattern == "scan" => {
                shape.pieces = Some(size(value).map_err(|allowed| wrong(&allowed))?);
            }
            "reads" => phase.reads = share(value).ok_or_else(|| wrong("from 0% to 100%"))?,
            "size" => phase.sizes = sizes_of(value, size).map_err(|allowed| wrong(&allowed))?,
            "writes" => {
                phase.write_sizes = Some(sizes_of(value, size).map_err(|allowed| wrong(&allowed))?);
            }
            "written" if !["scan", "sweep"].contains(&pattern) => {
                let part = share(value).filter(|part| *part > 0.0);
                written = Some(part.ok_or_else(|| wrong("from more than 0% to 100%"))?);
            }
            "over" => {
                let over = size(value).map_err(|allowed| wrong(&allowed))?;
                let fits = (BLOCK..=OVER_MAX.0).contains(&over.0);
                phase.data_size = Some(over).filter(|_| fits).ok_or_else(|| wrong("from 4KiB to 64TiB"))?;
            }
            "at" => {
                let at = size(value).map_err(|allowed| wrong(&allowed))?;
                let fits = at <= OVER_MAX && at.0.is_multiple_of(SECTOR);
                phase.at = fits.then_some(VolumeOffset(at.0)).ok_or_else(|| wrong(VALID_OFFSET))?;
            }
            "rate" => phase.rate = number(value, 0.01, 1e7).ok_or_else(|| wrong("from 0.01 to 10000000"))?,
            "for" => phase.duration = time(value).map_err(|allowed| wrong(&allowed))?,
            _ => return Err(format!("a load has no {key:?}; there are {KEYS}")),
        }
    }
    check_sizes(&phase, pattern)?;
    let written = written.map(|part| {
        // Whole blocks, at least one.
        let size = Bytes(((block_count(phase.data_size) as f64 * part) as u64).max(1) * BLOCK);
        Ok::<_, Mistake>(WrittenPart { pattern: shape.pattern(pattern, &phase, size)?, size })
    });
    (phase.pattern, phase.written) = (shape.pattern(pattern, &phase, phase.data_size)?, written.transpose()?);
    Ok(phase)
}

/// Refuses a first word with which no phase begins.
fn check_pattern(pattern: &str, is_first: bool) -> Result<(), Mistake> {
    // For input such as `rate=1000/s`: the text after the slash is the next phase.
    let after = if is_first { "" } else { "; a slash begins the next phase, and no unit" };
    match PATTERNS.contains(&pattern) {
        true => Ok(()),
        false => Err(format!(
            "a phase of a load begins with {pattern:?}; begin it with zipf, hotcold, uniform, scan or \
             sweep{after}"
        )),
    }
}

/// Refuses requests that are larger than the data. A scan's default size is cut to it.
fn check_sizes(phase: &Phase, pattern: &str) -> Result<(), Mistake> {
    let is_default = pattern == "scan" && matches!(phase.sizes[..], [(size, _)] if size == SCAN_SIZE);
    let reads = phase.sizes.iter().filter(|_| !is_default);
    let largest = reads.chain(phase.write_sizes.iter().flatten()).map(|(size, _)| *size).max();
    match largest.filter(|largest| *largest > phase.data_size) {
        Some(largest) => Err(format!(
            "a load with requests of {largest} over {}: give it more data (over=) or smaller requests",
            phase.data_size
        )),
        None => Ok(()),
    }
}

/// Returns a scan in pieces, if the piece size is valid.
fn pieces_pattern(phase: &Phase, pieces: Bytes, streams: usize) -> Result<Pattern, Mistake> {
    let whole = match (&phase.sizes[..], &phase.write_sizes) {
        ([(size, _)], None) => size.0 > 0 && pieces >= *size && pieces.0.is_multiple_of(size.0),
        _ => false,
    };
    if !whole || streams != 1 {
        return Err(
            "pieces= in a load: it must be a whole number of requests of one size, in one stream".into()
        );
    }
    if phase.data_size.0 / pieces.0 >= PIECES_MAX {
        return Err("pieces= in a load: there are more than 1000000; make them larger".into());
    }
    Ok(Pattern::Pieces(pieces))
}

/// Parses `4`, or `1:12,2:1`.
fn runs_of(text: &str) -> Option<Vec<(u32, u32)>> {
    let one = |part: &str| {
        let (length, weight) = part.split_once(':').unwrap_or((part, "1"));
        Some((count(length, RUN_MAX)?, count(weight, WEIGHT_MAX)?))
    };
    text.split(',').map(one).collect()
}

fn law(theta: f64, blocks: u64) -> Result<Zipf<f64>, Mistake> {
    Zipf::new(blocks as f64, theta).map_err(|error| format!("zipf theta={theta}: {error}"))
}

fn number(text: &str, least: f64, most: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

fn count(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

/// Parses `70%` or `0.7`.
pub(crate) fn share(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => Some(number(percent, 0.0, 100.0)? / 100.0),
        None => number(text, 0.0, 1.0),
    }
}

/// Parses `4KiB`, or `4KiB:3,64KiB:1`.
fn sizes_of(text: &str, size: &impl Fn(&str) -> Result<Bytes, String>) -> Result<Vec<(Bytes, u32)>, String> {
    let one = |part: &str| {
        let (bytes, weight) = part.split_once(':').unwrap_or((part, "1"));
        let bytes = size(bytes)?;
        let fits = bytes.0.is_multiple_of(SECTOR) && bytes <= SIZE_MAX;
        let weight = count(weight, WEIGHT_MAX);
        match (fits, weight) {
            (true, Some(weight)) => Ok((bytes, weight)),
            (false, _) => Err("whole sectors of 512 bytes, up to 16MiB".into()),
            (_, None) => Err("followed by weights from 1 to 1000000: 4KiB:3,64KiB:1".into()),
        }
    };
    text.split(',').map(one).collect()
}
