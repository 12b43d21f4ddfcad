//! Generates files for an installation from the definition of the command line: shell completions and man
//! pages.

use super::help::{TOPICS, Topic, WIDTH};
use crate::failure::Failure;
use crate::output::{self, Width};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::PathBuf;

/// `weir generate-completions ...`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell whose completions are printed
    pub shell: Shell,
}

/// `weir generate-man ...`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory to write man1 and man7 to
    pub directory: PathBuf,
}

/// Prints the completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs, mut weir: Command) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut weir, "weir", &mut script);
    output::print_text(&String::from_utf8_lossy(&script));
}

/// Writes a man page for each command and topic.
///
/// # Errors
/// Fails if a file cannot be written.
pub(crate) fn man(args: &ManArgs, mut weir: Command) -> Result<(), Failure> {
    weir.build();
    let write = |section: char, name: &str, page: io::Result<Vec<u8>>| {
        let folder = args.directory.join(format!("man{section}"));
        let path = folder.join(format!("{name}.{section}"));
        let written = page.and_then(|page| {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(&path, page)
        });
        written.map_err(|error| Failure::os("write", &path, &error))
    };
    let mut left = vec![weir];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        write('1', name, command_page(&command))?;
    }
    TOPICS.iter().try_for_each(|topic| write('7', &format!("weir-{}", topic.name), topic_page(topic)))
}

/// Returns the man page of a command.
///
/// The notes below the options are added here, because clap_mangen would reflow their lines.
fn command_page(command: &Command) -> io::Result<Vec<u8>> {
    let page = Man::new(command.clone()).source(concat!("weir ", env!("CARGO_PKG_VERSION"))).manual("weir");
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        page.render_subcommands_section(&mut out)?;
    }
    if let Some(notes) = command.get_after_help() {
        verbatim("NOTES", &notes.to_string(), &mut out)?;
    }
    Ok(out)
}

/// Returns the man page of a topic, with the text that `weir help` prints.
fn topic_page(topic: &Topic) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut roff = Roff::new();
    roff.control(
        "TH",
        [&format!("weir-{}", topic.name), "7", "", concat!("weir ", env!("CARGO_PKG_VERSION")), "weir"],
    );
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("weir-{} - {}", topic.name, topic.about))]);
    roff.to_writer(&mut out)?;
    // `man` indents the text by seven columns.
    let width = Width::columns(WIDTH - 8);
    verbatim("DESCRIPTION", &width.fold(&(topic.text)(width)), &mut out)?;
    Ok(out)
}

/// Writes a section whose lines keep their breaks.
fn verbatim(heading: &str, text: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    roff.control("nf", []);
    text.lines().for_each(|line| {
        roff.text([roman(line)]);
    });
    roff.control("fi", []);
    roff.to_writer(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn every_command_and_topic_has_a_page_and_no_hidden_one_has() {
        let folder = tempfile::tempdir().expect("a folder");
        man(&ManArgs { directory: folder.path().to_owned() }, Cli::command()).expect("written");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
        for name in ["man1/weir.1", "man1/weir-pool-create.1", "man1/weir-help.1", "man7/weir-loads.7"] {
            assert!(read(name).is_ok(), "{name}");
        }
        let page = read("man1/weir-sim-place.1").expect("a page");
        for text in ["LOAD OPTIONS", "GLOBAL OPTIONS", "weir sim place day.weirtrace"] {
            assert!(page.contains(text), "{text} in\n{page}");
        }
        assert!(read("man1/weir-generate-man.1").is_err());
    }

    #[test]
    fn completions_know_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains("accept-rollback") && script.contains("analyze"), "{shell}");
        }
    }
}
