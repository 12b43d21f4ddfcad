//! Adaptive polling: how long a reactor polls for events before it sleeps.
//!
//! Waking a thread costs more than a request does, and a client that waits for each reply pays this cost each
//! time. So the reactor first polls the ring's memory for a while, without system calls.
//!
//! Source: halt polling of Linux's KVM (`virt/kvm/kvm_main.c`). Rule: an event that arrives within
//! [`POLL_MAX`], but after the reactor went to sleep, doubles the polling time; a longer wait halves it, and
//! eventually ends polling. So a server without clients does not poll, nor does one whose clients send
//! requests rarely.
//!
//! Polling uses processor time that others may need. It is off on a machine with one processor and under a
//! CPU quota. It pauses when the thread has to wait for its processor, because another thread needs it, and
//! when the thread is preempted in every other wait. The latter means that a client runs on the same
//! processor: polling keeps it from sending requests, and switching to it costs less than waking a processor.
//! It also pauses when several requests were answered at once: their clients do not wait for each answer, and
//! what arrives during a sleep is received and answered together, which costs less than one by one.
//!
//! While the reactor [stays awake](super::awake) only the first of these pauses counts, and the polling time
//! is [`POLL_MAX`] if it adapts: a trial has shown that clients are faster then, or the configuration says
//! that they are. The rule above cannot find that out. A device that completes all its commands together
//! makes waits long, and so does not let the time grow; but polling is what takes its answers apart.

use std::num::NonZero;

use weir_model::Nanos;

/// Initial polling time.
const POLL_MIN: Nanos = Nanos::micros(10);
/// Longest polling time, the same as KVM's. A client on another processor sends its next request within this
/// time after a reply, even if its processor sleeps.
const POLL_MAX: Nanos = Nanos::micros(200);
/// First pause of polling after another thread needed the processor; see [`Pause`].
const PAUSE_MIN: Nanos = Nanos::millis(20);
/// Longest pause.
const PAUSE_MAX: Nanos = Nanos::secs(1);
/// Another thread needs the processor if this thread waits for it for more than one part in this many of the
/// time.
const CONTENDED: u64 = 4;
/// It also does if this thread is preempted in more than one of this many waits.
const PREEMPTED: u64 = 2;
/// Number of waits between two checks of the scheduler's statistics, which take a system call.
const CHECK_INTERVAL: u32 = 64;

/// Number of waits without polling after several requests were answered at once.
const PIPELINED_WAITS: u32 = 64;

/// Whether and how long a reactor polls for events before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// As long as polling pays, and only while no other thread needs the processor.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always for this time.
    For(Nanos),
}

/// The current polling time and the state that adapts it.
#[derive(Debug)]
pub(super) struct Polling {
    mode: Poll,
    time: Nanos,
    /// The pause after the thread had to wait for its processor.
    contention: Pause,
    /// The pause after the thread was often preempted.
    preemption: Pause,
    /// Number of waits until several requests answered at once are forgotten.
    pipelined: u32,
    /// Number of waits since the last check, and whether there was polling in one of them.
    waits: u32,
    has_polled: bool,
}

/// A pause of polling, whose length doubles each time, up to [`PAUSE_MAX`], and halves at each check that
/// finds no need for one: a client that needs the processor once, when it starts, costs little, and one that
/// always needs it is delayed rarely.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Nanos,
    /// Length of the next pause.
    length: Nanos,
    /// Time of the last check since the last pause, and the scheduler's statistics then. Statistics from a
    /// pause say nothing about the polling after it.
    last_check: Option<(Nanos, SchedulerStats)>,
}

impl Pause {
    const NONE: Self = Self { until: Nanos(0), length: PAUSE_MIN, last_check: None };

    fn is_over(&self, now: Nanos) -> bool {
        now >= self.until
    }

    /// Begins a pause if the time since the last check and what the scheduler did meanwhile need one. Does
    /// nothing during a pause.
    fn check(
        &mut self,
        now: Nanos,
        scheduled: SchedulerStats,
        needs_pause: impl Fn(Nanos, SchedulerStats) -> bool,
    ) {
        if !self.is_over(now) {
            return;
        }
        let Some((then, before)) = self.last_check.replace((now, scheduled)) else { return };
        let since = SchedulerStats {
            delayed: scheduled.delayed.since(before.delayed),
            preempted: scheduled.preempted.saturating_sub(before.preempted),
        };
        if needs_pause(now.since(then), since) {
            (self.until, self.last_check) = (now + self.length, None);
            self.length = Nanos(self.length.0 * 2).min(PAUSE_MAX);
        } else {
            self.length = Nanos(self.length.0 / 2).max(PAUSE_MIN);
        }
    }
}

/// The scheduler's statistics of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SchedulerStats {
    /// Total time that the thread has waited for its processor.
    delayed: Nanos,
    /// Number of times that the thread was preempted.
    preempted: u64,
}

impl Polling {
    /// Creates the state. `Auto` becomes `Off` where polling would take processor time from others.
    pub(super) fn new(mode: Poll) -> Self {
        let is_alone = std::thread::available_parallelism().is_ok_and(|count| count == NonZero::<usize>::MIN);
        let mode = if mode == Poll::Auto && (is_alone || has_quota()) { Poll::Off } else { mode };
        let time = if let Poll::For(time) = mode { time } else { Nanos(0) };
        Self {
            mode,
            time,
            contention: Pause::NONE,
            preemption: Pause::NONE,
            pipelined: 0,
            waits: 0,
            has_polled: false,
        }
    }

