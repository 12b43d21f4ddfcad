//! Staying awake: neither the reactor nor idle processors sleep while this makes clients faster.
//!
//! Waking a processor takes longer than a request. A client that waits for each answer pays this twice, for
//! the server's processor and for its own; one that has several requests in flight pays it for all of them
//! together; and a device idles from the end of its last command until the reactor has woken and starts the
//! next. While the reactor stays awake, it [polls](super::polling) before it sleeps, and requests that the
//! kernel [keeps idle processors awake](super::cpu_latency).
//!
//! Rule: a trial compares [`PERIODS`] periods without staying awake and as many with it, after one that is
//! not counted. If the median rate of answers is [`GAIN_PERCENT`] higher, and above each one before, the
//! reactor stays awake for [`Timing::hold`]. It then stops, since often it is no longer needed: the
//! hypervisor of a virtual machine polls, too, once halts are short. The next trial follows when answers
//! have become as much slower, or twice as fast, or come again after [`NEW_LOAD`], since this is another
//! load; and at the latest after [`PAUSE_MAX`]. After a trial without success there is none for a pause,
//! which doubles. A time of [`Timing::idle`] without an answer breaks a trial off, and one of [`IDLE`] lets
//! processors sleep until the next answer, so that an idle server costs nothing.

use weir_model::Nanos;

use super::cpu_latency::{CpuLatency, LatencyRequest};

/// Number of periods that a trial compares on either side. If staying awake changes nothing, the median is
/// faster than all before in one of 5 trials.
const PERIODS: usize = 3;
/// A period has at least this many answers.
const PERIOD_ANSWERS: u64 = 64;
/// How much faster answers must be, in percent.
const GAIN_PERCENT: u64 = 10;
/// Pauses after trials without success: the first one, and the longest. [`PAUSE_MAX`] after the
/// end of a pause the next trial does not wait for the rate to change.
const PAUSE_MIN: Nanos = Nanos::millis(50);
const PAUSE_MAX: Nanos = Nanos::secs(8);
/// The pause after a trial that was broken off, which says nothing.
const PAUSE_BROKEN_OFF: Nanos = Nanos::millis(500);
/// A time this long without an answer lets processors sleep.
const IDLE: Nanos = Nanos::millis(5);
/// What clients ask for after a time this long without an answer is another load, whatever its rate.
const NEW_LOAD: Nanos = Nanos::millis(100);
/// Number of waits after which one for devices is forgotten.
const DEVICE_WAITS: u32 = 64;

/// How long things take.
#[derive(Clone, Copy, Debug)]
struct Timing {
    /// A period takes at least this long.
    period: Nanos,
    /// A time this long without an answer breaks a trial off.
    idle: Nanos,
    /// How long the reactor stays awake after a successful trial.
    hold: Nanos,
}

/// The timing while all answers come from memory.
const MEMORY: Timing = Timing { period: Nanos::millis(2), idle: Nanos::millis(1), hold: Nanos::millis(250) };
/// The timing while device commands are in flight, whose service times vary more.
const DEVICES: Timing = Timing { period: Nanos::millis(20), idle: IDLE, hold: Nanos::secs(1) };

/// Whether the reactor stays awake, and the trials that decide about it.
#[derive(Debug)]
pub(super) struct Awake {
    request: LatencyRequest,
    /// Whether the reactor stays awake now.
    is_awake: bool,
    state: State,
    /// Next pause after a trial without success, and when the last one ends.
    pause: Nanos,
    paused_until: Nanos,
    /// Number of waits until the last one for devices is forgotten.
    device_waits: u32,
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
    /// Never awake.
    Off,
    /// Awake while clients are busy.
    Always,
    /// Not awake: the rates of the last periods, and the last rate of this load while it stayed awake.
    Watch { recent: Rates, expected: Option<u64> },
    /// Awake for a trial: the rates of the periods before and since.
    Trial { before: Rates, with: Rates },
    /// Awake while clients are busy: the rates of the last periods.
    Held { until: Nanos, recent: Rates },
}

impl Awake {
    /// Creates the state. `polls` says whether the reactor may decide when to poll.
    pub(super) fn new(request: LatencyRequest, polls: bool) -> Self {
        let state = match request.mode() {
            CpuLatency::Off if !polls => State::Off,
            CpuLatency::Low => State::Always,
            CpuLatency::Off | CpuLatency::Auto => State::Watch { recent: Vec::new(), expected: None },
        };
        Self {
            request,
            is_awake: false,
            state,
            pause: PAUSE_MIN,
            paused_until: Nanos(0),
            device_waits: 0,
            answered: 0,
            period_start: Nanos(0),
            has_answered: false,
            last_answer: Nanos(0),
        }
    }

