//! Flush epochs: which of a device's completed writes are durable, and which a flush in flight covers.
//!
//! A write belongs to the epoch in which it completed. A flush ends the epoch when it begins, and covers
//! every write completed until then.

use crate::device::unflushed::{UNFLUSHED_MAX, UnflushedWrite};
use weir_map::{Epoch, Needs};
use weir_model::{DeviceId, Mutant, Nanos, Planted};

/// The number of unflushed-write records whose memory is kept for the next epoch. It is the usual maximum,
/// because reallocating the memory costs more than recording the writes.
const UNFLUSHED_CAPACITY: usize = UNFLUSHED_MAX;

/// The flush epochs of a device.
#[derive(Debug)]
pub(crate) struct Epochs {
    /// Whether completed writes need a flush to be durable.
    is_volatile: bool,
    /// The current epoch: writes that complete now belong to it.
    current: Epoch,
    /// Whether writes completed in this epoch.
    dirty: bool,
    /// The last epoch known to be durable.
    flushed: Option<Epoch>,
    /// The time at which the last flush began.
    flush_began: Nanos,
    /// The writes not known to be durable: `unflushed` of the current epoch, `flushing` of those that a flush
    /// in flight covers.
    unflushed: Vec<UnflushedWrite>,
    flushing: Vec<UnflushedWrite>,
    /// The last epoch that the flush in flight covers.
    flushing_epoch: Option<Epoch>,
    /// The number of times that completed writes were lost.
    loss_count: u32,
    /// The last generation whose commands prove nothing by succeeding: a flush has failed since.
    void_generation: Option<u64>,
    planted: Planted,
}

impl Epochs {
    /// Returns the epochs of a device that has completed nothing.
    pub(crate) fn new(is_volatile: bool, planted: Planted) -> Self {
        Self {
            is_volatile,
            current: Epoch(1),
            dirty: false,
            flushed: None,
            flush_began: Nanos(0),
            unflushed: Vec::new(),
            flushing: Vec::new(),
            flushing_epoch: None,
            loss_count: 0,
            void_generation: None,
            planted,
        }
    }

    /// Notes that a write completed. Returns the epoch that a map change referring to it must wait for.
    #[inline]
    pub(crate) fn write_completed(&mut self, id: DeviceId, fua: bool) -> Option<Needs> {
        if fua || !self.is_volatile {
            return None;
        }
        self.dirty = true;
        Some(Needs { device: id, epoch: self.current })
    }

    /// Returns the epoch to flush so that every completed write that counts is durable; `None` if all are.
    /// (Writes that a failed flush should have covered do not count any more.)
    pub(crate) fn needed_flush(&self, id: DeviceId) -> Option<Needs> {
        let epoch = match (self.dirty, self.flushing_epoch) {
            (true, _) => self.current,
            (false, Some(_)) if self.planted.is(Mutant::FlushInFlightOwesNothing) => return None,
            (false, Some(flushing)) => flushing,
            (false, None) => return None,
        };
        Some(Needs { device: id, epoch })
    }

    /// Whether some write of the current epoch is not durable.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Begins a flush: it covers the writes completed so far; later ones belong to the next epoch.
    pub(crate) fn begin_flush(&mut self, now: Nanos) -> Epoch {
        let covered = self.current;
        self.flush_began = now;
        if !self.planted.is(Mutant::EpochNotClosed) {
            self.current = Epoch(covered.0 + 1);
        }
        self.dirty = false;
        if self.flushing.is_empty() {
            std::mem::swap(&mut self.flushing, &mut self.unflushed);
        } else {
            self.flushing.append(&mut self.unflushed);
        }
        self.flushing_epoch = Some(covered);
        covered
    }

    /// Notes that a flush succeeded.
    pub(crate) fn flush_succeeded(&mut self, covered: Epoch) {
        self.flushed = self.flushed.max(Some(covered));
        self.flushing_epoch = self.flushing_epoch.filter(|e| *e > covered);
        self.flushing.clear();
        self.flushing.shrink_to(UNFLUSHED_CAPACITY);
        if !self.dirty {
            // Only durable writes are left; nothing remains in question for them to settle.
            self.unflushed.clear();
        }
    }

    /// Records a completed write that is not durable, or a durable one that settles an earlier one. Returns
    /// the number of records.
    #[inline]
    pub(crate) fn note_unflushed(&mut self, unflushed: UnflushedWrite) -> usize {
        self.unflushed.push(unflushed);
        self.unflushed.len()
    }

