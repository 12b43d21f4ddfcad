use super::*;

const WITHIN: Nanos = Nanos::micros(30);

fn auto() -> Polling {
    Polling { mode: Poll::Auto, ..Polling::new(Poll::Off) }
}

#[test]
fn polling_time_adapts_to_client() {
    let mut polling = auto();
    assert_eq!(polling.time(Nanos(0)), Nanos(0), "nothing is known yet");
    let times: Vec<_> = (0..4)
        .map(|_| {
            polling.record_wait(Nanos(0), WITHIN, true, SchedulerStats::default);
            polling.time(Nanos(0))
        })
        .collect();
    assert_eq!(times, [10, 20, 40, 40].map(Nanos::micros), "until it is longer than a wait");
    (0..3).for_each(|_| polling.record_wait(Nanos(0), Nanos::micros(199), true, SchedulerStats::default));
    assert_eq!(polling.time(Nanos(0)), POLL_MAX);
    polling.record_wait(Nanos(0), Nanos::millis(5), true, SchedulerStats::default);
    assert_eq!(polling.time(Nanos(0)), Nanos::micros(100), "one long wait is no rule");
    (0..5).for_each(|_| polling.record_wait(Nanos(0), Nanos::millis(5), true, SchedulerStats::default));
    assert_eq!(polling.time(Nanos(0)), Nanos(0), "nobody asks soon");
    polling.record_wait(Nanos(0), WITHIN, true, SchedulerStats::default);
    polling.record_wait(Nanos(0), WITHIN, false, SchedulerStats::default);
    assert_eq!(polling.time(Nanos(0)), POLL_MIN, "a wait that was to be short tells nothing");
    polling.record_wait(Nanos(0), Nanos::millis(5), false, SchedulerStats::default);
    assert_eq!(polling.time(Nanos(0)), Nanos(0), "nobody asks at all");
}

#[test]
fn polling_pauses_while_requests_are_answered_together() {
    let mut polling = auto();
    let wait = |polling: &mut Polling| {
        polling.record_wait(Nanos(0), WITHIN, true, SchedulerStats::default);
    };
    (0..3).for_each(|_| wait(&mut polling));
    polling.record_answers(1);
    assert_eq!(polling.time(Nanos(0)), Nanos::micros(40));
    polling.record_answers(2);
    for _ in 0..PIPELINED_WAITS {
        assert_eq!(polling.time(Nanos(0)), Nanos(0));
        assert_eq!(polling.time_awake(Nanos(0)), POLL_MAX, "that pays");
        wait(&mut polling);
        polling.record_answers(1);
    }
    assert_eq!(polling.time(Nanos(0)), Nanos::micros(40), "each answer is waited for again");
    polling.record_pipelining();
    assert_eq!(polling.time(Nanos(0)), Nanos(0), "long writes are copied by another thread");
    let mut fixed = Polling::new(Poll::For(WITHIN));
    fixed.record_answers(9);
    fixed.record_pipelining();
    assert_eq!(fixed.time(Nanos(0)), WITHIN, "this time was configured");
}

/// Polls through `looks` checks, two milliseconds apart, with these statistics added before each.
fn poll_through_checks(
    polling: &mut Polling,
    looks: u32,
    now: &mut Nanos,
    all: &mut SchedulerStats,
    each: SchedulerStats,
) {
    for _ in 0..looks {
        *now += Nanos::millis(2);
        *all =
            SchedulerStats { delayed: all.delayed + each.delayed, preempted: all.preempted + each.preempted };
        polling.record_polling();
        (0..CHECK_INTERVAL).for_each(|_| polling.record_wait(*now, WITHIN, true, || *all));
    }
}

