//! Device commands: started, coalesced, tried again, and handed to whoever began them when they end.

pub(crate) mod coalesce;
pub(crate) mod commands;
