//! `weir sim cache --out` saves the results of many traces and caches as they are computed.

use crate::harness::Pool;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

/// Returns a folder with two different traces, `a.trace` and `b.trace`, of this number of requests.
fn folder(requests: u64) -> Pool {
    let pool = Pool::from_text("");
    for (name, step) in [("a.trace", 7_919), ("b.trace", 104_729)] {
        let mut text = String::new();
        for nth in 0..requests {
            let block = nth * nth % step % 997;
            let _ = writeln!(text, "{nth}.000 0 {} 4096 {}", block * 4096, nth % 3 / 2);
        }
        std::fs::write(pool.path(name), text).expect("written");
    }
    pool
}

const SWEEP: [&str; 11] = [
    "sim",
    "cache",
    "a.trace",
    "b.trace",
    "--policy",
    "lru,arc,lfu,s3fifo,slru,2q,clock",
    "--admission",
    "all,tinylfu",
    "--size",
    "1%,5%,20blk,1MiB",
    "--threads=1",
];
const RESULTS: usize = 2 * 7 * 2 * 4;

fn sweep_arguments() -> Vec<&'static str> {
    [&SWEEP[..], &["--out", "kept.jsonl"]].concat()
}

/// Returns the results without their CPU times.
fn without_cpu_times(told: &serde_json::Value) -> Vec<serde_json::Value> {
    let mut results = told["results"].as_array().expect("results").clone();
    for result in &mut results {
        result["cpu_seconds"].take();
    }
    results
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("text");
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn kept_results_are_reused() {
    let folder = folder(300);
    let file = folder.path("kept.jsonl");
    let plain = folder.json(&SWEEP);
    assert_eq!(plain["traces"].as_array().map(Vec::len), Some(2), "{plain}");
    let whole = folder.json(&sweep_arguments());
    assert_eq!(without_cpu_times(&whole), without_cpu_times(&plain));
    let all = lines(&file);
    assert_eq!(all.len(), RESULTS);

    // The whole line remains as it is, times included; the torn and the missing line are computed again.
    let torn = all[..RESULTS - 2].join("\n") + "\n" + &all[RESULTS - 2][..100];
    std::fs::write(&file, &torn).expect("written");
    let resumed = folder.json(&sweep_arguments());
    assert_eq!(without_cpu_times(&resumed), without_cpu_times(&plain));
    let again = lines(&file);
    assert_eq!((again.len(), &again[..RESULTS - 2]), (RESULTS, &all[..RESULTS - 2]));

    // Nothing is missing, so nothing is added, and the answer equals that of the file to the last digit.
    assert_eq!(folder.json(&sweep_arguments()), resumed);
    assert_eq!(lines(&file), again);

    // Another block size, another write mode, and another trace of the same name have other results.
    folder.json(&[&sweep_arguments()[..], &["--block-size", "8KiB"]].concat());
    folder.json(&[&sweep_arguments()[..], &["--write-mode", "around"]].concat());
    assert_eq!(lines(&file).len(), 3 * RESULTS);
    std::fs::copy(folder.path("a.trace"), folder.path("b.trace")).expect("copied");
    let same = folder.json(&sweep_arguments());
    assert_eq!(lines(&file).len(), 3 * RESULTS, "what the file holds counts, not its name");
    let (first, second) = (&same["results"][0], &same["results"][RESULTS / 2]);
    assert_eq!((&first["misses"], &second["trace"]), (&second["misses"], &"b.trace".into()));
}

#[test]
fn killed_run_is_resumed() {
    let folder = folder(20_000);
    let file = folder.path("kept.jsonl");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(sweep_arguments())
        .current_dir(folder.folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let begun =
        || std::fs::read(&file).is_ok_and(|bytes| bytes.iter().filter(|byte| **byte == b'\n').count() > 2);
    while !begun() && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("killed");
    child.wait().expect("a child");
    let text = std::fs::read_to_string(&file).expect("text");
    let whole: Vec<_> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    assert!(whole.len() > 2, "{text}");
    let resumed = folder.json(&sweep_arguments());
    let all = lines(&file);
    assert_eq!(all.len(), RESULTS);
    assert!(whole.iter().zip(&all).all(|(before, after)| before.trim_end() == after), "what was whole stays");
    assert_eq!(without_cpu_times(&resumed), without_cpu_times(&folder.json(&SWEEP)));
}

/// The file is as it may be after a power loss: a part was never written and reads as zeros.
#[test]
fn damaged_end_is_truncated_and_recomputed() {
    let folder = folder(300);
    let file = folder.path("kept.jsonl");
    let whole = folder.json(&sweep_arguments());
    let all = lines(&file);
    let mut bytes = std::fs::read(&file).expect("bytes");
    let second = all[0].len() + 1;
    bytes[second + 5..second + 300].fill(0);
    std::fs::write(&file, &bytes).expect("written");
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output =
        weir.args(sweep_arguments()).arg("--json").current_dir(folder.folder.path()).output().expect("ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("are taken off, 1 results are kept"), "{said}");
    crate::schemas::validate_as("sim cache", &output.stdout);
    let again = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((without_cpu_times(&again), lines(&file).len()), (without_cpu_times(&whole), RESULTS));
}

#[test]
fn other_files_are_not_overwritten() {
    let folder = folder(3);
    for (content, line) in [("my notes", 1), ("{\"a\":1}\nmore", 1), ("\n", 1), ("\0\0", 1), ("a\0", 1)] {
        std::fs::write(folder.path("kept.jsonl"), content).expect("written");
        let said = folder.refused(&sweep_arguments(), USAGE);
        assert!(said.contains(&format!("line {line} of kept.jsonl is no result")), "{said}");
        let after = std::fs::read_to_string(folder.path("kept.jsonl")).expect("text");
        assert_eq!(after, content);
    }
    let said = folder.refused(&["sim", "cache", "-", "--out", "new.jsonl"], USAGE);
    assert!(said.contains("standard input"), "{said}");
    let said = folder.refused(&["sim", "cache", "none", "--out", "new.jsonl"], USAGE);
    assert!(said.contains("no trace none"), "{said}");
}

#[test]
fn results_file_is_locked() {
    let folder = folder(3);
    let file = std::fs::File::create(folder.path("kept.jsonl")).expect("made");
    file.lock().expect("locked");
    let said = folder.refused(&sweep_arguments(), REFUSED);
    assert!(said.contains("another process adds results to kept.jsonl"), "{said}");
}

#[test]
fn results_file_must_be_a_regular_file() {
    let folder = folder(3);
    let said = folder.refused(&["sim", "cache", "a.trace", "--out", "/dev/full"], REFUSED);
    assert!(said.contains("/dev/full is not a regular file") && said.contains("name a file"), "{said}");
}
