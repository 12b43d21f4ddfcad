//! What the engine does by itself while clients use the pool.

pub(crate) mod consolidate;
pub(crate) mod fs_metadata;
pub(crate) mod probe;
pub(crate) mod resync;
pub(crate) mod unreachable;
