use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use weir_model::{Buffer, Bytes, DeviceId, DeviceOffset, Errno, IoKind};
use weir_timing::ssd::without_collection;
use weir_timing::{NAMES, model};

const CAPACITY: Bytes = Bytes::gib(4);

fn io(id: u64, kind: IoKind, at: u64, len: u32) -> Io {
    let buffer = if kind == IoKind::Flush { Buffer::EMPTY } else { Buffer { at: 0, len } };
    Io { id: IoId(id), device: DeviceId(0), kind, at: DeviceOffset(at), buffer }
}

fn ok(id: u64) -> IoCompletion {
    IoCompletion { id: IoId(id), result: Ok(()) }
}

fn random_io(rng: &mut SmallRng, id: u64) -> Io {
    let kind = match rng.random_range(0..10) {
        0..5 => IoKind::Read,
        5..8 => IoKind::Write { fua: false },
        8 => IoKind::Write { fua: true },
        _ => IoKind::Flush,
    };
    io(id, kind, rng.random_range(0..CAPACITY.0 / 4096) * 4096, 4096 << rng.random_range(0..8))
}

/// Submits at random times and returns each command's submission and completion by the model alone.
fn model_completions(name: &str, ios: &[(Nanos, Io)]) -> BTreeMap<IoId, Nanos> {
    let mut timing = model(name, CAPACITY, without_collection).unwrap();
    for (at, io) in ios {
        timing.submit(*at, io.id, io.kind, io.at, io.len());
    }
    let mut times = BTreeMap::new();
    while let Some(due) = timing.next() {
        if let Some(id) = timing.pop(due) {
            times.insert(id, due);
        }
    }
    times
}

/// Does the same through a pacer; `real` returns the time of the real completion, and the driver wakes
/// exactly on time.
fn pacer_completions(
    pacer: &mut Pacer,
    ios: &[(Nanos, Io)],
    mut real: impl FnMut(IoId) -> Nanos,
) -> BTreeMap<IoId, (Nanos, Result<(), IoError>)> {
    let mut reals = BTreeMap::new();
    let mut released = BTreeMap::new();
    let mut ios = ios.iter().peekable();
    loop {
        let submission = ios.peek().map(|(at, _)| *at);
        let real_end = reals.first_key_value().map(|((at, _), _)| *at);
        let Some(now) = [submission, real_end, pacer.next()].into_iter().flatten().min() else { break };
        while let Some((at, io)) = ios.next_if(|(at, _)| *at <= now) {
            pacer.submit(*at, io);
            let result = if io.id.0 % 7 == 0 { Err(IoError::Os(Errno::EIO)) } else { Ok(()) };
            reals.insert((*at + real(io.id), io.id), result);
        }
        while let Some(entry) = reals.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, id), result) = entry.remove_entry();
            pacer.real_done(IoCompletion { id, result });
        }
        pacer.release(now, &mut |done| {
            assert!(released.insert(done.id, (now, done.result)).is_none(), "{:?} released twice", done.id);
        });
    }
    assert_eq!(pacer.in_flight(), 0);
    released
}

fn history(seed: u64, rng: &mut SmallRng) -> Vec<(Nanos, Io)> {
    println!("seed {seed}");
    let mut now = Nanos(0);
    (0..300)
        .map(|id| {
            if rng.random_bool(0.5) {
                now += Nanos(rng.random_range(0..8_000_000));
            }
            (now, random_io(rng, id))
        })
        .collect()
}

#[test]
fn fast_real_io_completes_at_model_time() {
    for (name, seed) in NAMES.iter().flat_map(|name| (0..10).map(move |seed| (name, seed))) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let ios = history(seed, &mut rng);
        let model_times = model_completions(name, &ios);
        let mut pacer = Pacer::new(model(name, CAPACITY, without_collection).unwrap());
        let released = pacer_completions(&mut pacer, &ios, |_| Nanos(rng.random_range(0..90)));
        assert_eq!(released.len(), ios.len());
        for (id, (at, result)) in &released {
            assert_eq!(*at, model_times[id], "{name}, {id:?}");
            assert_eq!(result.is_err(), id.0 % 7 == 0, "errors pass through");
        }
        let stats = pacer.stats();
        assert_eq!((stats.ios, stats.overruns, stats.late), (300, 0, Nanos(0)));
    }
}

