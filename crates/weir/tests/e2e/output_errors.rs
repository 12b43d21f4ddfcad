//! Answers of weir in adverse conditions: lost output, devices that other processes hold, missing devices.

use crate::harness::{Pool, weir};
use std::fs::File;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const ENVIRONMENT: i32 = 5;
/// Exit code of `weir pool check` if the pool could not be checked or the report was lost.
const OPERATIONAL: i32 = 8;

/// Opens a file that is always full.
fn open_dev_full() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full")
}

/// Runs `weir` with this standard output.
fn run_into(stdout: impl Into<Stdio>, folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(folder)
        .args(arguments)
        .env_remove("WEIR_POOL")
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .output()
        .expect("weir starts")
}

/// Returns commands of every kind for an idle pool, with their exit codes if their output is lost.
fn commands(trace: &str) -> Vec<(Vec<&str>, i32)> {
    let mut all: Vec<(Vec<&str>, i32)> = [
        &["--help"][..],
        &["pool", "create", "--help"],
        &["--version"],
        &["pool", "status"],
        &["pool", "status", "--metrics"],
        &["volume", "list"],
        &["volume", "set", "disk", "--hardening", "write"],
        &["explain", "disk", "0"],
        &["trace", "formats"],
        &["trace", "analyze", trace],
        &["repro"],
        &["pool", "dump", "saved"],
    ]
    .into_iter()
    .map(|arguments| (arguments.to_vec(), ENVIRONMENT))
    .collect();
    all.push((vec!["pool", "check"], OPERATIONAL));
    all
}

#[test]
fn output_that_is_lost_fails_every_command() {
    let pool = Pool::small().create("disk", "64MiB");
    let trace = pool.path("trace.csv");
    let line = |n: u64| format!("12816637200305{n:04},hm,1,Read,{},4096,2000\n", n * 4096);
    std::fs::write(&trace, (0..50).map(line).collect::<String>()).expect("a trace");
    let trace = trace.display().to_string();
    for (arguments, code) in commands(&trace) {
        for json in [&[][..], &["--json"]] {
            let arguments = [&arguments[..], json].concat();
            if arguments.contains(&"--metrics") && !json.is_empty() {
                continue;
            }
            let _ = std::fs::remove_file(pool.path("saved"));
            let output = run_into(open_dev_full(), pool.folder.path(), &arguments);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
            assert!(
                said.contains("standard output") && said.contains("No space left"),
                "{arguments:?}: {said}"
            );
            // A reader that closes the pipe needs no more output; that is no failure.
            let _ = std::fs::remove_file(pool.path("saved"));
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            let output = run_into(writer, pool.folder.path(), &arguments);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{arguments:?} into a closed pipe: {said}");
            assert!(!said.contains("standard output") && !said.contains("panicked"), "{arguments:?}: {said}");
        }
    }
    // A command that fails keeps its exit code, even if standard error is full.
    let output = run_into(open_dev_full(), pool.folder.path(), &["--json", "volume", "remove", "dusk"]);
    assert_eq!(output.status.code(), Some(USAGE));
    let status = Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(pool.folder.path())
        .args(["volume", "remove", "dusk"])
        .stdin(Stdio::null())
        .stdout(open_dev_full())
        .stderr(open_dev_full())
        .status();
    assert_eq!(status.expect("weir starts").code(), Some(USAGE), "not a panic");
}

