use super::super::{Event, Reactor, ReactorOptions, Ring};
use super::*;
use crate::{Arena, Device, DeviceOptions, Devices};
use weir_model::{Bytes, DeviceId, DeviceOffset, Io, IoCompletion, IoId, IoKind, Memory};

/// A request whose device is a file, and a clock.
struct Rig {
    dir: tempfile::TempDir,
    latency: LatencyRequest,
    now: Nanos,
}

impl Rig {
    fn new(mode: CpuLatency) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("latency");
        std::fs::write(&device, []).unwrap();
        Self { dir, latency: LatencyRequest::with(mode, &device), now: Nanos::secs(5) }
    }

    /// Returns what the kernel was told last; `None` before it was told anything.
    fn told(&self) -> Option<i32> {
        let bytes = std::fs::read(self.dir.path().join("latency")).unwrap();
        bytes.try_into().ok().map(i32::from_ne_bytes)
    }

    /// Answers a request and waits for this long.
    fn answer(&mut self, wait: Nanos) {
        self.latency.record_answers(1);
        self.wait(wait);
    }

    fn wait(&mut self, wait: Nanos) {
        self.latency.begin_wait(self.now);
        self.now += wait;
        if self.latency.idle_at().is_some_and(|at| self.now >= at) {
            self.latency.withdraw();
        }
        self.latency.end_wait(self.now);
    }

    /// Answers requests for this time, whose waits have this length with the request and without it.
    fn answer_for(&mut self, time: Nanos, with: Nanos, without: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.answer(if self.latency.is_made { with } else { without });
        }
    }

    fn begin_trial(&mut self) {
        while !matches!(self.latency.state, State::Trial { .. }) {
            self.answer(SLOW);
        }
        assert_eq!(self.told(), Some(ZERO));
    }

    fn is_held(&self) -> bool {
        matches!(self.latency.state, State::Held { .. })
    }

    fn is_watching(&self) -> bool {
        matches!(self.latency.state, State::Watch { .. })
    }
}

const FAST: Nanos = Nanos::micros(10);
const SLOW: Nanos = Nanos::micros(30);

#[test]
fn request_is_held_while_it_makes_clients_faster() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(5), FAST, SLOW);
    assert_eq!(rig.told(), None, "nothing is known yet");
    rig.answer_for(Nanos::millis(15), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.latency.state);
    assert_eq!(rig.told(), Some(ZERO));
    // It is tried again, in time.
    let mut with = 0;
    for _ in 0..100_000 {
        with += u32::from(rig.latency.is_made);
        let wait = if rig.latency.is_made { FAST } else { SLOW };
        rig.answer(wait);
    }
    assert!((95_000..100_000).contains(&with), "{with}");
    rig.answer_for(Nanos::millis(300), FAST, FAST);
    assert!(rig.is_watching(), "it changes nothing any more: {:?}", rig.latency.state);
    assert_eq!(rig.told(), Some(WITHDRAWN));
}

#[test]
fn request_is_not_made_again_while_clients_stay_fast_without_it() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(20), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.latency.state);
    // A hypervisor polls, once halts are short.
    rig.answer_for(HOLD, FAST, FAST);
    for _ in 0..100_000 {
        rig.answer(FAST);
        assert!(rig.is_watching(), "{:?}", rig.latency.state);
    }
    assert_eq!(rig.told(), Some(WITHDRAWN));
    // It no longer does.
    rig.answer_for(Nanos::millis(20), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.latency.state);
}

#[test]
fn pauses_double_until_a_trial_succeeds() {
    let mut rig = Rig::new(CpuLatency::Auto);
    let mut pauses = Vec::new();
    for slower in 0..7 {
        // Answers become slower each time, so that the trials wait for the pauses alone.
        let wait = Nanos::micros(30 + 10 * slower);
        rig.latency.paused_until = rig.now;
        rig.answer_for(Nanos::millis(60), wait, wait);
        assert!(rig.is_watching() && rig.told() == Some(WITHDRAWN), "{:?}", rig.latency.state);
        pauses.push(rig.latency.pause);
        let until = rig.latency.paused_until;
        assert!(until > rig.now, "no trial");
        rig.answer_for(Nanos::millis(60), FAST, wait);
        assert!(rig.is_watching() && rig.latency.paused_until == until, "a trial in the pause");
    }
    assert_eq!(pauses, [1000, 2000, 4000, 8000, 8000, 8000, 8000].map(Nanos::millis));
    let until = rig.latency.paused_until;
    rig.answer_for(Nanos::millis(60), FAST, Nanos::micros(200));
    assert!(rig.is_watching() && rig.latency.paused_until == until, "answers are slower, but in the pause");
    rig.latency.paused_until = rig.now;
    rig.answer_for(Nanos::millis(60), FAST, Nanos::micros(200));
    assert!(rig.is_held() && rig.latency.pause == PAUSE_MIN, "{:?}", rig.latency.state);
}

