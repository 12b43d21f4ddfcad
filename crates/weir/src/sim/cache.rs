//! `weir sim cache`: one trace, many caches, on as many threads as there are cores.

use super::notes;
use crate::args::CacheArgs;
use crate::failure::Failure;
use crate::traces::{self, told};
use crate::{output, pool_file, progress};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::json;
use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use weir_model::{Bytes, ErrorKind};
use weir_sim::cache::{
    AdmissionPolicy, BlockSize, BlockTrace, CacheOutcome, Counts, EvictionPolicy, Loader, Setup, WriteMode, play,
};
use weir_trace::Tally;

/// A cache's size, as `--size` has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// So many hundredths of the blocks a trace touches, rounded down.
    Percent(f64),
    /// So many bytes; what is left of a block over is not used.
    Bytes(Bytes),
    /// So many blocks.
    Blocks(u32),
}

impl Size {
    /// In blocks, at least one.
    fn of(self, trace: &BlockTrace) -> u32 {
        match self {
            Self::Percent(percent) => (f64::from(trace.blocks()) * percent / 100.0) as u32,
            Self::Bytes(bytes) => u32::try_from(bytes.0 / trace.block().bytes().0).unwrap_or(u32::MAX),
            Self::Blocks(blocks) => blocks,
        }
        .max(1)
    }

    /// Whether there is such a cache of these blocks.
    fn fits(self, block: BlockSize) -> bool {
        match self {
            Self::Bytes(bytes) => (1..=u64::from(u32::MAX)).contains(&(bytes.0 / block.bytes().0)),
            Self::Percent(_) | Self::Blocks(_) => true,
        }
    }
}

/// Reads `10%`, `1GiB`, `26921blk`.
///
/// # Errors
/// What is allowed.
pub fn size(text: &str) -> Result<Size, String> {
    let parsed = if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 1e6);
        percent.map(Size::Percent)
    } else if let Some(blocks) = text.strip_suffix("blk") {
        blocks.parse().ok().filter(|blocks| *blocks > 0).map(Size::Blocks)
    } else {
        pool_file::size(text).ok().map(Size::Bytes)
    };
    parsed.ok_or_else(|| {
        "write a share of the trace's blocks, a size or a number of blocks: 10%, 1GiB, 26921blk".into()
    })
}

/// Reads `4KiB`.
///
/// # Errors
/// What is allowed.
pub fn block_size(text: &str) -> Result<BlockSize, String> {
    let block = pool_file::size(text).ok().and_then(BlockSize::new);
    block.ok_or_else(|| "write a power of two from 512B to 1GiB: 4KiB, 64KiB".into())
}

/// Reads `50%` as 0.5.
///
/// # Errors
/// What is allowed.
pub fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
    percent
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .map(|percent: f64| percent / 100.0)
        .ok_or_else(|| "write a percentage above 0%, at most 100%".into())
}

/// What caches of a trace came to.
#[derive(Debug)]
pub struct CacheComparison {
    trace: String,
    notes: Vec<String>,
    blocks: u32,
    block: BlockSize,
    accesses: usize,
    requests: usize,
    mode: WriteMode,
    /// Policy by policy, admission by admission, size by size, as they were named.
    results: Vec<Played>,
}

/// What one cache came to, and the processor time that took.
#[derive(Debug, Serialize)]
struct Played {
    #[serde(flatten)]
    outcome: CacheOutcome,
    #[serde(serialize_with = "seconds", rename = "cpu_seconds")]
    took: Duration,
}

fn seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64())
}

/// Loads the trace and plays it to every cache that was asked for.
///
/// # Errors
/// If the trace cannot be used.
pub fn run(args: &CacheArgs) -> Result<CacheComparison, Failure> {
    if !args.size.iter().all(|size| size.fits(args.block_size)) {
        let block = args.block_size.bytes();
        return Err(Failure::usage(
            format!("--size names a cache that cannot be of blocks of {block}"),
            format!("name sizes from {block} to {}", Bytes(u64::from(u32::MAX) * block.0)),
        ));
    }
    let (trace, tally) = load(&args.trace, args)?;
    let mode = match &args.write_mode[..] {
        "around" => WriteMode::Around,
        "back" => WriteMode::Back { dirty: args.dirty },
        _ => WriteMode::Through,
    };
    let evictions = || args.policy.iter().filter_map(|name| EvictionPolicy::by_name(name));
    let admissions = || args.admission.iter().filter_map(|name| AdmissionPolicy::by_name(name));
    let mut setups = Vec::new();
    for eviction in evictions() {
        for admission in admissions() {
            let sizes = args.size.iter().map(|size| size.of(&trace));
            setups.extend(sizes.map(|capacity| Setup { eviction, admission, capacity, mode }));
        }
    }
    let threads = args.threads.or_else(|| thread::available_parallelism().ok().map(NonZero::get));
    Ok(CacheComparison {
        trace: args.trace.display().to_string(),
        notes: notes(&tally, trace.requests()),
        blocks: trace.blocks(),
        block: trace.block(),
        accesses: trace.accesses().len(),
        requests: trace.requests(),
        mode,
        results: play_all(&trace, &setups, threads.unwrap_or(1)),
    })
}

