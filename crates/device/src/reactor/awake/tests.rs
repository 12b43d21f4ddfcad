//! A reactor's decision to stay awake, with a file as the kernel's interface, and a clock.

mod reactor;

use super::super::cpu_latency::{WITHDRAWN, ZERO};
use super::*;

/// A reactor's decision to stay awake, a file as the kernel's interface, and a clock.
struct Rig {
    dir: tempfile::TempDir,
    awake: Awake,
    for_devices: bool,
    now: Nanos,
}

impl Rig {
    fn new(mode: CpuLatency) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("latency");
        std::fs::write(&device, []).unwrap();
        let awake = Awake::new(LatencyRequest::with(mode, &device), false);
        let mut rig = Self { dir, awake, for_devices: false, now: Nanos(0) };
        rig.wait(Nanos::secs(5));
        rig
    }

    fn device(&self) -> std::path::PathBuf {
        self.dir.path().join("latency")
    }

    /// Returns what the kernel was told last; `None` before it was told anything.
    fn told(&self) -> Option<i32> {
        let bytes = std::fs::read(self.device()).unwrap();
        bytes.try_into().ok().map(i32::from_ne_bytes)
    }

    /// Answers a request and waits for this long.
    fn answer(&mut self, wait: Nanos) {
        self.awake.record_answers(1);
        self.wait(wait);
    }

    fn wait(&mut self, wait: Nanos) {
        self.awake.begin_wait(self.now, self.for_devices);
        self.now += wait;
        if self.awake.idle_at().is_some_and(|at| self.now >= at) {
            self.awake.sleep();
        }
        self.awake.end_wait(self.now);
    }

    /// Answers requests for this time, whose waits have this length if it is awake and if not.
    fn answer_for(&mut self, time: Nanos, with: Nanos, without: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.answer(if self.awake.is_awake { with } else { without });
        }
    }

    fn begin_trial(&mut self) {
        while !matches!(self.awake.state, State::Trial { .. }) {
            self.answer(SLOW);
        }
        assert_eq!(self.told(), Some(ZERO));
    }

    fn is_held(&self) -> bool {
        matches!(self.awake.state, State::Held { .. })
    }

    fn is_watching(&self) -> bool {
        matches!(self.awake.state, State::Watch { .. })
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
    assert!(rig.is_held(), "{:?}", rig.awake.state);
    assert_eq!(rig.told(), Some(ZERO));
    // It is tried again, in time.
    let mut with = 0;
    for _ in 0..100_000 {
        with += u32::from(rig.awake.is_awake);
        let wait = if rig.awake.is_awake { FAST } else { SLOW };
        rig.answer(wait);
    }
    assert!((95_000..100_000).contains(&with), "{with}");
    rig.answer_for(Nanos::millis(300), FAST, FAST);
    assert!(rig.is_watching(), "it changes nothing any more: {:?}", rig.awake.state);
    assert_eq!(rig.told(), Some(WITHDRAWN));
}

#[test]
fn request_is_not_made_again_while_clients_stay_fast_without_it() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(20), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
    // A hypervisor polls, once halts are short.
    rig.answer_for(MEMORY.hold, FAST, FAST);
    for _ in 0..100_000 {
        rig.answer(FAST);
        assert!(rig.is_watching(), "{:?}", rig.awake.state);
    }
    assert_eq!(rig.told(), Some(WITHDRAWN));
    // It no longer does.
    rig.answer_for(Nanos::millis(20), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
}

