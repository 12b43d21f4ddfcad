//! Wear levelling: memory cells endure a limited number of writes, and SCMFS leaves it to future work
//! (section VI.B, "plan to include this as part of allocation process").
//!
//! The wear of a chunk is how often as many bytes as it has were written to it as data. Free chunks are
//! allocated by least wear. What is allocated for long would still wear more than others, or less: data that
//! is written over in place moves to the least worn free chunk, and data that rests on a chunk with little
//! wear moves to the most worn free one. So chunks that are free or have data differ by at most twice the
//! gap, and what is written between two steps. Metadata does not move and is not counted.

use super::FileSystem;
use super::compaction::Run;
use super::tree::Mapped;
use crate::error::Result;
use crate::layout::chunk::{Purpose, Use};
use crate::layout::inode::Kind;
use crate::layout::{Chunk, Ino};
use crate::nvm::Memory;

/// Difference of wear above which data moves.
pub const WEAR_GAP: u32 = 16;

/// Which data moves, and where.
#[derive(Debug)]
pub struct Levelling {
    from: Chunk,
    to: Chunk,
    /// Files of up to half a chunk that have data there.
    runs: Vec<Run>,
}

impl<M: Memory> FileSystem<M> {
    /// Returns which data should move because chunks differ in wear by more than `gap`; `None` if none should
    /// or can. Reads the chunk table, and all inodes if no large file's data should move.
    pub fn plan_levelling(&self, gap: u32) -> Option<Levelling> {
        let unequal = self.unequal(gap);
        if let Some((from, to)) = unequal.iter().find(|(from, _)| self.owner_of(*from).is_some()) {
            return Some(Levelling { from: *from, to: *to, runs: Vec::new() });
        }
        let divided = unequal.into_iter().filter(|(from, _)| self.space.used_pages(*from) > 0);
        let divided: Vec<_> = divided.collect();
        if divided.is_empty() {
            return None;
        }
        let mut runs = self.runs_in(&divided.iter().map(|(from, _)| *from).collect::<Vec<_>>());
        divided.into_iter().find_map(|(from, to)| {
            let runs = runs.remove(&from).filter(|runs| self.are_all(from, runs))?;
            Some(Levelling { from, to, runs })
        })
    }

    /// Returns chunks with data whose wear differs from that of free ones, and which free ones these are:
    /// first those that are written over, the most worn ones first, then others, the least worn ones first.
    fn unequal(&self, gap: u32) -> Vec<(Chunk, Chunk)> {
        let Some((least, most)) = self.space.free_by_wear() else { return Vec::new() };
        let differ = |low: u32, high: u32| high > low.saturating_add(gap);
        let (mut hot, mut cold) = (Vec::new(), Vec::new());
        for chunk in (self.geometry().system_chunks()..self.geometry().chunks()).map(Chunk) {
            let Ok(entry) = self.space.entry(&self.store, chunk) else { continue };
            if entry.usage != Use::Data && entry.purpose() != Some(Purpose::Data) {
                continue;
            }
            if self.written_over.contains(&chunk) {
                hot.extend(differ(least.0, entry.wear).then_some((entry.wear, chunk)));
            } else {
                cold.extend(differ(entry.wear, most.0).then_some((entry.wear, chunk)));
            }
        }
        hot.sort_unstable();
        cold.sort_unstable();
        let hot = hot.into_iter().rev().map(|(_, chunk)| (chunk, least.1));
        hot.chain(cold.into_iter().map(|(_, chunk)| (chunk, most.1))).collect()
    }

    /// Returns whether a chunk has these runs and nothing else.
    fn are_all(&self, chunk: Chunk, runs: &[Run]) -> bool {
        let pages: u64 = runs.iter().map(|run| u64::from(run.pages)).sum();
        pages > 0 && pages == self.space.allocated_pages(&self.store, chunk)
    }

    /// Returns the large file whose chunk this is, the chunk's index in it, and how it is mapped.
    fn owner_of(&self, chunk: Chunk) -> Option<(Ino, u64, Mapped)> {
        let entry = self.space.entry(&self.store, chunk).ok().filter(|entry| entry.usage == Use::Data)?;
        let ino = Ino(entry.owner);
        let inode = self.inode(ino).ok().filter(|inode| inode.kind() == Some(Kind::File))?;
        let mapped = self.chunk_at(&inode, entry.index).filter(|mapped| mapped.chunk == chunk)?;
        Some((ino, entry.index, mapped))
    }

    /// Moves data as planned, unless it has changed meanwhile; returns whether it has moved.
    ///
    /// # Errors
    /// Those of any change: `ReadOnly`, `Failed`, `Io`, `Damaged`.
    pub fn level(&mut self, plan: &Levelling) -> Result<bool> {
        if !self.space.is_free(&self.store, plan.to) {
            return Ok(false);
        }
        let has_moved = match self.owner_of(plan.from) {
            Some(owner) => self.stage(|fs| fs.move_chunk(plan, owner)).map(|()| true)?,
            None => self.move_runs(plan)?,
        };
        // What was written over will be again.
        if has_moved && self.written_over.remove(&plan.from) {
            self.written_over.insert(plan.to);
        }
        Ok(has_moved)
    }

    fn move_chunk(&mut self, plan: &Levelling, (ino, index, mapped): (Ino, u64, Mapped)) -> Result<()> {
        let mut inode = self.inode(ino)?;
        let chunk_bytes = self.geometry().chunk_bytes;
        self.space.take_this_chunk(&mut self.store, plan.to, Use::Data, ino.0, index)?;
        if !mapped.is_unwritten {
            let len = inode.size.saturating_sub(index * chunk_bytes).min(chunk_bytes);
            let (from, to) = (self.geometry().chunk_at(plan.from), self.geometry().chunk_at(plan.to));
            self.copy_data(from, to, len)?;
        }
        self.set_chunk(&mut inode, index, Mapped { chunk: plan.to, ..mapped })?;
        self.space.free_chunk(&mut self.store, plan.from)?;
        self.set_inode(ino, &inode);
        Ok(())
    }

    fn move_runs(&mut self, plan: &Levelling) -> Result<bool> {
        if !self.are_all(plan.from, &plan.runs) || !plan.runs.iter().all(|run| self.has_run(run)) {
            return Ok(false);
        }
        for (nth, run) in plan.runs.iter().enumerate() {
            self.stage(|fs| {
                if nth == 0 {
                    fs.space.divide_this(&mut fs.store, plan.to, Purpose::Data)?;
                }
                fs.move_run(*run, plan.to)
            })?;
        }
        Ok(true)
    }

    /// Adds to the wear of chunks what was written to them since the last call.
    pub(super) fn count_wear(&mut self) {
        for chunk in self.store.take_worn() {
            let Ok(mut entry) = self.space.entry(&self.store, chunk) else { continue };
            if matches!(entry.usage, Use::Data | Use::Pages) {
                entry.wear = entry.wear.saturating_add(1);
                self.space.set_entry(&mut self.store, chunk, &entry);
                self.written_over.insert(chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests;
