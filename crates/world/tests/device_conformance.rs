//! Tests that every device of the simulated world keeps the contract of the device port, and so does every
//! fault wrapped around one while it does not strike.

mod common;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt;
use weir_model::{Buffer, Bytes, DeviceOffset, Errno, Io, IoId, IoKind, Memory, Nanos, VolumeOffset};
use weir_world::{
    Answer, Change, Device, Disk, Fault, Faulty, Kinds, Oracle, Pace, Place, Seed, StopKind, Storage, Ticket,
    WorldMemory,
};

const SIZE: Bytes = Bytes::kib(256);
const MEMORY: Bytes = Bytes::mib(4);

#[derive(Clone)]
enum Step {
    Read(Place),
    Write(Place, bool),
    Flush,
    Wait(u64),
    Stop(StopKind),
}

/// Prints one line per step: a failing history is long enough.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(place) => write!(f, "read {} at {}", place.len, place.offset),
            Self::Write(place, fua) => write!(f, "write {} at {} fua {fua}", place.len, place.offset),
            Self::Flush => write!(f, "flush"),
            Self::Wait(answers) => write!(f, "wait for {answers}"),
            Self::Stop(how) => write!(f, "{}", if *how == StopKind::Kill { "kill" } else { "power cut" }),
        }
    }
}

fn place() -> impl Strategy<Value = Place> {
    (0..SIZE.0 / 512, 1u64..32).prop_map(|(first, sectors)| {
        let offset = VolumeOffset(first * 512);
        Place { volume: 0, offset, len: Bytes((sectors * 512).min(SIZE.0 - offset.0)) }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => place().prop_map(Step::Read),
        20 => (place(), prop::bool::weighted(0.1)).prop_map(|(place, fua)| Step::Write(place, fua)),
        4 => Just(Step::Flush),
        20 => (1u64..6).prop_map(Step::Wait),
        1 => prop_oneof![Just(StopKind::PowerLoss), Just(StopKind::Kill)].prop_map(Step::Stop),
    ]
}

/// One device with the oracle.
struct Bench {
    device: Box<dyn Device>,
    memory: WorldMemory,
    oracle: Oracle,
    in_flight: BTreeMap<IoId, (Ticket, IoKind, Buffer)>,
    now: Nanos,
    commands: u64,
}

impl Bench {
    fn new(device: Box<dyn Device>) -> Self {
        Self {
            device,
            memory: WorldMemory::new(MEMORY),
            oracle: Oracle::new(&[SIZE]),
            in_flight: BTreeMap::new(),
            now: Nanos(0),
            commands: 0,
        }
    }

    fn submit(&mut self, kind: IoKind, place: Place, ticket: Ticket) {
        let Some(taken) = self.memory.take(place.len) else { return };
        let buffer = taken.part(0, place.len.0 as u32);
        match kind {
            IoKind::Write { .. } => self.oracle.fill(ticket, place, self.memory.bytes_mut(buffer)),
            _ => self.memory.bytes_mut(buffer).fill(0xee),
        }
        self.commands += 1;
        let id = IoId(self.commands);
        self.in_flight.insert(id, (ticket, kind, taken));
        let at = DeviceOffset(place.offset.0);
        self.device.submit(
            self.now,
            Io { id, device: Default::default(), kind, at, buffer },
            &mut self.memory,
        );
    }

    /// Waits for one completion; returns false if there will be none.
    fn wait(&mut self) -> bool {
        while let Some(due) = self.device.next() {
            self.now = self.now.max(due);
            let Some(done) = self.device.pop(self.now, &mut self.memory) else { continue };
            let (ticket, kind, taken) = self.in_flight.remove(&done.id).expect("answered once");
            assert_eq!(done.result, Ok(()));
            match kind {
                IoKind::Read => {
                    let answer = Answer::Bytes(self.memory.bytes(taken));
                    if let Err(difference) = self.oracle.read_done(ticket, answer) {
                        panic!("{difference}");
                    }
                }
                IoKind::Write { .. } => self.oracle.changed(ticket),
                IoKind::Flush => self.oracle.flushed(ticket),
            }
            self.memory.give(taken);
            return true;
        }
        false
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Read(place) => {
                    let ticket = self.oracle.read(place);
                    self.submit(IoKind::Read, place, ticket);
                }
                Step::Write(place, fua) => {
                    let ticket = self.oracle.change(place, Change::Write, fua);
                    self.submit(IoKind::Write { fua }, place, ticket);
                }
                Step::Flush => {
                    let ticket = self.oracle.flush(0);
                    self.submit(IoKind::Flush, Place::default(), ticket);
                }
                Step::Wait(answers) => {
                    let _some_left = (0..answers).all(|_| self.wait());
                }
                Step::Stop(how) => {
                    self.device.stop(how);
                    self.oracle.crash(how);
                    self.in_flight.clear();
                    self.memory = WorldMemory::new(MEMORY);
                }
            }
        }
        while self.wait() {}
        assert!(self.in_flight.is_empty(), "every command is answered");
    }
}

