//! Device commands in flight: their table, and how they are coalesced.

pub(crate) mod coalesce;
pub(crate) mod commands;
