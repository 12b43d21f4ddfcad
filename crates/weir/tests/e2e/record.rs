//! `weir trace record` records exactly the requests of the clients.

use crate::harness::Pool;
use crate::nbd::{Client, Command as Nbd, NO_HOLE};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const ENVIRONMENT: i32 = 5;

/// A running recorder.
struct Recorder {
    child: Child,
    says: BufReader<ChildStderr>,
}

impl Recorder {
    /// Starts `weir trace record` and waits until it records.
    #[track_caller]
    fn start(pool: &Pool, arguments: &[&str]) -> Self {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(["trace", "record"]).args(arguments);
        Self::of(pool, weir)
    }

    #[track_caller]
    fn of(pool: &Pool, mut command: Command) -> Self {
        let command = command.current_dir(pool.folder.path()).env_remove("WEIR_POOL").stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the recorder starts");
        let mut says = BufReader::new(child.stderr.take().expect("its standard error"));
        let mut line = String::new();
        says.read_line(&mut line).expect("it says something");
        assert!(line.starts_with("recording requests to "), "{line}");
        Self { child, says }
    }

    /// Ends the recorder as Ctrl-C does.
    fn interrupt(self) -> Output {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
        self.wait()
    }

    /// Waits until the recorder ends.
    fn wait(mut self) -> Output {
        let mut stderr = Vec::new();
        self.says.read_to_end(&mut stderr).expect("what it says");
        let output = self.child.wait_with_output().expect("it ends");
        Output { stderr, ..output }
    }
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    crate::schemas::validate_as("trace record", &output.stdout);
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Returns the operation, offset and size of the requests to each disk of a recorded trace, in order of time.
fn requests(pool: &Pool, trace: &str) -> Vec<(String, String, u64, u64)> {
    let text = pool.run(["trace", "convert", trace, "-", "--to", "fio-3"]);
    let mut last = 0;
    let lines = text.lines().skip(1).map(|line| line.split(' ').collect::<Vec<_>>());
    let requests = lines.filter(|line| line.len() == 5).map(|line| {
        let [at, disk, op, offset, len] = line[..] else { panic!("{line:?}") };
        let at: u64 = at.parse().expect("a time");
        assert!(at >= last, "{text}");
        last = at;
        (disk.to_owned(), op.to_owned(), offset.parse().expect("an offset"), len.parse().expect("a size"))
    });
    requests.collect()
}

#[test]
fn recording_has_exactly_the_clients_requests() {
    let pool = Pool::small().create("disk", "64MiB");
    pool.run(["volume", "create", "other", "--size", "64MiB"]);
    pool.run(["volume", "create", "third", "--size", "64MiB"]);
    let server = pool.serve();
    let mut disk = Client::connect(&pool.socket(), "disk").expect("connected");
    let mut other = Client::connect(&pool.socket(), "other").expect("connected");
    let mut third = Client::connect(&pool.socket(), "third").expect("connected");
    disk.write(0, &[1; 4096]).expect("before it begins");
    let recorder = Recorder::start(&pool, &["disk", "other", "--out", "t.weirtrace", "--json"]);
    let said = pool.refused(&["trace", "record", "disk", "--out", "u"], REFUSED);
    assert!(said.contains("being recorded already"), "{said}");

    let mut expected = Vec::new();
    let mut ask = |name: &str, client: &mut Client, op: &str, offset: u64, len: u32| {
        match op {
            "read" => drop(client.read(offset, len as usize).expect("read")),
            _ => client.write(offset, &vec![7; len as usize]).expect("written"),
        }
        expected.push((name.to_owned(), op.to_owned(), offset, u64::from(len)));
    };
    for n in 0..300 {
        ask("disk", &mut disk, if n % 3 == 0 { "read" } else { "write" }, n * 20_480, 4096 + 512 * n as u32);
        ask("other", &mut other, "write", n * 4096, 512);
    }
    // These requests are longer than one piece that the server processes.
    ask("disk", &mut disk, "write", 12_800, 3 << 20);
    ask("other", &mut other, "read", 0, 5 << 20);
    third.write(0, &[1; 4096]).expect("not recorded");
    disk.flush().expect("not a request of a trace");
    for (command, flags, op) in
        [(Nbd::Trim, 0, "trim"), (Nbd::WriteZeroes, 0, "trim"), (Nbd::WriteZeroes, NO_HOLE, "write")]
    {
        disk.ask(command, flags, 1 << 20, 65_536, &[]).expect("done");
        expected.push(("disk".into(), op.into(), 1 << 20, 65_536));
    }
    let told = json(&recorder.interrupt());
    assert_eq!((&told["requests"], &told["dropped"]), (&expected.len().into(), &0.into()), "{told}");
    assert_eq!(told["disks"], serde_json::json!(["disk", "other"]));
    assert_eq!(requests(&pool, "t.weirtrace"), expected);

    let told = pool.json(&["trace", "analyze", "t.weirtrace", "--disk", "disk"]);
    let count = |op: &str| expected.iter().filter(|one| one.0 == "disk" && one.1 == op).count();
    for (figure, op) in [("reads", "read"), ("writes", "write"), ("trims", "trim")] {
        assert_eq!(told[figure]["requests"].as_u64(), Some(count(op) as u64), "{told}");
    }
    server.stop("TERM");
}

#[test]
fn recording_ends_with_the_server_or_a_full_disk() {
    let pool = Pool::small().create("disk", "64MiB");
    let said = pool.refused(&["trace", "record", "disk", "--out", "t"], REFUSED);
    assert!(said.contains("is not being served"), "{said}");
    pool.refused(&["trace", "record", "--out", "t"], USAGE);
    let server = pool.serve();
    let said = pool.refused(&["trace", "record", "dusk", "--out", "t"], USAGE);
    assert!(said.contains("dusk") && !pool.path("t").exists(), "{said}");
    let mut client = Client::connect(&pool.socket(), "disk").expect("connected");
    let mut write =
        |count: u64| (0..count).for_each(|n| client.write(n % 1000 * 4096, &[1; 4096]).expect("written"));

    let recorder = Recorder::start(&pool, &["disk", "--out", "some", "--requests", "10", "--json"]);
    write(30);
    assert_eq!(json(&recorder.wait())["requests"], 10);
    assert_eq!(requests(&pool, "some").len(), 10);

    let recorder = Recorder::start(&pool, &["disk", "--out", "short", "--duration", "300ms", "--json"]);
    write(20);
    let told = json(&recorder.wait());
    let count = told["requests"].as_u64().expect("a number");
    assert!(count > 0 && requests(&pool, "short").len() as u64 == count, "{told}");

    // The limit simulates a full disk: a file may not exceed this number of blocks of 512 bytes.
    let mut shell = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" trace record disk --out full --format msr";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_weir")]);
    let recorder = Recorder::of(&pool, shell);
    // This is more than the recorder writes at once.
    write(30_000);
    let output = recorder.wait();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(ENVIRONMENT), "{said}");
    assert!(said.contains("cannot write full: ") && said.contains("is in full, which breaks off"), "{said}");
    assert!(pool.json(&["trace", "analyze", "full"])["writes"]["requests"].as_u64() > Some(100));

