//! Commands that need another build of this program: they build it and delegate to it.

use std::process::{Command, ExitCode};

/// A build, as arguments of `cargo run`.
pub(crate) type Build = &'static [&'static str];

/// The build with all mutants: see `weir_model::mutant`.
pub(crate) const WITH_MUTANTS: Build = &["--profile", "crash", "--features", "mutants"];

/// The build that users get: without debug assertions.
pub(crate) const SHIPPED: Build = &["--profile", "release"];

/// Whether this is the build without debug assertions.
pub(crate) const IS_SHIPPED: bool = !cfg!(debug_assertions);

/// Rebuilds this program and runs this command line with it.
pub(crate) fn run_as(build: Build) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["run", "--quiet", "--package", "xtask"].iter().chain(build).chain(&["--"]);
    match Command::new(cargo).args(args).args(std::env::args_os().skip(1)).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}