#[test]
fn trial_succeeds_only_if_all_its_periods_are_faster() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::micros(4500), FAST, FAST);
    assert_eq!(rig.told(), None, "after the first answers, two periods take 4 ms");
    for slow_period in 0..PERIODS {
        let mut rig = Rig::new(CpuLatency::Auto);
        rig.begin_trial();
        for period in 0..PERIODS {
            rig.answer_for(PERIOD_TIME, if period == slow_period { SLOW } else { FAST }, SLOW);
        }
        rig.answer_for(Nanos::millis(1), FAST, SLOW);
        assert!(rig.is_watching(), "{slow_period}: {:?}", rig.latency.state);
    }
}

#[test]
fn trials_are_repeated_though_nothing_becomes_slower() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(20), SLOW, SLOW);
    assert!(rig.is_watching(), "{:?}", rig.latency.state);
    rig.answer_for(PAUSE_MIN + PAUSE_MAX - Nanos::millis(100), FAST, SLOW);
    assert!(rig.is_watching(), "{:?}", rig.latency.state);
    rig.answer_for(Nanos::millis(200), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.latency.state);
}

#[test]
fn slower_clients_keep_nothing_awake() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(50), SLOW, FAST);
    assert_eq!(rig.told(), Some(WITHDRAWN));
    assert!(rig.is_watching(), "{:?}", rig.latency.state);
}

#[test]
fn idle_server_withdraws_request() {
    for mode in [CpuLatency::Auto, CpuLatency::Low] {
        let mut rig = Rig::new(mode);
        rig.answer_for(Nanos::millis(50), FAST, SLOW);
        for _ in 0..3 {
            rig.answer(TRIAL_IDLE);
            assert_eq!(rig.told(), Some(ZERO), "{mode:?}: a short pause");
            rig.answer(IDLE);
            assert_eq!(rig.told(), Some(WITHDRAWN), "{mode:?}");
            assert_eq!(rig.latency.idle_at(), None);
            rig.answer(FAST);
            assert_eq!(rig.told(), Some(ZERO), "{mode:?}: clients are busy again");
            assert_eq!(rig.latency.idle_at(), Some(rig.now - FAST + IDLE));
        }
        // Other events are no answers.
        for _ in 0..20 {
            rig.wait(Nanos::micros(500));
        }
        assert_eq!(rig.told(), Some(WITHDRAWN), "{mode:?}");
    }
    let mut quiet = Rig::new(CpuLatency::Low);
    quiet.now = Nanos::secs(5);
    (0..9).for_each(|_| quiet.wait(FAST));
    assert_eq!(quiet.told(), None, "nothing was answered yet");
}

#[test]
fn clients_that_do_not_wait_get_no_trial() {
    let mut rig = Rig::new(CpuLatency::Auto);
    for _ in 0..10_000 {
        rig.latency.record_answers(2);
        rig.answer(SLOW);
    }
    assert_eq!(rig.told(), None);
    rig.answer_for(Nanos::millis(50), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.latency.state);
    rig.latency.record_pipelining();
    rig.answer(FAST);
    assert_eq!(rig.told(), Some(WITHDRAWN));
    let mut low = Rig::new(CpuLatency::Low);
    low.latency.record_answers(2);
    low.answer(FAST);
    assert_eq!(low.told(), Some(ZERO), "always while clients are busy");
}

#[test]
fn idle_time_is_no_part_of_a_trial() {
    let mut rig = Rig::new(CpuLatency::Auto);
    for _ in 0..200 {
        // Fewer answers than a period needs.
        (0..PERIOD_ANSWERS / 2).for_each(|_| rig.answer(SLOW));
        rig.answer(Nanos::millis(2));
        assert_eq!(rig.latency.state, State::Watch { recent: Vec::new(), expected: None });
    }
    assert_eq!(rig.told(), None);
}