#[test]
fn polling_stops_under_processor_contention() {
    let little = SchedulerStats { delayed: Nanos::micros(100), preempted: 4 };
    let contended = SchedulerStats { delayed: Nanos::millis(1), ..little };
    let shared = SchedulerStats { preempted: u64::from(CHECK_INTERVAL), ..little };
    for needed in [contended, shared] {
        let mut polling = auto();
        // The thread was delayed long ago.
        let (mut now, mut all) =
            (Nanos::secs(5), SchedulerStats { delayed: Nanos::secs(4), preempted: 1_000_000 });
        poll_through_checks(&mut polling, 5, &mut now, &mut all, little);
        assert!(polling.time(now) > WITHIN, "{little:?} of two milliseconds is no need");
        poll_through_checks(&mut polling, 1, &mut now, &mut all, needed);
        let awake = if needed == shared { POLL_MAX } else { Nanos(0) };
        assert_eq!([polling.time(now), polling.time_awake(now)], [Nanos(0), awake], "{needed:?}");
        poll_through_checks(&mut polling, 5, &mut now, &mut all, needed);
        now += PAUSE_MIN;
        assert!(polling.time(now) > WITHIN, "it tries again");
        poll_through_checks(&mut polling, 5, &mut now, &mut all, little);
        assert!(polling.time(now) > WITHIN, "nobody did since");
        poll_through_checks(&mut polling, 2, &mut now, &mut all, needed);
        assert_eq!(polling.time(now), Nanos(0));
    }
}

#[test]
fn contention_counts_during_pause_for_preemption() {
    let shared = SchedulerStats { delayed: Nanos(0), preempted: u64::from(CHECK_INTERVAL) };
    let contended = SchedulerStats { delayed: Nanos::millis(1), ..shared };
    let mut polling = auto();
    let (mut now, mut all) = (Nanos::secs(5), SchedulerStats::default());
    poll_through_checks(&mut polling, 2, &mut now, &mut all, shared);
    assert!(polling.time(now) == Nanos(0) && polling.time_awake(now) > WITHIN);
    poll_through_checks(&mut polling, 1, &mut now, &mut all, contended);
    assert_eq!(polling.time_awake(now), Nanos(0));
    now += PAUSE_MIN;
    assert!(polling.time_awake(now) > WITHIN, "it tries again");
    // What happened during the pause does not count.
    all.preempted += 1_000_000;
    poll_through_checks(&mut polling, 1, &mut now, &mut all, SchedulerStats::default());
    assert!(polling.time(now) > WITHIN);
}

/// A device that completes all its commands together makes waits long.
#[test]
fn long_waits_do_not_shorten_polling_while_awake() {
    let contended = SchedulerStats { delayed: Nanos::millis(1), preempted: 0 };
    let mut polling = auto();
    let (mut now, mut all) = (Nanos::secs(5), SchedulerStats::default());
    let mut pass = |polling: &mut Polling, each: SchedulerStats| {
        now += Nanos::millis(2);
        all.delayed += each.delayed;
        polling.record_polling();
        let wait = Nanos::micros(300);
        (0..CHECK_INTERVAL).for_each(|_| polling.record_wait(now, wait, true, || all));
        [polling.time(now), polling.time_awake(now)]
    };
    assert_eq!(pass(&mut polling, SchedulerStats::default()), [Nanos(0), POLL_MAX]);
    assert_eq!(pass(&mut polling, contended), [Nanos(0), Nanos(0)], "another thread needs the processor");
}

/// The thread waits for its processor while it does not poll, and then no longer.
#[test]
fn contention_without_polling_does_not_count() {
    let mut polling = auto();
    let (mut now, mut all) = (Nanos::secs(5), SchedulerStats::default());
    poll_through_checks(&mut polling, 1, &mut now, &mut all, SchedulerStats::default());
    for _ in 0..3 * CHECK_INTERVAL {
        (now, all.delayed) = (now + Nanos::millis(1), all.delayed + Nanos::millis(1));
        polling.record_wait(now, WITHIN, true, || unreachable!("it has not polled"));
    }
    poll_through_checks(&mut polling, 2, &mut now, &mut all, SchedulerStats::default());
    assert_eq!(polling.time_awake(now), POLL_MAX);
    let contended = SchedulerStats { delayed: Nanos::millis(1), preempted: 0 };
    poll_through_checks(&mut polling, 1, &mut now, &mut all, contended);
    assert_eq!(polling.time_awake(now), Nanos(0));
}

