//! CPU latency: idle processors stay awake while this makes clients faster.
//!
//! A processor without work halts. Waking it takes 20 to 40 µs in a virtual machine and up to 100 µs where
//! it sleeps deeply, which is more than a request takes. A client that waits for each answer pays this each
//! time, for the server's processor and for its own. Polling in the server spares it the former only.
//!
//! Source: Linux's PM quality of service (`Documentation/power/pm_qos_interface.rst`): while a process
//! requests a latency of 0 through `/dev/cpu_dma_latency`, idle processors poll instead of halting, all of
//! them. The kernel withdraws the request of a process that ends.
//!
//! Rule: a trial compares [`PERIODS`] periods without the request and as many after it was made. If clients
//! got answers [`GAIN_PERCENT`] faster in the slowest of the latter than in the fastest of the former, the
//! request stays for [`HOLD`]. It is then withdrawn, since often it is no longer needed: the hypervisor of a
//! virtual machine polls, too, once halts are short. The next trial follows when answers have become slower.
//! After a trial without success there is none for a pause, which doubles. A time of [`TRIAL_IDLE`] without
//! an answer ends a trial, and one of [`IDLE`] withdraws the request until the next answer, so that an idle
//! server costs nothing. Clients that do not wait for each answer get no trial: while the server wakes, more
//! requests arrive, and it answers them together.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weir_model::Nanos;

/// The kernel's interface.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Requested latency, and the value that withdraws the request (`PM_QOS_DEFAULT_VALUE`).
const ZERO: i32 = 0;
const WITHDRAWN: i32 = -1;

/// With more processors than this, those that stay awake for nothing cost more than a client gains.
const PROCESSORS_MAX: i64 = 8;
/// Number of periods without the request and with it that a trial compares. If the request changes nothing,
/// at most one trial in 20 succeeds by chance.
const PERIODS: usize = 3;
/// A period has at least this many answers and takes at least this long.
const PERIOD_ANSWERS: u64 = 64;
const PERIOD_TIME: Nanos = Nanos::millis(2);
/// How much faster answers must be, in percent.
const GAIN_PERCENT: u64 = 10;
/// How long the request stays after a successful trial.
const HOLD: Nanos = Nanos::millis(250);
/// Pauses after trials without success: the first one, and the longest. [`PAUSE_MAX`] after the
/// end of a pause the next trial does not wait for answers to become slower.
const PAUSE_MIN: Nanos = Nanos::millis(500);
const PAUSE_MAX: Nanos = Nanos::secs(8);
/// A time this long without an answer ends a trial.
const TRIAL_IDLE: Nanos = Nanos::millis(1);
/// A time this long without an answer withdraws the request.
const IDLE: Nanos = Nanos::millis(5);

/// Whether a reactor keeps idle processors awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuLatency {
    /// While clients are served faster for it, on machines with two to eight processors.
    #[default]
    Auto,
    /// While clients are busy.
    Low,
    /// Never.
    Off,
}

impl CpuLatency {
    /// Returns the mode on a machine with this number of processors.
    fn on(self, processors: i64) -> Self {
        let pays = (2..=PROCESSORS_MAX).contains(&processors);
        if self == Self::Auto && !pays { Self::Off } else { self }
    }
}

/// The request to the kernel, and the trials that decide about it.
#[derive(Debug)]
pub(super) struct LatencyRequest {
    device: PathBuf,
    /// The open device; `None` before the first request.
    file: Option<File>,
    is_made: bool,
    state: State,
    /// Next pause after a trial without success, and when the last one ends.
    pause: Nanos,
    paused_until: Nanos,
    /// True if since the last wait a client has sent a request before it had the answer to another.
    is_pipelined: bool,
    /// Number of answers since the period began.
    answered: u64,
    period_start: Nanos,
    /// Whether there was an answer since the last wait, and the time of the last one before that.
    has_answered: bool,
    last_answer: Nanos,
}

/// Answers per second in each of some periods.
type Rates = Vec<u64>;

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The request is never made (again).
    Off,
    /// The request is made while clients are busy.
    Always,
    /// The request is not made: the last periods, and the rate of the last trial with it.
    Watch { recent: Rates, expected: Option<u64> },
    /// The request is made for a trial: the fastest period before, and those since.
    Trial { before: u64, with: Rates },
    /// The request is made while clients are busy; the rate of the trial.
    Held { until: Nanos, rate: u64 },
}

impl LatencyRequest {
    pub(super) fn new(mode: CpuLatency) -> Self {
        // SAFETY: the call has no preconditions.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        Self::with(mode.on(processors), Path::new(DEVICE))
    }

    fn with(mode: CpuLatency, device: &Path) -> Self {
        let state = match mode {
            CpuLatency::Off => State::Off,
            CpuLatency::Low => State::Always,
            CpuLatency::Auto => State::Watch { recent: Vec::new(), expected: None },
        };
        Self {
            device: device.to_owned(),
            file: None,
            is_made: false,
            state,
            pause: PAUSE_MIN,
            paused_until: Nanos(0),
            is_pipelined: false,
            answered: 0,
            period_start: Nanos(0),
            has_answered: false,
            last_answer: Nanos(0),
        }
    }

    /// Returns the time at which the reactor must call [`withdraw`](Self::withdraw) if nothing happens
    /// before; `None` if nothing is requested.
    #[inline]
    pub(super) fn idle_at(&self) -> Option<Nanos> {
        self.is_made.then(|| self.last_answer + self.idle_time())
    }