#[test]
fn server_continues_with_closed_output() {
    let pool = Pool::small().create("disk", "64MiB");
    let mut server = Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(pool.folder.path())
        .args(["serve", "--nbd", "unix:nbd.sock"])
        .env_remove("WEIR_POOL")
        .stdin(Stdio::null())
        .stdout(open_dev_full())
        .stderr(open_dev_full())
        .spawn()
        .expect("weir starts");
    // Commands wait for a server that is starting.
    while pool.json(&["pool", "status"])["pool"]["state"] != "served" {
        assert_eq!(server.try_wait().expect("its state"), None, "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let pid = i32::try_from(server.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is told to stop");
    assert_eq!(server.wait().expect("it ends").code(), Some(ENVIRONMENT));
}

/// Another process holds the device: one that is no server, one whose socket is left over, one that accepts
/// no more sessions.
#[test]
fn device_holder_is_named_with_advice() {
    let expected = [
        ("gone", ["there is no control socket", "--pool"]),
        ("deaf", ["nobody listens", "try again"]),
        ("silent", ["gives new sessions", "end sessions"]),
    ];
    // Each command waits for ten seconds, so they run in parallel.
    std::thread::scope(|scope| {
        for (state, words) in expected {
            scope.spawn(move || {
                let pool = Pool::small().create("disk", "64MiB");
                let device = File::options().write(true).open(pool.path("slow.img")).expect("the device");
                rustix::fs::flock(&device, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
                let control = pool.path("pool.control");
                let listener = (state != "gone").then(|| UnixListener::bind(&control).expect("a socket"));
                if let (Some(listener), "silent") = (listener, state) {
                    std::thread::spawn(move || listener.incoming().for_each(drop));
                }
                let output = weir(pool.folder.path(), ["pool", "status"]);
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(output.status.code(), Some(REFUSED), "{state}: {said}");
                let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
                let pid = format!("process {}", std::process::id());
                let path = pool.path("slow.img").display().to_string();
                for word in words.into_iter().chain([pid.as_str(), path.as_str()]) {
                    assert!(said.contains(word), "{state}: {word:?} is not in: {said}");
                }
            });
        }
    });
}

#[test]
fn new_file_named_twice_is_rejected() {
    for other in ["./new.img", "link.img", "sub/../new.img"] {
        let text = format!(
            "[pool]\nname = \"test\"\n\n[[device]]\nname = \"one\"\npath = \"new.img\"\nsize = \"64MiB\"\n\n\
             [[device]]\nname = \"two\"\npath = \"{other}\"\nsize = \"64MiB\"\n"
        );
        let pool = Pool::from_text(&text);
        std::fs::create_dir(pool.path("sub")).expect("a folder");
        std::os::unix::fs::symlink("new.img", pool.path("link.img")).expect("a link");
        let said = pool.refused(&["pool", "create"], USAGE);
        assert!(said.contains("same device"), "{other}: {said}");
        assert!(!pool.path("new.img").exists(), "nothing was made");
    }
}

#[test]
fn missing_device_is_named_with_path_role_and_advice() {
    let text = |metadata: [bool; 3]| {
        let device = |(name, metadata): (&str, bool)| {
            format!(
                "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"128MiB\"\nmetadata = {metadata}\n"
            )
        };
        let devices = ["one", "two", "three"].into_iter().zip(metadata).map(device);
        format!("[pool]\nname = \"test\"\n{}", devices.collect::<String>())
    };
    let cases = [
        ([true, false, false], ["it has the pool's only metadata", "found were device two", "bring it back"]),
        ([true, true, false], ["a copy of the pool's metadata", "bring it back", "--accept-rollback"]),
        ([false, true, true], ["does not exist", "bring it back", "--without one"]),
    ];
    for (metadata, words) in cases {
        let pool = Pool::from_text(&text(metadata)).create("disk", "64MiB");
        std::fs::rename(pool.path("one.img"), pool.path("away.img")).expect("it is taken away");
        let said = pool.refused(&["pool", "status"], REFUSED);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let device = format!("one ({})", pool.path("one.img").display());
        for word in words.into_iter().chain([device.as_str()]) {
            assert!(said.contains(word), "{metadata:?}: {word:?} is not in: {said}");
        }
    }
}

#[test]
fn a_picture_in_a_missing_folder_is_refused_before_the_work() {
    let pool = Pool::small();
    // Everything, as long as published, would take days.
    let said = pool.refused(&["repro", "all", "--full", "--plot", "missing/all.svg"], ENVIRONMENT);
    assert!(said.contains("missing") && said.contains("create a file in"), "{said}");
}

/// A run of hours must not end in vain because weir was built again meanwhile.
#[test]
fn reproductions_outlive_the_file_of_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("weir");
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &program).expect("a copy");
    let mut command = Command::new(&program);
    command.args(["repro", "wardrop", "--only", "netapp 2, ssd,", "--duration", "200ms", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    std::fs::remove_file(&program).expect("it is there");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn reproductions_that_are_stopped_say_how_to_continue() {
    let pool = Pool::small();
    let cases: [(&[&str], &str); 2] = [
        (&["--results", "kept.jsonl"], "the same command continues from what is in kept.jsonl"),
        (&[], "with --results FILE the same command could continue"),
    ];
    for (options, expected) in cases {
        let arguments = [&["repro", "asymmetry", "--full", "--jobs", "1"], options].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.current_dir(pool.path("")).args(&arguments).env_remove("WEIR_POOL").stdin(Stdio::null());
        let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("weir starts");
        wait_until_signals_are_caught(running.id());
        let pid = running.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
        let ended = running.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).replace("\n ", " ");
        assert_eq!(ended.status.code(), Some(128 + 2), "{said}");
        assert!(said.starts_with("weir: stopped: ") && said.contains(expected), "{said}");
    }
}

/// Waits until a process has a thread that waits for signals.
fn wait_until_signals_are_caught(pid: u32) {
    let threads = format!("/proc/{pid}/task");
    let is_waiting = || {
        let all = std::fs::read_dir(&threads).expect("it runs").flatten();
        let names = all.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
        names.into_iter().any(|name| name.trim() == "signals")
    };
    while !is_waiting() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
