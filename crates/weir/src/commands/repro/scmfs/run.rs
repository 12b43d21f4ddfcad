//! Runs a load on a file system.

use super::super::results::{Metrics, finite};
use super::experiment::{Load, Records, System};
use super::files::{Files, buffer};
use super::machine::Prepared;
use crate::failure::{Failure, REPORT_DEFECT};
use weir_model::Bytes;
use weir_policy::eviction::items::FileKey;
use weir_sim::fs::load::{self, FileOp};
use weir_sim::memory::{Address, Cycles, LINE_BYTES, PageSize, Place, SMALL_PAGE_BYTES};

/// The metrics of a load on a system.
pub(super) const METRICS: [&str; 6] =
    ["rate", "bytes", "bus share", "TLB misses", "TLB misses per byte", "cache misses per byte"];

/// Where files are mapped into programs, one for each core.
const MAPPINGS: Address = Address(30 << 40);
const MAPPING_DISTANCE: u64 = 1 << 36;
/// Space of the region beside the files of the threads: tables, the log, inodes.
const SPARE: u64 = 64 << 20;
/// Space of the region for Postmark's files.
const POSTMARK_REGION: u64 = 1 << 30;
/// Size of the writes that create a file.
const CREATING: u64 = 1 << 20;

/// What a load did.
struct Done {
    bytes: u64,
    /// Units of work: bytes, or transactions.
    work: u64,
}

/// Runs a load.
///
/// # Errors
/// Fails if the file system fails.
pub(super) fn run(job: &Prepared, bus_rate: f64) -> Result<Metrics, Failure> {
    let (files, done) = match job.setup.load {
        Load::Iozone(of) if of.is_mapped => mapped_records(job, of)?,
        Load::Iozone(of) => records(job, of)?,
        Load::Postmark { is_write } => postmark(job, is_write)?,
    };
    let (counts, cores) = files.machine(|machine| {
        let cores: Vec<_> = (0..machine.spec().cores).map(|core| machine.now(core)).collect();
        (machine.counts(), cores)
    });
    let seconds = cores.into_iter().max().unwrap_or_default().as_secs_f64();
    let bytes = done.bytes as f64;
    let values = [
        done.work as f64 / seconds,
        bytes / seconds,
        bytes / seconds / bus_rate,
        counts.tlb_misses as f64,
        counts.tlb_misses as f64 / bytes,
        (counts.cache_misses * LINE_BYTES) as f64 / bytes,
    ];
    Ok(finite(METRICS.into_iter().map(str::to_owned).zip(values)))
}

/// The order in which a thread's records are used, each once.
fn order(job: &Prepared, count: u64, thread: usize, is_random: bool) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count).collect();
    if is_random {
        let mut state = job.seed.wrapping_add(thread as u64);
        for at in (1..all.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.swap(at, ((state >> 33) % (at as u64 + 1)) as usize);
        }
    }
    all
}

/// Calls `operate` with cores and offsets of records: the core whose clock is behind has the next turn.
fn take_turns(
    job: &Prepared,
    of: &Records,
    files: &mut Files,
    mut operate: impl FnMut(&mut Files, usize, u64) -> Result<(), Failure>,
) -> Result<Done, Failure> {
    let Records { is_random, record, threads, .. } = *of;
    let count = (job.file.0 / threads as u64 / record.0).max(1);
    let mut orders: Vec<_> =
        (0..threads).map(|thread| order(job, count, thread, is_random).into_iter()).collect();
    let mut running: Vec<usize> = (0..threads).collect();
    while let Some(&core) = running.iter().min_by_key(|core| files.machine(|machine| machine.now(**core))) {
        match orders[core].next() {
            Some(nth) => operate(files, core, nth * record.0)?,
            None => running.retain(|other| *other != core),
        }
    }
    let bytes = count * record.0 * threads as u64;
    Ok(Done { bytes, work: bytes })
}

