//! The commands in the documentation work: the test runs every `sh` block of a page verbatim, in the order of
//! the page, in one shell. It names `sh norun REASON` and `sh guest` blocks; `bench/guest-docs` runs the
//! latter. `sh fuse` blocks run where this user can mount.

use crate::fs::can_mount;
use crate::harness::Pool;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn book() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).to_owned()
}

/// Returns the commands of the `sh` blocks of a page, and the info strings of the blocks that do not run
/// here.
fn commands(text: &str, can_mount: bool) -> (String, Vec<String>) {
    let (mut script, mut others, mut block) = (String::new(), Vec::new(), None);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(info), None) => {
                let runs = info == "sh" || info == "sh fuse" && can_mount;
                block = Some(runs);
                if info.starts_with("sh ") && !runs {
                    others.push(info.to_owned());
                }
            }
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => script += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    (script, others)
}

/// A pool file of two modelled drives.
const DEVICES: &str = "[pool]\nname = \"test\"\n\
    [[device]]\nname = \"fast\"\npath = \"fast.img\"\nsize = \"256MiB\"\npace = \"ssd-sata\"\n\
    [[device]]\nname = \"slow\"\npath = \"slow.img\"\nsize = \"2GiB\"\npace = \"hdd-7200\"\n";

/// Returns a folder with the files that the pages name: a pool file, traces, images.
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
    let sample = book().join("../crates/trace/tests/samples/blktrace.trace");
    write("recorded.blktrace.gz", &std::fs::read(sample).expect("a sample"));
    let image: Vec<u8> = (0..8_u32 << 18).flat_map(|word| (word / 1024).to_le_bytes()).collect();
    write("image.raw", &image);
    let qcow2 = ["convert", "-f", "raw", "-O", "qcow2", "image.raw", "image.qcow2"];
    match Command::new("qemu-img").args(qcow2).current_dir(pool.folder.path()).status() {
        Ok(status) => assert!(status.success(), "qemu-img makes an image"),
        Err(error) => println!("qemu-img: {error}: pages that need image.qcow2 will fail"),
    }
    pool
}

/// Runs the `sh` blocks of every page of a part of the documentation.
#[track_caller]
fn run(part: &str) {
    let mut pages: Vec<_> = std::fs::read_dir(book().join(part))
        .expect("a part of the book")
        .map(|entry| entry.expect("a page").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    let mut ran = 0;
    for page in pages {
        let name = format!("docs/{part}/{}", page.file_name().expect("a name").display());
        let (script, others) = commands(&std::fs::read_to_string(&page).expect("a page"), can_mount());
        others.iter().for_each(|info| println!("{name}: not run: {info}"));
        if !script.is_empty() {
            run_page(&name, &script);
            ran += 1;
        }
    }
    assert!(ran > 0, "docs/{part} has no commands to run");
}

/// Runs the commands of a page in a folder of their own, and kills the processes that they leave running.
#[track_caller]
fn run_page(name: &str, script: &str) {
    let pool = folder();
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().expect("its folder");
    let path = format!("{}:{}", weir.display(), std::env::var("PATH").unwrap_or_default());
    let log = pool.path("output.log");
    let output = std::fs::File::create(&log).expect("a log");
    let mut shell = Command::new("timeout")
        .args(["300", "sh", "-euxc", script])
        .current_dir(pool.folder.path())
        .env("PATH", &path)
        .env_remove("WEIR_POOL")
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("a log"))
        .stderr(output)
        .process_group(0)
        .spawn()
        .expect("a shell");
    let group = format!("-{}", shell.id());
    let status = shell.wait().expect("it ends");
    // A page may have started a server in the background.
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    assert!(status.success(), "{name} ends with {status}; its last command failed:\n{said}");
}

#[test]
fn commands_of_the_guide_succeed() {
    run("guide");
}

#[test]
fn commands_of_the_how_to_pages_succeed() {
    run("howto");
}

#[test]
fn commands_of_the_policy_pages_succeed() {
    run("policies");
}

#[test]
fn commands_of_the_reference_succeed() {
    run("reference");
}

#[test]
fn command_blocks_are_distinguished() {
    let page = "```sh\na\nb\n```\n```sh norun it takes hours\nc\n```\n```toml\nd\n```\n```sh\ne\n```\n\
                ```sh fuse\nf\n```\n";
    let (others, fuse) = ("sh norun it takes hours".to_owned(), "sh fuse".to_owned());
    assert_eq!(commands(page, true), ("a\nb\ne\nf\n".into(), vec![others.clone()]));
    assert_eq!(commands(page, false), ("a\nb\ne\n".into(), vec![others, fuse]));
}