    /// Reports whether polling adapts; otherwise its time is fixed.
    pub(super) fn adapts(&self) -> bool {
        self.mode == Poll::Auto
    }

    /// Returns how long to poll before a sleep that begins now; 0 means not at all.
    #[inline]
    pub(super) fn time(&self, now: Nanos) -> Nanos {
        let is_off = self.pipelined > 0 || !self.preemption.is_over(now) || !self.contention.is_over(now);
        if is_off { Nanos(0) } else { self.time }
    }

    /// The same while the reactor [stays awake](super::awake).
    #[inline]
    pub(super) fn time_awake(&self, now: Nanos) -> Nanos {
        match self.mode {
            Poll::Auto if self.contention.is_over(now) => POLL_MAX,
            Poll::Auto | Poll::Off => Nanos(0),
            Poll::For(time) => time,
        }
    }

    /// Records that the wait in progress begins with polling.
    #[inline]
    pub(super) fn record_polling(&mut self) {
        self.has_polled = true;
    }

    /// Records the number of requests answered since the last wait.
    #[inline]
    pub(super) fn record_answers(&mut self, answered: usize) {
        if answered > 1 {
            self.record_pipelining();
        }
    }

    /// Records that clients do not wait for each answer.
    #[inline]
    pub(super) fn record_pipelining(&mut self) {
        if self.mode == Poll::Auto {
            self.pipelined = PIPELINED_WAITS;
        }
    }

    /// Adapts to a wait that has ended, by an event or at its deadline. `time` is its length including
    /// polling; `scheduled` returns the scheduler's statistics of this thread.
    #[inline]
    pub(super) fn record_wait(
        &mut self,
        now: Nanos,
        time: Nanos,
        has_event: bool,
        scheduled: impl FnOnce() -> SchedulerStats,
    ) {
        if self.mode != Poll::Auto {
            return;
        }
        self.pipelined = self.pipelined.saturating_sub(1);
        if time > POLL_MAX {
            self.time = if self.time > POLL_MIN { Nanos(self.time.0 / 2) } else { Nanos(0) };
        } else if has_event && time > self.time {
            self.time = Nanos(self.time.0 * 2).clamp(POLL_MIN, POLL_MAX);
        }
        self.waits = self.waits.saturating_add(1);
        if self.waits >= CHECK_INTERVAL && self.contention.is_over(now) {
            if self.has_polled {
                self.check_scheduler(now, scheduled());
            } else {
                // What happened without polling says nothing about it.
                self.waits = 0;
                (self.contention.last_check, self.preemption.last_check) = (None, None);
            }
        }
    }

    /// Reports whether there was polling since the last check.
    #[cfg(test)]
    pub(super) fn has_polled(&self) -> bool {
        self.has_polled
    }

    /// Sets the current polling time.
    #[cfg(test)]
    pub(super) fn set_time(&mut self, time: Nanos) {
        (self.mode, self.time) = (Poll::Auto, time);
    }

    fn check_scheduler(&mut self, now: Nanos, scheduled: SchedulerStats) {
        let waits = u64::from(std::mem::take(&mut self.waits));
        self.has_polled = false;
        self.contention.check(now, scheduled, |time, since| since.delayed.0 > time.0 / CONTENDED);
        if self.contention.is_over(now) {
            self.preemption.check(now, scheduled, |_, since| since.preempted > waits / PREEMPTED);
        } else {
            self.preemption.last_check = None;
        }
    }
}

/// Returns the scheduler's statistics of this thread; zeros where the kernel does not provide them.
pub(super) fn scheduler_stats() -> SchedulerStats {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let delayed = told.split(' ').nth(1).and_then(|delay| delay.parse().ok()).unwrap_or_default();
    // SAFETY: the kernel fills in the whole structure, of which zeros are a valid value.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        (libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) == 0).then_some(usage)
    };
    let preempted = usage.map_or(0, |usage| usage.ru_nivcsw.unsigned_abs());
    SchedulerStats { delayed: Nanos(delayed), preempted }
}

/// Reports whether a control group limits the processor time of this process.
fn has_quota() -> bool {
    let Ok(groups) = std::fs::read_to_string("/proc/self/cgroup") else { return false };
    groups
        .lines()
        .filter_map(Group::parse)
        .any(|group| group.has_quota(|path| std::fs::read_to_string(path).ok()))
}

/// A line of `/proc/self/cgroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group<'l> {
    /// True for the version 1 hierarchy of processor time, false for version 2.
    is_first: bool,
    path: &'l str,
}

impl<'l> Group<'l> {
    /// Parses a line; returns `None` for hierarchies that do not control processor time.
    fn parse(line: &'l str) -> Option<Self> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_first = controllers.split(',').any(|name| name == "cpu");
        (is_first || controllers.is_empty()).then_some(Self { is_first, path })
    }

    /// Reports whether the group or one above it has a quota; `read` reads a file.
    fn has_quota(&self, read: impl Fn(&str) -> Option<String>) -> bool {
        let (root, file) = match self.is_first {
            true => ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"),
            false => ("/sys/fs/cgroup", "cpu.max"),
        };
        let is_limit = |text: String| text.trim_start().starts_with(|first: char| first.is_ascii_digit());
        let mut path = self.path.trim_end_matches('/');
        loop {
            if read(&format!("{root}{path}/{file}")).is_some_and(is_limit) {
                return true;
            }
            let Some(end) = path.rfind('/') else { return false };
            path = &path[..end];
        }
    }
}

#[cfg(test)]
mod tests;
