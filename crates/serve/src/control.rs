//! Asking a running server, at its control socket.
//!
//! What may be asked and what is answered is in [`weir_session::control`].

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use weir_session::control::{Answer, Class, Hardening, LINE_MAX, Request};

/// How long an answer is waited for: removing a large volume takes its time.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the status is waited for, which is there at once; and any answer until it is looked whether the
/// server's process is stopped.
const SILENCE: Duration = Duration::from_secs(10);

/// Asks the server whose control socket is at `path`, and waits for its answer.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] if no server runs there;
/// [`io::ErrorKind::TimedOut`] if it does not answer, with why and what to do as "what happened; what to do";
/// others if it answers with something else than an answer.
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    let patience = if *request == Request::Status { SILENCE } else { PATIENCE };
    ask_within(path, request, patience)
}

/// Whether a server answers at `path` within `patience`. One that was killed may still take
/// connections, but does not answer.
pub fn answers(path: &Path, patience: Duration) -> bool {
    ask_within(path, &Request::Status, patience).is_ok()
}

fn ask_within(path: &Path, request: &Request, patience: Duration) -> io::Result<Answer> {
    begin(path, request, patience).map(|(answer, _)| answer)
}

/// Asks, and keeps the connection: the answer, and what may follow it.
pub(crate) fn begin(
    path: &Path,
    request: &Request,
    patience: Duration,
) -> io::Result<(Answer, BufReader<UnixStream>)> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience.min(SILENCE)))?;
    let asked = Instant::now();
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream);
    while let Err(error) = reader.read_until(b'\n', &mut answer) {
        if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
            return Err(error);
        }
        let server = weir_device::process_behind(reader.get_ref());
        judge_silence(server, asked.elapsed() >= patience)?;
    }
    if answer.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server went away without an answer"));
    }
    Ok((serde_json::from_slice(&answer)?, reader))
}

/// A server that is silent: it may go on thinking, unless its process is stopped, or the time for an answer
/// is over.
fn judge_silence(server: u32, is_over: bool) -> io::Result<()> {
    let timed_out = |message: String| Err(io::Error::new(io::ErrorKind::TimedOut, message));
    if is_stopped(server) {
        return timed_out(format!(
            "process {server} does not answer; it is stopped (state T): kill -CONT {server} has it go on"
        ));
    }
    match is_over {
        true if server == 0 => timed_out("the server does not answer; restart it if it stays so".into()),
        true => timed_out(format!(
            "process {server}, the server, does not answer; try again, and restart it if it stays so"
        )),
        false => Ok(()),
    }
}

/// Whether a process is stopped, by a signal or a debugger: it does nothing until it is told to go on.
pub fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Its name is in parentheses, and may have some of its own.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_stopped_process_is_told_from_one_that_runs() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let signal = |signal: &str| {
            let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
            assert!(sent.expect("kill runs").success());
        };
        let becomes = |stopped: bool| {
            (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                is_stopped(child.id()) == stopped
            })
        };
        assert!(judge_silence(child.id(), false).is_ok(), "it may be busy");
        let late = judge_silence(child.id(), true).expect_err("it is late");
        assert!(late.to_string().contains("does not answer; try again"), "{late}");
        signal("-STOP");
        assert!(becomes(true));
        let stopped = judge_silence(child.id(), false).expect_err("it will not answer");
        assert_eq!(stopped.kind(), io::ErrorKind::TimedOut);
        let way_out = format!("it is stopped (state T): kill -CONT {}", child.id());
        assert!(stopped.to_string().contains(&way_out), "{stopped}");
        signal("-CONT");
        assert!(becomes(false));
        signal("-KILL");
        let _ = child.wait();
        assert!(!is_stopped(child.id()) && !is_stopped(0));
    }
}