/// However late real I/O is, a command comes at the later of the two times: nobody else's
/// lateness counts. And exactly those beyond the tolerance are overruns.
#[test]
fn late_real_io_delays_its_own_command_only() {
    for (name, seed) in NAMES.iter().flat_map(|name| (0..10).map(move |seed| (name, seed))) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let ios = history(seed, &mut rng);
        let submitted: BTreeMap<_, _> = ios.iter().map(|(at, io)| (io.id, *at)).collect();
        let model_times = model_completions(name, &ios);
        let delays: BTreeMap<_, _> =
            ios.iter().map(|(_, io)| (io.id, Nanos(rng.random_range(0..20_000_000)))).collect();
        let mut pacer = Pacer::new(model(name, CAPACITY, without_collection).unwrap());
        let released = pacer_completions(&mut pacer, &ios, |id| delays[&id]);
        let mut expected = PaceStats { ios: 300, ..PaceStats::default() };
        for (id, (at, _)) in &released {
            let due = model_times[id];
            assert_eq!(*at, due.max(submitted[id] + delays[id]), "{name}, {id:?}");
            expected.overruns += u64::from((*at - due).0 > 50_000.max((due - submitted[id]).0 / 20));
            expected.modelled += due - submitted[id];
            expected.late += *at - due;
        }
        assert_eq!(pacer.stats(), expected);
    }
}

#[test]
fn a_driver_that_sleeps_too_long_overruns_too() {
    let mut pacer = Pacer::new(model("ssd-sata", CAPACITY, without_collection).unwrap());
    pacer.submit(Nanos(0), &io(0, IoKind::Read, 0, 4096));
    pacer.real_done(ok(0));
    let due = pacer.next().unwrap();
    pacer.release(due + Nanos::micros(40), &mut |_| {});
    assert_eq!((pacer.stats().overruns, pacer.stats().late), (0, Nanos::micros(40)));
    pacer.submit(Nanos::millis(1), &io(3, IoKind::Read, 0, 4096));
    pacer.real_done(ok(3));
    pacer.release(Nanos::millis(2), &mut |_| {});
    assert_eq!((pacer.stats().ios, pacer.stats().overruns), (2, 1));
}

#[test]
fn few_overruns_keep_figures_valid() {
    let (modelled, late) = (Nanos::secs(1), Nanos::millis(51));
    let valid = |ios, overruns| PaceStats { ios, overruns, modelled, late }.is_valid();
    assert!(valid(0, 0) && valid(14, 1) && valid(100, 3) && valid(400, 4));
    assert!(!valid(14, 4) && !valid(399, 4) && !valid(100_000, 1001));
    let late = Nanos::millis(50);
    assert!(
        PaceStats { ios: 100, overruns: 100, modelled, late }.is_valid(),
        "all late, by 5 % of their time"
    );
    assert_eq!(PaceStats::default().lateness(), 0.0);
}

/// Whether figures are valid of random 4 KiB reads, one at a time, whose real I/O takes what the model
/// takes and so much more.
fn is_valid_if_late(name: &str, more: Nanos) -> bool {
    let mut pacer = Pacer::new(model(name, CAPACITY, without_collection).unwrap());
    let mut now = Nanos::secs(1);
    for id in 0..1000 {
        pacer.submit(now, &io(id, IoKind::Read, (id * 7919 % 1_000_000) * 4096, 4096));
        now = pacer.next().unwrap() + more;
        pacer.real_done(ok(id));
        pacer.release(now, &mut |_| {});
        now += Nanos::millis(1);
    }
    assert_eq!(pacer.stats().ios, 1000);
    pacer.stats().is_valid()
}

#[test]
fn lateness_is_relative_to_service_time() {
    assert!(is_valid_if_late("hdd-7200", Nanos::micros(300)), "a disk takes 12 ms");
    assert!(!is_valid_if_late("ssd-sata", Nanos::micros(300)), "an SSD takes 80 us");
    assert!(is_valid_if_late("ssd-sata", Nanos::micros(3)));
    assert!(!is_valid_if_late("hdd-7200", Nanos::millis(20)), "a device that is too slow");
}

#[test]
fn unknown_completions_are_ignored() {
    let mut pacer = Pacer::new(model("nvm", CAPACITY, without_collection).unwrap());
    pacer.real_done(ok(1));
    pacer.release(Nanos::secs(1), &mut |_| panic!("nothing was submitted"));
    assert_eq!(pacer.next(), None);
    assert!(pacer.stats().is_valid());
}