    /// Reports whether the reactor stays awake.
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.is_awake
    }

    /// Returns the time at which the reactor must call [`sleep`](Self::sleep) if nothing happens before;
    /// `None` if nothing keeps processors awake.
    #[inline]
    pub(super) fn idle_at(&self) -> Option<Nanos> {
        self.request.is_made().then(|| self.last_answer + self.idle_time())
    }

    fn timing(&self) -> Timing {
        if self.device_waits > 0 { DEVICES } else { MEMORY }
    }

    fn idle_time(&self) -> Nanos {
        if matches!(self.state, State::Watch { .. } | State::Trial { .. }) {
            self.timing().idle
        } else {
            IDLE
        }
    }

    /// Lets processors sleep until the next answer.
    pub(super) fn sleep(&mut self) {
        self.stay_awake(false);
    }

    /// Records the number of requests answered since the last wait.
    #[inline]
    pub(super) fn record_answers(&mut self, answered: usize) {
        self.answered += answered as u64;
        self.has_answered |= answered > 0;
    }

    /// Records that a wait begins now, and whether it is one for devices.
    #[inline]
    pub(super) fn begin_wait(&mut self, now: Nanos, for_devices: bool) {
        self.device_waits = if for_devices { DEVICE_WAITS } else { self.device_waits.saturating_sub(1) };
        if std::mem::take(&mut self.has_answered) {
            self.last_answer = now;
        }
    }

    /// Adapts to a wait that ends now.
    #[inline]
    pub(super) fn end_wait(&mut self, now: Nanos) {
        let since_answer = now.since(self.last_answer);
        let is_busy = since_answer < self.idle_time();
        match &self.state {
            State::Off => {}
            // Without the request, only trials show whether polling makes clients faster.
            State::Always if self.request.is_refused() => self.watch(now, None),
            State::Always => self.stay_awake(is_busy),
            State::Watch { .. } | State::Held { .. } if since_answer >= NEW_LOAD => self.watch(now, None),
            State::Watch { expected, .. } if !is_busy => self.watch(now, *expected),
            State::Trial { .. } if !is_busy => {
                self.paused_until = now + PAUSE_BROKEN_OFF;
                self.watch(now, None);
            }
            State::Held { until, recent } if now >= *until => self.watch(now, Some(median(recent))),
            State::Held { .. } if !is_busy || !self.is_awake => self.begin_period(now, is_busy),
            State::Watch { .. } | State::Trial { .. } | State::Held { .. } => {
                let time = now.since(self.period_start);
                if self.answered >= PERIOD_ANSWERS && time >= self.timing().period {
                    let rate = u128::from(self.answered) * 1_000_000_000 / u128::from(time.0);
                    self.end_period(now, rate as u64);
                }
            }
        }
    }

    /// Lets processors sleep and begins to watch the rate.
    fn watch(&mut self, now: Nanos, expected: Option<u64>) {
        let mut rates = match &mut self.state {
            State::Watch { recent: rates, .. }
            | State::Trial { with: rates, .. }
            | State::Held { recent: rates, .. } => std::mem::take(rates),
            State::Off | State::Always => Vec::with_capacity(PERIODS + 1),
        };
        rates.clear();
        self.state = State::Watch { recent: rates, expected };
        self.begin_period(now, false);
    }

    fn end_period(&mut self, now: Nanos, rate: u64) {
        let timing = self.timing();
        match &mut self.state {
            State::Watch { recent, expected } => {
                push(recent, rate);
                let rate = median(recent);
                let has_changed = expected
                    .is_none_or(|expected| is_gain(rate, expected) || rate / 2 > expected)
                    || now >= self.paused_until + PAUSE_MAX;
                let tries = recent.len() == PERIODS && has_changed && now >= self.paused_until;
                if tries {
                    let before = std::mem::take(recent);
                    self.state = State::Trial { before, with: Vec::with_capacity(PERIODS + 1) };
                }
                self.begin_period(now, tries);
            }
            State::Trial { before, with } => {
                with.push(rate);
                if with.len() <= PERIODS {
                    return self.begin_period(now, true);
                }
                tracing::debug!(?before, ?with, "answers per second before and while staying awake");
                // In the first period processors still halt deeply.
                with.remove(0);
                let rate = median(with);
                if is_gain(median(before), rate) && before.iter().all(|before| rate > *before) {
                    self.state = State::Held { until: now + timing.hold, recent: std::mem::take(with) };
                    (self.pause, self.paused_until) = (PAUSE_MIN, now);
                } else {
                    self.paused_until = now + self.pause;
                    self.pause = Nanos(self.pause.0 * 2).min(PAUSE_MAX);
                    self.watch(now, Some(rate));
                }
            }
            State::Held { recent, .. } => {
                push(recent, rate);
                self.begin_period(now, true);
            }
            State::Off | State::Always => {}
        }
    }

    fn begin_period(&mut self, now: Nanos, awake: bool) {
        (self.answered, self.period_start) = (0, now);
        self.stay_awake(awake);
    }

    fn stay_awake(&mut self, awake: bool) {
        self.is_awake = awake;
        self.request.request(awake);
    }
}

/// Adds a rate to the last [`PERIODS`].
fn push(recent: &mut Rates, rate: u64) {
    recent.push(rate);
    recent.drain(..recent.len().saturating_sub(PERIODS));
}

fn median(rates: &[u64]) -> u64 {
    let mut rates = rates.to_vec();
    rates.sort_unstable();
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// Reports whether the rate `after` is faster than `before` by enough.
fn is_gain(before: u64, after: u64) -> bool {
    u128::from(after) * 100 >= u128::from(before) * u128::from(100 + GAIN_PERCENT)
}

#[cfg(test)]
mod tests;