    let recorder = Recorder::start(&pool, &["disk", "--out", "last", "--json"]);
    write(25);
    server.stop("TERM");
    let told = json(&recorder.wait());
    let missing = told["notes"].to_string().contains("its last requests may be missing");
    assert!(told["requests"] == 25 || missing, "{told}");
}

#[test]
fn recorded_requests_survive_a_killed_recorder() {
    let pool = Pool::small().create("disk", "64MiB");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("connected");
    for (name, more) in [("k", &[][..]), ("k.csv.gz", &["--format", "msr"])] {
        let mut recorder = Recorder::start(&pool, &[&["disk", "--out", name], more].concat());
        (0..20).for_each(|n| client.write(n * 4096, &[1; 4096]).expect("written"));
        let part = format!("{name}.{}.part", recorder.child.id());
        // These requests are far fewer than fill one write of the recorder.
        let is_saved = |_: &u32| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            std::fs::metadata(pool.path(&part)).expect("there").len() > 0
        };
        (0..1200).find(is_saved).expect("it is saved after a while");
        recorder.child.kill().expect("killed");
        recorder.wait();
        assert!(!pool.path(name).exists());
        assert_eq!(requests(&pool, &part).len(), 20);
    }
    server.stop("TERM");
}

/// Waits until a file exists.
fn wait_for_file(pool: &Pool, name: &str) -> bool {
    let is_there = |_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        pool.path(name).exists()
    };
    (0..1200).any(is_there)
}

