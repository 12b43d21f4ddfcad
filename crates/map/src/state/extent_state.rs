//! The result of looking up an extent.

use crate::format::value::{Record, Value, Whole};
use std::borrow::Cow;

/// The visible state of an extent.
#[derive(Debug)]
pub enum ExtentState<'a> {
    /// All zeros.
    Empty,
    /// One whole place, every block valid.
    Direct(Whole),
    /// A record; it may have places without valid blocks.
    Record(Cow<'a, Record>),
}

impl<'a> ExtentState<'a> {
    /// Borrows a value.
    #[inline]
    pub(crate) fn of(value: &'a Value) -> Self {
        match value {
            Value::Empty => ExtentState::Empty,
            Value::Direct(whole) => ExtentState::Direct(*whole),
            Value::Record(record) => ExtentState::Record(Cow::Borrowed(record)),
        }
    }
}

impl ExtentState<'_> {
    /// Whether some place is valid for the block.
    pub fn has_block(&self, block: u16) -> bool {
        match self {
            ExtentState::Empty => false,
            ExtentState::Direct(_) => true,
            ExtentState::Record(record) => record.places.iter().any(|p| p.valid.contains(block)),
        }
    }
}
