//! How an engine does its work, as far as whoever starts it may choose.

use crate::durability::commit::FlushRules;
use crate::mover::MOVER_SHARE;
use crate::space::SpaceRules;
use crate::units::Percent;
use weir_model::{Bytes, Seed};
use weir_policy::harm::Moves;

/// What an engine is told once, when it starts. The default is what a pool file asks for that says nothing of
/// it, but for [`SpaceRules::extra`] and [`SpaceRules::quiet`].
#[derive(Clone, Debug)]
pub struct Options {
    /// How the pool deals with running out of space.
    pub space: SpaceRules,
    /// What moves take of each device's time, at most, while clients use it. All of it: they are not paced.
    pub mover_share: Percent,
    /// The most memory that the extent cache keeps extents in, taken from the buffer memory as it goes; none:
    /// it is off.
    pub extent_cache: Bytes,
    /// Whether policies' moves are judged, and by which rules.
    pub moves: Moves,
    /// How devices are flushed that no client asks to be.
    pub flushes: FlushRules,
    /// What policies draw at random comes from this seed.
    pub seed: Seed,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            space: SpaceRules::default(),
            mover_share: MOVER_SHARE,
            extent_cache: Bytes(0),
            moves: Moves::default(),
            flushes: FlushRules::default(),
            seed: Seed(0),
        }
    }
}
