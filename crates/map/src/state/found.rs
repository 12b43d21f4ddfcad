//! The result of looking up an extent.

use crate::format::value::{Record, Value, Whole};
use std::borrow::Cow;

/// The visible state of an extent.
#[derive(Debug)]
pub enum Found<'a> {
    /// All zeros.
    Empty,
    /// One whole place, every block valid.
    Direct(Whole),
    /// A record; it may have places without valid blocks.
    Record(Cow<'a, Record>),
}

impl<'a> Found<'a> {
    /// Borrows a value.
    #[inline]
    pub(crate) fn of(value: &'a Value) -> Self {
        match value {
            Value::Empty => Found::Empty,
            Value::Direct(whole) => Found::Direct(*whole),
            Value::Record(record) => Found::Record(Cow::Borrowed(record)),
        }
    }
}

impl Found<'_> {
    /// Whether some place is valid for the block.
    pub fn holds(&self, block: u16) -> bool {
        match self {
            Found::Empty => false,
            Found::Direct(_) => true,
            Found::Record(record) => record.places.iter().any(|p| p.valid.contains(block)),
        }
    }
}
