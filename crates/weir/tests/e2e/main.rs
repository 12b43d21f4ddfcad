//! weir as its users meet it: the real program, real clients, real kills.
//!
//! Each test makes its own pool in its own folder. A client program that is not installed is
//! named, and its test passes without having tested anything; `scripts/test` installs them all.

mod advise;
mod answers;
mod check;
mod clients;
mod copies;
mod create;
mod demo;
mod docs;
mod dump;
mod environment;
mod explain;
mod failing;
mod full;
mod harness;
mod hostile;
mod image;
mod kill;
mod libnbd;
mod metadata;
mod mirror;
mod moved;
mod nbd;
mod permissions;
mod record;
mod refusals;
mod schemas;
mod serving;
mod sim;
mod sim_cache;
mod sim_sweep;
mod space;
mod traces;
mod truncated;
