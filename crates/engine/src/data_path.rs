//! The middle layer: reads, writes and moves.

use crate::base::Base;
use crate::mover::Mover;
use crate::read::Reads;

/// The middle layer: the state of [`crate::read`] and [`crate::mover`]; [`mod@crate::write`] has no state of
/// its own. A read may carry a move's data, and a write may wait for a move; a move calls neither.
#[derive(Debug)]
pub(crate) struct DataPath {
    pub(crate) base: Base,
    pub(crate) mover: Mover,
    pub(crate) reads: Reads,
}
