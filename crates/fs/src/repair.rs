//! Makes a damaged file system agree with itself again, from what is stored twice.
//!
//! The format says most things twice: a chunk names its file and a file its chunks; a name has a hash; a
//! directory names its parent and the parent the directory. The repair follows what two places agree on. It
//! never invents: what nothing tells any more is dropped and named, files that have lost their names go to
//! `lost+found`, and of two files that claim the same space each gets a copy of it. Where two answers are
//! possible and the difference matters, it refuses and changes nothing.
//!
//! All changes are staged and committed by the log, so a power loss leaves the old state or the repaired one.
//! Only what does not fit in one log is committed in parts; another repair then finishes it.

mod files;
mod index;
mod names;
mod rebuild;
mod survey;
mod tables;
mod tier_table;

use crate::check::{Report, check};
use crate::error::{Error, Result};
use crate::layout::superblock::Superblock;
use crate::layout::{Geometry, Ino, PAGE_BYTES, Time};
use crate::namespace::{FileSystem, read_superblock};
use crate::nvm::Memory;
use crate::store;
use crate::tiers::FoundTier;
use survey::Survey;
use thiserror::Error;

/// Lines that an outcome lists at most, of each sort.
const LINES_MAX: usize = 1000;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What was made right without a loss, at most 1000 of it.
    pub repaired: Vec<String>,
    /// What is lost, or can no longer be trusted, at most 1000 of it.
    pub lost: Vec<String>,
    /// Lines beyond those.
    pub more: u64,
}

impl Outcome {
    fn repaired(&mut self, line: String) {
        if self.repaired.len() < LINES_MAX { self.repaired.push(line) } else { self.more += 1 }
    }

    fn lost(&mut self, line: String) {
        if self.lost.len() < LINES_MAX { self.lost.push(line) } else { self.more += 1 }
    }
}

/// The reason why a file system is not repaired.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The region cannot be opened at all.
    #[error(transparent)]
    Unusable(#[from] Error),
    /// Two answers are possible, or what is lost is too much to go on without. Nothing was changed.
    #[error("not repaired: {0}")]
    Ambiguous(String),
    /// Files need new space, and there is none. Files that are intact were not changed.
    #[error("not repaired: no space is free for {0}; copy files from a read-only mount")]
    NoSpace(String),
    /// The tier table is damaged, and files are in a tier whose directory is not known.
    #[error("not repaired: {files} files are in tier {tier}; name its directory, too: --tier DIR")]
    TierNotNamed {
        /// The tier.
        tier: u32,
        /// Files in it.
        files: u64,
    },
    /// The repair left something that the check still reports: a defect of weir.
    #[error("the repair left damage: {}", .0.join("; "))]
    Incomplete(Vec<String>),
}

/// Repairs the file system in `memory`, and checks the result. Returns the memory and what was done, which is
/// nothing if the file system was clean.
///
/// # Errors
/// Says why it cannot be repaired, and what is lost; see [`Refusal`].
pub fn repair<M: Memory>(memory: M, now: Time) -> Result<(M, Outcome), Refusal> {
    repair_with_tiers(memory, &[], now)
}

/// As [`repair`], with the directories of all tiers, from whose markers a damaged tier table is written
/// again.
///
/// # Errors
/// As [`repair`].
pub fn repair_with_tiers<M: Memory>(
    memory: M,
    tiers: &[FoundTier],
    now: Time,
) -> Result<(M, Outcome), Refusal> {
    let mut outcome = Outcome::default();
    let (memory, superblock) = repair_superblocks(memory, &mut outcome)?;
    let memory = repair_log(memory, &superblock.geometry, &mut outcome)?;
    let mut fs = FileSystem::open_damaged(memory, superblock)?;
    if check(&fs).is_clean() {
        fs.commit()?;
        return Ok((fs.into_memory(), outcome));
    }
    index::repair(&mut fs, &mut outcome)?;
    tier_table::repair(&mut fs, tiers, &mut outcome)?;
    let mut survey = Survey::read(&fs);
    files::settle(&fs, &mut survey, &mut outcome)?;
    names::settle(&fs, &mut survey, &mut outcome);
    tables::reserve(&mut fs, &survey, &mut outcome)?;
    fs.reload_tables()?;
    rebuild::run(&mut fs, &survey, now, &mut outcome)?;
    tables::settle(&mut fs, &mut outcome)?;
    fs.commit()?;
    verify(fs, outcome)
}

fn verify<M: Memory>(fs: FileSystem<M>, outcome: Outcome) -> Result<(M, Outcome), Refusal> {
    let memory = fs.into_memory();
    let fs = FileSystem::open_read_only(memory)?;
    let Report { findings, .. } = check(&fs);
    match findings.is_empty() {
        true => Ok((fs.into_memory(), outcome)),
        false => Err(Refusal::Incomplete(findings)),
    }
}

/// Writes a damaged copy of the superblock again, from the other one.
fn repair_superblocks<M: Memory>(mut memory: M, outcome: &mut Outcome) -> Result<(M, Superblock), Refusal> {
    let superblock = read_superblock(&memory)?;
    for (copy, at) in [("first", 0), ("second", Geometry::COPY_AT)] {
        let mut page = [0; PAGE_BYTES as usize];
        memory.load(at, &mut page);
        match Superblock::decode(&page) {
            Ok(found) if found == superblock => continue,
            Ok(_) => {
                let text = "both copies of the superblock are sound, but differ; restore a backup";
                return Err(Refusal::Ambiguous(text.to_owned()));
            }
            Err(_) => {}
        }
        memory.store(at, &superblock.encode());
        memory.flush(at, PAGE_BYTES);
        memory.fence().map_err(Error::from)?;
        outcome.repaired(format!("{copy} copy of the superblock: written again from the other one"));
    }
    Ok((memory, superblock))
}

/// Discards a log that is complete, but cannot be applied.
fn repair_log<M: Memory>(mut memory: M, geometry: &Geometry, outcome: &mut Outcome) -> Result<M, Refusal> {
    match store::read_log(&memory, Geometry::LOG_AT, geometry.log_bytes) {
        Err(Error::Damaged(problem)) => {
            store::discard_log(&mut memory, Geometry::LOG_AT)?;
            outcome.lost(format!("the last changes before the file system was used last: {problem}"));
        }
        found => {
            found?;
        }
    }
    Ok(memory)
}

/// Returns how messages name a file: its inode, and a name if one is known.
fn file(ino: Ino) -> String {
    if ino == Ino::ROOT { "the root directory".to_owned() } else { format!("inode {}", ino.0) }
}

#[cfg(test)]
mod tests;
