//! Implements the commands: each has a module with its arguments, its work and its output.

pub mod advise;
pub mod demo;
pub mod explain;
pub mod fs;
pub mod generate;
pub mod help;
pub mod pool;
pub mod repro;
pub mod schemas;
pub mod serve;
pub mod sim;
pub mod trace;
pub mod volume;

use crate::args::Common;
use crate::output::{self, Width};
use serde::Serialize;

/// Prints `document` with `--json`; otherwise prints the text that `human` returns for the terminal's width.
fn show(common: &Common, document: &impl Serialize, human: impl FnOnce(Width) -> String) {
    let width = common.width();
    output::print(common.json, document, || width.fold(&human(width)));
}
