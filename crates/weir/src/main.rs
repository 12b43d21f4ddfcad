//! weir: the program. This file is its table of contents.

use clap::Parser as _;
use serde::Serialize;
use serde_json::json;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use weir::args::{Cli, Command, Common, PoolCommand, SimCommand, TraceCommand, VolumeCommand};
use weir::failure::Failure;
use weir::output::Width;
use weir::status::{Status, VolumePart, volumes_table};
use weir::{advise, demo, exit, explain, output, pool, repro, serving, sim, traces};
use weir_model::ErrorKind;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return answer_command_line(&error),
    };
    log_to_stderr();
    let lost_output = exit::lost_output(&cli.command);
    let code = run(cli.command, &cli.common).unwrap_or_else(|failure| {
        if cli.common.json {
            output::print(true, &failure.to_json(), String::new);
        }
        output::tell(&failure.to_string());
        failure.exit_code()
    });
    finish(code, lost_output)
}

/// Ends with this code, or with another one if it means success and some of the output was lost.
fn finish(code: u8, lost_output: u8) -> ExitCode {
    let Err(failure) = output::finish() else { return code.into() };
    output::tell(&failure.to_string());
    if code <= exit::check::REPAIRED { lost_output.into() } else { code.into() }
}

fn run(command: Command, common: &Common) -> Result<u8, Failure> {
    let pool_file = &common.pool;
    match command {
        Command::Pool(PoolCommand::Create { file, force }) => {
            show_status(common, &pool::create(file.as_ref().unwrap_or(pool_file), force)?);
        }
        Command::Pool(PoolCommand::Status { accept, metrics: false }) => {
            show_status(common, &pool::status_accepting(pool_file, &accept)?);
        }
        Command::Pool(PoolCommand::Status { accept, metrics: true }) => {
            let status = pool::status_accepting(pool_file, &accept)?;
            output::print_text(&status.metrics());
        }
        Command::Pool(PoolCommand::Set { policy }) => {
            show_status(common, &pool::set_policy(pool_file, &policy)?);
        }
        Command::Pool(PoolCommand::Check { repair }) => {
            let outcome = pool::check::check(pool_file, repair)?;
            show(common, &outcome.to_json(), |width| outcome.human(width));
            return Ok(outcome.exit_code());
        }
        Command::Pool(PoolCommand::Dump { file }) => {
            let done = pool::dump::dump(pool_file, &file)?;
            show(common, &done.to_json(), |_| done.human());
        }
        Command::Pool(PoolCommand::Restore { file, accept_rollback }) => {
            let done = pool::dump::restore(pool_file, &file, accept_rollback)?;
            show(common, &done.to_json(), |_| done.human());
        }
        Command::Volume(VolumeCommand::Create { name, size, hardening, copies }) => {
            let volumes = pool::create_volume(pool_file, &name, size, hardening, copies)?;
            show(common, &json!({ "volumes": volumes }), |width| {
                let made = format!("volume {name} has {}", output::exact(size));
                format!("{made}\n\n{}", volumes_table(&volumes, width))
            });
        }
        Command::Volume(VolumeCommand::Set { name, hardening, policy }) => {
            show_volumes(common, &pool::set_volume(pool_file, &name, hardening, policy.as_deref())?);
        }
        Command::Volume(VolumeCommand::List) => show_volumes(common, &pool::status(pool_file)?.volumes),
        Command::Volume(VolumeCommand::Remove { name }) => {
            show_volumes(common, &pool::remove_volume(pool_file, &name)?);
        }
        Command::Explain { volume, offset } => {
            let told = pool::explain(pool_file, &volume, offset)?;
            show(common, &told, |width| explain::human(&told, width));
        }
        Command::Serve(args) => serving::serve(pool_file, &args, |ready| {
            show(common, &ready.to_json(), |_| ready.human());
        })?,
        Command::Demo(args) => {
            let report = demo::run(&args)?;
            show(common, &report.to_json(), |width| report.human(width));
        }
        Command::Sim(SimCommand::Place(args)) => {
            let comparison = sim::run(pool_file, &args)?;
            show(common, &comparison.to_json(), |width| comparison.human(width));
        }
        Command::Sim(SimCommand::Cache(args)) => {
            let comparison = sim::cache::run(&args)?;
            show(common, &comparison.to_json(), |width| comparison.human(width));
        }
        Command::Trace(TraceCommand::Convert(args)) => {
            let converted = traces::convert(&args)?;
            if args.output.as_os_str() == traces::STANDARD {
                output::tell(&converted.human());
            } else {
                show(common, &converted, |_| converted.human());
            }
        }
        Command::Trace(TraceCommand::Generate(args)) => {
            let generated = traces::generate(&args)?;
            if args.out.as_os_str() == traces::STANDARD {
                output::tell(&generated.human());
            } else {
                show(common, &generated, |_| generated.human());
            }
        }
        Command::Trace(TraceCommand::Record(args)) => {
            let recorded = traces::record(pool_file, &args)?;
            if args.out.as_os_str() == traces::STANDARD {
                output::tell(&recorded.human());
            } else {
                show(common, &recorded, |_| recorded.human());
            }
        }
        Command::Trace(TraceCommand::Analyze(args)) => {
            let analyzed = traces::analyze(&args)?;
            show(common, &analyzed, |width| traces::human(&analyzed, width));
        }
        Command::Trace(TraceCommand::Plot(args)) => {
            let drawn = traces::plot(&args)?;
            show(common, &drawn, |_| traces::drawn(&args, &drawn));
        }
        Command::Trace(TraceCommand::Formats) => {
            let formats = traces::formats();
            show(common, &json!({ "formats": formats }), |width| traces::list(&formats, width));
        }
        Command::Advise(args) => match &args.trace {
            Some(trace) => {
                let advice = advise::run(trace, &args)?;
                show(common, &advice.to_json(), |width| advice.human(width));
            }
            None => output::print_text(advise::SHIPPED),
        },
        Command::Repro(args) => match &args.name {
            None => {
                show(common, &repro::document(), repro::list);
            }
            Some(name) => {
                let report = repro::run(name, &args)?;
                show(common, &report.to_json(), |width| report.human(width));
            }
        },
    }
    Ok(exit::SUCCESS)
}

