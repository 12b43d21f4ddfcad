//! Records the requests to a block device. Linux's blktrace reports them, and blkparse merges the reports of
//! all processors in order.

use super::{CHECK_INTERVAL, RecordedTrace, RecordingOutcome, StopCondition};
use crate::failure::Failure;
use crate::traces::trace_failure;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use weir_trace::{Reader, TraceError, format};

/// Advice on the requirements of blktrace.
const REQUIREMENTS: &str = "run this as root, with debugfs there (mount -t debugfs none /sys/kernel/debug) and a kernel that \
    has CONFIG_BLK_DEV_IO_TRACE; or record what a volume is asked";

/// Options of blktrace for buffers of 16 KiB, about 300 requests, with the default total of 2 MiB a
/// processor.
///
/// The kernel delivers a buffer once it is full. With larger buffers, the recording of a slow disk would
/// continue long after the requested number of requests.
const BUFFERS: [&str; 4] = ["-b", "16", "-n", "128"];

pub(super) fn record(
    device: &Path,
    stop: &StopCondition,
    recorded: &mut RecordedTrace<'_, '_>,
) -> Result<RecordingOutcome, Failure> {
    let name = device.display().to_string();
    let mut trace = TracerProcess::start("blktrace", |command| {
        command.arg("-d").arg(device).args(["-a", "queue"]).args(BUFFERS).args(["-o", "-"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped())
    })?;
    let began = Instant::now();
    let events = trace.child.stdout.take();
    let mut parse = TracerProcess::start("blkparse", |command| {
        let events = events.map_or(Stdio::null(), Stdio::from);
        command.args(["-q", "-i", "-", "-O", "-d", "-"]).stdin(events).stderr(Stdio::null())
    })?;
    crate::output::print_stderr(&format!("recording requests to {name}; Ctrl-C ends it"));
    let in_order = parse.child.stdout.take();
    let done = AtomicBool::new(false);
    let pid = Pid::from_child(&trace.child);
    let (read, lasted) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !stop.is_over(began) && !done.load(Ordering::Relaxed) {
                thread::sleep(CHECK_INTERVAL);
            }
            // blktrace may have ended by itself. It has not been waited for, so no other process has its id.
            let _ = kill_process(pid, Signal::TERM);
            began.elapsed()
        });
        let read = in_order.map_or(Ok(None), |in_order| write_events(in_order, &name, recorded));
        done.store(true, Ordering::Relaxed);
        (read, watch.join().unwrap_or_default())
    });
    let said = trace.end();
    parse.end();
    let (cut, (is_well, said)) = (read?, said);
    if !is_well && recorded.requests + recorded.unrepresentable == 0 {
        return Err(Failure::environment(format!("blktrace cannot trace {name}: {said}"), REQUIREMENTS));
    }
    let mut notes: Vec<_> = cut.into_iter().collect();
    // A warning of dropped events counts even if blktrace ends successfully.
    notes.extend((!is_well || said.contains("dropped")).then(|| format!("blktrace said: {said}")));
    Ok(RecordingOutcome { disks: vec![name], duration: lasted, dropped: 0, notes })
}

/// Writes the requests in these events until there are no more, or no more are wanted. Returns a description
/// of the first malformed event, after which it stops.
fn write_events(
    events: impl io::Read + Send,
    name: &str,
    recorded: &mut RecordedTrace<'_, '_>,
) -> Result<Option<String>, Failure> {
    let reader = Reader::open("what blktrace tells", BufReader::new(events), format("blktrace"));
    let reader = match reader {
        Err(TraceError::Empty { .. }) => return Ok(None),
        reader => reader.map_err(|error| trace_failure(&error))?,
    };
    for record in reader {
        match record {
            Ok(record) => {
                if !recorded.write(&record, name)? {
                    return Ok(None);
                }
            }
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    Ok(None)
}

/// A running program of the package blktrace, killed when dropped. It is in a process group of its own, so
/// that Ctrl-C reaches this process only.
struct TracerProcess {
    child: Child,
}

impl TracerProcess {
    /// Starts a program so that the kernel ends it if this process is killed.
    ///
    /// That needs setpriv, which Debian always has. Without setpriv the program continues until it next has
    /// something to write.
    fn start(program: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Result<Self, Failure> {
        if !is_installed(program) {
            return Err(Failure::environment(
                format!("{program} is not installed"),
                "install it (on Debian: apt-get install blktrace), or record what a volume is asked",
            ));
        }
        let mut command = Command::new(program);
        if is_installed("setpriv") {
            command = Command::new("setpriv");
            command.args(["--pdeathsig", "TERM", program]);
        }
        let child = prepare(&mut command).stdout(Stdio::piped()).process_group(0).spawn();
        child.map(|child| Self { child }).map_err(|error| {
            Failure::environment(format!("{program} does not start: {error}"), "start it by hand, to see why")
        })
    }

    /// Waits until the program ends. Returns whether it succeeded, and its messages.
    fn end(&mut self) -> (bool, String) {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // An error is ignored: the messages are reported as far as they can be read.
            let _ = stderr.read_to_string(&mut said);
        }
        let is_well = self.child.wait().is_ok_and(|status| status.success());
        (is_well, said.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Returns whether a program of this name is in `PATH`.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

impl Drop for TracerProcess {
    fn drop(&mut self) {
        // An error is ignored: the program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
