//! What developers run now and then: `cargo xtask crash` (see `docs/crash-testing.md`) and
//! `cargo place` (see `docs/placement.md`).
#![forbid(unsafe_code)]

mod crash;
mod place;
mod sabotage;
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
    /// Runs every placement policy on a fixed list of loads in virtual time
    Place(place::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.task {
        Task::Crash(args) if args.sabotage.is_some() && !cfg!(feature = "sabotage") => {
            sabotage::build_and_run()
        }
        Task::Crash(args) => crash::run(&args),
        Task::Place(args) => place::run(&args),
    }
}
