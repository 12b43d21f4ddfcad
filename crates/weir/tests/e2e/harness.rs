//! Pools, servers and client programs for the tests.

use crate::schemas::{validate, validate_as};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Time in which a server must end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A pool file in a temporary folder of its own.
pub(crate) struct Pool {
    pub(crate) folder: tempfile::TempDir,
}

impl Pool {
    /// Returns a pool of two small files, `fast` and `slow`, with extents of 128 KiB.
    pub(crate) fn small() -> Self {
        Self::described("fast", "256MiB", "slow", "1GiB", "")
    }

    /// Returns a pool of two files; `more` is added to each device.
    pub(crate) fn described(one: &str, one_size: &str, two: &str, two_size: &str, more: &str) -> Self {
        let device = |name: &str, size: &str| {
            format!("\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"{size}\"\n{more}\n")
        };
        Self::from_text(&format!(
            "[pool]\nname = \"test\"\n{}{}",
            device(one, one_size),
            device(two, two_size)
        ))
    }

    /// Writes a pool file with this text; the pool is not yet created.
    pub(crate) fn from_text(text: &str) -> Self {
        let pool = Self::empty_folder();
        std::fs::write(pool.path("pool.toml"), text).expect("the pool file is written");
        pool
    }

    /// Like [`Self::from_text`], in a folder in memory, where there is one.
    pub(crate) fn from_text_in_memory(text: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            println!("left out: /dev/shm is not there, so the pool's files are not in memory");
            return Self::from_text(text);
        }
        let folder = tempfile::Builder::new().prefix("weir-e2e-").tempdir_in(memory);
        let pool = Self { folder: folder.expect("a temporary folder") };
        std::fs::write(pool.path("pool.toml"), text).expect("the pool file is written");
        pool
    }

    /// Returns a folder without a pool file, for commands that need none.
    pub(crate) fn empty_folder() -> Self {
        Self { folder: tempfile::Builder::new().prefix("weir-e2e-").tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("nbd.sock")
    }

    /// Returns the NBD URI of a volume.
    pub(crate) fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket().display())
    }

    /// Runs `weir` in the folder of the pool.
    #[track_caller]
    pub(crate) fn weir<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        weir(self.folder.path(), arguments)
    }

    /// Runs `weir`, which must succeed, and returns its standard output.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        succeeded("weir", &self.weir(arguments))
    }

    /// Runs `weir --json`, which must succeed, and returns its document.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.run(arguments.iter().chain(&["--json"]));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("one JSON document, but {error}:\n{text}"))
    }

    /// Runs `weir`, which must fail with this exit code, and returns its message.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.weir(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "weir {arguments:?} said:\n{said}");
        assert!(!said.contains("panicked"), "weir {arguments:?} said:\n{said}");
        said
    }

    /// Creates the pool and one volume.
    #[track_caller]
    pub(crate) fn create(self, volume: &str, size: &str) -> Self {
        self.run(["pool", "create"]);
        self.run(["volume", "create", volume, "--size", size]);
        self
    }

    /// Starts a server and waits until it answers.
    #[track_caller]
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// Starts a server with further arguments and waits until it answers.
    #[track_caller]
    pub(crate) fn serve_with(&self, more: &[&str]) -> Server {
        let mut server = self.start_with(more);
        // The server prints its document once it answers. A connection would not prove that: the socket of a
        // killed server may still accept connections while the kernel cleans up its ring.
        let says = BufReader::new(server.child.stdout.take().expect("its standard output"));
        let document: String = says.lines().map_while(Result::ok).take_while(|line| line != "}").collect();
        assert!(document.contains("nbd.sock"), "the server ended:\n{}", server.log());
        validate_as("serve", format!("{document}}}").as_bytes());
        server
    }

    /// Starts a server without waiting for it.
    #[track_caller]
    pub(crate) fn start(&self) -> Server {
        self.start_with(&[])
    }

    #[track_caller]
    fn start_with(&self, more: &[&str]) -> Server {
        let log = std::fs::File::options().create(true).append(true).open(self.path("server.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(self.folder.path())
            .args(["serve", "--json", "--nbd", "unix:nbd.sock"])
            .args(more)
            .env_remove("WEIR_POOL")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("the server's log opens"))
            .spawn()
            .expect("weir starts");
        Server { child, log: self.path("server.log") }
    }
}

/// A running server, which is killed when dropped.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server, as a crash would.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends the server a signal (`TERM`, `INT`).
    #[track_caller]
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.pid().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the signal is sent");
    }

    /// Stops the server with a signal and waits; it must succeed.
    #[track_caller]
    pub(crate) fn stop(mut self, signal: &str) {
        self.signal(signal);
        let status = self.end();
        assert!(status.success(), "the server ended with {status}:\n{}", self.log());
    }

    /// Waits until the server ends, which must be with this exit code, and returns its log.
    #[track_caller]
    pub(crate) fn expect_exit(mut self, code: i32) -> String {
        let status = self.end();
        assert_eq!(status.code(), Some(code), "the server said:\n{}", self.log());
        self.log()
    }

    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        let asked = Instant::now();
        loop {
            match self.child.try_wait().expect("the server can be waited for") {
                Some(status) => return status,
                None if asked.elapsed() > STOP_TIMEOUT => panic!("the server does not stop:\n{}", self.log()),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

/// Runs `weir` in a folder. With `--json` its output must match its schema.
#[track_caller]
pub(crate) fn weir<S: AsRef<OsStr>>(folder: &Path, arguments: impl IntoIterator<Item = S>) -> Output {
    let arguments: Vec<S> = arguments.into_iter().collect();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(folder)
        .args(&arguments)
        .env_remove("WEIR_POOL")
        .stdin(Stdio::null())
        .output()
        .expect("weir starts");
    validate(&arguments, &output.stdout);
    output
}

/// Returns whether all these client programs are installed; names one that is not.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    programs.iter().all(|program| {
        let found = folders.iter().any(|folder| folder.join(program).is_file());
        if !found {
            eprintln!("left out: {program} is not installed; `scripts/setup test` installs it");
        }
        found
    })
}

/// Runs a client program, which must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn client<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> String {
    succeeded(program, &client_output(program, arguments))
}

/// Runs a client program to its end, whatever its exit code.
#[track_caller]
pub(crate) fn client_output<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} does not start: {error}"))
}

#[track_caller]
fn succeeded(program: &str, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} ended with {}:\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}
