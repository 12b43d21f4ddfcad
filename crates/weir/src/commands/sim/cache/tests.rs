//! What caches came to fits the terminal.

use super::run;
use crate::output::Width;
use crate::output::testing::assert_fits;
use clap::Parser as _;

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    args: super::CacheArgs,
}

#[test]
fn caches_fit_the_terminal() {
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
    let words = ["cache", path, "--format", "csv:time_us,disk,op,offset,size"];
    let caches = run(&Words::parse_from(words).args).expect("caches");
    assert_fits(|width| caches.human(width));
    let text = caches.human(Width::columns(80));
    assert!(
        text.contains("POLICY") && text.contains(" HITS") && text.contains("\n(--wide also shows "),
        "{text}"
    );
}
