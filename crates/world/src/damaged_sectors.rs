//! Sectors whose contents differ from what was last written there.
//!
//! A lost write, a misdirected write (at its target and at its actual location) and bit rot damage sectors.
//! The mark follows the bytes to all their copies, through buffers to other devices; a later write removes
//! it. So for every sector that a client reads, the test knows whether it is affected by damage that the
//! engine cannot detect without checksums.

use std::collections::BTreeSet;
use std::ops::Range;
use weir_model::SECTOR;

/// Damaged sectors, by number; almost always empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedSectors(BTreeSet<u64>);

impl DamagedSectors {
    /// Returns the first `sectors` sectors.
    #[must_use]
    pub fn first(sectors: u64) -> Self {
        Self((0..sectors).collect())
    }

    /// Returns the sectors of a client's data that are marked with this byte.
    pub(crate) fn marked(data: &[u8], mark: u8) -> Self {
        let sectors = data.chunks_exact(SECTOR as usize).zip(0..);
        Self(sectors.filter(|(sector, _)| sector.iter().all(|byte| *byte == mark)).map(|(_, n)| n).collect())
    }

    /// Reports whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of sectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether this sector is damaged.
    #[must_use]
    pub fn contains(&self, sector: u64) -> bool {
        self.0.contains(&sector)
    }

    /// Reports whether any of these sectors is damaged.
    #[must_use]
    pub fn touches(&self, sectors: Range<u64>) -> bool {
        !sectors.is_empty() && self.0.range(sectors).next().is_some()
    }

    /// Returns the damaged sectors of a range, counted from its start.
    #[must_use]
    pub fn part(&self, sectors: Range<u64>) -> Self {
        if self.is_empty() || sectors.is_empty() {
            return Self::default();
        }
        Self(self.0.range(sectors.clone()).map(|sector| sector - sectors.start).collect())
    }

    /// Replaces a range by other contents, whose damaged sectors are counted from its start.
    pub fn put(&mut self, sectors: Range<u64>, with: &Self) {
        if self.touches(sectors.clone()) {
            self.0.retain(|sector| !sectors.contains(sector));
        }
        self.0.extend(with.0.iter().map(|sector| sector + sectors.start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_range_takes_new_marks() {
        let mut side = DamagedSectors::default();
        side.put(10..14, &DamagedSectors::first(4));
        side.put(11..13, &DamagedSectors::default());
        assert!(side.contains(10) && !side.touches(11..13) && side.touches(11..14));
        let part = side.part(12..20);
        assert_eq!((part.len(), part.contains(1)), (1, true));
        side.put(20..28, &part);
        assert!(side.contains(21));
        assert!(side.part(5..10).is_empty());
    }
}
