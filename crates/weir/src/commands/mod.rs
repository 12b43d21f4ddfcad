//! The commands: a folder each, with its arguments, what it does and what it says.

pub mod advise;
pub mod demo;
pub mod explain;
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

/// Prints `document` with `--json`, what `human` makes for the terminal's width otherwise.
fn show(common: &Common, document: &impl Serialize, human: impl FnOnce(Width) -> String) {
    let width = common.width();
    output::print(common.json, document, || width.fold(&human(width)));
}
