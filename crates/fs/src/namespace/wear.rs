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
use crate::layout::chunk::{Entry, Purpose, Use};
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
    /// or can. Reads the chunk table, and sometimes all inodes.
    pub fn plan_levelling(&self, gap: u32) -> Option<Levelling> {
        let (least, most) = self.space.free_by_wear()?;
        let chunks = (self.geometry().system_chunks()..self.geometry().chunks()).map(Chunk);
        let movable = chunks.filter_map(|chunk| Some((self.movable(chunk)?, chunk)));
        let (hot, cold): (Vec<_>, Vec<_>) = movable.partition(|(_, chunk)| self.written_over.contains(chunk));
        let (written, rested) = (hot.into_iter().max(), cold.into_iter().min());
        let differ = |low: u32, high: u32| high > low.saturating_add(gap);
        let (from, to) = match (written, rested) {
            (Some(written), _) if differ(least.0, written.0) => (written.1, least.1),
            (_, Some(rested)) if differ(rested.0, most.0) => (rested.1, most.1),
            _ => return None,
        };
        let runs = self.runs_in(&[from]).remove(&from).unwrap_or_default();
        Some(Levelling { from, to, runs })
    }

    /// Returns the wear of a chunk that has data which can move.
    fn movable(&self, chunk: Chunk) -> Option<u32> {
        let entry = self.space.entry(&self.store, chunk).ok()?;
        let is_movable = match entry.usage {
            Use::Data => self.owner_of(chunk, &entry).is_some(),
            Use::Pages => entry.purpose() == Some(Purpose::Data) && !self.space.is_fixed(chunk),
            _ => false,
        };
        is_movable.then_some(entry.wear)
    }

    /// Returns the file whose chunk this is.
    fn owner_of(&self, chunk: Chunk, entry: &Entry) -> Option<(Ino, Mapped)> {
        let ino = Ino(entry.owner);
        let inode = self.inode(ino).ok().filter(|inode| inode.kind() == Some(Kind::File))?;
        let mapped = self.chunk_at(&inode, entry.index).filter(|mapped| mapped.chunk == chunk)?;
        Some((ino, mapped))
    }

    /// Moves data as planned; what has changed since then stays where it is.
    ///
    /// # Errors
    /// Those of any change: `ReadOnly`, `Failed`, `Io`, `Damaged`.
    pub fn level(&mut self, plan: &Levelling) -> Result<()> {
        if !self.space.is_free(&self.store, plan.to) {
            return Ok(());
        }
        let entry = self.space.entry(&self.store, plan.from)?;
        match entry.usage {
            Use::Data => self.stage(|fs| fs.move_chunk(plan, &entry))?,
            Use::Pages => self.move_runs(plan)?,
            _ => {}
        }
        // What was written over will be again.
        match self.written_over.remove(&plan.from) {
            true => self.written_over.insert(plan.to),
            false => self.written_over.remove(&plan.to),
        };
        Ok(())
    }

    fn move_chunk(&mut self, plan: &Levelling, entry: &Entry) -> Result<()> {
        let Some((ino, mapped)) = self.owner_of(plan.from, entry) else { return Ok(()) };
        let mut inode = self.inode(ino)?;
        let chunk_bytes = self.geometry().chunk_bytes;
        self.space.take_this_chunk(&mut self.store, plan.to, Use::Data, ino.0, entry.index)?;
        if !mapped.is_unwritten {
            let len = inode.size.saturating_sub(entry.index * chunk_bytes).min(chunk_bytes);
            let (from, to) = (self.geometry().chunk_at(plan.from), self.geometry().chunk_at(plan.to));
            self.copy_data(from, to, len)?;
        }
        self.set_chunk(&mut inode, entry.index, Mapped { chunk: plan.to, ..mapped })?;
        self.space.free_chunk(&mut self.store, plan.from)?;
        self.set_inode(ino, &inode);
        Ok(())
    }

    fn move_runs(&mut self, plan: &Levelling) -> Result<()> {
        let movable: u64 = plan.runs.iter().map(|run| u64::from(run.pages)).sum();
        if movable != self.space.used_pages(plan.from) {
            // Something in it is no data, or it was freed a moment ago.
            self.space.fix(plan.from);
            return Ok(());
        }
        let mut target = None;
        for run in plan.runs.iter().filter(|run| self.has_run(run)).copied().collect::<Vec<_>>() {
            target = Some(self.stage(|fs| match target {
                None => {
                    fs.space.divide_this(&mut fs.store, plan.to, Purpose::Data)?;
                    fs.move_run(run, Some(plan.to))
                }
                Some(chunk) => fs.move_run(run, Some(chunk)),
            })?);
        }
        Ok(())
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
