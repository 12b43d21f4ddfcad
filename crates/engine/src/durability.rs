//! What makes changes durable: group commits, checkpoints on both metadata members, write intents, and what a
//! failed flush leaves in doubt.

pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod doubt;
pub(crate) mod intents;
pub(crate) mod members;