fn disk(pace: &Pace, write_cache: bool, seed: Seed) -> Box<dyn Device> {
    let mut rng = weir_world::Rng::new(seed);
    let timing = pace.timing(SIZE, &mut rng).expect("a known model");
    Box::new(Disk::new(Storage::new(SIZE, write_cache), timing, rng))
}

/// Returns every fault, with parameters such that it never strikes.
fn idle_faults() -> Vec<Fault> {
    let kinds = Kinds { reads: true, writes: true, flushes: true };
    let everywhere = DeviceOffset(0)..DeviceOffset(u64::MAX);
    let never = Nanos::MAX..Nanos::MAX;
    vec![
        Fault::Errors { kinds, range: everywhere, chance: 0.0, times: 9, error: Errno::EIO },
        Fault::Full { space: SIZE },
        Fault::Slow { factor: 100, during: never.clone() },
        Fault::Hang { during: never },
        Fault::Vanish { at: Nanos::MAX },
        Fault::Misdirect {
            range: DeviceOffset(0)..DeviceOffset(u64::MAX),
            shift: None,
            chance: 0.0,
            times: 9,
        },
    ]
}

fn history(steps: usize) -> impl Strategy<Value = (Vec<Step>, u64, bool)> {
    (prop::collection::vec(step(), 1..steps), any::<u64>(), any::<bool>())
}

#[test]
fn a_bare_disk() {
    common::property(200, history(200), |(steps, seed, cache)| {
        Bench::new(disk(&Pace::Random(Nanos::millis(1)), cache, Seed(seed))).run(&steps);
        Ok(())
    });
}

#[test]
fn a_disk_with_idle_faults() {
    common::property(40, history(100), |(steps, seed, cache)| {
        for (number, fault) in idle_faults().into_iter().enumerate() {
            let inner = disk(&Pace::Random(Nanos::millis(1)), cache, Seed(seed));
            let rng = weir_world::Rng::new(Seed(number as u64));
            Bench::new(Box::new(Faulty::new(inner, fault, rng))).run(&steps);
        }
        Ok(())
    });
}

#[test]
fn slow_and_hanging_disks_are_correct() {
    common::property(50, history(100), |(steps, seed, cache)| {
        let slow = Fault::Slow { factor: 100, during: Nanos(0)..Nanos::MAX };
        let stall = Fault::Hang { during: Nanos::millis(2)..Nanos::millis(50) };
        let mut device = disk(&Pace::Random(Nanos::millis(1)), cache, Seed(seed));
        for fault in [slow, stall] {
            device = Box::new(Faulty::new(device, fault, weir_world::Rng::new(Seed(1))));
        }
        Bench::new(device).run(&steps);
        Ok(())
    });
}

#[test]
fn disks_paced_by_a_model() {
    common::property(20, history(100), |(steps, seed, cache)| {
        for name in weir_timing::NAMES {
            Bench::new(disk(&Pace::Model(name.to_owned()), cache, Seed(seed))).run(&steps);
        }
        Ok(())
    });
}

/// Disks take some writes whole when they are submitted, and notice with the others. The panic has a type of
/// its own: a campaign reports it as a fault of the engine, not as an assertion.
#[test]
fn a_buffer_that_changes_under_a_write_is_noticed() {
    let is_noticed = |seed: &u64| {
        let mut bench = Bench::new(disk(&Pace::Random(Nanos::millis(1)), true, Seed(*seed)));
        let place = Place { volume: 0, offset: VolumeOffset(0), len: Bytes(4096) };
        let ticket = bench.oracle.change(place, Change::Write, false);
        bench.submit(IoKind::Write { fua: false }, place, ticket);
        let buffer = bench.in_flight.values().next().expect("a write").2;
        bench.memory.bytes_mut(buffer.part(4095, 1))[0] ^= 1;
        let wait = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.wait()));
        wait.is_err_and(|panic| panic.is::<weir_world::device::BufferChanged>())
    };
    let noticed = (0..64).filter(is_noticed).count();
    assert!((30..64).contains(&noticed), "{noticed} of 64, five eighths on average");
}
