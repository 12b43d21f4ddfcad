//! Defines the papers' loads, as far as they are known, with the means of [`weir_sim`].

use super::experiment::MakeLoad;
use super::parameters::Parameters;
use crate::failure::Failure;
use crate::pool_file;
use std::ops::Range;
use weir_model::{Bytes, Nanos};
use weir_sim::load::dbench::{Dbench, Recording};
use weir_sim::load::file_system::{FileSystem, FileSystemConfig};
use weir_sim::load::mix::{Mix, MixProgram, Weights};
use weir_sim::load::operations::Operations;
use weir_sim::load::process::{Processes, Program};
use weir_sim::load::random_reads::{RandomReads, RandomReadsConfig};
use weir_sim::load::{Paused, parse};
use weir_sim::{Load, Ramp, SimError};

/// Returns a file system of that time: ext2, because it has no journal unless the caller adds one. It writes
/// back changes when they are old, or when there are many. The names are those of parameters.
pub(super) fn shape(
    p: &Parameters,
    size: &str,
    memory: &str,
    dirty_limits: &str,
) -> Result<FileSystemConfig, Failure> {
    let [background, dirty] = p.shares(dirty_limits)?;
    Ok(FileSystemConfig {
        size: p.size(size)?,
        memory: p.size(memory)?,
        dirty,
        background,
        age: p.time("writeback_age")?,
        journal: Bytes(0),
        trim: false,
        indirect: false,
    })
}

/// Creates the load that these words describe, as `weir sim place` takes them.
pub(super) fn words(words: String) -> MakeLoad {
    Box::new(move |seed, _| parse(&words, seed, pool_file::size, pool_file::duration))
}

/// Creates the load that these words describe, with a pause from one share of the duration to another.
pub(super) fn words_with_pause(words: String, pause: Range<f64>) -> MakeLoad {
    Box::new(move |seed, lasts| {
        let at = |share: f64| Nanos::from_secs_f64(lasts.as_secs_f64() * share);
        let load = parse(&words, seed, pool_file::size, pool_file::duration)?;
        Ok(Box::new(Paused::new(load, at(pause.start)..at(pause.end))) as Box<dyn Load>)
    })
}

/// Processes on one file system.
#[derive(Clone)]
pub(super) struct ProcessLoad {
    pub(super) shape: FileSystemConfig,
    /// Start of each process, as a share of the duration. `pause` is the pause that all processes make,
    /// likewise.
    pub(super) start_shares: Vec<f64>,
    pub(super) pause: Range<f64>,
    /// Number of processors that the processes share; `None` if each has its own.
    pub(super) processors: Option<usize>,
    /// Whether the load counts what its blocks cost.
    pub(super) counts_blocks: bool,
}

impl ProcessLoad {
    /// Returns that many processes, which begin at once and do not pause.
    pub(super) fn of(processes: usize, shape: FileSystemConfig) -> Self {
        Self {
            shape,
            start_shares: vec![0.0; processes],
            pause: 0.0..0.0,
            processors: None,
            counts_blocks: false,
        }
    }

    fn load(&self, lasts: Nanos, files: FileSystem, programs: Vec<Box<dyn Program>>) -> Box<dyn Load> {
        let at = |share: f64| Nanos::from_secs_f64(lasts.as_secs_f64() * share);
        let begins: Vec<_> = self.start_shares.iter().map(|share| at(*share)).collect();
        let load = Processes::new(files, programs)
            .with_start_times(&begins)
            .with_pause(at(self.pause.start)..at(self.pause.end));
        let load = if self.counts_blocks { load.with_block_costs() } else { load };
        Box::new(match self.processors {
            Some(processors) => load.with_processors(processors),
            None => load,
        })
    }

    /// Creates a load in which each process runs a mix on its own files.
    pub(super) fn mixed(self, mix: Mix) -> MakeLoad {
        Box::new(move |seed, lasts| {
            let mut files = FileSystem::new(self.shape);
            let program = |number| {
                Box::new(MixProgram::new(mix.clone(), &mut files, seed + number)) as Box<dyn Program>
            };
            let programs = (0..self.start_shares.len() as u64).map(program).collect();
            files.mark_all_clean();
            Ok(self.load(lasts, files, programs))
        })
    }

