//! Runs the demo's `weir serve`, as a separate process.

use crate::failure::{Failure, REPORT_KERNEL};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for the server to answer, and to stop.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server, stopped when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts a server for the pool and waits until it answers.
    pub(super) fn start(folder: &Path, pool_file: &Path) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::environment(format!("cannot find weir itself: {error}"), "run the installed program")
        })?;
        let (socket, log) = (folder.join("nbd.sock"), folder.join("server.log"));
        // A stopped server may have left its socket.
        let _ = std::fs::remove_file(&socket);
        let stderr = File::create(&log).map_err(|error| Failure::os("create", &log, &error))?;
        let child = Command::new(program)
            .arg("--pool")
            .arg(pool_file)
            .args(["serve", "--nbd", "unix:nbd.sock"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C must reach the demo only, which then ends the server itself.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Failure::environment(format!("the demo's server does not start: {error}"), REPORT_KERNEL)
            })?;
        let mut server = Self { child, socket, log };
        server.await_answer()?;
        Ok(server)
    }

    fn await_answer(&mut self) -> Result<(), Failure> {
        let started = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || started.elapsed() > SERVER_TIMEOUT {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(Failure::environment(
                    format!("the demo's server does not answer:\n{}", said.trim()),
                    "",
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns the volume's NBD URI for a client in the same folder.
    pub(super) fn uri(volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket=nbd.sock")
    }
}

impl Drop for Server {
    /// Asks the server to stop, and kills it if that takes too long.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let asked = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if asked.elapsed() > SERVER_TIMEOUT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
