//! The visible record of an extent, for those who keep it while the map changes.

use super::Map;
use crate::format::value::{Record, Value};
use std::sync::Arc;
use weir_model::ExtentKey;

impl Map {
    /// Returns the visible record of an extent, shared: one of its only place if it has no record, `None` if
    /// it is empty. Cost: a look-up, and an allocation unless the record is stored decoded.
    pub fn shared_record(&self, key: ExtentKey) -> Option<Arc<Record>> {
        let value = match self.overlay.get(key) {
            Some(pending) => pending.current().clone(),
            None => self.durable_value(key).0,
        };
        match value {
            Value::Record(record) => Some(record),
            value => value.into_record(self.blocks).map(Arc::new),
        }
    }
}
