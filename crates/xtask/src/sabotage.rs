//! `cargo xtask crash --sabotage`: whether deliberate faults are found, and how soon.

use crate::crash::{Args, history};
use comfy_table::{Table, presets};
use std::process::{Command, ExitCode};
use weir_world::{Sabotage, Seed};

/// Within how many seeds a deliberate fault must be found, unless --seeds says otherwise.
const SEEDS: u64 = 200;

/// Deliberate faults are not compiled in: builds what has them, and has it carry out this command.
pub(crate) fn build_and_run() -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build =
        ["run", "--quiet", "--profile", "crash", "--package", "xtask", "--features", "sabotage", "--"];
    match Command::new(cargo).args(build).args(std::env::args_os().skip(1)).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Switches a deliberate fault on, for this thread.
pub(crate) fn switch(to: Sabotage) {
    #[cfg(feature = "sabotage")]
    Sabotage::switch(Some(to));
    #[cfg(not(feature = "sabotage"))]
    let _no_such_thing_here = to;
}

/// Looks for each of these faults, and says which seed found it.
pub(crate) fn look_for(args: &Args, faults: &[(&str, Sabotage)]) -> ExitCode {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["deliberate fault", "seeds", "crashes", "seen as"]);
    let mut all_found = true;
    for (name, sabotage) in faults {
        switch(*sabotage);
        let (mut seeds, mut crashes, mut seen) = (0, 0, None);
        for seed in args.seeds.clone().unwrap_or(0..SEEDS) {
            let outcome = history(args, Seed(seed)).run();
            seeds += 1;
            crashes += outcome.statistics.crashes;
            seen = outcome.failure.map(|(failure, _)| failure.to_string());
            if seen.is_some() {
                break;
            }
        }
        all_found &= seen.is_some();
        let seen = seen.unwrap_or_else(|| "NOT FOUND".to_owned());
        println!("{name}: {seeds} seeds, {crashes} crashes: {seen}");
        table.add_row([(*name).to_owned(), seeds.to_string(), crashes.to_string(), seen]);
    }
    println!("\n{table}");
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