    /// Records a write that completed earlier, up to this epoch, and was not recorded then.
    pub(crate) fn note_earlier_write(&mut self, unflushed: UnflushedWrite, epoch: Epoch) {
        let is_covered = self.flushing_epoch.is_some_and(|flushing| epoch <= flushing);
        if is_covered { self.flushing.push(unflushed) } else { self.unflushed.push(unflushed) }
    }

    /// Whether some completed write is not known to be durable.
    #[cfg(test)]
    fn has_unflushed(&self) -> bool {
        !self.unflushed.is_empty() || !self.flushing.is_empty()
    }

    /// Whether so many writes are not durable that further requests must wait.
    pub(crate) fn must_throttle(&self) -> bool {
        self.unflushed.len() > 2 * UNFLUSHED_MAX
    }

    /// Whether a write or flush of this generation proves nothing by succeeding.
    #[inline]
    pub(crate) fn is_void(&self, generation: u64) -> bool {
        self.void_generation.is_some_and(|last| generation <= last)
    }

    /// Returns the time since the last flush began.
    pub(crate) fn time_since_flush(&self, now: Nanos) -> Nanos {
        now.since(self.flush_began)
    }

    /// Whether so many writes are not durable that a commit should begin.
    pub(crate) fn needs_commit(&self) -> bool {
        self.unflushed.len() > UNFLUSHED_MAX
    }

    /// Returns the last epoch known to be durable.
    pub(crate) fn flushed(&self) -> Option<Epoch> {
        self.flushed
    }

    /// Handles a failed flush. `last` is the latest generation with commands in flight (`u64::MAX`: none).
    /// Returns the writes that are not durable and never will be without being rewritten. Writes in flight
    /// prove nothing by completing.
    pub(crate) fn flush_failed(&mut self, last: u64) -> Vec<UnflushedWrite> {
        self.current = Epoch(self.current.0 + 1);
        self.dirty = false;
        self.flushing_epoch = None;
        self.loss_count += 1;
        self.void_generation = Some(last).filter(|g| *g != u64::MAX).or(self.void_generation);
        let mut all = std::mem::take(&mut self.flushing);
        if self.planted.is(Mutant::FlushingNotDoubted) {
            all.clear();
        }
        all.append(&mut self.unflushed);
        all
    }

    /// Returns the number of times that completed writes were lost.
    pub(crate) fn loss_count(&self) -> u32 {
        self.loss_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::unflushed::WriteEffect;
    use weir_model::{BlockRange, ExtentKey};

    #[test]
    fn flush_success_drops_writes_settled_meanwhile() {
        let mut epochs = Epochs::new(true, Planted::for_tests());
        let note = |wrote| UnflushedWrite {
            key: ExtentKey::default(),
            range: BlockRange { first: 0, count: 1 },
            effect: wrote,
        };
        epochs.write_completed(DeviceId(0), false);
        epochs.note_unflushed(note(WriteEffect::Volatile));
        let covered = epochs.begin_flush(Nanos(0));
        epochs.note_unflushed(note(WriteEffect::Durable));
        assert!(epochs.has_unflushed(), "the flush may fail");
        epochs.flush_succeeded(covered);
        assert!(!epochs.has_unflushed(), "no later flush would have anything to do");
    }

    #[test]
    fn flush_covers_earlier_completed_writes() {
        let mut epochs = Epochs::new(true, Planted::for_tests());
        let id = DeviceId(0);
        let before = epochs.write_completed(id, false).unwrap();
        let covered = epochs.begin_flush(Nanos(0));
        let during = epochs.write_completed(id, false).unwrap();
        epochs.flush_succeeded(covered);
        assert!(epochs.flushed() >= Some(before.epoch) && epochs.flushed() < Some(during.epoch));
        assert!(epochs.is_dirty());
        assert_eq!(epochs.write_completed(id, true), None);
    }

    #[test]
    fn writes_wait_at_twice_flush_threshold() {
        let mut epochs = Epochs::new(true, Planted::for_tests());
        let range = BlockRange { first: 0, count: 1 };
        let note = UnflushedWrite { key: ExtentKey::default(), range, effect: WriteEffect::Volatile };
        for _ in 0..2 * UNFLUSHED_MAX {
            epochs.note_unflushed(note);
        }
        assert!(!epochs.must_throttle());
        epochs.note_unflushed(note);
        assert!(epochs.must_throttle(), "their number is bounded");
        epochs.begin_flush(Nanos(0));
        assert!(!epochs.must_throttle(), "the next flush begins anew");
    }
}
