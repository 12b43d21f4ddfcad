//! Cleaning: victims are emptied and erased until an append point has a segment.

use super::{AddressMap, LogError, Port, Preference, Reclaim, Segment, SegmentState};
use super::{Content, Erase, Log, Valid};
use crate::config::Thresholds;

impl<M: AddressMap, R: Reclaim> Log<M, R> {
    /// Gives an append point a page to write, cleaning as needed.
    #[cold]
    #[inline(never)]
    pub(super) fn open(&mut self, point: usize, port: &mut impl Port) -> Result<(), LogError> {
        let Thresholds { start, stop } = self.config.thresholds;
        let (mut cleaning, mut cleaned) = (false, 0);
        // A victim gains at least a page, or the next one does: otherwise as many as this do not help.
        let most = u64::from(self.config.segments) * u64::from(2 + stop - start);
        loop {
            let free = self.free.len();
            if !cleaning && self.has_room(point) {
                return Ok(());
            }
            if !cleaning && free > start {
                return self.take_free(point, self.preference(point)).ok_or_else(|| self.stuck(cleaned));
            }
            // Segments being erased will do; without a free one, copies have no target.
            let will_do = free == 0 || free <= start && free + self.erasing > start;
            if self.erasing > 0 && will_do {
                return Err(LogError::Erasing { in_flight: self.erasing });
            }
            if cleaned == most {
                return Err(self.stuck(cleaned));
            }
            let mut excess = |segment| {
                let in_segment = self.segments.get(segment).valid;
                port.excess(segment, Valid { in_segment, in_log: self.valid })
            };
            let victim = self.policy.victim_of_owners(self.now, &mut excess);
            let victim = victim.ok_or_else(|| self.stuck(cleaned))?;
            let target = self.copy_point(victim);
            self.clean(victim, target, port).ok_or_else(|| self.stuck(cleaned))?;
            cleaned += 1;
            self.level_wear(port).ok_or_else(|| self.stuck(cleaned))?;
            cleaning = self.free.len() + self.erasing < stop;
        }
    }

    /// Empties a candidate into an append point and erases it. `None` if there was no free segment for
    /// copies.
    fn clean(&mut self, victim: Segment, target: usize, port: &mut impl Port) -> Option<()> {
        let info = *self.segments.get(victim);
        self.policy.removed(victim, info.valid);
        if self.config.wear.max_gap.is_some() {
            self.closed_by_wear.remove(&(info.erases, victim));
        }
        // Nothing of it is a candidate while its pages are copied.
        self.segments.get_mut(victim).state = SegmentState::Erasing;
        let valid = Valid { in_segment: info.valid, in_log: self.valid };
        port.cleans(victim, valid, self.valid_addresses(victim));
        for word in 0..self.segments.words() {
            let mut bits = self.segments.take_word(victim, word);
            self.assert_mapped(victim, word, bits);
            while bits != 0 {
                let page = word * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                self.keep_or_drop(victim, page, target, port)?;
            }
        }
        self.counters.erases += 1;
        let info = self.segments.get_mut(victim);
        info.valid = 0;
        info.erases += 1;
        let erases = info.erases;
        self.most_erases = self.most_erases.max(erases);
        self.erasing += 1;
        if port.erase(victim) == Erase::Done {
            self.erased(victim);
        }
        Some(())
    }

    /// Returns the addresses of a segment's valid pages, in the order of the segment.
    fn valid_addresses(&self, segment: Segment) -> impl Iterator<Item = u64> + '_ {
        let first = segment.0 as usize * self.data_pages as usize;
        self.segments.valid_pages(segment).map(move |page| M::load(self.addresses[first + page as usize]))
    }

    /// Asserts that the map has these pages where they are valid. Reading their entries together also makes
    /// the copies faster: their entries are in the cache then.
    ///
    /// # Panics
    /// Panics if map and valid pages contradict each other: a defect of the log.
    #[inline]
    fn assert_mapped(&self, victim: Segment, word: u32, mut bits: u64) {
        let first = victim.0 as usize * self.data_pages as usize;
        let mut is_mapped = true;
        while bits != 0 {
            let page = word * 64 + bits.trailing_zeros();
            bits &= bits - 1;
            let address = M::load(self.addresses[first + page as usize]);
            is_mapped &= self.map.get(address) == Some(self.segments.raw(victim, page));
        }
        assert!(is_mapped, "the map contradicts the valid pages of segment {}", victim.0);
    }

    #[inline]
    fn keep_or_drop(
        &mut self,
        victim: Segment,
        page: u32,
        target: usize,
        port: &mut impl Port,
    ) -> Option<()> {
        let at = victim.0 as usize * self.data_pages as usize + page as usize;
        let address = M::load(self.addresses[at]);
        if !port.keeps(address, self.valid) {
            self.map.remove(address);
            self.valid -= 1;
            self.counters.dropped += 1;
            return Some(());
        }
        if !self.has_room(target) {
            self.take_free(target, self.preference(target))?;
        }
        let raw = self.append(target, address);
        let from = self.segments.place(self.segments.raw(victim, page));
        port.program(self.segments.place(raw), Content::Copy { address, from });
        self.map.insert(address, raw);
        self.counters.copied += 1;
        self.end_program(target, port);
        Some(())
    }

    /// Moves what is in the least worn closed segment to the most worn free one, if they are too far apart.
    fn level_wear(&mut self, port: &mut impl Port) -> Option<()> {
        let Some(max_gap) = self.config.wear.max_gap else { return Some(()) };
        let Some(&(erases, segment)) = self.closed_by_wear.first() else { return Some(()) };
        if self.most_erases - erases <= max_gap || self.free.len() == 0 {
            return Some(());
        }
        // The last of `points` is for this alone.
        let target = self.points.len() - 1;
        self.take_free(target, Preference::MostWorn)?;
        let before = self.counters.copied;
        self.clean(segment, target, port)?;
        self.counters.levelled += self.counters.copied - before;
        if self.has_room(target) {
            self.close(target, port);
        }
        Some(())
    }

    pub(super) fn stuck(&self, cleaned: u64) -> LogError {
        LogError::Stuck {
            cleaned,
            valid: self.valid,
            pages: u64::from(self.config.segments) * u64::from(self.data_pages),
            free: self.free.len(),
            reserve: self.config.thresholds.start,
        }
    }
}
