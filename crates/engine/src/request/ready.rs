//! Pieces that can go on.

use crate::ids::PieceId;
use std::collections::VecDeque;

/// Pieces that got what they waited for, in the order in which they did.
#[derive(Debug, Default)]
pub(crate) struct Ready(VecDeque<PieceId>);

impl Ready {
    /// The piece can go on.
    #[inline]
    pub(crate) fn push(&mut self, id: PieceId) {
        self.0.push_back(id);
    }

    /// The next piece that can go on.
    pub(crate) fn pop(&mut self) -> Option<PieceId> {
        self.0.pop_front()
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