/// `IOzone`: each thread reads or writes a file of its own, which exists, by records.
fn records(job: &Prepared, of: Records) -> Result<(Files, Done), Failure> {
    let Records { is_write, record, threads, .. } = of;
    let of_thread = (job.file.0 / threads as u64).max(record.0);
    let mut files = Files::new(job, 1, of_thread * threads as u64 + SPARE)?;
    for core in 0..threads {
        let file = FileKey(core as u64);
        files.create(core, file)?;
        for at in (0..of_thread).step_by(CREATING as usize) {
            files.write(core, file, at, CREATING.min(of_thread - at))?;
        }
    }
    files.machine(weir_sim::memory::Machine::restart);
    let done = take_turns(job, &of, &mut files, |files, core, at| match is_write {
        true => files.write(core, FileKey(core as u64), at, record.0),
        false => files.read(core, FileKey(core as u64), at, record.0),
    })?;
    Ok((files, done))
}

/// The same on files that are mapped into the program: the first access to a page is a fault.
fn mapped_records(job: &Prepared, of: Records) -> Result<(Files, Done), Failure> {
    let Records { is_write, record, .. } = of;
    let fault = match job.setup.system {
        System::Scmfs(..) => job.faults[0],
        System::Ramfs | System::Tmpfs | System::Ext2 => job.faults[1],
    };
    // The files themselves do nothing while they are mapped.
    let mut files = Files::new(job, 1, SPARE)?;
    let done = take_turns(job, &of, &mut files, |files, core, at| {
        files.machine(|machine| {
            machine.begin(core);
            // Each record is used once.
            machine.work(Cycles(fault.0 * record.0 / SMALL_PAGE_BYTES));
            let at = MAPPINGS.plus(core as u64 * MAPPING_DISTANCE + at);
            let mapped = Place { at, pages: PageSize::Small };
            match is_write {
                true => machine.copy(buffer(core), mapped, record.0),
                false => machine.copy(mapped, buffer(core), record.0),
            }
            machine.end();
        });
        Ok(())
    })?;
    Ok((files, done))
}

/// Postmark: files are created, then transactions run. Only these count.
fn postmark(job: &Prepared, is_write: bool) -> Result<(Files, Done), Failure> {
    let defect = |error: weir_sim::SimError| Failure::environment(error.to_string(), REPORT_DEFECT);
    let words = format!("postmark {} scale={}", job.postmark[usize::from(is_write)], job.scale);
    let mut load = load::parse(&words, job.seed).map_err(defect)?;
    let mut files = Files::new(job, job.directories, POSTMARK_REGION)?;
    let (mut done, mut is_warm) = (Done { bytes: 0, work: 0 }, false);
    while let Some(step) = load.next_step(0) {
        let creates_first = matches!(step.op, FileOp::Create(..)) && step.work == 0;
        if !is_warm && !creates_first {
            (is_warm, done) = (true, Done { bytes: 0, work: 0 });
            files.machine(weir_sim::memory::Machine::restart);
        }
        done.work += u64::from(step.work);
        match step.op {
            FileOp::Create(file, Bytes(len)) => {
                files.create(0, file)?;
                in_calls(job, 0, len, |at, len| files.write(0, file, at, len))?;
                done.bytes += len;
            }
            FileOp::Append(file, Bytes(len)) => {
                files.open(0, file)?;
                in_calls(job, files.size(file), len, |at, len| files.write(0, file, at, len))?;
                done.bytes += len;
            }
            FileOp::Read(file) => {
                let len = files.size(file);
                files.open(0, file)?;
                in_calls(job, 0, len, |at, len| files.read(0, file, at, len))?;
                done.bytes += len;
            }
            FileOp::Stat(file) => files.open(0, file)?,
            FileOp::Remove(file) => files.remove(0, file)?,
        }
    }
    Ok((files, done))
}

/// Divides bytes of a file into those of calls: calls `operate` with their starts and lengths.
fn in_calls(
    job: &Prepared,
    start: u64,
    len: u64,
    mut operate: impl FnMut(u64, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let block = job.block.0.max(1);
    (0..len).step_by(block as usize).try_for_each(|at| operate(start + at, block.min(len - at)))
}
