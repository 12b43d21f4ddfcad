//! Device commands: started, coalesced, tried again, and handed to whoever began them when they end.

mod coalesce;
pub(crate) mod commands;
pub(crate) mod completion;
pub(crate) mod retry;
