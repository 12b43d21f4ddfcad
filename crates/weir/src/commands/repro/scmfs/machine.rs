//! The machine of an experiment, and its load.

use super::super::parameters::{Parameters, unusable};
use super::experiment::Setup;
use crate::failure::Failure;
use weir_model::{Bytes, Nanos};
use weir_sim::memory::{Cycles, LINE_BYTES, LinuxCosts, LinuxKind, MachineSpec, Picos, TlbSpec, VfsCosts};

/// What an experiment runs.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) setup: Setup,
    pub(super) seed: u64,
    pub(super) machine: MachineSpec,
    pub(super) vfs: VfsCosts,
    linux: [LinuxCosts; 3],
    pub(super) scmfs_change: Cycles,
    /// Work for a page that SCMFS maps or unmaps.
    pub(super) mapping: Cycles,
    /// Work for a page fault, on SCMFS and on ext2.
    pub(super) faults: [Cycles; 2],
    pub(super) flushes_data: bool,
    pub(super) has_log: bool,
    /// The files of all threads together.
    pub(super) file: Bytes,
    pub(super) postmark: [String; 2],
    /// Bytes of a call of Postmark.
    pub(super) block: Bytes,
    pub(super) directories: u64,
    /// The resolution of the kernel's clock.
    pub(super) tick: Picos,
    /// By what sizes of files, and numbers of transactions, are multiplied.
    pub(super) scale: f64,
}

impl Prepared {
    pub(super) const fn linux(&self, kind: LinuxKind) -> LinuxCosts {
        self.linux[kind as usize]
    }

    /// Returns the bytes that the bus moves in a second, as published.
    pub(super) fn bus_rate(p: &Parameters) -> Result<f64, Failure> {
        Ok(p.size("bus")?.0 as f64)
    }
}

/// Returns the machine and the load.
///
/// # Errors
/// Fails if a parameter is unusable.
pub(super) fn prepare(p: &Parameters, setup: Setup, seed: u64, scale: f64) -> Result<Prepared, Failure> {
    let cycles = |name| Ok::<_, Failure>(Cycles(p.count(name)?));
    let [call, open, create, remove] = p.counts("vfs")?.map(Cycles);
    let flag = |name, yes: &str, no: &str| match p.word(name)? {
        word if word == yes => Ok(true),
        word if word == no => Ok(false),
        _ => Err(unusable(name, &format!("is neither {yes} nor {no}"))),
    };
    let file = p.size("file")?;
    Ok(Prepared {
        setup,
        seed,
        machine: machine(p)?,
        vfs: VfsCosts { call, open, create, remove },
        linux: linux(p)?,
        scmfs_change: cycles("scmfs_change")?,
        mapping: cycles("mapping")?,
        faults: p.counts("faults")?.map(Cycles),
        flushes_data: flag("data_flushes", "immediate", "periodic")?,
        has_log: flag("log", "charged", "free")?,
        file: Bytes(((file.0 as f64 * scale) as u64).next_power_of_two()),
        postmark: [p.text("postmark_reads")?.to_owned(), p.text("postmark_writes")?.to_owned()],
        block: p.size("postmark_block")?,
        directories: p.count("directories")?,
        tick: picos(p.time("tick")?),
        scale,
    })
}

fn machine(p: &Parameters) -> Result<MachineSpec, Failure> {
    let tlb = |name| {
        let [entries, ways] = p.counts(name)?;
        Ok::<_, Failure>(TlbSpec { entries: entries as usize, ways: ways as usize })
    };
    let rate = Prepared::bus_rate(p)? * p.share("bus_efficiency")?;
    Ok(MachineSpec {
        cores: p.count("cores")? as usize,
        cycle: Picos((1e3 / p.number("clock")?).round() as u64),
        caches: p.count("caches")? as usize,
        cache: p.size("cache")?,
        cache_ways: p.count("cache_ways")? as usize,
        small_tlb: tlb("small_tlb")?,
        large_tlb: tlb("large_tlb")?,
        line_work: Cycles(p.count("line_work")?),
        transfer: Picos((LINE_BYTES as f64 * 1e12 / rate).round() as u64),
        latency: picos(p.time("latency")?),
        walk: Cycles(p.count("walk")?),
        flush: Cycles(p.count("flush")?),
        fence: Cycles(p.count("fence")?),
    })
}

const fn picos(time: Nanos) -> Picos {
    Picos(time.0 * 1000)
}

/// Returns the costs of ramfs, tmpfs and ext2.
fn linux(p: &Parameters) -> Result<[LinuxCosts; 3], Failure> {
    let [page_read, page_write, file_change]: [[u64; 3]; 3] =
        [p.counts("page_read")?, p.counts("page_write")?, p.counts("file_change")?];
    let request = Cycles(p.count("block_request")?);
    let request = match p.word("ext2_pages")? {
        "cached" => None,
        "requested" => Some(request),
        _ => return Err(unusable("ext2_pages", "is neither cached nor requested")),
    };
    let (page_change, block_change) = (Cycles(p.count("page_change")?), Cycles(p.count("block_change")?));
    Ok(std::array::from_fn(|kind| LinuxCosts {
        page_read: Cycles(page_read[kind]),
        page_write: Cycles(page_write[kind]),
        page_change,
        block_change,
        file_change: Cycles(file_change[kind]),
        request,
    }))
}
