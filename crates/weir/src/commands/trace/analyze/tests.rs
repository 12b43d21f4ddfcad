//! Tests that an analysis fits the terminal.

use super::{analyze, human};
use crate::output::testing::{TRACE_FORMAT, assert_fits, write_trace};
use clap::Parser as _;

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    args: super::super::args::AnalyzeArgs,
}

#[test]
fn a_trace_fits_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write_trace(folder.path());
    let words = ["analyze", &path, "--format", TRACE_FORMAT];
    let analyzed = analyze(&Words::parse_from(words).args).expect("an analysis");
    assert_fits(|width| human(&analyzed, width));
}
