//! weir: the program. This file is its table of contents.

use clap::Parser as _;
use serde::Serialize;
use serde_json::json;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use weir::args::{Cli, Command, Common, PoolCommand, SimCommand, TraceCommand, VolumeCommand};
use weir::failure::Failure;
use weir::output::Width;
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
            output::tell(&failure.to_string());
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
            show(common, &outcome.to_json(), |width| outcome.human(width));
            return Ok(outcome.exit_code().into());
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
                eprint!("{}", converted.human());
            } else {
                show(common, &converted, |_| converted.human());
            }
        }
        Command::Trace(TraceCommand::Generate(args)) => {
            let generated = traces::generate(&args)?;
            if args.out.as_os_str() == traces::STANDARD {
                eprint!("{}", generated.human());
            } else {
                show(common, &generated, |_| generated.human());
            }
        }
        Command::Trace(TraceCommand::Record(args)) => {
            let recorded = traces::record(pool_file, &args)?;
            if args.out.as_os_str() == traces::STANDARD {
                eprint!("{}", recorded.human());
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
            show(common, &drawn, |_| format!("{} is drawn", args.out.display()));
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
    Ok(ExitCode::SUCCESS)
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
