//! The judge on small pools: two devices, each a single queue, whose responses are computed by hand.

use super::*;
use proptest::prelude::*;
use weir_model::{Bytes, ExtentIndex, VolumeId};

const RULES: Rules = Rules {
    sample: 1,
    window: Nanos::secs(10),
    commands: 100,
    margin: 0.1,
    pause: Nanos::secs(60),
    longest_pause: Nanos::secs(200),
};

fn key(index: u64) -> ExtentKey {
    ExtentKey { volume: VolumeId(0), index: ExtentIndex(index) }
}

/// A window with this rate of commands per second, and the fractions of them on the second device: where they
/// went, and where their extents were first. The service times are in microseconds; queues are those of
/// random arrivals.
struct Window {
    rate: f64,
    went: f64,
    first: f64,
    service: [u64; 2],
    /// The fraction of the first device's time that the mover takes.
    mover: f64,
}

impl Window {
    fn judge(&self, judge: &mut Judge, now: Nanos) -> ReviewOutcome {
        let seconds = RULES.window.as_secs_f64();
        let clients = [1.0 - self.went, self.went].map(|part| part * self.rate);
        let busy: Vec<_> = (0..2)
            .map(|i| clients[i] * self.service[i] as f64 / 1e6 + if i == 0 { self.mover } else { 0.0 })
            .collect();
        let mut curves = vec![Curves::default(); 2];
        let all = (self.rate * seconds) as u64;
        for i in 0..all {
            let part = (i as f64 + 0.5) / all as f64;
            let device = usize::from(part < self.went);
            let depth = (1.0 / (1.0 - busy[device].min(0.95))).round().max(1.0) as u32;
            let took = Nanos::micros(self.service[device]);
            let response = Nanos(took.0 * u64::from(depth));
            let command = MeasuredCommand::new(false, Bytes::kib(4), depth, response, took);
            curves[device].note(now, &command);
            let of = Bytes::kib(4);
            let done = SampledCommand {
                device: DeviceId(device as u8),
                command,
                access_bytes: of,
                in_flight: 2 * depth,
            };
            let first = DeviceId(u8::from(part < self.first));
            judge.note(key(i), &done, || Some(first));
        }
        // The result of a probe where no command goes.
        for (device, curves) in curves.iter_mut().enumerate() {
            let took = Nanos::micros(self.service[device]);
            curves.note(now, &MeasuredCommand::new(false, Bytes::kib(4), 1, took, took));
        }
        let uses = [0, 1].map(|i| DeviceUse {
            busy: Nanos::from_secs_f64(busy[i].min(1.0) * seconds),
            mover_busy: Nanos::from_secs_f64(if i == 0 { self.mover * seconds } else { 0.0 }),
        });
        judge.review(now, now - RULES.window, &uses, &curves)
    }
}

const FAST_TO_SLOW: Window = Window { rate: 100.0, went: 1.0, first: 0.0, service: [100, 5000], mover: 0.0 };

#[test]
fn sample_fraction_is_as_configured() {
    let moves = MoveControl::default();
    let sampled = (0..1 << 20).filter(|i| moves.samples(key(*i))).count();
    assert!((3600..=4600).contains(&sampled), "{sampled}");
    let runs = (0..1u64 << 16).filter(|i| moves.samples(key(i * 8))).count();
    assert!((150..=400).contains(&runs), "extents at a distance: {runs}");
    // In a small pool all extents are sampled, in one twice as large as the minimum every second one.
    let sampled = |extents: u64| {
        let moves = moves.for_pool_of(extents);
        (0..extents).filter(|i| moves.samples(key(*i))).count()
    };
    assert_eq!(sampled(1000), 1000);
    assert!((900..1150).contains(&sampled(2048)), "{}", sampled(2048));
    assert_eq!(MoveControl::default().for_pool_of(1 << 30), MoveControl::default());
    assert!(!MoveControl::Disabled.samples(key(0)));
}