#[test]
fn preemption_during_pause_for_contention_does_not_count() {
    let contended = SchedulerStats { delayed: Nanos::millis(1), preempted: 0 };
    let mut polling = auto();
    let (mut now, mut all) = (Nanos::secs(5), SchedulerStats::default());
    poll_through_checks(&mut polling, 2, &mut now, &mut all, contended);
    assert_eq!(polling.time_awake(now), Nanos(0));
    all.preempted += 1_000_000;
    now += PAUSE_MIN;
    poll_through_checks(&mut polling, 1, &mut now, &mut all, SchedulerStats::default());
    assert!(polling.time(now) > WITHIN);
}

#[test]
fn pauses_double_under_steady_contention_and_are_short_again_afterwards() {
    let shared = SchedulerStats { delayed: Nanos(0), preempted: u64::from(CHECK_INTERVAL) };
    let mut polling = auto();
    let (mut now, mut all) = (Nanos::secs(5), SchedulerStats::default());
    let mut pause_of = |polling: &mut Polling| {
        while polling.time(now) == Nanos(0) {
            poll_through_checks(polling, 1, &mut now, &mut all, SchedulerStats::default());
        }
        let pause = polling.preemption.length;
        while polling.time(now) > Nanos(0) {
            poll_through_checks(polling, 1, &mut now, &mut all, shared);
        }
        let left = polling.preemption.until.since(now);
        assert!(left <= pause && left + Nanos::millis(2) >= pause, "{left} of {pause}");
        pause
    };
    let pauses: Vec<_> = (0..8).map(|_| pause_of(&mut polling)).collect();
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000].map(Nanos::millis));
    now += PAUSE_MAX;
    poll_through_checks(&mut polling, 10, &mut now, &mut all, SchedulerStats::default());
    assert_eq!(polling.preemption.length, PAUSE_MIN, "nobody needed the processor");
}

#[test]
fn scheduler_stats_are_read() {
    let before = scheduler_stats();
    std::thread::yield_now();
    let after = scheduler_stats();
    assert!(after.delayed >= before.delayed && after.preempted >= before.preempted, "{after:?}");
}

#[test]
fn fixed_polling_times_are_used() {
    for mode in [Poll::Off, Poll::For(Nanos::micros(7))] {
        let mut polling = Polling::new(mode);
        let before = polling.time(Nanos(0));
        for time in [Nanos(1), WITHIN, Nanos::secs(1)] {
            let scheduled =
                |nth: u32| SchedulerStats { delayed: Nanos::secs(nth.into()), preempted: nth.into() };
            (0..CHECK_INTERVAL).for_each(|nth| polling.record_wait(Nanos(0), time, true, || scheduled(nth)));
        }
        assert_eq!((polling.time(Nanos(0)), mode == Poll::Off), (before, before == Nanos(0)));
    }
}

#[test]
fn quotas_of_parent_groups_are_found() {
    let at = |path: &'static str| Group { is_first: false, path };
    assert_eq!(Group::parse("0::/user.slice/a:b"), Some(at("/user.slice/a:b")));
    assert_eq!(Group::parse("3:cpu,cpuacct:/x"), Some(Group { is_first: true, path: "/x" }));
    assert_eq!((Group::parse("2:memory:/x"), Group::parse("nonsense")), (None, None));
    let files = |path: &str| match path {
        "/sys/fs/cgroup/limited/cpu.max" => Some("50000 100000\n".to_owned()),
        "/sys/fs/cgroup/cpu/first/cpu.cfs_quota_us" => Some("20000\n".to_owned()),
        "/sys/fs/cgroup/cpu/second/cpu.cfs_quota_us" => Some("-1\n".to_owned()),
        "/sys/fs/cgroup/free/cpu.max" => Some("max 100000\n".to_owned()),
        _ => None,
    };
    let found = ["/limited", "/limited/below/it", "/free", "/", ""].map(|path| at(path).has_quota(files));
    assert_eq!(found, [true, true, false, false, false]);
    let first = |path| Group { is_first: true, path }.has_quota(files);
    assert_eq!((first("/first/below"), first("/second")), (true, false));
}