    /// Creates a load in which operations of the processes' mixes arrive by a ramp of these rates, and so
    /// many threads of a server execute them.
    pub(super) fn offered(self, mix: Mix, rates: Vec<f64>, threads: usize) -> MakeLoad {
        Box::new(move |seed, lasts| {
            let too_short = || SimError::Load(format!("{lasts} is too short for {} steps", rates.len()));
            let ramp = Ramp::new(rates.iter().copied(), lasts).ok_or_else(too_short)?;
            let mut files = FileSystem::new(self.shape);
            let program = |number| {
                Box::new(MixProgram::new(mix.clone(), &mut files, seed + number)) as Box<dyn Program>
            };
            let programs = (0..self.start_shares.len() as u64).map(program).collect();
            files.mark_all_clean();
            Ok(Box::new(Operations::new(files, programs, threads, ramp, seed)) as Box<dyn Load>)
        })
    }

    /// Creates a load in which each process reads a large file of its own at random.
    pub(super) fn random_reads(self, config: RandomReadsConfig) -> MakeLoad {
        Box::new(move |seed, lasts| {
            let mut files = FileSystem::new(self.shape);
            let program =
                |number| Box::new(RandomReads::new(config, &mut files, seed + number)) as Box<dyn Program>;
            let programs = (0..self.start_shares.len() as u64).map(program).collect();
            Ok(self.load(lasts, files, programs))
        })
    }

    /// Creates a load in which each process is a client of dbench. `takes` is the processor time of an
    /// operation.
    pub(super) fn dbench(self, recording: Recording, takes: Nanos) -> MakeLoad {
        Box::new(move |_, lasts| {
            let program = |_: &f64| Box::new(Dbench::new(recording.clone(), takes)) as Box<dyn Program>;
            let programs = self.start_shares.iter().map(program).collect();
            Ok(self.load(lasts, FileSystem::new(self.shape), programs))
        })
    }
}

/// Returns Postmark's mix: a transaction reads a file or appends to it, and creates a file or removes one. A
/// step of the mix is half a transaction. The names are those of parameters.
pub(super) fn postmark(p: &Parameters, files: &str, sizes: &str) -> Result<Mix, Failure> {
    let [files, directories] = p.counts(files)?;
    let sizes = p.sizes(sizes)?;
    Ok(Mix {
        weights: Weights { read: 1, append: 1, create: 1, remove: 1, ..Weights::default() },
        files,
        directories,
        write: 1..=*sizes.end(),
        sizes,
        mostly_small: false,
        theta: 0.0,
        read: None,
        updates_atime: true,
        sync: false,
        cpu_time: p.time("postmark_operation_time")?,
    })
}

/// Returns a file server's mix, which reads whole files and overwrites them at once until its caller says
/// otherwise. The names of its parameters begin with `prefix`.
pub(super) fn file_server(p: &Parameters, prefix: &str) -> Result<Mix, Failure> {
    let name = |part: &str| format!("{prefix}_{part}");
    let [stat, touch, read, overwrite, create, remove] =
        p.counts(&name("operations"))?.map(|weight: u64| weight as u32);
    let [files, directories] = p.counts(&name("files"))?;
    let sizes = p.sizes(&name("file_sizes"))?;
    Ok(Mix {
        weights: Weights { stat, touch, read, append: 0, overwrite, create, remove },
        files,
        directories,
        write: 1..=*sizes.end(),
        sizes,
        mostly_small: true,
        theta: p.number(&name("file_choice"))?,
        read: None,
        updates_atime: true,
        sync: false,
        cpu_time: p.time(&name("operation_time"))?,
    })
}

/// Returns a mix of NFS operations in SPECsfs 3.0's proportions, with the parameters of [`file_server`].
///
/// Memory answers repeated reads, so the drives see about one read to four writes.
pub(super) fn nfs_server(p: &Parameters) -> Result<Mix, Failure> {
    Ok(Mix {
        read: Some(p.sizes("nfs_request_sizes")?),
        write: p.sizes("nfs_request_sizes")?,
        updates_atime: p.word("access_times")? == "all",
        sync: p.word("sync")? != "none",
        ..file_server(p, "nfs")?
    })
}

/// Returns the operations per second of a ramp's steps, each by the same share above the one before.
pub(super) fn ramp_rates(p: &Parameters) -> Result<Vec<f64>, Failure> {
    let (first, rise) = (p.number("ramp_first")?, p.share("ramp_rise")?);
    Ok((0..p.count("ramp_steps")? as i32).map(|step| first * (1.0 + rise).powi(step)).collect())
}
