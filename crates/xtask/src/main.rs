//! Development tools: `cargo xtask crash` and `cargo xtask mutants` (see `docs/internals/crash-testing.md`),
//! `cargo place` (see `docs/policies/comparison.md`), and `cargo xtask tidy`.
#![forbid(unsafe_code)]

mod build;
mod crash;
mod mix;
mod mutants;
#[cfg(feature = "place")]
mod place;
mod table;
mod tidy;

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
    /// Run the engine in the simulated world and crash it repeatedly
    Crash(crash::Args),
    /// Plant faults in map and engine, one at a time, and check which tests find them
    Mutants(mutants::Args),
    /// Run every placement policy on a fixed list of loads in virtual time
    #[cfg(feature = "place")]
    Place(place::Args),
    /// Check the code's structure: dependencies, cycles, lengths, widths
    Tidy(tidy::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.task {
        Task::Crash(args) if args.mutant.is_some() && !cfg!(feature = "mutants") => {
            build::run_as(&build::WITH_MUTANTS)
        }
        Task::Crash(args) if args.shipped && !build::IS_SHIPPED => build::run_as(&build::SHIPPED),
        Task::Crash(args) => crash::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        #[cfg(feature = "place")]
        Task::Place(args) => place::run(&args),
        Task::Tidy(args) => tidy::run(&args),
    }
}