    fn idle_time(&self) -> Nanos {
        if matches!(self.state, State::Watch { .. } | State::Trial { .. }) { TRIAL_IDLE } else { IDLE }
    }

    /// Withdraws the request until the next answer.
    pub(super) fn withdraw(&mut self) {
        self.request(false);
    }

    /// Records the number of requests answered since the last wait.
    #[inline]
    pub(super) fn record_answers(&mut self, answered: usize) {
        self.answered += answered as u64;
        self.has_answered |= answered > 0;
        self.is_pipelined |= answered > 1;
    }

    /// Records that clients send the next request before they have the answer to the last.
    #[inline]
    pub(super) fn record_pipelining(&mut self) {
        self.is_pipelined = true;
    }

    /// Records that a wait begins now.
    #[inline]
    pub(super) fn begin_wait(&mut self, now: Nanos) {
        if std::mem::take(&mut self.has_answered) {
            self.last_answer = now;
        }
    }

    /// Adapts to a wait that ends now.
    #[inline]
    pub(super) fn end_wait(&mut self, now: Nanos) {
        let is_pipelined = std::mem::take(&mut self.is_pipelined);
        let is_busy = now.since(self.last_answer) < self.idle_time();
        match self.state {
            State::Off => {}
            State::Always => self.request(is_busy),
            State::Held { until, .. } if now < until && !is_pipelined => self.request(is_busy),
            State::Held { rate, .. } => self.watch(now, Some(rate)),
            State::Watch { expected, .. } if !is_busy || is_pipelined => self.watch(now, expected),
            State::Trial { .. } if !is_busy || is_pipelined => {
                self.paused_until = now + self.pause;
                self.watch(now, None);
            }
            State::Watch { .. } | State::Trial { .. } => {
                let time = now.since(self.period_start);
                if self.answered >= PERIOD_ANSWERS && time >= PERIOD_TIME {
                    let rate = u128::from(self.answered) * 1_000_000_000 / u128::from(time.0);
                    self.end_period(now, rate as u64);
                }
            }
        }
    }

    /// Withdraws the request and begins to watch the rate.
    fn watch(&mut self, now: Nanos, expected: Option<u64>) {
        let mut rates = match &mut self.state {
            State::Watch { recent: rates, .. } | State::Trial { with: rates, .. } => std::mem::take(rates),
            State::Off | State::Always | State::Held { .. } => Vec::with_capacity(PERIODS + 1),
        };
        rates.clear();
        self.state = State::Watch { recent: rates, expected };
        self.begin_period(now, false);
    }

    fn end_period(&mut self, now: Nanos, rate: u64) {
        match &mut self.state {
            State::Watch { recent, expected } => {
                recent.push(rate);
                recent.drain(..recent.len().saturating_sub(PERIODS));
                let fastest = recent.iter().copied().max().unwrap_or_default();
                let is_slow = expected.is_none_or(|expected| is_gain(fastest, expected))
                    || now >= self.paused_until + PAUSE_MAX;
                let tries = recent.len() == PERIODS && is_slow && now >= self.paused_until;
                if tries {
                    self.state = State::Trial { before: fastest, with: Vec::with_capacity(PERIODS) };
                }
                self.begin_period(now, tries);
            }
            State::Trial { before, with } => {
                with.push(rate);
                let slowest = with.iter().copied().min().unwrap_or_default();
                if with.len() == PERIODS {
                    tracing::debug!(before, ?with, "answers per second while idle processors stay awake");
                }
                if with.len() < PERIODS {
                    self.begin_period(now, true);
                } else if is_gain(*before, slowest) {
                    self.state = State::Held { until: now + HOLD, rate: slowest };
                    (self.pause, self.paused_until) = (PAUSE_MIN, now);
                } else {
                    self.paused_until = now + self.pause;
                    self.pause = Nanos(self.pause.0 * 2).min(PAUSE_MAX);
                    self.watch(now, Some(slowest));
                }
            }
            State::Off | State::Always | State::Held { .. } => {}
        }
    }

    fn begin_period(&mut self, now: Nanos, with_request: bool) {
        (self.answered, self.period_start) = (0, now);
        self.request(with_request);
    }

    /// Makes or withdraws the request.
    fn request(&mut self, made: bool) {
        if self.is_made == made {
            return;
        }
        match self.write(if made { ZERO } else { WITHDRAWN }) {
            Ok(()) => self.is_made = made,
            Err(error) => {
                let device = self.device.display();
                let what =
                    "idle processors cannot be kept awake: clients that wait for each answer may be slower";
                if self.state == State::Always {
                    tracing::warn!(%device, %error, "{what}");
                } else {
                    tracing::info!(%device, %error, "{what}");
                }
                // Closing the device withdraws the request.
                (self.file, self.is_made, self.state) = (None, false, State::Off);
            }
        }
    }

    fn write(&mut self, latency: i32) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::options().write(true).open(&self.device)?),
        };
        file.write_all_at(&latency.to_ne_bytes(), 0)
    }
}

/// Reports whether the rate `after` is faster than `before` by enough.
fn is_gain(before: u64, after: u64) -> bool {
    u128::from(after) * 100 >= u128::from(before) * u128::from(100 + GAIN_PERCENT)
}

#[cfg(test)]
mod tests;