/// Simulates reads of 64 KiB on two devices that are alike: each in this many commands, alternating between
/// the devices. A command takes 20 microseconds of a device's time, and 1 for each 4 KiB.
fn striped_by_mover(commands: u64) -> (Estimate, Option<Verdict>) {
    let (mut judge, mut curves) = (Judge::new(MoveControl::Judged(RULES)), vec![Curves::default(); 2]);
    let now = Nanos::secs(10);
    let took = |bytes: Bytes| Nanos::micros(20 + bytes.0 / 4096);
    let of = Bytes::kib(64);
    let len = Bytes(of.0 / commands);
    for i in 0..10_000u64 {
        for part in 0..commands {
            let device = ((i + part) % 2) as usize;
            let command = MeasuredCommand::new(false, len, 4, Nanos(4 * took(len).0), took(len));
            curves[device].note(now, &command);
            let done =
                SampledCommand { device: DeviceId(device as u8), command, access_bytes: of, in_flight: 8 };
            judge.note(key(i), &done, || Some(DeviceId((i % 2) as u8)));
        }
    }
    for curves in &mut curves {
        curves.note(now, &MeasuredCommand::new(false, of, 4, Nanos(4 * took(of).0), took(of)));
    }
    let used = Nanos(took(len).0 * 5_000 * commands);
    let uses = [DeviceUse { busy: used, mover_busy: Nanos(0) }; 2];
    // The devices are fully busy.
    let ReviewOutcome::Finished(verdict) = judge.review(now, now - used, &uses, &curves) else {
        panic!("enough")
    };
    (judge.last().expect("judged"), verdict)
}

#[test]
fn splitting_extents_is_paused() {
    let (whole, verdict) = striped_by_mover(1);
    assert!((whole.ratio() - 1.0).abs() < 0.05 && verdict.is_none(), "{whole:?}");
    assert_eq!(whole.commands, 10_000);
    for commands in [4, 16] {
        let (torn, verdict) = striped_by_mover(commands);
        assert!(torn.ratio() > 1.1, "{commands}: {torn:?}");
        assert!(matches!(verdict, Some(Verdict::Stopped { .. })), "{commands}: {torn:?}");
        assert_eq!(torn.commands, 10_000, "accesses, not commands");
    }
}

#[test]
fn moves_to_slow_device_are_paused() {
    let mut judge = Judge::new(MoveControl::Judged(RULES));
    let mut now = Nanos::secs(10);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let ReviewOutcome::Finished(Some(Verdict::Stopped { estimate, pause })) =
            FAST_TO_SLOW.judge(&mut judge, now)
        else {
            panic!("it does harm");
        };
        assert!(estimate.ratio() > 10.0, "{estimate:?}");
        assert!(judge.is_paused() && judge.paused_until() == Some(now + pause));
        assert_eq!(FAST_TO_SLOW.judge(&mut judge, now + Nanos::secs(1)), ReviewOutcome::Finished(None));
        pauses.push(pause.as_secs_f64());
        now += pause;
        assert_eq!(FAST_TO_SLOW.judge(&mut judge, now), ReviewOutcome::Finished(Some(Verdict::Resumed)));
        assert!(!judge.is_paused());
        now += RULES.window;
    }
    assert_eq!(pauses, [60.0, 120.0, 200.0, 200.0]);
}

#[test]
fn resumed_moves_start_from_current_places() {
    let mut judge = Judge::new(MoveControl::Judged(RULES));
    FAST_TO_SLOW.judge(&mut judge, Nanos::secs(10));
    FAST_TO_SLOW.judge(&mut judge, Nanos::secs(100));
    // Now everything is on the slow device first, and stays.
    let stays = Window { first: 1.0, ..FAST_TO_SLOW };
    assert_eq!(stays.judge(&mut judge, Nanos::secs(110)), ReviewOutcome::Finished(None));
    assert_eq!(judge.last().map(|estimate| estimate.ratio()), Some(1.0));
}

#[test]
fn helpful_moves_continue() {
    for window in [
        Window { went: 0.1, first: 1.0, rate: 100.0, service: [100, 5000], mover: 0.1 },
        // The fast device alone could not serve it all.
        Window { went: 0.3, first: 0.0, rate: 1000.0, service: [1100, 2000], mover: 0.0 },
    ] {
        let mut judge = Judge::new(MoveControl::Judged(RULES));
        assert_eq!(window.judge(&mut judge, Nanos::secs(10)), ReviewOutcome::Finished(None));
        let last = judge.last().expect("a window");
        assert!(last.ratio() < 0.95, "{last:?}");
    }
}

