//! The command line: its commands and their exit codes.

use crate::args::Common;
use crate::commands::{
    advise, demo, explain, fs, generate, help, pool, repro, schemas, serve, sim, trace, volume,
};
use crate::exit;
use crate::failure::Failure;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, Parser, Subcommand};
use weir_model::ErrorKind;

/// Pool devices of different speed and serve thin volumes from the pool over NBD.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 80)]
#[command(disable_help_subcommand = true, after_help = help::overview())]
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
    /// Create, inspect, check and repair pools
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Create, list, change and remove thin volumes
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Show where a block of a volume is, why, and what would move it
    Explain(explain::ExplainArgs),
    /// Serve the pool's volumes over NBD until SIGTERM or SIGINT
    Serve(serve::ServeArgs),
    /// Create, mount, check and inspect file systems over persistent memory
    #[command(subcommand)]
    Fs(fs::FsCommand),
    /// Run the same load on a disk, on a pool and on an SSD, modelled, and compare speed and price
    Demo(demo::DemoArgs),
    /// Simulate pools, caches, flash, logs and file systems under a load, in virtual time
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Record, analyze, plot, convert and generate I/O traces
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Recommend devices for a trace, by price, response time and flash life
    Advise(Box<advise::AdviseArgs>),
    /// Reproduce the published measurements of the policies, in virtual time
    Repro(repro::ReproArgs),
    /// Print help for a command, or a topic: loads, policies, traces
    Help(help::HelpArgs),
    /// Print a shell's completions on standard output
    #[command(hide = true)]
    GenerateCompletions(generate::CompletionsArgs),
    /// Write a man page for each command, and each topic of help, to a directory
    #[command(hide = true)]
    GenerateMan(generate::ManArgs),
    /// Write the JSON schemas of the documents that --json prints, a file each
    #[command(hide = true)]
    GenerateSchemas(schemas::SchemasArgs),
}

impl Command {
    /// Runs the command and returns its exit code.
    ///
    /// # Errors
    /// Returns the failure of the command.
    pub fn run(self, common: &Common) -> Result<u8, Failure> {
        match self {
            Self::Pool(command) => return pool::run(command, common),
            Self::Volume(command) => volume::run(command, common)?,
            Self::Explain(args) => explain::run(&args, common)?,
            Self::Serve(args) => serve::run(&args, common)?,
            Self::Fs(command) => return fs::run(command, common),
            Self::Demo(args) => demo::run(&args, common)?,
            Self::Sim(command) => sim::run(&command, common)?,
            Self::Trace(command) => trace::run(command, common)?,
            Self::Advise(args) => advise::run(&args, common)?,
            Self::Repro(args) => repro::run(&args, common)?,
            Self::Help(args) => help::run(&args.words, Cli::command())?,
            Self::GenerateCompletions(args) => generate::completions(&args, Cli::command()),
            Self::GenerateMan(args) => generate::man(&args, Cli::command())?,
            Self::GenerateSchemas(args) => schemas::run(&args)?,
        }
        Ok(exit::SUCCESS)
    }

    /// Returns the exit code of a command that succeeds but cannot write all of its output.
    pub const fn lost_output_exit_code(&self) -> u8 {
        match self {
            Self::Pool(pool::PoolCommand::Check { .. }) | Self::Fs(fs::FsCommand::Check { .. }) => {
                exit::check::OPERATIONAL
            }
            _ => ErrorKind::Environment.exit_code(),
        }
    }
}

/// Returns a hint for an unknown command that is a subcommand of other commands or a topic of help: `weir
/// pool status` for `weir status`, `weir help loads` for `weir loads`.
pub fn suggest_commands(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if word == "help" {
        return Some("write weir help COMMAND".to_owned());
    }
    let weir = Cli::command();
    let of = weir.get_subcommands().filter(|command| command.find_subcommand(word).is_some());
    let commands = of.map(|command| format!("weir {} {word}", command.get_name()));
    let topic = help::is_topic(word).then(|| format!("weir help {word}"));
    let commands: Vec<_> = commands.chain(topic).collect();
    (!commands.is_empty()).then(|| format!("there is {}", commands.join(" and ")))
}

/// Returns the failure for an invalid command line: clap's first paragraph is the message, and the way out is
/// [`suggest_commands`], or else clap's other paragraphs.
pub fn parse_failure(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let message = spell_out_range(message.trim());
    Failure::usage(message, suggest_commands(error).unwrap_or_else(|| rest.trim().to_owned()))
}

