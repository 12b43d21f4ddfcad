//! Device commands in flight: their table, and coalescing.

pub(crate) mod coalesce;
pub(crate) mod commands;
