//! What developers run now and then: `cargo xtask crash`. See `docs/crash-testing.md`.
#![forbid(unsafe_code)]

mod crash;
mod table;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "What developers run now and then")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs the engine in the simulated world and crashes it again and again
    Crash(crash::Args),
}

fn main() -> ExitCode {
    match Args::parse().task {
        Task::Crash(args) => crash::run(&args),
    }
}
