//! The journal and what is on its way there; checkpoints, which let go of it.

pub(crate) mod batch;
pub(crate) mod checkpoint;
pub mod delta;
pub mod journal;
