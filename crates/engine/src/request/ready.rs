//! The queue of pieces that can continue.

use crate::ids::PieceId;
use std::collections::VecDeque;

/// Pieces that can continue, in order.
#[derive(Debug, Default)]
pub(crate) struct Ready(VecDeque<PieceId>);

impl Ready {
    /// Adds a piece.
    #[inline]
    pub(crate) fn push(&mut self, id: PieceId) {
        self.0.push_back(id);
    }

    /// Takes the next piece.
    pub(crate) fn pop(&mut self) -> Option<PieceId> {
        self.0.pop_front()
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
