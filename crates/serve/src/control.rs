//! Asking a running server, at its control socket.
//!
//! What may be asked and what is answered is in [`weir_session::control`].

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub use weir_session::control::{Answer, Class, Hardening, LINE_MAX, Request};

/// How long an answer is waited for: removing a large volume takes its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// Asks the server whose control socket is at `path`, and waits for its answer.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] if no server runs there;
/// others if it does not answer, or with something else than an answer.
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    ask_within(path, request, PATIENCE)
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
    stream.set_read_timeout(Some(patience))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream);
    reader.read_until(b'\n', &mut answer)?;
    if answer.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server went away without an answer"));
    }
    Ok((serde_json::from_slice(&answer)?, reader))
}
