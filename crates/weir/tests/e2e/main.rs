//! Tests of weir as users run it: the real program, real clients, real kills.
//!
//! Each test creates its own pool in its own folder. If a client program is not installed, the test names it
//! and passes without testing anything; `scripts/test` installs all of them.

mod advise;
mod check;
mod clients;
mod copies;
mod create;
mod demo;
mod docs;
mod dump;
mod environment;
mod explain;
mod failing_devices;
mod fs;
mod fs_hung_tier;
mod fs_mount;
mod fs_mounted_tiers;
mod fs_programs;
mod fs_quota;
mod fs_tier_changes;
mod fs_tiers;
mod fs_unnamed;
mod full;
mod harness;
mod hostile_clients;
mod image;
mod kill;
mod libnbd;
mod metadata;
mod mirror;
mod moved_devices;
mod nbd;
mod output_errors;
mod permissions;
mod record;
mod rejected_commands;
mod schemas;
mod serving;
mod sim;
mod sim_cache;
mod sim_flash;
mod sim_fs;
mod sim_logs;
mod sim_sweep;
mod space;
mod traces;
mod truncated_devices;
