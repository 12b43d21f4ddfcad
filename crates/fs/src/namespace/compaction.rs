//! Compaction: makes scattered free pages consecutive. SCMFS leaves it to future work (section VI.B,
//! "defragmentation of virtual address space").
//!
//! When an allocation finds no run that is long enough, runs of files move from the emptiest chunks to one
//! that is kept free for that, until what was missed is there. What has become empty is kept free then.

use super::{FileSystem, Scan};
use crate::error::{Error, Result};
use crate::layout::chunk::Purpose;
use crate::layout::inode::{Form, Kind};
use crate::layout::{Chunk, Ino, PAGE_BYTES, Page};
use crate::nvm::Memory;
use rustc_hash::FxHashMap;

/// The data of a small file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    ino: Ino,
    first: Page,
    pub(super) pages: u32,
}

impl<M: Memory> FileSystem<M> {
    /// Moves runs together until there is what the last allocation missed, or nothing more is to be gained.
    /// Returns whether it is worth another attempt. All that is quarantined must have been committed before.
    pub(super) fn compact(&mut self) -> Result<bool> {
        let sources = self.space.sparse_chunks();
        if sources.is_empty() {
            return Ok(false);
        }
        let runs = self.runs_in(&sources);
        let (mut target, mut is_fixed) = (None, false);
        for source in sources {
            let runs = &runs[&source];
            let movable: u64 = runs.iter().map(|run| u64::from(run.pages)).sum();
            if movable != self.space.used_pages(source) {
                // Something in it is no data, or damaged: the next attempt leaves it out.
                self.space.fix(source);
                is_fixed = true;
                continue;
            }
            for run in runs {
                target = target.filter(|chunk| self.space.fits(*chunk, run.pages));
                if target.is_none() {
                    self.commit()?;
                    if self.space.has_missed() {
                        return Ok(true);
                    }
                    if !self.space.has_free_chunk() {
                        return Ok(is_fixed || self.space.note_compaction());
                    }
                }
                target = Some(self.stage(|fs| {
                    let chunk =
                        target.map_or_else(|| fs.space.divide_chunk(&mut fs.store, Purpose::Data), Ok)?;
                    fs.move_run(*run, chunk).map(|()| chunk)
                })?);
            }
        }
        self.commit()?;
        Ok(is_fixed || self.space.note_compaction())
    }

    /// Returns the runs of files, null files among them, in some chunks, by chunk.
    pub(super) fn runs_in(&self, chunks: &[Chunk]) -> FxHashMap<Chunk, Vec<Run>> {
        let mut runs: FxHashMap<_, _> = chunks.iter().map(|chunk| (*chunk, Vec::new())).collect();
        let mut scan = Scan::default();
        let mut look = |ino, form, kind| {
            if let (Form::Run { first, pages }, Some(Kind::File | Kind::Symlink) | None) = (form, kind)
                && let Some(found) = runs.get_mut(&self.geometry().chunk_of(first).0)
            {
                found.push(Run { ino, first, pages });
            }
        };
        while self.scan_with(&mut scan, |ino, inode| look(ino, inode.form, inode.kind())) {}
        runs
    }

    /// Returns whether a file still has this run.
    pub(super) fn has_run(&self, run: &Run) -> bool {
        let form = Form::Run { first: run.first, pages: run.pages };
        self.raw_inode(run.ino).is_ok_and(|inode| inode.form == form)
    }

    /// Moves a run to a chunk.
    pub(super) fn move_run(&mut self, run: Run, target: Chunk) -> Result<()> {
        let Run { ino, first, pages } = run;
        let mut inode = self.raw_inode(ino)?;
        if inode.form != (Form::Run { first, pages }) {
            return Err(Error::Damaged(format!("inode {} has changed while its data moved", ino.0)));
        }
        let to = self.space.take_pages_in(&mut self.store, target, pages)?;
        let len = inode.size.min(u64::from(pages) * PAGE_BYTES);
        self.copy_data(first.address(), to.address(), len)?;
        self.space.free_pages_at(&mut self.store, first, pages)?;
        inode.form = Form::Run { first: to, pages };
        self.set_inode(ino, &inode);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
