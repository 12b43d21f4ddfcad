//! The places that extents have, without the blocks that are valid there. Policies ask for them far more
//! often than for blocks, of many extents in turn.

use super::Map;
use crate::format::value::{Value, Word};
use weir_model::{ExtentIndex, ExtentKey, PlaceId};

impl Value {
    fn has_blocks(&self, id: PlaceId) -> bool {
        match self {
            Self::Empty => false,
            Self::Direct(whole) => id == whole.id(),
            Self::Record(record) => record.has_blocks(id),
        }
    }
}

impl Map {
    /// Whether blocks of the extent are valid in that place. Cost: less than [`Self::find`] of a record with
    /// slots, which is in other cache lines.
    pub fn has_blocks(&self, key: ExtentKey, place: PlaceId) -> bool {
        if let Some(pending) = self.overlay.get(key) {
            return pending.current().has_blocks(place);
        }
        match self.durable_word(key) {
            Some(Word::Direct(whole)) => place == whole.id(),
            Some(Word::Record(id)) => self.records.has_blocks(id, place),
            _ => false,
        }
    }

    /// Returns which of these extents have blocks valid in that place: of the 64 extents from `first` on,
    /// those whose bits are set. Cost: the volume and each map page are found once, and the loads of records
    /// do not wait for each other.
    pub fn have_blocks(&self, first: ExtentKey, extents: u64, place: PlaceId) -> u64 {
        let Some(tree) = self.volume(first.volume).map(|volume| volume.tree) else { return 0 };
        let (mut found, mut pending) = (0, 0);
        for (index, values) in self.overlay.of_run(first, 64) {
            let nth = index.0 - first.index.0;
            pending |= 1 << nth;
            found |= u64::from(values.current().has_blocks(place)) << nth;
        }
        let (mut left, mut nth) = (extents & !pending, 0);
        found &= extents;
        while left != 0 {
            let words = self.pages.words(tree, ExtentIndex(first.index.0 + nth));
            let here = words.len().min(64 - nth as usize);
            for word in &words[..here] {
                let has_blocks = left & 1 != 0
                    && match Word::decode(*word) {
                        Some(Word::Direct(whole)) => place == whole.id(),
                        Some(Word::Record(id)) => self.records.has_blocks(id, place),
                        _ => false,
                    };
                found |= u64::from(has_blocks) << nth;
                (left, nth) = (left >> 1, nth + 1);
            }
        }
        found
    }

    /// Calls `visit` with each of the extent's places. Cost: as of [`Self::has_blocks`].
    pub fn visit_place_ids(&self, key: ExtentKey, visit: &mut dyn FnMut(PlaceId)) {
        match self.overlay.get(key).map(|pending| pending.current()) {
            Some(Value::Empty) => {}
            Some(Value::Direct(whole)) => visit(whole.id()),
            Some(Value::Record(record)) => record.places.iter().for_each(|place| visit(place.at.id())),
            None => match self.durable_word(key) {
                Some(Word::Direct(whole)) => visit(whole.id()),
                Some(Word::Record(id)) => self.records.visit_places(id, visit),
                _ => {}
            },
        }
    }
}
