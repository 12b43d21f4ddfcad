//! The entry point of weir. `cli.rs` lists the commands.

use clap::Parser as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use weir::cli::{Cli, parse_failure, suggest_commands};
use weir::commands::fs::helper;
use weir::{exit, output, signals};
use weir_model::ErrorKind;

fn main() -> ExitCode {
    if helper::is_helper(std::env::args_os().next().as_ref()) {
        log_to_stderr();
        return helper::run(std::env::args_os().skip(1)).into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return answer_command_line(&error),
    };
    log_to_stderr();
    if let Err(failure) = signals::survive_file_size_limit() {
        tracing::warn!("{}", failure.message);
    }
    let lost_output = cli.command.lost_output_exit_code();
    let code = cli.command.run(&cli.common).unwrap_or_else(|failure| {
        if cli.common.json {
            output::print(true, &failure.document(), String::new);
        }
        output::print_stderr(&failure.to_string());
        failure.exit_code()
    });
    finish(code, lost_output)
}

/// Ends with this code, or with `lost_output` if the code means success but some of the output was lost.
fn finish(code: u8, lost_output: u8) -> ExitCode {
    let Err(failure) = output::finish() else { return code.into() };
    output::print_stderr(&failure.to_string());
    if code <= exit::check::REPAIRED { lost_output.into() } else { code.into() }
}

/// Prints the error in the command line, or the help that the user asked for.
fn answer_command_line(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        output::record_result(error.print().and_then(|()| std::io::stdout().flush()));
        return finish(exit::SUCCESS, ErrorKind::Environment.exit_code());
    }
    let instead = suggest_commands(error);
    if std::env::args().any(|argument| argument == "--json") {
        output::print(true, &parse_failure(error).document(), String::new);
    }
    let text = error.render().to_string();
    if output::Width::of_stderr().fits(&text) {
        // `print` writes in colour. If it fails, there is nowhere to report that.
        let _ = error.print();
    } else {
        output::print_stderr(&text);
    }
    if let Some(instead) = instead {
        output::print_stderr(&format!("\n help: {instead}"));
    }
    let words = command_words(std::env::args().skip(1));
    let is_check =
        matches!(words.as_slice(), [of, check] if check == "check" && (of == "pool" || of == "fs"));
    let code = if is_check { exit::check::USAGE } else { ErrorKind::Usage.exit_code() };
    finish(code, code)
}

/// Returns the first two words of a command line, without options and the name of the pool file.
fn command_words(mut arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut words = Vec::new();
    while let (Some(argument), 0..2) = (arguments.next(), words.len()) {
        match argument.as_str() {
            "--pool" => drop(arguments.next()),
            option if option.starts_with('-') => {}
            _ => words.push(argument),
        }
    }
    words
}

/// Sends logs to standard error; `RUST_LOG` sets the level.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,fuser=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // The subscriber would report its errors on standard error and panic if that fails; a full disk must
        // not end a server.
        .log_internal_errors(false)
        .init();
}
