//! Tests that tables of results fit the terminal.

use super::run;
use crate::output::Width;
use crate::output::testing::{TRACE_FORMAT, assert_fits, write_trace};
use clap::Parser as _;

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    args: super::CacheArgs,
}

#[test]
fn caches_fit_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write_trace(folder.path());
    let words = ["cache", &path, "--format", TRACE_FORMAT];
    let caches = run(&Words::parse_from(words).args).expect("caches");
    assert_fits(|width| caches.human(width));
    let more = ["--size", "50%", "--flash", "--evict", "cache,gc", "--write-budget", "1GiB"];
    let on_flash = run(&Words::parse_from(words.iter().chain(&more)).args).expect("caches");
    assert_fits(|width| on_flash.human(width));
    let text = caches.human(Width::columns(80));
    assert!(
        text.contains("POLICY") && text.contains(" HITS") && text.contains("\n(--wide also shows "),
        "{text}"
    );
}