#[test]
fn mover_load_counts_as_harm() {
    let mut judge = Judge::new(MoveControl::Judged(RULES));
    let window = Window { went: 0.0, first: 0.0, rate: 500.0, service: [1000, 5000], mover: 0.4 };
    assert!(matches!(
        window.judge(&mut judge, Nanos::secs(10)),
        ReviewOutcome::Finished(Some(Verdict::Stopped { .. }))
    ));
}

#[test]
fn small_windows_continue() {
    let mut judge = Judge::new(MoveControl::Judged(RULES));
    let few = Window { rate: 6.0, ..FAST_TO_SLOW };
    assert_eq!(few.judge(&mut judge, Nanos::secs(10)), ReviewOutcome::Continue);
    assert!(matches!(few.judge(&mut judge, Nanos::secs(20)), ReviewOutcome::Finished(Some(_))));
    let mut free = Judge::new(MoveControl::NeverPaused(RULES));
    assert_eq!(FAST_TO_SLOW.judge(&mut free, Nanos::secs(10)), ReviewOutcome::Finished(None));
    assert!(!free.is_paused() && free.total().ratio() > 10.0);
    assert!(Judge::new(MoveControl::Disabled).is_paused());
}

#[test]
fn memory_is_bounded() {
    let mut judge = Judge::new(MoveControl::Judged(RULES));
    let command = MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos(1), Nanos(1));
    let done = SampledCommand { device: DeviceId(0), command, access_bytes: command.len, in_flight: 1 };
    (0..3 * FIRST_DEVICES_MAX as u64).for_each(|i| judge.note(key(i), &done, || Some(DeviceId(0))));
    assert_eq!(judge.first_devices.len(), FIRST_DEVICES_MAX);
    const { assert!(FIRST_DEVICES_MAX * Lru::<ExtentKey, DeviceId>::ENTRY_BYTES < 4 << 20) };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Without moves there is neither harm nor gain, whatever the devices and the load.
    #[test]
    fn no_moves_is_no_harm(
        rate in 20.0f64..2000.0,
        part in 0.0f64..1.0,
        fast in 50u64..900,
        slow in 50u64..9000,
    ) {
        let mut judge = Judge::new(MoveControl::Judged(RULES));
        let busiest = ((1.0 - part) * fast as f64).max(part * slow as f64) / 1e6;
        let rate = rate.min(0.9 / busiest);
        prop_assume!(rate > 15.0);
        let window = Window { rate, went: part, first: part, service: [fast, slow], mover: 0.0 };
        prop_assert_eq!(window.judge(&mut judge, Nanos::secs(10)), ReviewOutcome::Finished(None));
        let ratio = judge.last().map_or(0.0, |last| last.ratio());
        prop_assert!((ratio - 1.0).abs() < 1e-6, "{}", ratio);
    }

    /// Compares with a twin that computes the queues of both pools: where the difference is clear, the
    /// estimate has the right sign.
    #[test]
    fn clear_differences_are_detected(
        load in 0.05f64..0.8,
        went in 0.0f64..1.0,
        first in 0.0f64..1.0,
        fast in 100u64..1000,
        slower in 1.0f64..30.0,
    ) {
        let service = [fast, (fast as f64 * slower) as u64];
        let seconds = service.map(|us| us as f64 / 1e6);
        let busiest = ((1.0 - went) * seconds[0]).max(went * seconds[1]);
        let rate = load / busiest;
        prop_assume!((120.0..6_000.0).contains(&(rate * RULES.window.as_secs_f64())));
        let mean = |part: f64| -> f64 {
            [(1.0 - part, seconds[0]), (part, seconds[1])]
                .map(|(part, s)| if rate * part * s < 1.0 { part * s / (1.0 - rate * part * s) } else { f64::INFINITY })
                .iter()
                .sum()
        };
        let exact = mean(went) / mean(first);
        let mut judge = Judge::new(MoveControl::NeverPaused(RULES));
        let window = Window { rate, went, first, service, mover: 0.0 };
        window.judge(&mut judge, Nanos::secs(10));
        let ratio = judge.last().map_or(1.0, |last| last.ratio());
        prop_assert!(exact < 2.0 || ratio > 1.0, "{} for {}", ratio, exact);
        prop_assert!(exact > 0.5 || ratio < 1.0, "{} for {}", ratio, exact);
    }
}
