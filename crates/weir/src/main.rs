//! weir: the program. This file is its table of contents.

use clap::Parser as _;
use serde_json::json;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use weir::args::{Cli, Command, Common, PoolCommand, SimCommand, TraceCommand, VolumeCommand};
use weir::failure::Failure;
use weir::status::{Status, VolumePart, volumes_table};
use weir::{advise, demo, explain, output, pool, repro, serving, sim, traces};

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| refuse_command_line(&error));
    log_to_stderr();
    match run(cli.command, &cli.common) {
        Ok(code) => code,
        Err(failure) => {
            if cli.common.json {
                output::print(true, &failure.to_json(), String::new);
            }
            eprintln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
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
            output::print(common.json, &outcome.to_json(), || outcome.human());
            return Ok(outcome.exit_code().into());
        }
        Command::Pool(PoolCommand::Dump { file }) => {
            let done = pool::dump::dump(pool_file, &file)?;
            output::print(common.json, &done.to_json(), || done.human());
        }
        Command::Pool(PoolCommand::Restore { file, accept_rollback }) => {
            let done = pool::dump::restore(pool_file, &file, accept_rollback)?;
            output::print(common.json, &done.to_json(), || done.human());
        }
        Command::Volume(VolumeCommand::Create { name, size, hardening, copies }) => {
            show_volumes(common, &pool::create_volume(pool_file, &name, size, hardening, copies)?);
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
            output::print(common.json, &told, || explain::human(&told));
        }
        Command::Serve(args) => serving::serve(pool_file, &args, |ready| {
            output::print(common.json, &ready.to_json(), || ready.human());
        })?,
        Command::Demo(args) => {
            let report = demo::run(&args)?;
            output::print(common.json, &report.to_json(), || report.human());
        }
        Command::Sim(SimCommand::Place(args)) => {
            let comparison = sim::run(pool_file, &args)?;
            output::print(common.json, &comparison.to_json(), || comparison.human());
        }
        Command::Sim(SimCommand::Cache(args)) => {
            let comparison = sim::cache::run(&args)?;
            output::print(common.json, &comparison.to_json(), || comparison.human());
        }
        Command::Trace(TraceCommand::Convert(args)) => {
            let converted = traces::convert(&args)?;
            if args.output.as_os_str() == traces::STANDARD {
                eprint!("{}", converted.human());
            } else {
                output::print(common.json, &converted, || converted.human());
            }
        }
        Command::Trace(TraceCommand::Generate(args)) => {
            let generated = traces::generate(&args)?;
            if args.out.as_os_str() == traces::STANDARD {
                eprint!("{}", generated.human());
            } else {
                output::print(common.json, &generated, || generated.human());
            }
        }
        Command::Trace(TraceCommand::Record(args)) => {
            let recorded = traces::record(pool_file, &args)?;
            if args.out.as_os_str() == traces::STANDARD {
                eprint!("{}", recorded.human());
            } else {
                output::print(common.json, &recorded, || recorded.human());
            }
        }
        Command::Trace(TraceCommand::Analyze(args)) => {
            let analyzed = traces::analyze(&args)?;
            output::print(common.json, &analyzed, || traces::human(&analyzed));
        }
        Command::Trace(TraceCommand::Plot(args)) => {
            let drawn = traces::plot(&args)?;
            output::print(common.json, &drawn, || format!("{} is drawn", args.out.display()));
        }
        Command::Trace(TraceCommand::Formats) => {
            let formats = traces::formats();
            output::print(common.json, &json!({ "formats": formats }), || traces::list(&formats));
        }
        Command::Advise(args) => match &args.trace {
            Some(trace) => {
                let advice = advise::run(trace, &args)?;
                output::print(common.json, &advice.to_json(), || advice.human());
            }
            None => output::print_text(advise::SHIPPED),
        },
        Command::Repro(args) => match &args.name {
            None => repro::list(common.json),
            Some(name) => {
                let report = repro::run(name, &args)?;
                output::print(common.json, &report.to_json(), || report.human());
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}

fn show_status(common: &Common, status: &Status) {
    output::print(common.json, status, || status.human());
    for warning in status.warnings() {
        eprintln!("warning: {warning}");
    }
}

fn show_volumes(common: &Common, volumes: &[VolumePart]) {
    output::print(common.json, &json!({ "volumes": volumes }), || volumes_table(volumes));
}

/// Ends with what is wrong with the command line, or with the help that was asked for.
fn refuse_command_line(error: &clap::Error) -> ! {
    if error.use_stderr() && std::env::args().any(|argument| argument == "--json") {
        let failure = Failure::usage(error.render().to_string(), "");
        output::print(true, &failure.to_json(), String::new);
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if error.use_stderr() && words.windows(2).any(|pair| pair == ["pool", "check"]) {
        let _ = error.print();
        std::process::exit(pool::check::exit::USAGE.into());
    }
    error.exit()
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
        .init();
}
