//! Signals that ask for an end.

use crate::failure::{Failure, REPORT};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set once the user wants an end.
///
/// # Errors
/// If signals cannot be caught.
pub fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in ENDS {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(uncaught)?;
    }
    Ok(flag)
}

/// As [`interruption`]; the second signal ends the process at once, whatever it waits for.
///
/// # Errors
/// If signals cannot be caught.
pub fn interruption_then_end() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in ENDS {
        // First, so that it finds the flag as the signal before has left it.
        let ended = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag));
        ended.and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag))).map_err(uncaught)?;
    }
    Ok(flag)
}

/// The signals that ask for an end.
const ENDS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn uncaught(error: std::io::Error) -> Failure {
    Failure::environment(format!("cannot catch Ctrl-C: {error}"), REPORT)
}

/// Has a write beyond the limit on file sizes (`ulimit -f`) fail as any other may, with EFBIG. The signal
/// would end the process on the way, without a word, and a server's clients with it.
///
/// # Errors
/// If the signal cannot be caught.
pub fn survive_file_size_limit() -> Result<(), Failure> {
    let caught = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    caught.map(|_| ()).map_err(|error| Failure::environment(format!("cannot catch SIGXFSZ: {error}"), REPORT))
}
