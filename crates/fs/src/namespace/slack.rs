//! Slack: pages that files have beyond what they need, because they grew or took over a null file.
//!
//! A growing run gets up to twice its pages, so that it moves seldom. What of that is left once the file has
//! stopped growing is freed; when space runs short, that of every file is, at once. Which files have slack is
//! known in memory only: what a crash leaves is freed when the file grows or is truncated again.

use super::FileSystem;
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::nvm::Memory;
use rustc_hash::FxHashSet;

/// Files that one operation trims.
const TRIMMED_MAX: usize = 32;

/// Files that may have slack.
#[derive(Debug, Default)]
pub(super) struct Slack {
    /// They grew since [`FileSystem::age_slack`] was called last.
    growing: FxHashSet<Ino>,
    /// They did not.
    settled: FxHashSet<Ino>,
}

impl Slack {
    /// Notes that a file got pages ahead of need.
    pub(super) fn note(&mut self, ino: Ino) {
        self.settled.remove(&ino);
        self.growing.insert(ino);
    }

    /// Notes that a file keeps the pages that it has.
    pub(super) fn keep(&mut self, ino: Ino) {
        self.settled.remove(&ino);
        self.growing.remove(&ino);
    }

    /// Returns whether a file may have slack.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.growing.contains(&ino) || self.settled.contains(&ino)
    }

    /// Returns whether no file may have slack.
    pub(super) fn is_empty(&self) -> bool {
        self.growing.is_empty() && self.settled.is_empty()
    }
}

impl<M: Memory> FileSystem<M> {
    /// Returns whether files may have slack.
    pub fn has_slack(&self) -> bool {
        !self.slack.is_empty()
    }

    /// Begins an interval: files that grew before it have stopped growing, unless they grow in it, and
    /// [`trim`](Self::trim) trims them.
    pub fn age_slack(&mut self) {
        let growing = std::mem::take(&mut self.slack.growing);
        self.slack.settled.extend(growing);
    }

    /// Frees the slack of some of the files that have stopped growing; returns whether there may be more.
    ///
    /// # Errors
    /// Those of any change: `ReadOnly`, `Failed`, `Io`, `Damaged`.
    pub fn trim(&mut self) -> Result<bool> {
        let some: Vec<_> = self.slack.settled.iter().copied().take(TRIMMED_MAX).collect();
        if some.is_empty() {
            return Ok(false);
        }
        for ino in &some {
            self.slack.settled.remove(ino);
        }
        self.stage(|fs| some.iter().try_for_each(|ino| fs.trim_file(*ino)))?;
        Ok(!self.slack.settled.is_empty())
    }

    /// Frees the slack of all files.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn trim_all(&mut self) -> Result<()> {
        self.age_slack();
        while self.trim()? {}
        Ok(())
    }

    fn trim_file(&mut self, ino: Ino) -> Result<()> {
        let mut inode = match self.file(ino) {
            Ok(inode) => inode,
            // It was removed, and perhaps its number was used again.
            Err(Error::NotFound | Error::IsDirectory | Error::Invalid) => return Ok(()),
            Err(error) => return Err(error),
        };
        let before = inode.form;
        let size = inode.size;
        self.shorten_run(&mut inode, size)?;
        if inode.form != before {
            self.set_inode(ino, &inode);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
