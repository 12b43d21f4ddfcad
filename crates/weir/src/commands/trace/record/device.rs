//! Records what is asked of a block device: Linux's blktrace tells, and blkparse puts what its processors tell in order.

use super::{Came, LOOK, Taken, Until};
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

/// What a kernel needs.
const NEEDS: &str = "run this as root, with debugfs there (mount -t debugfs none /sys/kernel/debug) and a kernel that \
    has CONFIG_BLK_DEV_IO_TRACE; or record what a volume is asked";

/// The kernel hands over what fills a buffer: as much room in all as by default (2 MiB a processor), but in pieces of 16 KiB, about 300
/// requests, lest the recording of a slow disk goes on long after there are as many requests as were wanted.
const BUFFERS: [&str; 4] = ["-b", "16", "-n", "128"];

pub(super) fn record(device: &Path, until: &Until, taken: &mut Taken<'_, '_>) -> Result<Came, Failure> {
    let name = device.display().to_string();
    let mut trace = Running::start("blktrace", |command| {
        command.arg("-d").arg(device).args(["-a", "queue"]).args(BUFFERS).args(["-o", "-"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped())
    })?;
    let began = Instant::now();
    let events = trace.child.stdout.take();
    let mut parse = Running::start("blkparse", |command| {
        let events = events.map_or(Stdio::null(), Stdio::from);
        command.args(["-q", "-i", "-", "-O", "-d", "-"]).stdin(events).stderr(Stdio::null())
    })?;
    crate::output::print_stderr(&format!("recording requests to {name}; Ctrl-C ends it"));
    let in_order = parse.child.stdout.take();
    let done = AtomicBool::new(false);
    let pid = Pid::from_child(&trace.child);
    let (read, lasted) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !until.is_over(began) && !done.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
            }
            // It may have ended of itself; it was not waited for yet, so that no other process has its number.
            let _ = kill_process(pid, Signal::TERM);
            began.elapsed()
        });
        let read = in_order.map_or(Ok(None), |in_order| take_all(in_order, &name, taken));
        done.store(true, Ordering::Relaxed);
        (read, watch.join().unwrap_or_default())
    });
    let said = trace.end();
    parse.end();
    let (cut, (is_well, said)) = (read?, said);
    if !is_well && taken.requests + taken.unsaid == 0 {
        return Err(Failure::environment(format!("blktrace cannot trace {name}: {said}"), NEEDS));
    }
    let mut notes: Vec<_> = cut.into_iter().collect();
    // What it says when it ends well, too.
    notes.extend((!is_well || said.contains("dropped")).then(|| format!("blktrace said: {said}")));
    Ok(Came { disks: vec![name], lasted, dropped: 0, notes })
}

/// Takes the requests of these events until there are no more, or no more are wanted; what is wrong with them, if anything is.
fn take_all(
    events: impl io::Read + Send,
    name: &str,
    taken: &mut Taken<'_, '_>,
) -> Result<Option<String>, Failure> {
    let reader = Reader::open("what blktrace tells", BufReader::new(events), format("blktrace"));
    let reader = match reader {
        Err(TraceError::Empty { .. }) => return Ok(None),
        reader => reader.map_err(|error| trace_failure(&error))?,
    };
    for record in reader {
        match record {
            Ok(record) => {
                if !taken.take(&record, name)? {
                    return Ok(None);
                }
            }
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    Ok(None)
}

/// A program of the package blktrace; killed when dropped. Not of the terminal's group, so that Ctrl-C is for this process alone.
struct Running {
    child: Child,
}

impl Running {
    /// Starts it so that the kernel ends it if this process is killed. Without setpriv, which Debian always has, it goes on then
    /// until it next has something to tell.
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

    /// Waits until it has ended: whether it ended well, and what it said.
    fn end(&mut self) -> (bool, String) {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // What it said is told as far as it can be read.
            let _ = stderr.read_to_string(&mut said);
        }
        let is_well = self.child.wait().is_ok_and(|status| status.success());
        (is_well, said.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Whether there is a program of this name where programs are looked for.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
