//! Signals that ask for an end.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set once the user wants an end.
///
/// # Errors
/// If signals cannot be caught.
pub fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| Failure::environment(format!("cannot catch Ctrl-C: {error}"), ""))?;
    }
    Ok(flag)
}
