//! The places that extents have, without the blocks that are valid there. Policies ask for them far more
//! often than for blocks, of many extents in turn.

use super::Map;
use crate::format::value::{Value, Word};
use weir_model::{ExtentKey, PlaceId};

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
