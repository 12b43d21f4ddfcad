//! Commands that need another build of this program: they build it and delegate to it.

use std::process::{Command, ExitCode};

/// A build: arguments of `cargo run` besides the profile `crash`, and settings of that profile.
pub(crate) struct Build {
    args: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
}

/// The build with all mutants: see `weir_model::mutant`. It has no assertions either, because a panic would
/// end a history before the oracle sees what is wrong.
pub(crate) const WITH_MUTANTS: Build =
    Build { args: &["--features", "mutants"], settings: WITHOUT_ASSERTIONS };

/// The build that users get. The profile `crash` without its assertions is `release`, but shares the external
/// crates with the build that has them.
pub(crate) const SHIPPED: Build = Build { args: &[], settings: WITHOUT_ASSERTIONS };

const WITHOUT_ASSERTIONS: &[(&str, &str)] =
    &[("CARGO_PROFILE_CRASH_DEBUG_ASSERTIONS", "false"), ("CARGO_PROFILE_CRASH_OVERFLOW_CHECKS", "false")];

/// Whether this is the build without debug assertions.
pub(crate) const IS_SHIPPED: bool = !cfg!(debug_assertions);

/// Rebuilds this program and runs this command line with it.
pub(crate) fn run_as(build: &Build) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["run", "--quiet", "--profile", "crash", "--package", "xtask"];
    let features: &[&str] = if cfg!(feature = "place") { &[] } else { &["--no-default-features"] };
    let args = args.iter().chain(features).chain(build.args).chain(&["--"]);
    let settings = build.settings.iter().copied();
    match Command::new(cargo).args(args).args(std::env::args_os().skip(1)).envs(settings).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}