/// Another load may be as fast as the last one was while the reactor stayed awake, and faster still if it
/// does.
#[test]
fn load_after_an_idle_time_gets_a_trial() {
    let expected = |rig: &Rig| match &rig.awake.state {
        State::Watch { expected, .. } => *expected,
        other => panic!("{other:?}"),
    };
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(20), FAST, SLOW);
    rig.answer_for(MEMORY.hold, FAST, FAST);
    assert!(expected(&rig).is_some());
    rig.wait(NEW_LOAD - Nanos::millis(1));
    rig.answer_for(Nanos::millis(20), FAST, FAST);
    assert!(expected(&rig).is_some(), "it is the same load");
    rig.wait(NEW_LOAD);
    assert_eq!(expected(&rig), None);
    rig.answer_for(Nanos::millis(20), Nanos::micros(5), FAST);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
    rig.wait(NEW_LOAD);
    assert_eq!(expected(&rig), None, "also if it has stayed awake until then");
}

#[test]
fn pauses_double_until_a_trial_succeeds() {
    let mut rig = Rig::new(CpuLatency::Auto);
    let mut pauses = Vec::new();
    for slower in 0..9 {
        // Answers become slower each time, so that the trials wait for the pauses alone.
        let wait = Nanos::micros(30 + 10 * slower);
        rig.awake.paused_until = rig.now;
        rig.answer_for(Nanos::millis(60), wait, wait);
        assert!(rig.is_watching() && rig.told() == Some(WITHDRAWN), "{:?}", rig.awake.state);
        pauses.push(rig.awake.pause);
        let until = rig.awake.paused_until;
        assert!(until > rig.now, "no trial");
        rig.answer_for(Nanos::millis(60), FAST, wait);
        assert!(rig.is_watching() && rig.awake.paused_until == until, "a trial in the pause");
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 8000, 8000].map(Nanos::millis));
    let until = rig.awake.paused_until;
    rig.answer_for(Nanos::millis(60), FAST, Nanos::micros(200));
    assert!(rig.is_watching() && rig.awake.paused_until == until, "answers are slower, but in the pause");
    rig.awake.paused_until = rig.now;
    rig.answer_for(Nanos::millis(60), FAST, Nanos::micros(200));
    assert!(rig.is_held() && rig.awake.pause == PAUSE_MIN, "{:?}", rig.awake.state);
}

#[test]
fn trial_compares_medians_after_a_first_period() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::micros(4500), FAST, FAST);
    assert_eq!(rig.told(), None, "after the first answers, two periods take 4 ms");
    let (fast, slow) = (true, false);
    for (periods, succeeds) in [
        ([slow, fast, fast, fast], true),
        ([slow, slow, fast, fast], true),
        ([slow, fast, slow, fast], true),
        ([fast, fast, slow, slow], false),
        ([fast, slow, slow, fast], false),
        ([fast, slow, slow, slow], false),
    ] {
        let mut rig = Rig::new(CpuLatency::Auto);
        rig.begin_trial();
        for is_fast in periods {
            assert!(matches!(rig.awake.state, State::Trial { .. }), "{periods:?}: {:?}", rig.awake.state);
            rig.answer_for(MEMORY.period, if is_fast { FAST } else { SLOW }, SLOW);
        }
        rig.answer_for(Nanos::millis(1), FAST, SLOW);
        assert_eq!((rig.is_held(), rig.is_watching()), (succeeds, !succeeds), "{periods:?}");
    }
}

#[test]
fn trial_needs_a_median_above_each_rate_before() {
    for (fastest, is_held) in [(Nanos::micros(11), true), (Nanos::micros(9), false)] {
        let mut rig = Rig::new(CpuLatency::Auto);
        rig.answer_for(MEMORY.period, fastest, fastest);
        rig.answer_for(Nanos::millis(15), FAST, SLOW);
        assert_eq!(rig.is_held(), is_held, "{fastest}: {:?}", rig.awake.state);
    }
}

#[test]
fn trial_needs_a_gain() {
    for (with, is_held) in [(Nanos::micros(28), false), (Nanos::micros(27), true)] {
        let mut rig = Rig::new(CpuLatency::Auto);
        rig.answer_for(Nanos::millis(20), with, SLOW);
        assert_eq!(rig.is_held(), is_held, "{with}: {:?}", rig.awake.state);
    }
}

