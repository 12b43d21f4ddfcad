//! What the engine does by itself while clients use the pool.

pub(crate) mod consolidate;
pub(crate) mod fs_metadata;
pub(crate) mod probe;
pub(crate) mod resync;
pub(crate) mod unreachable;

use consolidate::Consolidation;
use fs_metadata::Inference;
use probe::Probing;
use resync::Resync;
use unreachable::Unreachable;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub(crate) consolidation: Consolidation,
    pub(crate) inference: Inference,
    pub(crate) probing: Probing,
    pub(crate) resync: Resync,
    pub(crate) unreachable: Unreachable,
}
