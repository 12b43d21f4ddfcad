//! What a trace is like fits the terminal.

use super::{analyze, human};
use crate::output::testing::assert_fits;
use clap::Parser as _;

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    args: super::super::args::AnalyzeArgs,
}

#[test]
fn a_trace_fits_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.csv");
    let line = |n: u64| {
        format!(
            "{},sda,{},{},8192\n",
            n * 1000,
            if n.is_multiple_of(3) { "W" } else { "R" },
            (n * n % 977) << 30
        )
    };
    std::fs::write(&path, (0..2000).map(line).collect::<String>()).expect("written");
    let path = path.to_str().expect("text");
    let words = ["analyze", path, "--format", "csv:time_us,disk,op,offset,size"];
    let analyzed = analyze(&Words::parse_from(words).args).expect("an analysis");
    assert_fits(|width| human(&analyzed, width));
}
