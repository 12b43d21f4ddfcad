//! Limits of the machine: file size limits, stopped servers, folders in which no socket can be created.

use crate::harness::Pool;
use crate::nbd::Client;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Output, Stdio};

const REFUSED: i32 = 3;
const ENVIRONMENT: i32 = 5;
const LIMIT: u64 = 64 << 20;

#[track_caller]
fn assert_failure(output: &Output, code: i32, parts: &[&str]) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(words.contains(part), "{part:?} should be in:\n{said}");
    }
    words
}

/// Runs weir with a limit on the size of files.
fn limited(pool: &Pool, arguments: &[&str]) -> Output {
    // A shell counts in units of 512 or 1024 bytes.
    let units = format!("ulimit -f {} && exec \"$0\" \"$@\"", LIMIT / 1024);
    Command::new("sh")
        .args(["-c", &units, env!("CARGO_BIN_EXE_weir")])
        .args(arguments)
        .current_dir(pool.folder.path())
        .env_remove("WEIR_POOL")
        .stdin(Stdio::null())
        .output()
        .expect("a shell")
}

#[test]
fn file_size_limit_is_reported() {
    let pool = Pool::small();
    assert_failure(
        &limited(&pool, &["pool", "create"]),
        ENVIRONMENT,
        &["fast.img", "File too large", "ulimit -f"],
    );
    assert!(!pool.path("fast.img").exists() && !pool.path("slow.img").exists(), "as they were");
    // Existing files are not touched, even where the limit allows it.
    for (name, size) in [("fast.img", 256 << 20), ("slow.img", 1 << 30)] {
        let file = File::create(pool.path(name)).expect("a file");
        file.set_len(size).and_then(|()| file.write_all_at(b"mine", 0)).expect("it is written");
    }
    let parts = ["device fast", "(268435456 bytes)", "may write no file beyond", "ulimit -f"];
    assert_failure(&limited(&pool, &["pool", "create", "--force"]), ENVIRONMENT, &parts);
    for name in ["fast.img", "slow.img"] {
        let mut start = [0; 8192];
        let file = File::open(pool.path(name)).expect("the file");
        file.read_exact_at(&mut start, 0).expect("it is read");
        assert!(start.starts_with(b"mine") && start[4..].iter().all(|byte| *byte == 0), "{name}");
    }
    pool.run(["pool", "create", "--force"]);
    assert_failure(&limited(&pool, &["serve", "--nbd", "unix:nbd.sock"]), ENVIRONMENT, &parts);
    let created = limited(&pool, &["volume", "create", "disk", "--size", "1GiB"]);
    assert!(created.status.code().is_some(), "a signal ended it: {}", created.status);
}

#[test]
fn server_continues_at_the_file_size_limit() {
    let pool = Pool::described("one", "256MiB", "two", "256MiB", "").create("disk", "384MiB");
    let server = pool.serve();
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw);
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    prlimit(pid, Resource::Fsize, limit).expect("it is limited");
    let mut client = Client::connect(&pool.socket(), "disk").expect("it serves");
    let failed = (0..200u64).filter(|n| client.write(n << 20, &vec![7; 1 << 20]).is_err()).count();
    assert!(failed > 0, "there is no room for 200 MiB below 64 MiB of each");
    assert_eq!(pool.json(&["pool", "status"])["pool"]["state"], "served");
    assert!(server.log().contains("File too large"), "{}", server.log());
}

#[test]
fn stopped_server_is_named_with_the_command_to_continue_it() {
    let pool = Pool::small().create("disk", "64MiB");
    let server = pool.serve();
    server.signal("STOP");
    let go_on = format!("kill -CONT {}", server.pid());
    // Each command waits for ten seconds, so they run in parallel.
    std::thread::scope(|scope| {
        let status = scope.spawn(|| pool.weir(["pool", "status"]));
        let list = scope.spawn(|| pool.weir(["volume", "remove", "disk"]));
        let serve = scope.spawn(|| pool.weir(["serve", "--nbd", "unix:other.sock"]));
        for asked in [status, list] {
            let output = asked.join().expect("it ends");
            assert_failure(&output, ENVIRONMENT, &["does not answer", "it is stopped (state T)", &go_on]);
        }
        let output = serve.join().expect("it ends");
        assert_failure(&output, REFUSED, &["which is stopped (state T) and does not answer", &go_on]);
    });
    server.signal("CONT");
    server.stop("TERM");
}

#[test]
fn impossible_socket_paths_are_reported_with_advice() {
    let pool = Pool::small().create("disk", "64MiB");
    let nowhere = pool.weir(["serve", "--nbd", "unix:nowhere/x.sock"]);
    assert_failure(
        &nowhere,
        ENVIRONMENT,
        &["cannot listen at nowhere/x.sock", "make the folder nowhere first"],
    );
    // The name is too long for a control socket beside it. The server already listens for clients when it
    // finds that out.
    let name = format!("{}.toml", "long".repeat(40));
    std::fs::copy(pool.path("pool.toml"), pool.path(&name)).expect("another pool file");
    let output = pool.weir(["--pool", &name, "serve", "--nbd", "unix:nbd.sock"]);
    let said = assert_failure(&output, ENVIRONMENT, &["cannot listen at", "107 bytes"]);
    assert!(!said.contains("could not be accepted"), "nobody came: {said}");
    assert!(!pool.socket().exists());
}
