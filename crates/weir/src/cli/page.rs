//! Tests that the command pages under `docs/reference` match clap's definition of each command verbatim.

use super::Cli;
use clap::{Arg, Command, CommandFactory as _};
use std::path::Path;
use std::sync::LazyLock;

/// The pages of the reference. The test reads them at run time, so a correction of a page needs no build.
static PAGES: LazyLock<[String; 4]> = LazyLock::new(|| {
    ["commands.md", "commands-fs.md", "commands-sim.md", "commands-traces.md"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    })
});

#[test]
fn reference_pages_match_help() {
    let mut weir = Cli::command();
    weir.build();
    let options: Vec<_> = weir.get_arguments().filter(|option| option.is_global_set()).collect();
    let mut missing: Vec<_> = [table(&options)].into_iter().filter(|table| !is_in_pages(table)).collect();
    visit(&weir, &mut missing);
    assert!(missing.is_empty(), "these are not in the pages:\n\n{}", missing.join("\n"));
}

fn is_in_pages(text: &str) -> bool {
    PAGES.iter().any(|page| page.contains(text))
}

fn visit(command: &Command, missing: &mut Vec<String>) {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut is_group = false;
    for command in commands {
        is_group = true;
        visit(command, missing);
    }
    if !is_group {
        missing.extend(Some(section(command)).filter(|section| !is_in_pages(section)));
    }
}

/// Returns the section of a command: its heading, its description, its arguments and options.
fn section(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let is_own = |argument: &&Arg| {
        let is_help = argument.get_long().is_some_and(|long| ["help", "version"].contains(&long));
        !argument.is_global_set() && !argument.is_hide_set() && !is_help
    };
    let arguments: Vec<_> = command.get_arguments().filter(is_own).collect();
    let table = if arguments.is_empty() { String::new() } else { format!("\n{}", table(&arguments)) };
    format!("### `{name}`\n\n{about}.\n{table}")
}

fn table(arguments: &[&Arg]) -> String {
    let rows: String = arguments.iter().map(|argument| row(argument)).collect();
    format!("| | | default |\n|---|---|---|\n{rows}")
}

fn row(argument: &Arg) -> String {
    let value = match argument.get_value_names() {
        Some(names) if argument.get_action().takes_values() => names.join(" "),
        _ => String::new(),
    };
    let name = match argument.get_long() {
        Some(long) => format!("--{long} {value}"),
        None if argument.is_required_set() => value,
        None => format!("[{value}]"),
    };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (mut help, said) = match help.split_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    let names = argument.get_possible_values();
    if !names.is_empty() && argument.get_action().takes_values() {
        let names: Vec<_> = names.iter().map(|value| format!("`{}`", value.get_name())).collect();
        help += &format!(": {}", names.join(", "));
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let takes_value = argument.get_action().takes_values();
    let default = match defaults.join(",") {
        default if !default.is_empty() && takes_value => format!("`{default}`"),
        _ => said,
    };
    // An unescaped `|` would end the cell.
    let [name, help, default] = [name.trim_end(), &help, &default].map(|cell| cell.replace('|', "\\|"));
    format!("| `{name}` | {help} | {default} |\n")
}
