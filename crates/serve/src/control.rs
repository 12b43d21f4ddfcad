//! Client of a running server's control socket.
//!
//! [`weir_session::control`] defines the requests and answers.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use weir_session::control::{Answer, Class, Hardening, LINE_MAX, Request};

/// Timeout of an answer: removing a large volume takes time.
const REPLY_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout of the status, which is available at once. For other answers: the interval after which the
/// server's process is checked for being stopped.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request to the server whose control socket is at `path`, and waits for its answer.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] if no server runs there;
/// [`io::ErrorKind::TimedOut`] if it does not answer, with a message of the form "what happened; what to do";
/// others if the answer is malformed.
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    let patience = if *request == Request::Status { STATUS_TIMEOUT } else { REPLY_TIMEOUT };
    ask_within(path, request, patience)
}

/// Reports whether a server answers at `path` within `patience`. A killed server may still accept
/// connections, but does not answer.
pub fn is_answering(path: &Path, patience: Duration) -> bool {
    ask_within(path, &Request::Status, patience).is_ok()
}

fn ask_within(path: &Path, request: &Request, patience: Duration) -> io::Result<Answer> {
    begin(path, request, patience).map(|(answer, _)| answer)
}

/// Sends a request and keeps the connection; returns the answer and the bytes that followed it.
pub(crate) fn begin(
    path: &Path,
    request: &Request,
    patience: Duration,
) -> io::Result<(Answer, BufReader<UnixStream>)> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience.min(STATUS_TIMEOUT)))?;
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
        let server = weir_device::peer_process(reader.get_ref());
        check_silent_server(server, asked.elapsed() >= patience)?;
    }
    if answer.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server went away without an answer"));
    }
    Ok((serde_json::from_slice(&answer)?, reader))
}

/// Decides about a server that is silent: it may take more time, unless its process is stopped or the timeout
/// has expired.
fn check_silent_server(server: u32, is_over: bool) -> io::Result<()> {
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

/// Reports whether a process is stopped, by a signal or a debugger: it does not run until it is continued.
pub fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The process name is in parentheses, and may itself contain parentheses.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn stopped_process_is_detected() {
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
        assert!(check_silent_server(child.id(), false).is_ok(), "it may be busy");
        let late = check_silent_server(child.id(), true).expect_err("it is late");
        assert!(late.to_string().contains("does not answer; try again"), "{late}");
        signal("-STOP");
        assert!(becomes(true));
        let stopped = check_silent_server(child.id(), false).expect_err("it will not answer");
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
