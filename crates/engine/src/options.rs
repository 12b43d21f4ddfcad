//! The engine's options.

use crate::durability::commit::FlushRules;
use crate::mover::MOVER_SHARE;
use crate::space::SpaceRules;
use crate::units::Percent;
use weir_model::{Bytes, Seed};
use weir_policy::harm::MoveControl;

/// The options of an engine, set once at its start. The defaults equal those of a pool file, except
/// [`SpaceRules::extra`] and [`SpaceRules::quiet`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The rules for a pool that runs out of space.
    pub space: SpaceRules,
    /// The maximum share of each device's time that moves take while clients use it. 100 %: moves are not
    /// paced.
    pub mover_share: Percent,
    /// The maximum memory of the extent cache, allocated from the buffer memory as needed. Zero turns the
    /// cache off.
    pub extent_cache: Bytes,
    /// Whether policies' moves are judged, and by which rules.
    pub moves: MoveControl,
    /// The rules for flushes that no client requests.
    pub flushes: FlushRules,
    /// The seed of the policies' random numbers.
    pub seed: Seed,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            space: SpaceRules::default(),
            mover_share: MOVER_SHARE,
            extent_cache: Bytes(0),
            moves: MoveControl::default(),
            flushes: FlushRules::default(),
            seed: Seed(0),
        }
    }
}