#[test]
fn idle_time_ends_a_trial() {
    for is_idle in [true, false] {
        let mut rig = Rig::new(CpuLatency::Auto);
        rig.begin_trial();
        if is_idle {
            rig.answer(TRIAL_IDLE);
        } else {
            rig.latency.record_pipelining();
            rig.answer(FAST);
        }
        assert_eq!((rig.is_watching(), rig.told()), (true, Some(WITHDRAWN)), "{is_idle}");
        rig.answer_for(PAUSE_MIN - Nanos::millis(10), FAST, SLOW);
        assert!(rig.is_watching(), "{is_idle}: trials follow each other without a pause");
        rig.answer_for(Nanos::millis(40), FAST, SLOW);
        assert!(rig.is_held(), "{is_idle}: {:?}", rig.latency.state);
    }
}

#[test]
fn auto_is_off_where_it_costs_more_than_it_gains() {
    let auto = [-1, 0, 1, 2, 8, 9, 512].map(|processors| CpuLatency::Auto.on(processors));
    let (on, off) = (CpuLatency::Auto, CpuLatency::Off);
    assert_eq!(auto, [off, off, off, on, on, off, off]);
    assert_eq!([CpuLatency::Low.on(1), CpuLatency::Low.on(512)], [CpuLatency::Low; 2]);
}

#[test]
fn request_is_not_made_where_it_is_off_or_refused() {
    let mut rig = Rig::new(CpuLatency::Off);
    rig.answer_for(Nanos::millis(50), FAST, SLOW);
    assert_eq!((rig.told(), rig.latency.idle_at()), (None, None));
    for mode in [CpuLatency::Auto, CpuLatency::Low] {
        let mut rig = Rig::new(mode);
        rig.latency.device = rig.dir.path().join("none/such");
        rig.answer_for(Nanos::millis(50), FAST, SLOW);
        assert_eq!((&rig.latency.state, rig.latency.idle_at()), (&State::Off, None), "{mode:?}");
    }
}

#[test]
fn gain_is_a_tenth() {
    assert!(is_gain(100, 110) && is_gain(u64::MAX / 2, u64::MAX));
    assert!(!is_gain(100, 109) && !is_gain(100, 100) && !is_gain(110, 100));
}

/// Returns a reactor with this request, and a file in memory as its device if there is one.
fn reactor(ring: Ring, latency: LatencyRequest, folder: Option<&Path>) -> (Reactor, Arena) {
    let options = ReactorOptions { ring, cpu_latency: CpuLatency::Off, ..ReactorOptions::default() };
    let arena = Arena::new(Bytes::mib(1)).unwrap();
    let mut devices = Devices::new();
    if let Some(folder) = folder {
        let options = DeviceOptions { size: Some(Bytes::mib(1)), ..DeviceOptions::default() };
        devices.insert(DeviceId(0), Device::open(&folder.join("disk"), &options).unwrap()).unwrap();
    }
    let mut reactor = Reactor::new(&options, devices, &arena).unwrap();
    reactor.cpu_latency = latency;
    (reactor, arena)
}

/// A busy reactor makes the request, and one that sleeps for long withdraws it, also if something that is no
/// event (here a signal) has interrupted the sleep.
#[test]
fn reactor_withdraws_request_while_it_sleeps_for_long() {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing; no other test uses this signal.
    unsafe { libc::signal(libc::SIGUSR2, ignore as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    for (ring, is_interrupted) in [(Ring::Auto, false), (Ring::Auto, true), (Ring::Plain, true)] {
        let rig = Rig::new(CpuLatency::Low);
        let (device, told) = (rig.latency.device.clone(), || rig.told());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let latency = LatencyRequest::with(CpuLatency::Low, &device);
                let (mut reactor, _arena) = reactor(ring, latency, None);
                let waker = reactor.waker();
                let mut events = Vec::new();
                // On a busy machine even the wait for an event that is there can take long.
                while !reactor.cpu_latency.is_made {
                    reactor.record_answers(1);
                    waker.wake();
                    reactor.wait(None, &mut events);
                }
                events.clear();
                // SAFETY: the call has no preconditions.
                sender.send((reactor.waker(), unsafe { libc::pthread_self() })).unwrap();
                while events.is_empty() {
                    reactor.wait(None, &mut events);
                }
            });
            let (waker, thread) = receiver.recv().unwrap();
            if is_interrupted {
                std::thread::sleep(std::time::Duration::from_millis(1));
                // SAFETY: the thread ends after it has been woken, below.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
            }
            let withdrawn = (0..3000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                told() == Some(WITHDRAWN)
            });
            waker.wake();
            assert!(withdrawn, "{ring:?}, {is_interrupted}: it sleeps, and the request is still made");
        });
    }
}