/// A script stands in for blktrace: it prints events until it is told to end.
#[test]
fn device_is_recorded_with_blktrace() {
    let pool = Pool::from_text("");
    let script = |name: &str, text: &str| {
        let path = pool.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    };
    std::fs::create_dir(pool.path("bin")).expect("made");
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/samples/blktrace.trace");
    let record = || {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(["trace", "record", "--device", "/dev/some", "--out", "t", "--json", "--force"]);
        weir.env("PATH", format!("{}:/usr/bin:/bin", pool.path("bin").display()));
        weir
    };
    script("blkparse", "cat");
    script(
        "blktrace",
        &format!("trap 'exit 0' TERM; echo \"$@\" >arguments; cat {sample}; while :; do sleep 0.05; done"),
    );
    let recorder = Recorder::of(&pool, record());
    assert!(wait_for_file(&pool, "arguments"), "it starts");
    let told = json(&recorder.interrupt());
    assert_eq!((&told["requests"], &told["disks"][0]), (&3.into(), &"/dev/some".into()), "{told}");
    assert_eq!(
        std::fs::read_to_string(pool.path("arguments")).expect("said"),
        "-d /dev/some -a queue -b 16 -n 128 -o -\n"
    );
    let mut few = record();
    few.args(["--requests", "1"]);
    assert_eq!(json(&Recorder::of(&pool, few).wait())["requests"], 1);

    script("blktrace", "echo 'BLKTRACESETUP(2) /dev/some failed: 25/Inappropriate ioctl' >&2; exit 1");
    std::fs::remove_file(pool.path("t")).expect("there");
    let output = record().current_dir(pool.folder.path()).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(ENVIRONMENT), "{said}");
    assert!(said.contains("25/Inappropriate ioctl") && said.contains("CONFIG_BLK_DEV_IO_TRACE"), "{said}");
    assert!(!pool.path("t").exists());
    let output =
        record().env("PATH", pool.path("none")).current_dir(pool.folder.path()).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("blktrace is not installed") && said.contains("apt-get"), "{said}");
}

/// Otherwise no process would end blktrace, and it would record for ever.
#[test]
fn blktrace_ends_when_its_recorder_is_killed() {
    if !["/usr/bin/setpriv", "/bin/setpriv"].iter().any(|path| std::path::Path::new(path).exists()) {
        println!("skipped: there is no setpriv here");
        return;
    }
    let pool = Pool::from_text("");
    std::fs::create_dir(pool.path("bin")).expect("made");
    let tells = "trap 'echo ended >ended; exit 0' TERM; echo ready >ready; while :; do sleep 0.05; done";
    for (name, text) in [("blktrace", tells), ("blkparse", "exec cat")] {
        let path = pool.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["trace", "record", "--device", "/dev/some", "--out", "t"]);
    weir.env("PATH", format!("{}:/usr/bin:/bin", pool.path("bin").display()));
    let mut recorder = Recorder::of(&pool, weir);
    assert!(wait_for_file(&pool, "ready"), "it starts");
    recorder.child.kill().expect("killed");
    recorder.child.wait().expect("dead");
    assert!(wait_for_file(&pool, "ended"), "it was told to end");
}

#[test]
fn duplicate_volumes_are_rejected() {
    let pool = Pool::small().create("disk", "64MiB");
    let said = pool.refused(&["trace", "record", "disk", "disk", "--out", "t"], USAGE);
    assert!(said.contains("volume disk is named twice") && said.contains("name it once"), "{said}");
    assert!(!pool.path("t").exists());
}