/// Replaces the range at the end of a message of clap, such as `3 is not in 1..=2`, by words.
fn spell_out_range(message: &str) -> String {
    let range = || {
        let (head, range) = message.rsplit_once(" is not in ")?;
        let (least, most) = range.split_once("..")?;
        let (least, most): (i128, _) = (least.parse().ok()?, most.trim_start_matches('='));
        let allowed = match most.parse::<i128>() {
            Ok(most) if most == least + 1 => format!("{least} or {most}"),
            // A type's greatest number says nothing.
            Ok(most) if most < i128::from(u32::MAX) => format!("a number from {least} to {most}"),
            _ => format!("a number from {least} up"),
        };
        Some(format!("{head} is not {allowed}"))
    };
    range().unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod page;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::size;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// The command line accepts every example in the help texts.
    #[test]
    fn examples_in_help_are_well_formed() {
        fn collect(command: &clap::Command, examples: &mut Vec<String>) {
            let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            examples.extend(notes.lines().filter_map(|line| line.strip_prefix("  weir ")).map(str::to_owned));
            command.get_subcommands().for_each(|command| collect(command, examples));
        }
        let mut examples = Vec::new();
        collect(&Cli::command(), &mut examples);
        assert!(examples.len() > 20, "{examples:?}");
        for example in examples {
            assert!(example.len() + "  weir ".len() <= help::WIDTH, "{example}: it would be folded");
            // A load of several words is quoted.
            let parts = example.split('"').enumerate();
            let words = parts.flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            });
            let parsed = Cli::try_parse_from(std::iter::once("weir".to_owned()).chain(words));
            assert!(parsed.is_ok(), "{example}: {}", parsed.expect_err("it is refused"));
        }
    }

    /// Each help text stands on its own: none continues the line above it.
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
    fn invalid_command_line_has_message_and_help() {
        let failure = |arguments: &[&str]| {
            parse_failure(&Cli::try_parse_from([&["weir"], arguments].concat()).expect_err("no command"))
        };
        let mistyped = failure(&["volume", "creat"]);
        assert_eq!(mistyped.message, "unrecognized subcommand 'creat'");
        assert!(mistyped.help.starts_with("tip: a similar subcommand exists: 'create'"), "{}", mistyped.help);
        assert_eq!(failure(&["status"]).help, "there is weir pool status and weir fs status");
        for (arguments, end) in [
            (["volume", "create", "x", "--size", "1G", "--copies", "3"].as_slice(), ": 3 is not 1 or 2"),
            (&["sim", "place", "zipf", "--windows", "0"], ": 0 is not a number from 1 to 10000"),
            (&["sim", "flash", "zipf", "--wear-gap", "0"], ": 0 is not a number from 1 up"),
            (&["advise", "x", "--requests", "1"], ": 1 is not a number from 2 up"),
        ] {
            let failure = failure(arguments);
            assert!(failure.message.ends_with(end), "{failure:?}");
        }
    }

    #[test]
    fn subcommand_of_another_command_is_suggested() {
        let found = |arguments: &[&str]| {
            let error = Cli::try_parse_from([&["weir"], arguments].concat()).expect_err("no command");
            suggest_commands(&error)
        };
        assert_eq!(found(&["status"]).as_deref(), Some("there is weir pool status and weir fs status"));
        let create = "there is weir pool create and weir volume create and weir fs create";
        assert_eq!(found(&["create"]).as_deref(), Some(create));
        assert_eq!(found(&["pool", "list"]).as_deref(), Some("there is weir volume list"));
        assert_eq!(found(&["loads"]).as_deref(), Some("there is weir help loads"));
        assert_eq!(found(&["pool", "help"]).as_deref(), Some("write weir help COMMAND"));
        assert_eq!((found(&["dance"]), found(&["pool"])), (None, None));
    }

    #[test]
    fn negative_sizes_are_rejected() {
        let arguments = ["weir", "volume", "create", "x", "--size", "-1G"];
        let error = Cli::try_parse_from(arguments).expect_err("no size").to_string();
        assert!(error.contains("write a size with its unit"), "{error}");
    }

    /// The size parser accepts every size that a help text or an error message suggests.
    #[test]
    fn every_size_in_help_can_be_parsed() {
        let mut command = Cli::command();
        let volume = command.find_subcommand_mut("volume").and_then(|it| it.find_subcommand_mut("create"));
        let help = volume.map(|it| it.render_long_help().to_string()).unwrap_or_default();
        let (help, _) = help.split_once("Examples:").unwrap_or((&help, ""));
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