/// Sleeps that end early, as before the completion of a paced command, are no idle time.
#[test]
fn short_waits_without_events_keep_request() {
    let rig = Rig::new(CpuLatency::Low);
    let (mut reactor, _arena) =
        reactor(Ring::Auto, LatencyRequest::with(CpuLatency::Low, &rig.latency.device), None);
    let mut events = Vec::new();
    let mut checked = 0;
    for _ in 0..1000 {
        let start = reactor.now();
        reactor.record_answers(1);
        for _ in 0..3 {
            reactor.wait(Some(reactor.now() + Nanos::micros(20)), &mut events);
        }
        // A busy machine can interrupt this for longer.
        if reactor.now() - start < IDLE {
            assert_eq!(rig.told(), Some(ZERO));
            checked += 1;
        }
    }
    assert!(checked > 0 && events.is_empty(), "{checked} checked, {events:?}");
    reactor.record_answers(1);
    reactor.cpu_latency.request(true);
    drop(reactor);
    assert_eq!(rig.told(), Some(WITHDRAWN), "it no longer serves");
}

#[test]
fn reactor_counts_answers_for_trials() {
    let mut rig = Rig::new(CpuLatency::Auto);
    let latency = std::mem::replace(&mut rig.latency, LatencyRequest::with(CpuLatency::Off, Path::new("")));
    let device = latency.device.clone();
    let (mut reactor, _arena) = reactor(Ring::Auto, latency, None);
    let (waker, mut events) = (reactor.waker(), Vec::new());
    // Busy machines interrupt trials, so it may take several attempts.
    let tries = (0..1_000_000).any(|_| {
        waker.wake();
        reactor.wait(None, &mut events);
        events.clear();
        reactor.record_answers(1);
        reactor.cpu_latency.is_made
    });
    assert!(tries, "no trial has begun");
    assert_eq!(std::fs::read(device).unwrap(), ZERO.to_ne_bytes());
}

#[test]
fn long_writes_that_another_thread_copies_end_request_and_polling() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return println!("no folder in /dev/shm: this is not tested");
    };
    let rig = Rig::new(CpuLatency::Auto);
    let mut latency = LatencyRequest::with(CpuLatency::Auto, &rig.latency.device);
    latency.state = State::Held { until: Nanos(u64::MAX), rate: 1 };
    latency.request(true);
    let (mut reactor, mut arena) = reactor(Ring::Auto, latency, Some(folder.path()));
    if reactor.ring() == Ring::Plain {
        return println!("io_uring is refused: this is not tested");
    }
    reactor.polling.set_time(Nanos::micros(50));
    assert_eq!(reactor.polling_time(Nanos(0)), Nanos::micros(50));
    let buffer = arena.take(Bytes::kib(64)).unwrap();
    let kind = IoKind::Write { fua: false };
    reactor.start(Io { id: IoId(0), device: DeviceId(0), kind, at: DeviceOffset(0), buffer });
    assert!(reactor.disks.has_offloaded());
    assert_eq!(reactor.polling_time(Nanos(0)), Nanos(0), "the copy needs the processor");
    let mut events = Vec::new();
    while events.is_empty() {
        reactor.wait(None, &mut events);
    }
    assert!(matches!(events[..], [Event::Io(IoCompletion { result: Ok(()), .. })]), "{events:?}");
    assert_eq!(reactor.polling.time(reactor.now()), Nanos(0));
    assert!(matches!(reactor.cpu_latency.state, State::Watch { .. }), "{:?}", reactor.cpu_latency.state);
    arena.give(buffer);
}
