//! The commands in the documentation do what it shows them for: each is run, word for word.

use crate::harness::Pool;
use std::path::Path;
use std::process::Command;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The lines of the blocks of commands in a page.
fn commands(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("docs").join(page)).expect("a page");
    let (mut commands, mut block) = (Vec::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(matches!(language, "" | "sh")),
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => commands.push(line.to_owned()),
            (None, _) => {}
        }
    }
    commands
}

/// Two modelled drives.
const DEVICES: &str = "[pool]\nname = \"test\"\n\
    [[device]]\nname = \"fast\"\npath = \"fast.img\"\nsize = \"256MiB\"\npace = \"ssd-sata\"\n\
    [[device]]\nname = \"slow\"\npath = \"slow.img\"\nsize = \"2GiB\"\npace = \"hdd-7200\"\n";

/// A folder with the files that the pages name.
fn folder() -> Pool {
    let pool = Pool::from_text(DEVICES);
    let generate = |words: &str, format: &str, out: &str| {
        pool.run(["trace", "generate", words, "--format", format, "--out", out]);
    };
    generate("hotcold part=10% hits=90% reads=70% over=64MiB rate=30 for=600s", "weir", "day.weirtrace");
    generate(
        "zipf reads=70% over=16MiB rate=100 for=60s | scan over=16MiB rate=10 for=60s",
        "msr",
        "msr.csv",
    );
    let write = |name: &str, bytes: &[u8]| std::fs::write(pool.path(name), bytes).expect("written");
    let text = std::fs::read_to_string(pool.path("msr.csv")).expect("text");
    write("trace.csv.gz", text.replace(",weir,", ",src1,").as_bytes());
    std::fs::create_dir(pool.path("traces")).expect("a folder");
    std::fs::copy(pool.path("trace.csv.gz"), pool.path("traces/one.csv.gz")).expect("copied");
    write("log.csv", b"1000,sda,R,4096,8192\n2500,sda,W,0,4096\n");
    let sample = repository().join("crates/trace/tests/samples/blktrace.trace");
    write("recorded.blktrace.gz", &std::fs::read(sample).expect("a sample"));
    pool
}

/// Runs the commands of a page that begin with one of these, and says which others it has.
#[track_caller]
fn run(pool: &Pool, page: &str, kinds: &[&str]) {
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().expect("its folder");
    let path = format!("{}:{}", weir.display(), std::env::var("PATH").unwrap_or_default());
    let (wanted, others): (Vec<_>, Vec<_>) =
        commands(page).into_iter().partition(|command| kinds.iter().any(|kind| command.starts_with(kind)));
    others.iter().for_each(|command| println!("docs/{page}: not run: {command}"));
    assert!(!wanted.is_empty(), "docs/{page} has no command that begins with one of {kinds:?}");
    for command in wanted {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &command])
            .current_dir(pool.folder.path())
            .env("PATH", &path)
            .env_remove("WEIR_POOL");
        let output = shell.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docs/{page}: {command}\n{said}");
        assert!(
            !output.stdout.is_empty() || command.contains('>'),
            "docs/{page}: {command} says nothing\n{said}"
        );
    }
}

#[test]
fn of_advice() {
    let pool = folder();
    // It is to be written.
    std::fs::remove_file(pool.path("pool.toml")).expect("a pool file");
    run(&pool, "reference/advise.md", &["weir advise "]);
}

#[test]
fn of_analysis() {
    run(&folder(), "reference/trace-analysis.md", &["weir trace "]);
}

#[test]
fn of_caches() {
    run(&folder(), "reference/sim-cache.md", &["weir sim cache "]);
}

/// What is recorded needs someone who asks; `record` has tests of that.
#[test]
fn of_traces() {
    let pool = folder();
    let kinds = [
        "weir trace formats",
        "weir trace convert day.weirtrace",
        "weir trace convert recorded.blktrace.gz",
        "weir trace convert log.csv",
    ];
    run(&pool, "reference/traces.md", &kinds);
    run(&pool, "reference/loads.md", &["weir trace generate "]);
}

#[test]
fn of_placement_in_virtual_time() {
    run(&folder(), "reference/sim-place.md", &["weir sim place "]);
}