fn load(path: &Path, args: &CacheArgs) -> Result<(BlockTrace, Tally), Failure> {
    let mut reader = traces::open(path, args.format.as_ref(), "name a file")?;
    let mut loader = Loader::new(args.block_size);
    let tally = progress::during("reading the trace", || {
        Tally::read(&mut reader, args.strict, |record| loader.take(&record))
    });
    let tally = tally.map_err(|error| told(&error))?;
    let trace = loader.finish().map_err(|error| {
        Failure::told(ErrorKind::Usage, &format!("{} cannot be played: {error}", path.display()))
    })?;
    Ok((trace, tally))
}

/// Plays a trace to caches, each on one thread.
fn play_all(trace: &BlockTrace, setups: &[Setup], threads: usize) -> Vec<Played> {
    let bar = progress::bar(setups.len(), "caches");
    let next = AtomicUsize::new(0);
    let results: Vec<_> = setups.iter().map(|_| OnceLock::new()).collect();
    thread::scope(|scope| {
        for _ in 0..threads.min(setups.len()) {
            scope.spawn(|| {
                while let Some((setup, result)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    setups.get(at).zip(results.get(at))
                } {
                    let start = thread_time();
                    let outcome = play(trace, setup);
                    result.get_or_init(|| Played { outcome, took: thread_time().saturating_sub(start) });
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Processor time of this thread: a machine that is busy with something else does not change it much.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl CacheComparison {
    /// The document `--json` prints.
    pub fn to_json(&self) -> serde_json::Value {
        let (mode, dirty) = match self.mode {
            WriteMode::Through => ("through", None),
            WriteMode::Around => ("around", None),
            WriteMode::Back { dirty } => ("back", Some(dirty)),
        };
        json!({
            "trace": self.trace,
            "notes": self.notes,
            "blocks": self.blocks,
            "block_bytes": self.block.bytes().0,
            "accesses": self.accesses,
            "requests": self.requests,
            "write_mode": mode,
            "dirty_ratio": dirty,
            "results": self.results,
        })
    }

    /// A table, a row a cache.
    pub fn human(&self) -> String {
        let mode = match self.mode {
            WriteMode::Through => "written through".to_owned(),
            WriteMode::Around => "written around".to_owned(),
            WriteMode::Back { dirty } => format!("written back, at most {} dirty", percent(dirty)),
        };
        let mut text = format!(
            "{}: {} requests, {} accesses to {} blocks of {} ({}), {mode}\n\n",
            self.trace,
            self.requests,
            self.accesses,
            self.blocks,
            self.block.bytes(),
            Bytes(u64::from(self.blocks) * self.block.bytes().0),
        );
        text += &output::table(
            [
                "POLICY",
                "ADMISSION",
                "BLOCKS",
                "SIZE",
                "MISSES",
                "HITS",
                "READ HITS",
                "WRITE HITS",
                "REQUEST HITS",
                "BYTE HITS",
                "CACHE WRITES",
                "CLWA",
                "DISK READS",
                "DISK WRITES",
            ],
            self.results.iter().map(|played| row(&played.outcome)),
        );
        for note in &self.notes {
            text += &format!("\nnote: {note}\n");
        }
        text
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn row(outcome: &CacheOutcome) -> [String; 14] {
    let hits = |counts: Counts| match counts.accesses {
        0 => "-".to_owned(),
        _ => percent(counts.hit_ratio()),
    };
    let all = outcome.all();
    [
        outcome.policy.to_owned(),
        outcome.admission.to_owned(),
        outcome.size_blocks.to_string(),
        outcome.size().to_string(),
        all.misses.to_string(),
        hits(all),
        hits(outcome.reads),
        hits(outcome.writes),
        percent(all.request_hit_ratio()),
        percent(all.byte_hit_ratio()),
        outcome.cache_writes().to_string(),
        outcome.clwa().map_or("-".to_owned(), |clwa| format!("{clwa:.3}")),
        outcome.back_end_reads().to_string(),
        outcome.back_end_writes().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shares_bytes_or_blocks() {
        assert_eq!(size("10%"), Ok(Size::Percent(10.0)));
        assert_eq!(size("1GiB"), Ok(Size::Bytes(Bytes::gib(1))));
        assert_eq!(size("26921blk"), Ok(Size::Blocks(26_921)));
        for bad in ["", "0%", "-1%", "nan%", "1e9%", "0blk", "1.5blk", "blk", "0B", "10", "4EiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_of_blocks_are_powers_of_two() {
        assert_eq!(block_size("64KiB").map(|block| block.bytes()), Ok(Bytes::kib(64)));
        for bad in ["", "0", "4096", "256B", "3KiB", "2GiB"] {
            assert!(block_size(bad).is_err(), "{bad}");
        }
        let block = block_size("4KiB").expect("a size");
        let fits = |bytes| Size::Bytes(Bytes(bytes)).fits(block);
        assert_eq!((fits(4095), fits(4096), fits(1 << 43), fits(1 << 44)), (false, true, true, false));
    }

    #[test]
    fn shares_are_percentages_up_to_all() {
        assert_eq!((share("100%"), share("0.5%")), (Ok(1.0), Ok(0.005)));
        for bad in ["", "0%", "101%", "50", "x%"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
