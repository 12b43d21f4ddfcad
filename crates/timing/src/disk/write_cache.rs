//! Contents of a disk's write cache: runs of dirty sectors, merged where they are adjacent.

use super::geometry::Sector;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use weir_model::{Bytes, SECTOR};

/// Order of entry into the cache; later is larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(u64);

/// A dirty run; its first sector is its key in the cache.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    /// One past the last sector.
    end: Sector,
    /// Stamp of its oldest write.
    stamp: Stamp,
}

/// The cache. Space is taken when a write is admitted and released when its run is on the media.
#[derive(Debug)]
pub(super) struct DirtyRuns {
    sectors_max: u64,
    /// Maximum length of a merged run, in sectors.
    run_max: u64,
    runs_max: usize,
    /// Sectors in use, by cached runs and the run being written out.
    sectors: u64,
    runs: BTreeMap<Sector, Dirty>,
    /// Every run in `runs`, oldest first; entries whose stamp no longer matches are obsolete.
    order: VecDeque<(Stamp, Sector)>,
    /// The run being written to the media.
    writing: Option<(Stamp, u64)>,
    last: Stamp,
}

impl DirtyRuns {
    pub(super) fn new(size: Bytes, run_max: Bytes, runs_max: usize) -> Self {
        Self {
            sectors_max: size.0 / SECTOR,
            run_max: run_max.0 / SECTOR,
            runs_max: runs_max.max(1),
            sectors: 0,
            runs: BTreeMap::new(),
            order: VecDeque::new(),
            writing: None,
            last: Stamp(0),
        }
    }

    /// Reports whether a write of this length can be cached at all.
    pub(super) fn could_hold(&self, first: Sector, end: Sector) -> bool {
        end - first <= self.sectors_max
    }

    /// Adds a write, if there is room; returns whether there was.
    pub(super) fn admit(&mut self, first: Sector, end: Sector) -> bool {
        let room_for_a_run = self.runs.len() + usize::from(self.writing.is_some()) < self.runs_max;
        let before = self.runs.range_mut(..=first).next_back();
        let joins = before.filter(|(start, run)| {
            run.end >= first && (end.max(run.end) - **start <= self.run_max || **start == first)
        });
        let more = joins.as_ref().map_or(end - first, |(_, run)| end.saturating_sub(run.end));
        if self.sectors + more > self.sectors_max || joins.is_none() && !room_for_a_run {
            return false;
        }
        self.sectors += more;
        if let Some((_, run)) = joins {
            run.end = run.end.max(end);
        } else {
            self.last.0 += 1;
            self.runs.insert(first, Dirty { end, stamp: self.last });
            self.order.push_back((self.last, first));
        }
        true
    }

    /// Reports whether one run contains all of `first..end`.
    pub(super) fn holds(&self, first: Sector, end: Sector) -> bool {
        self.runs.range(..=first).next_back().is_some_and(|(_, run)| run.end >= end)
    }

    /// Returns runs near `at` by address: half of `window`, rounded up, on either side.
    pub(super) fn near(&self, at: Sector, window: usize) -> impl Iterator<Item = Range<Sector>> {
        let side = window.div_ceil(2);
        let above = self.runs.range(at..).take(side);
        let below = self.runs.range(..at).rev().take(side);
        above.chain(below).map(|(&start, run)| start..run.end)
    }

    /// Returns the run that has been in the cache longest.
    pub(super) fn oldest(&self) -> Option<Range<Sector>> {
        let (_, start) = self.order.front()?;
        self.runs.get(start).map(|run| *start..run.end)
    }

    /// Starts writing a run to the media. Only one can be in progress.
    pub(super) fn start(&mut self, first: Sector) {
        if let Some(run) = self.runs.remove(&first) {
            self.writing = Some((run.stamp, run.end - first));
            while let Some((stamp, first)) = self.order.front() {
                if self.runs.get(first).is_some_and(|run| run.stamp == *stamp) {
                    break;
                }
                self.order.pop_front();
            }
        }
    }

    /// Completes the run started last: it is on the media.
    pub(super) fn finish_write(&mut self) {
        if let Some((_, sectors)) = self.writing.take() {
            self.sectors -= sectors;
        }
    }

    /// Returns a stamp that covers every write admitted so far.
    pub(super) fn last(&self) -> Stamp {
        self.last
    }

    /// Reports whether everything up to `stamp` is on the media.
    pub(super) fn is_on_media(&self, stamp: Stamp) -> bool {
        let landing = self.writing.is_none_or(|(landing, _)| landing > stamp);
        landing && self.order.front().is_none_or(|(oldest, _)| *oldest > stamp)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.sectors * 2 > self.sectors_max || self.runs.len() * 2 > self.runs_max
    }
}

#[cfg(test)]
mod tests;
