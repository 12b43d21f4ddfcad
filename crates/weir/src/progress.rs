//! Progress on standard error for work that takes longer than a second; shown on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Returns a progress bar of `steps` units of `what`; it is shown on a terminal only.
pub fn bar(steps: usize, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64).with_message(what);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} ({elapsed}, {eta} left)") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Runs `work`, and shows `what` if it takes longer than a second.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, until_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if until_done.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                spinner.set_style(style);
            }
            while until_done.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                spinner.tick();
            }
            spinner.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}
