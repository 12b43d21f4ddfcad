//! The command line: its commands, and how each ends.

use crate::args::Common;
use crate::commands::{advise, demo, explain, pool, repro, serve, sim, trace, volume};
use crate::exit;
use crate::failure::Failure;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, Parser, Subcommand};
use weir_model::ErrorKind;

/// Pool devices of different speed and serve thin volumes from the pool over NBD.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a pool of devices, or show one
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Make, list, change or remove thin volumes
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Show where a block of a volume is, since when and why, and what would make it move
    Explain(explain::ExplainArgs),
    /// Serve the pool's volumes until SIGTERM or SIGINT
    Serve(serve::ServeArgs),
    /// Run the same load on a disk, on a pool and on an SSD, modelled, and compare speed and price
    Demo(demo::DemoArgs),
    /// Simulate caches and pools over a trace, in virtual time
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Inspect, plot, convert and generate I/O traces
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Recommend devices to buy for a trace, by price, response time and flash life
    Advise(Box<advise::AdviseArgs>),
    /// Reproduce what the papers behind the policies measured, in virtual time; list them without a name
    Repro(repro::ReproArgs),
}

impl Command {
    /// Does what it says; the exit code.
    ///
    /// # Errors
    /// The command's.
    pub fn run(self, common: &Common) -> Result<u8, Failure> {
        match self {
            Self::Pool(command) => return pool::run(command, common),
            Self::Volume(command) => volume::run(command, common)?,
            Self::Explain(args) => explain::run(&args, common)?,
            Self::Serve(args) => serve::run(&args, common)?,
            Self::Demo(args) => demo::run(&args, common)?,
            Self::Sim(command) => sim::run(&command, common)?,
            Self::Trace(command) => trace::run(command, common)?,
            Self::Advise(args) => advise::run(&args, common)?,
            Self::Repro(args) => repro::run(&args, common)?,
        }
        Ok(exit::SUCCESS)
    }

    /// The exit code if it does what it was asked, but cannot write all of its output.
    pub const fn lost_output(&self) -> u8 {
        match self {
            Self::Pool(pool::PoolCommand::Check { .. }) => exit::check::OPERATIONAL,
            _ => ErrorKind::Environment.exit_code(),
        }
    }
}

/// The commands that a word is of that was taken for a command itself: `weir pool status` for `weir status`.
pub fn commands_of(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let weir = Cli::command();
    let of = weir.get_subcommands().filter(|command| command.find_subcommand(word).is_some());
    let commands: Vec<_> = of.map(|command| format!("weir {} {word}", command.get_name())).collect();
    (!commands.is_empty()).then(|| format!("there is {}", commands.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::size;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// Help stands on its own: none goes on from the line above it.
    #[test]
    fn no_help_begins_with_an_ellipsis() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(
                    !help.starts_with(['…', '.']),
                    "{} {}: {help}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn a_word_of_another_command_is_found_there() {
        let found = |arguments: &[&str]| {
            let error = Cli::try_parse_from([&["weir"], arguments].concat()).expect_err("no command");
            commands_of(&error)
        };
        assert_eq!(found(&["status"]).as_deref(), Some("there is weir pool status"));
        assert_eq!(found(&["create"]).as_deref(), Some("there is weir pool create and weir volume create"));
        assert_eq!(found(&["pool", "list"]).as_deref(), Some("there is weir volume list"));
        assert_eq!((found(&["dance"]), found(&["pool"])), (None, None));
    }

    #[test]
    fn a_negative_size_is_told_to_be_no_size() {
        let arguments = ["weir", "volume", "create", "x", "--size", "-1G"];
        let error = Cli::try_parse_from(arguments).expect_err("no size").to_string();
        assert!(error.contains("write a size with its unit"), "{error}");
    }

    /// Whatever help, a refusal or a message suggests as a size can be had.
    #[test]
    fn every_size_in_the_help_is_taken() {
        let mut command = Cli::command();
        let volume = command.find_subcommand_mut("volume").and_then(|it| it.find_subcommand_mut("create"));
        let help = volume.map(|it| it.render_long_help().to_string()).unwrap_or_default();
        let refusal = size("4XB").unwrap_err();
        let is_size = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('B');
        let text = format!("{help} {refusal}");
        let sizes: Vec<_> = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_size).collect();
        assert_eq!(sizes, ["100GiB", "2TB", "4GiB", "500GB", "64KiB"]);
        for text in sizes {
            assert!(size(text).is_ok(), "{text}");
        }
    }
}