/// Prints `document` with `--json`, what `human` makes for the terminal's width otherwise.
fn show(common: &Common, document: &impl Serialize, human: impl FnOnce(Width) -> String) {
    let width = common.width();
    output::print(common.json, document, || width.fold(&human(width)));
}

fn show_status(common: &Common, status: &Status) {
    show(common, status, |width| status.human(width));
    for warning in status.warnings() {
        output::tell(&format!("warning: {warning}"));
    }
}

fn show_volumes(common: &Common, volumes: &[VolumePart]) {
    show(common, &json!({ "volumes": volumes }), |width| volumes_table(volumes, width));
}

/// Says what is wrong with the command line, or gives the help that was asked for.
fn answer_command_line(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        output::note(error.print().and_then(|()| std::io::stdout().flush()));
        return finish(exit::SUCCESS, ErrorKind::Environment.exit_code());
    }
    if std::env::args().any(|argument| argument == "--json") {
        let failure = Failure::usage(error.render().to_string(), "");
        output::print(true, &failure.to_json(), String::new);
    }
    // It tells on standard error; there is nowhere left to say that this failed.
    let _ = error.print();
    let words = command_words(std::env::args().skip(1));
    let is_check = words.iter().map(String::as_str).eq(["pool", "check"]);
    let code = if is_check { exit::check::USAGE } else { ErrorKind::Usage.exit_code() };
    finish(code, code)
}

/// The first two words of a command line that are neither options nor the pool file's name.
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

/// Logs go to standard error; `RUST_LOG` says how much.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // It would tell of them on standard error, and panic if that takes nothing: a full disk must not end a server.
        .log_internal_errors(false)
        .init();
}
