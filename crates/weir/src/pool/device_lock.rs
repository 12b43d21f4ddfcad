//! A device that another process holds: which process it is, and how to reach or stop it.

use crate::failure::Failure;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Why the control socket beside the pool file gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlSocketState {
    /// The socket does not exist.
    Missing,
    /// No process listens on the socket.
    NotListening,
    /// A process accepts the connection and closes it without an answer, or does not answer.
    Unresponsive,
}

/// Maximum number of reads of `/proc/locks`. The kernel returns it in parts, and a lock that is released
/// between two of them hides another one.
const READS_MAX: usize = 8;

/// Returns the failure that names the holder of `device`, and says what to do if `control` gives no answer.
pub(super) fn explain(device: &Path, control: &Path) -> Failure {
    let holder = find_holder(device);
    let who = holder.map_or("another weir process".into(), process);
    let stop = holder.map_or("stop that process".into(), |pid| format!("kill -TERM {pid}"));
    if let Some(pid) = holder.filter(|pid| weir_serve::control::is_stopped(*pid)) {
        let message = format!(
            "device {} is in use by {who}, which is stopped (state T) and does not answer",
            device.display()
        );
        let help = format!("kill -CONT {pid} has it go on");
        return Failure { locked: Some(device.to_owned()), ..Failure::refused(message, help) };
    }
    let at = control.display();
    let (why, help) = match control_state(control) {
        ControlSocketState::Missing => (
            format!("there is no control socket {at} to reach it through"),
            format!(
                "if it serves another pool file, name that one with --pool; if it is another command, wait for \
                 it; if the socket was removed, restart the server: {stop}, then weir serve"
            ),
        ),
        ControlSocketState::NotListening => (
            format!("nobody listens at the control socket {at}"),
            format!("a server that is starting or stopping takes a moment: try again; else {stop}"),
        ),
        ControlSocketState::Unresponsive => (
            format!("its server gives new sessions at the control socket {at} no answer"),
            format!(
                "it takes no more sessions at a time, or is stopping: end sessions that are not needed (ss -xp \
                 shows who has them) and try again; else {stop}"
            ),
        ),
    };
    let message = format!("device {} is in use by {who}, and {why}", device.display());
    Failure { locked: Some(device.to_owned()), ..Failure::refused(message, help) }
}

/// Returns the process that holds a file exclusively, in words; `None` if it cannot be found.
pub(crate) fn lock_holder(file: &Path) -> Option<String> {
    find_holder(file).map(process)
}

fn find_holder(file: &Path) -> Option<u32> {
    (0..READS_MAX).find_map(|_| holder(&std::fs::read_to_string("/proc/locks").ok()?, file))
}

/// Returns the number of a process and its command line.
fn process(pid: u32) -> String {
    let command = command_line(pid).map_or(String::new(), |command| format!(" ({command})"));
    format!("process {pid}{command}")
}

fn control_state(control: &Path) -> ControlSocketState {
    match UnixStream::connect(control).map_err(|error| error.kind()) {
        Err(io::ErrorKind::NotFound) => ControlSocketState::Missing,
        Ok(_) | Err(io::ErrorKind::WouldBlock) => ControlSocketState::Unresponsive,
        Err(_) => ControlSocketState::NotListening,
    }
}

/// Returns the process that holds an exclusive lock on the file, as `/proc/locks` shows it; `None` if there
/// is none, or it is in another pid namespace.
fn holder(locks: &str, device: &Path) -> Option<u32> {
    let found = std::fs::metadata(device).ok()?;
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", found.ino());
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK");
        let (_, _, kind) = (words.next()?, words.next()?, words.next()?);
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
        (kind == "WRITE" && words.next()? == wanted).then_some(pid)
    })
}

/// Returns the command line of a process, cut to a readable length.
fn command_line(pid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let text = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ");
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).take(120).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_only_the_lock_holder() {
        let file = std::env::current_exe().expect("this program");
        let found = std::fs::metadata(&file).expect("it is a file");
        let at = |ino: u64| {
            format!("{:02x}:{:02x}:{ino}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()))
        };
        let ours = at(found.ino());
        for (line, pid) in [
            (format!("1: FLOCK  ADVISORY  WRITE 812 {ours} 0 EOF"), Some(812)),
            (format!("1: FLOCK  ADVISORY  READ 812 {ours} 0 EOF"), None),
            (format!("1: POSIX  ADVISORY  WRITE 812 {ours} 0 EOF"), None),
            (format!("1: FLOCK  ADVISORY  WRITE -1 {ours} 0 EOF"), None),
            (format!("1: -> FLOCK  ADVISORY  WRITE 0 {ours} 0 EOF"), None),
            (format!("1: FLOCK  ADVISORY  WRITE 812 {} 0 EOF", at(found.ino() + 1)), None),
            ("1: FLOCK".into(), None),
            (String::new(), None),
        ] {
            assert_eq!(holder(&line, &file), pid, "{line}");
        }
        let own = command_line(std::process::id()).expect("this process");
        assert!(own.contains(file.file_name().and_then(|name| name.to_str()).expect("a name")), "{own}");
    }
}
