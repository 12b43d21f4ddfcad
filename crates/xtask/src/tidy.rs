//! `cargo xtask tidy`: checks of the code's structure that the compiler and clippy do not have.
//!
//! - [`book`]: the pages of `docs/`, their links and their blocks of commands.
//! - [`crates`](mod@crates): which crate may need which, from one table, of which `ARCHITECTURE.md` has a
//!   drawing.
//! - [`cycles`]: cyclic dependencies between modules of a crate.
//! - [`errors`]: error messages, and the pages that list them.
//! - [`layers`]: modules that depend on higher layers, where layers are defined.
//! - [`length`]: functions and files that are too long.
//! - [`rules`]: `docs/internals/invariants.md`, and references to it.
//! - [`text`]: lines that are too wide, and comments that begin in the middle of a sentence or refer to
//!   sources outside the repository.
//!
//! `tidy.toml` lists the current exceptions, each with its reason or number. That list can only get shorter:
//! an exception that is larger than necessary is a finding as well.

mod book;
mod crates;
mod cycles;
mod errors;
mod errors_index;
mod layers;
mod length;
mod modules;
mod rules;
mod source;
mod text;

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write generated text (the drawing in ARCHITECTURE.md) instead of comparing it
    #[arg(long)]
    write: bool,
}

/// A violation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: PathBuf,
    /// Line number, from 1; 0 stands for the whole file.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: impl Into<PathBuf>, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.what),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.what),
        }
    }
}

/// The exceptions of `tidy.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    /// By crate: number of modules in cycles.
    #[serde(default)]
    circles: BTreeMap<String, usize>,
    /// By crate, or module in one: the layers of its modules, from below.
    #[serde(default)]
    floors: layers::Layers,
    /// By crate: number of lines that are too wide.
    #[serde(default)]
    wide_lines: BTreeMap<String, usize>,
    /// By crate: number of comments that begin in the middle of a sentence.
    #[serde(default)]
    ellipses: BTreeMap<String, usize>,
    #[serde(default, rename = "file")]
    files: Vec<LongFile>,
    #[serde(default, rename = "function")]
    functions: Vec<LongFunction>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongFile {
    path: PathBuf,
    lines: usize,
    why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongFunction {
    path: PathBuf,
    name: String,
    lines: usize,
    why: String,
}

/// File with the exceptions.
const EXCEPTIONS: &str = "crates/xtask/tidy.toml";

/// Runs all checks; fails if there are findings.
pub(crate) fn run(args: &Args) -> ExitCode {
    match findings(&root(), args.write) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            findings.iter().for_each(|finding| eprintln!("{finding}"));
            eprintln!(
                "\n{} findings; what cannot be mended now goes into {EXCEPTIONS}, with its reason",
                findings.len()
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The work tree that contains the current folder, so that a hook checks the tree it runs in; else the one
/// that xtask was built from.
fn root() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let tree = here.ancestors().find(|folder| folder.join(EXCEPTIONS).is_file());
    tree.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), Path::to_owned)
}

fn findings(root: &Path, write: bool) -> Result<Vec<Finding>, String> {
    let text = source::read(&root.join(EXCEPTIONS))?;
    let exceptions: Exceptions = toml::from_str(&text).map_err(|error| format!("{EXCEPTIONS}: {error}"))?;
    let sources = source::all(root)?;
    let mut findings = crates::check(root, write)?;
    let needs = modules::dependencies(&sources);
    findings.extend(cycles::check(&needs, &exceptions));
    findings.extend(layers::check(&needs, &exceptions.floors));
    findings.extend(length::check(&sources, &exceptions));
    findings.extend(text::check(&sources, &exceptions));
    findings.extend(rules::check(root, &sources)?);
    findings.extend(errors::check(root, &sources)?);
    findings.extend(book::check(root)?);
    findings.sort();
    Ok(findings)
}

/// Compares numbers by crate with the allowed ones: both more and fewer are findings.
fn compare(what: &str, found: &BTreeMap<String, usize>, excepted: &BTreeMap<String, usize>) -> Vec<Finding> {
    let names: std::collections::BTreeSet<_> = found.keys().chain(excepted.keys()).collect();
    let of = |numbers: &BTreeMap<String, usize>, name: &String| numbers.get(name).copied().unwrap_or(0);
    let differing = names.into_iter().map(|name| (name, of(found, name), of(excepted, name)));
    differing
        .filter_map(|(name, found, excepted)| {
            let path = format!("crates/{name}");
            match found.cmp(&excepted) {
                std::cmp::Ordering::Greater => {
                    Some(Finding::new(path, 0, format!("{found} {what}, {excepted} are allowed for now")))
                }
                std::cmp::Ordering::Less => Some(Finding::new(
                    EXCEPTIONS,
                    0,
                    format!("{name} has {found} {what}, no longer {excepted}: lower it"),
                )),
                std::cmp::Ordering::Equal => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
