//! What the engine does by itself while clients use the pool.

pub(crate) mod consolidate;
pub(crate) mod probe;
pub(crate) mod reclaim;
pub(crate) mod resync;
pub(crate) mod survey;
pub(crate) mod unreachable;

use consolidate::Consolidation;
use probe::Probing;
use resync::Resync;
use survey::Surveys;
use unreachable::Unreachable;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub(crate) consolidation: Consolidation,
    pub(crate) probing: Probing,
    pub(crate) resync: Resync,
    pub(crate) surveys: Surveys,
    pub(crate) unreachable: Unreachable,
}
