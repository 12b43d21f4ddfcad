//! A reactor's decision to stay awake, with real rings, files and the interface of the kernel.

use std::path::Path;

use super::super::super::{Event, Poll, Reactor, ReactorOptions, Ring};
use super::*;
use crate::{Arena, Device, DeviceOptions, Devices};
use weir_model::{Bytes, DeviceId, DeviceOffset, Io, IoCompletion, IoId, IoKind, Memory};

/// Returns a reactor with this request, and a file of this folder as its device if there is one.
fn reactor(ring: Ring, latency: LatencyRequest, folder: Option<&Path>) -> (Reactor, Arena) {
    paced_reactor(ring, latency, folder, None)
}

/// Returns the same with a modelled drive's timing.
fn paced_reactor(
    ring: Ring,
    latency: LatencyRequest,
    folder: Option<&Path>,
    pace: Option<&str>,
) -> (Reactor, Arena) {
    let options = ReactorOptions { ring, cpu_latency: CpuLatency::Off, ..ReactorOptions::default() };
    let arena = Arena::new(Bytes::mib(1)).unwrap();
    let mut devices = Devices::new();
    if let Some(folder) = folder {
        let pace = pace.map(str::to_owned);
        let options = DeviceOptions { size: Some(Bytes::mib(1)), pace, ..DeviceOptions::default() };
        devices.insert(DeviceId(0), Device::open(&folder.join("disk"), &options).unwrap()).unwrap();
    }
    let mut reactor = Reactor::new(&options, devices, &arena).unwrap();
    reactor.awake = Awake::new(latency, false);
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
        let (device, told) = (rig.device(), || rig.told());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let latency = LatencyRequest::with(CpuLatency::Low, &device);
                let (mut reactor, _arena) = reactor(ring, latency, None);
                let waker = reactor.waker();
                let mut events = Vec::new();
                // On a busy machine even the wait for an event that is there can take long.
                while !reactor.awake.is_awake {
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
        reactor(Ring::Auto, LatencyRequest::with(CpuLatency::Low, &rig.device()), None);
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
    reactor.awake.stay_awake(true);
    drop(reactor);
    assert_eq!(rig.told(), Some(WITHDRAWN), "it no longer serves");
}

#[test]
fn reactor_counts_answers_for_trials() {
    let rig = Rig::new(CpuLatency::Auto);
    let latency = LatencyRequest::with(CpuLatency::Auto, &rig.device());
    let (mut reactor, _arena) = reactor(Ring::Auto, latency, None);
    let (waker, mut events) = (reactor.waker(), Vec::new());
    // Busy machines interrupt trials, so it may take several attempts.
    let tries = (0..1_000_000).any(|_| {
        waker.wake();
        reactor.wait(None, &mut events);
        events.clear();
        reactor.record_answers(1);
        reactor.awake.is_awake
    });
    assert!(tries, "no trial has begun");
    assert_eq!(rig.told(), Some(ZERO));
}

#[test]
fn reactor_tries_what_it_may_decide() {
    let state = |poll, cpu_latency| {
        let options = ReactorOptions { poll, cpu_latency, ..ReactorOptions::default() };
        let mut reactor =
            Reactor::new(&options, Devices::new(), &Arena::new(Bytes::mib(1)).unwrap()).unwrap();
        assert_eq!(reactor.awake.request.mode(), cpu_latency.here());
        (std::mem::replace(&mut reactor.awake.state, State::Off), reactor.polling.adapts())
    };
    let watch = State::Watch { recent: Vec::new(), expected: None };
    for poll in [Poll::Off, Poll::For(Nanos::micros(50))] {
        assert_eq!(state(poll, CpuLatency::Off), (State::Off, false), "{poll:?}");
    }
    // Polling is off on a machine with one processor, and under a quota.
    let (tried, adapts) = state(Poll::Auto, CpuLatency::Off);
    assert_eq!(tried, if adapts { watch } else { State::Off });
    assert_eq!(state(Poll::Auto, CpuLatency::Low), (State::Always, adapts));
}

#[test]
fn reactor_that_stays_awake_polls_for_clients_that_do_not_wait_for_each_answer() {
    let latency = LatencyRequest::with(CpuLatency::Off, Path::new(""));
    let (mut reactor, _arena) = reactor(Ring::Auto, latency, None);
    if reactor.ring() == Ring::Plain {
        return println!("io_uring is refused: this is not tested");
    }
    reactor.polling.set_time(Nanos::micros(50));
    reactor.record_answers(2);
    assert_eq!(reactor.polling_time(Nanos(0)), Nanos(0));
    reactor.awake.stay_awake(true);
    assert_eq!(reactor.polling_time(Nanos(0)), Nanos::micros(200), "and as long as it may");
    let deadline = reactor.now() + Nanos::millis(1);
    assert!(!reactor.polling.has_polled());
    reactor.wait(Some(deadline), &mut Vec::new());
    assert!(reactor.polling.has_polled(), "or contention is never checked");
}

#[test]
fn waits_for_devices_change_the_timing() {
    let (disk, memory) = ("/var/tmp", "/dev/shm");
    for (ring, place, pace) in
        [(Ring::Auto, disk, None), (Ring::Plain, disk, None), (Ring::Auto, memory, Some("hdd-7200"))]
    {
        let Ok(folder) = tempfile::tempdir_in(place) else {
            println!("no folder in {place}: this is not tested");
            continue;
        };
        let latency = LatencyRequest::with(CpuLatency::Off, Path::new(""));
        let (mut reactor, mut arena) = paced_reactor(ring, latency, Some(folder.path()), pace);
        let buffer = arena.take(Bytes::kib(4)).expect("a buffer");
        let (device, at) = (DeviceId(0), DeviceOffset(0));
        reactor.start(Io { id: IoId(0), device, kind: IoKind::Read, at, buffer });
        if place == disk && !reactor.disks.is_busy() {
            println!("{place} is in memory: this is not tested");
            continue;
        }
        let mut events = Vec::new();
        while events.is_empty() {
            reactor.wait(None, &mut events);
        }
        assert!(matches!(events[..], [Event::Io(IoCompletion { result: Ok(()), .. })]), "{events:?}");
        assert!(!reactor.disks.is_busy(), "{ring:?}, {place}");
        let waker = reactor.waker();
        for _ in 0..DEVICE_WAITS {
            assert_eq!(reactor.awake.timing().period, DEVICES.period, "{ring:?}, {place}");
            waker.wake();
            reactor.wait(None, &mut events);
        }
        assert_eq!(reactor.awake.timing().period, MEMORY.period, "{ring:?}, {place}");
        arena.give(buffer);
    }
}

#[test]
fn long_writes_that_another_thread_copies_end_polling() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return println!("no folder in /dev/shm: this is not tested");
    };
    let latency = LatencyRequest::with(CpuLatency::Off, Path::new(""));
    let (mut reactor, mut arena) = reactor(Ring::Auto, latency, Some(folder.path()));
    if reactor.ring() == Ring::Plain {
        return println!("io_uring is refused: this is not tested");
    }
    reactor.polling.set_time(Nanos::micros(50));
    assert_eq!(reactor.polling_time(Nanos(0)), Nanos::micros(50));
    let buffer = arena.take(Bytes::kib(64)).unwrap();
    let kind = IoKind::Write { fua: false };
    reactor.start(Io { id: IoId(0), device: DeviceId(0), kind, at: DeviceOffset(0), buffer });
    assert!(reactor.disks.has_offloaded() && !reactor.disks.is_busy());
    for awake in [true, false] {
        reactor.awake.stay_awake(awake);
        assert_eq!(reactor.polling_time(Nanos(0)), Nanos(0), "the copy needs the processor");
    }
    let mut events = Vec::new();
    while events.is_empty() {
        reactor.wait(None, &mut events);
    }
    assert!(matches!(events[..], [Event::Io(IoCompletion { result: Ok(()), .. })]), "{events:?}");
    assert_eq!(reactor.polling.time(reactor.now()), Nanos(0));
    assert_eq!(reactor.awake.timing().period, MEMORY.period, "the file is in memory");
    arena.give(buffer);
}