#[test]
fn load_with_device_commands_has_longer_trials() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.for_devices = true;
    rig.begin_trial();
    let start = rig.now;
    assert!(start - Nanos::secs(5) > Nanos(3 * DEVICES.period.0), "{start}");
    // A device is slow once, and commands are in flight during some waits only.
    for nth in 0.. {
        rig.for_devices = nth % DEVICE_WAITS == 0;
        rig.answer(if nth == 50 { DEVICES.idle - Nanos(1) } else { FAST });
        if !matches!(rig.awake.state, State::Trial { .. }) {
            break;
        }
    }
    assert!(rig.is_held(), "{:?}", rig.awake.state);
    assert!(rig.now - start >= Nanos(4 * DEVICES.period.0), "{}", rig.now);
    let held = rig.now;
    while rig.is_held() {
        rig.for_devices = true;
        rig.answer(FAST);
    }
    assert_eq!(rig.now - held, DEVICES.hold);
    // Without commands everything is shorter again.
    rig.for_devices = false;
    rig.answer_for(Nanos::millis(20), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
}

#[test]
fn rate_that_is_expected_is_the_last_one_awake() {
    let mut rig = Rig::new(CpuLatency::Auto);
    // Answers become faster while the reactor stays awake.
    rig.answer_for(Nanos::millis(20), Nanos::micros(20), SLOW);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
    while rig.is_held() {
        rig.answer(FAST);
    }
    assert_eq!(rig.awake.state, State::Watch { recent: Vec::new(), expected: Some(100_000) });
    // This is slower than that.
    rig.answer_for(Nanos::millis(20), FAST, Nanos::micros(20));
    assert!(rig.is_held(), "{:?}", rig.awake.state);
}

#[test]
fn load_that_is_twice_as_fast_gets_a_trial() {
    for (wait, is_tried) in [(Nanos::micros(6), false), (Nanos(4900), true)] {
        let mut rig = Rig::new(CpuLatency::Auto);
        rig.answer_for(Nanos::millis(20), FAST, SLOW);
        assert!(rig.is_held(), "{:?}", rig.awake.state);
        rig.answer_for(MEMORY.hold, FAST, FAST);
        let paused_until = rig.awake.paused_until;
        rig.answer_for(Nanos::millis(40), wait, wait);
        assert!(rig.is_watching(), "{wait}: {:?}", rig.awake.state);
        assert_eq!(rig.awake.paused_until != paused_until, is_tried, "{wait}");
    }
}

#[test]
fn trials_are_repeated_though_nothing_becomes_slower() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(20), SLOW, SLOW);
    assert!(rig.is_watching(), "{:?}", rig.awake.state);
    rig.answer_for(PAUSE_MIN + PAUSE_MAX - Nanos::millis(100), FAST, SLOW);
    assert!(rig.is_watching(), "{:?}", rig.awake.state);
    rig.answer_for(Nanos::millis(200), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
}

#[test]
fn slower_clients_keep_nothing_awake() {
    let mut rig = Rig::new(CpuLatency::Auto);
    rig.answer_for(Nanos::millis(50), SLOW, FAST);
    assert_eq!(rig.told(), Some(WITHDRAWN));
    assert!(rig.is_watching(), "{:?}", rig.awake.state);
}

#[test]
fn idle_server_withdraws_request() {
    for mode in [CpuLatency::Auto, CpuLatency::Low] {
        let mut rig = Rig::new(mode);
        rig.answer_for(Nanos::millis(50), FAST, SLOW);
        for _ in 0..3 {
            rig.answer(MEMORY.idle);
            assert_eq!(rig.told(), Some(ZERO), "{mode:?}: a short pause");
            rig.answer(IDLE);
            assert_eq!(rig.told(), Some(WITHDRAWN), "{mode:?}");
            assert_eq!(rig.awake.idle_at(), None);
            rig.answer(FAST);
            assert_eq!(rig.told(), Some(ZERO), "{mode:?}: clients are busy again");
            assert_eq!(rig.awake.idle_at(), Some(rig.now - FAST + IDLE));
        }
        // Other events are no answers.
        for _ in 0..20 {
            rig.awake.record_answers(0);
            rig.wait(Nanos::micros(500));
        }
        assert_eq!(rig.told(), Some(WITHDRAWN), "{mode:?}");
    }
    let mut quiet = Rig::new(CpuLatency::Low);
    (0..9).for_each(|_| quiet.wait(FAST));
    assert_eq!(quiet.told(), None, "nothing was answered yet");
}

