//! Signals that end a command.

use crate::failure::{Failure, REPORT_KERNEL};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that such a signal sets.
///
/// # Errors
/// Fails if the signals cannot be caught.
pub fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in END_SIGNALS {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(handler_failure)?;
    }
    Ok(flag)
}

/// Works as [`interruption`]; the second signal ends the process at once, even while it waits.
///
/// # Errors
/// Fails if the signals cannot be caught.
pub fn interruption_then_end() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in END_SIGNALS {
        // This handler is registered first, so that it sees the flag as the previous signal left it.
        let ended = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag));
        ended
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(handler_failure)?;
    }
    Ok(flag)
}

/// Returns a flag. While it is set, a signal ends the process with this exit code.
///
/// # Errors
/// Fails if the signals cannot be caught.
pub fn end_with(code: u8) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(true));
    for signal in END_SIGNALS {
        signal_hook::flag::register_conditional_shutdown(signal, code.into(), Arc::clone(&flag))
            .map_err(|e| Failure::environment(format!("cannot wait for signals: {e}"), REPORT_KERNEL))?;
    }
    Ok(flag)
}

/// Makes a signal end the process after `last` was called, with the exit code that shells give to a process
/// that a signal ended.
///
/// # Errors
/// Fails if the signals cannot be caught.
pub fn end_after(last: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new(END_SIGNALS).map_err(handler_failure)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            last();
            std::process::exit(128 + signal);
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
    thread.map(drop).map_err(handler_failure)
}

/// The signals that end a command.
const END_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn handler_failure(error: std::io::Error) -> Failure {
    Failure::environment(format!("cannot catch Ctrl-C: {error}"), REPORT_KERNEL)
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with EFBIG, like any other failed write.
/// Otherwise SIGXFSZ would end the process without a message, and a server with all its clients.
///
/// # Errors
/// Fails if the signal cannot be caught.
pub fn survive_file_size_limit() -> Result<(), Failure> {
    let caught = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    caught
        .map(|_| ())
        .map_err(|error| Failure::environment(format!("cannot catch SIGXFSZ: {error}"), REPORT_KERNEL))
}
