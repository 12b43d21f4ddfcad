//! What people can ask of an engine: status, where a block is, what it is doing, and notices.

pub(crate) mod activity;
pub(crate) mod explain;
pub(crate) mod residence;
pub(crate) mod status;
