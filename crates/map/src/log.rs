//! The journal and the frames for it; checkpoints, which free its space.

pub(crate) mod batch;
pub(crate) mod checkpoint;
pub mod delta;
pub mod journal;