#[test]
fn idle_time_is_no_part_of_a_trial() {
    let mut rig = Rig::new(CpuLatency::Auto);
    for _ in 0..200 {
        // Fewer answers than a period needs.
        (0..PERIOD_ANSWERS / 2).for_each(|_| rig.answer(SLOW));
        rig.answer(Nanos::millis(2));
        assert_eq!(rig.awake.state, State::Watch { recent: Vec::new(), expected: None });
    }
    assert_eq!(rig.told(), None);
}

#[test]
fn period_has_enough_answers() {
    let mut rig = Rig::new(CpuLatency::Auto);
    let wait = Nanos::micros(500);
    rig.answer_for(Nanos(wait.0 * (3 * PERIOD_ANSWERS - 1)), wait, wait);
    assert_eq!(rig.told(), None);
    rig.answer(wait);
    assert_eq!(rig.told(), Some(ZERO), "the third period ends");
}

#[test]
fn idle_time_ends_a_trial() {
    let mut rig = Rig::new(CpuLatency::Auto);
    for _ in 0..3 {
        rig.begin_trial();
        assert_eq!(rig.awake.idle_at(), Some(rig.awake.last_answer + MEMORY.idle));
        rig.answer(MEMORY.idle);
        assert_eq!((rig.is_watching(), rig.told()), (true, Some(WITHDRAWN)));
        rig.answer_for(PAUSE_BROKEN_OFF - Nanos::millis(10), FAST, SLOW);
        assert!(rig.is_watching(), "trials follow each other without a pause");
        assert_eq!(rig.awake.pause, PAUSE_MIN);
    }
    rig.answer_for(Nanos::millis(40), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
}

#[test]
fn reactor_stays_awake_without_request_where_that_is_off_or_refused() {
    let mut rig = Rig::new(CpuLatency::Off);
    rig.answer_for(Nanos::millis(50), FAST, SLOW);
    assert_eq!((&rig.awake.state, rig.awake.is_awake, rig.told()), (&State::Off, false, None));
    rig.awake = Awake::new(LatencyRequest::with(CpuLatency::Off, &rig.device()), true);
    rig.answer_for(Nanos::millis(50), FAST, SLOW);
    assert!(rig.is_held(), "it polls: {:?}", rig.awake.state);
    assert_eq!((rig.told(), rig.awake.idle_at()), (None, None));
    let refused = LatencyRequest::with(CpuLatency::Auto, &rig.dir.path().join("none/such"));
    rig.awake = Awake::new(refused, false);
    rig.answer_for(Nanos::millis(50), FAST, SLOW);
    assert!(rig.is_held(), "{:?}", rig.awake.state);
    assert_eq!(rig.awake.idle_at(), None);
    rig.answer(IDLE);
    assert!(!rig.awake.is_awake, "nobody asks");
    let refused = LatencyRequest::with(CpuLatency::Low, &rig.dir.path().join("none/such"));
    rig.awake = Awake::new(refused, true);
    rig.answer_for(Nanos::millis(300), SLOW, SLOW);
    assert!(rig.is_watching() && !rig.awake.is_awake, "polling changes nothing: {:?}", rig.awake.state);
}

#[test]
fn gain_is_a_tenth() {
    assert!(is_gain(100, 110) && is_gain(u64::MAX / 2, u64::MAX));
    assert!(!is_gain(100, 109) && !is_gain(100, 100) && !is_gain(110, 100));
}
