//! Tests of the device port's contract, over every ring and every layer.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::path::Path;

use common::{DEVICE, Rig, SIZE, folders, open, options, rings};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use weir_device::{Device, Devices, Event, LossyOptions, Reactor, ReactorOptions, Ring};
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceOffset, Errno, Io, IoCompletion, IoError, IoId, IoKind, Memory,
    Store,
};

/// A named way to open a device.
type OpenMode = (&'static str, fn(&Path) -> Device);

const OPEN_MODES: [OpenMode; 5] = [
    ("plain file", |path| open(path)),
    ("buffered", |path| {
        Device::open(path, &weir_device::DeviceOptions { direct: false, ..options() }).unwrap()
    }),
    ("paced", |path| {
        let pace = Some("nvm".to_owned());
        Device::open(path, &weir_device::DeviceOptions { pace, ..options() }).unwrap()
    }),
    ("paced and forgetful", |path| {
        let (pace, forget) = (Some("ssd-nvme".to_owned()), Some(LossyOptions::default()));
        Device::open(path, &weir_device::DeviceOptions { pace, lossy: forget, ..options() }).unwrap()
    }),
    ("forgetful", |path| {
        let forget = Some(LossyOptions { early_permille: 300, seed: 7 });
        Device::open(path, &weir_device::DeviceOptions { lossy: forget, ..options() }).unwrap()
    }),
];

/// Runs a test over every combination.
fn run_all_combinations(test: fn(&mut Rig)) {
    for folder in folders() {
        for ring in rings() {
            for (name, dress) in OPEN_MODES {
                println!("{ring:?}, {name}, in {}", folder.path().display());
                let path = folder.path().join(format!("{ring:?}-{name}"));
                test(&mut Rig::new(ring, Some(dress(&path))));
            }
            println!("{ring:?}, registered, in {}", folder.path().display());
            let options = ReactorOptions { ring, fixed_buffers: true, depth: 8, ..Default::default() };
            test(&mut Rig::with(&options, Some(open(&folder.path().join(format!("{ring:?}-registered"))))));
        }
    }
}

/// Returns a different seed in every run; the test prints it, so that a failure can be reproduced.
fn fresh_seed() -> u64 {
    let time = std::time::UNIX_EPOCH.elapsed().unwrap();
    time.as_nanos() as u64
}

fn pattern(seed: u64, len: Bytes) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    (0..len.0).map(|_| random.random()).collect()
}

#[test]
fn reads_return_written_data() {
    run_all_combinations(|rig| {
        for (seed, len) in [4096, 8192, 131_072, 1 << 20, 4 << 20].into_iter().enumerate() {
            let (at, bytes) = (DeviceOffset(seed as u64 * BLOCK), pattern(seed as u64, Bytes(len)));
            rig.write(at, &bytes, seed % 2 == 1).unwrap();
            assert!(rig.read(at, Bytes(len)).unwrap() == bytes);
        }
        rig.flush().unwrap();
        let last = DeviceOffset(SIZE.0 - BLOCK);
        rig.write(last, &pattern(9, Bytes(BLOCK)), true).unwrap();
        assert!(rig.read(last, Bytes(BLOCK)).unwrap() == pattern(9, Bytes(BLOCK)));
    });
}

#[test]
fn commands_outside_the_device_or_its_sectors_fail() {
    run_all_combinations(|rig| {
        let block = pattern(1, Bytes(2 * BLOCK));
        assert_eq!(rig.write(DeviceOffset(SIZE.0 - BLOCK), &block, false), Err(IoError::Short));
        assert_eq!(rig.read(DeviceOffset(SIZE.0), Bytes(BLOCK)), Err(IoError::Short));
        assert_eq!(rig.read(DeviceOffset(u64::MAX - 511), Bytes(BLOCK)), Err(IoError::Short));
        assert_eq!(rig.read(DeviceOffset(100), Bytes(BLOCK)), Err(IoError::Os(Errno::EINVAL)));
        assert_eq!(rig.write(DeviceOffset(0), &block[..100], false), Err(IoError::Os(Errno::EINVAL)));
    });
}

#[test]
fn truncated_file_reads_short() {
    for folder in folders() {
        for ring in rings() {
            let path = folder.path().join(format!("shrunk-{ring:?}"));
            let mut rig = Rig::new(ring, Some(open(&path)));
            rig.write(DeviceOffset(0), &pattern(1, Bytes(2 * BLOCK)), true).unwrap();
            rig.write(DeviceOffset(1 << 20), &pattern(2, Bytes(BLOCK)), true).unwrap();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(BLOCK).unwrap();
            assert_eq!(rig.read(DeviceOffset(0), Bytes(2 * BLOCK)), Err(IoError::Short));
            assert_eq!(rig.read(DeviceOffset(1 << 20), Bytes(BLOCK)), Err(IoError::Short));
            assert!(rig.read(DeviceOffset(0), Bytes(BLOCK)).unwrap() == pattern(1, Bytes(BLOCK)));
        }
    }
}

/// The same for writes: new contents of a mapped file would be lost silently.
#[test]
fn a_write_past_the_end_of_a_shrunk_file_is_not_lost_unnoticed() {
    for folder in folders() {
        for ring in rings() {
            let path = folder.path().join(format!("shrunk-{ring:?}"));
            let mut rig = Rig::new(ring, Some(open(&path)));
            let (old, new) = (pattern(1, Bytes(2 * BLOCK)), pattern(2, Bytes(2 * BLOCK)));
            rig.write(DeviceOffset(0), &old, true).unwrap();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(BLOCK).unwrap();
            match rig.write(DeviceOffset(0), &new, true) {
                Ok(()) => assert!(rig.read(DeviceOffset(0), Bytes(2 * BLOCK)).unwrap() == new),
                Err(error) => assert_eq!(error, IoError::Short),
            }
        }
    }
}

/// Holes, first writes and overwrites of parts of blocks use different code paths in a mapped file.
#[test]
fn holes_read_as_zeros_and_fill_up_sector_by_sector() {
    run_all_combinations(|rig| {
        let sector = rig.sector.0;
        let mut model = vec![0u8; 64 << 10];
        for (step, at) in [3, 2, 3, 0, 40, 9, 10, 11, 12, 8, 17].into_iter().enumerate() {
            let start = (at * sector) as usize % (60 << 10);
            let bytes = pattern(step as u64, Bytes(2 * sector));
            model[start..start + bytes.len()].copy_from_slice(&bytes);
            rig.write(DeviceOffset(start as u64), &bytes, false).unwrap();
            let there = rig.read(DeviceOffset(0), Bytes(model.len() as u64)).unwrap();
            assert!(there == model, "after step {step}");
        }
    });
}

#[test]
fn an_unknown_device_is_lost() {
    for ring in rings() {
        let mut rig = Rig::new(ring, None);
        assert_eq!(rig.read(DeviceOffset(0), Bytes(BLOCK)), Err(IoError::Lost));
        assert_eq!(rig.flush(), Err(IoError::Lost));
    }
}

/// With many commands at once, more than the ring holds, each completes exactly once, and the device ends up
/// like a vector with the same writes.
#[test]
fn deep_queue_completes_each_command_once() {
    run_all_combinations(|rig| {
        let seed = fresh_seed();
        println!("seed {seed}");
        let mut random = SmallRng::seed_from_u64(seed);
        let mut model = vec![0u8; SIZE.0 as usize];
        for round in 0..3 {
            let mut places: Vec<u64> = (0..SIZE.0 / BLOCK).collect();
            places.shuffle(&mut random);
            let mut pending = places[..150]
                .iter()
                .map(|&place| {
                    let fua = random.random_bool(0.1);
                    let buffer = rig.arena.take(Bytes(BLOCK)).unwrap();
                    rig.arena.bytes_mut(buffer).fill(random.random());
                    model[(place * BLOCK) as usize..][..BLOCK as usize]
                        .copy_from_slice(rig.arena.bytes(buffer));
                    (rig.start(IoKind::Write { fua }, DeviceOffset(place * BLOCK), buffer), buffer)
                })
                .collect::<Vec<_>>();
            let flush = (round == 2).then(|| rig.start(IoKind::Flush, DeviceOffset(0), Buffer::EMPTY));
            pending.extend(flush.map(|id| (id, Buffer::EMPTY)));
            for _ in 0..pending.len() {
                let id = rig.until("a command", |event| match event {
                    Event::Io(IoCompletion { id, result }) => Some((*id, *result)),
                    _ => None,
                });
                assert_eq!(id.1, Ok(()));
                let at = pending.iter().position(|(its, _)| *its == id.0).expect("answered twice");
                let (_, buffer) = pending.swap_remove(at);
                if buffer != Buffer::EMPTY {
                    rig.arena.give(buffer);
                }
            }
        }
        for at in (0..SIZE.0).step_by(1 << 20) {
            let there = rig.read(DeviceOffset(at), Bytes::mib(1)).unwrap();
            assert!(there == model[at as usize..][..1 << 20], "differs in the MiB at {at:#x}");
        }
        assert_eq!(rig.arena.free(), rig.arena.size());
    });
}

/// Both copies of a block are written from one buffer; a file in memory is written while the ring has the
/// other command.
#[test]
fn one_buffer_is_written_to_two_devices_at_once() {
    let folders = folders();
    let [disk, memory] = &folders[..] else { return };
    for ring in rings() {
        let paths = [disk, memory].map(|folder| folder.path().join(format!("{ring:?}")));
        let mut rig = Rig::new(ring, None);
        let mut devices = Devices::new();
        for (id, path) in (0..).map(DeviceId).zip(&paths) {
            devices.insert(id, open(path)).unwrap();
        }
        rig.reactor =
            Reactor::new(&ReactorOptions { ring, ..Default::default() }, devices, &rig.arena).unwrap();
        let bytes = pattern(1, Bytes(BLOCK));
        let buffer = rig.filled(&bytes);
        for device in [0, 1] {
            let (id, kind) = (IoId(u64::from(device)), IoKind::Write { fua: false });
            rig.reactor.start(Io { id, device: DeviceId(device), kind, at: DeviceOffset(BLOCK), buffer });
        }
        assert_eq!([0, 1].map(|id| rig.done(IoId(id))), [Ok(()), Ok(())]);
        for path in &paths {
            let found = std::fs::read(path).unwrap();
            assert!(found[BLOCK as usize..][..BLOCK as usize] == bytes, "{ring:?}, {}", path.display());
        }
    }
}

#[test]
fn dropping_a_reactor_waits_for_its_commands() {
    for folder in folders() {
        for ring in rings() {
            let mut rig = Rig::new(ring, Some(open(&folder.path().join(format!("drop-{ring:?}")))));
            for at in 0..100 {
                let buffer = rig.arena.take(Bytes(BLOCK)).unwrap();
                rig.start(IoKind::Write { fua: false }, DeviceOffset(at * BLOCK), buffer);
            }
        }
    }
}

#[test]
fn lossy_layer_loses_only_unflushed_writes() {
    let (old, new) = (pattern(1, Bytes(BLOCK)), pattern(2, Bytes(BLOCK)));
    for folder in folders() {
        for ring in rings() {
            let path = folder.path().join(format!("forgetful-{ring:?}"));
            let forgetful = |early_permille| {
                let forget = Some(LossyOptions { early_permille, seed: 3 });
                Device::open(&path, &weir_device::DeviceOptions { lossy: forget, ..options() }).unwrap()
            };
            let mut rig = Rig::new(ring, Some(forgetful(0)));
            rig.write(DeviceOffset(0), &old, false).unwrap();
            rig.flush().unwrap();
            rig.write(DeviceOffset(0), &new, false).unwrap();
            rig.write(DeviceOffset(BLOCK), &new, true).unwrap();
            assert!(rig.read(DeviceOffset(0), Bytes(BLOCK)).unwrap() == new);
            drop(rig);

            let mut rig = Rig::new(ring, Some(forgetful(500)));
            assert!(rig.read(DeviceOffset(0), Bytes(BLOCK)).unwrap() == old, "unflushed, so forgotten");
            assert!(rig.read(DeviceOffset(BLOCK), Bytes(BLOCK)).unwrap() == new, "durable at completion");
            rig.write(DeviceOffset(0), &new, false).unwrap();
            drop(rig);

            let mut rig = Rig::new(ring, Some(open(&path)));
            let there = rig.read(DeviceOffset(0), Bytes(BLOCK)).unwrap();
            let from_new = |s: &usize| there[s * 512..][..512] == new[s * 512..][..512];
            let survivors = (0..8).filter(from_new).count();
            assert!((1..8).contains(&survivors), "{survivors} of 8 sectors reached the file early");
        }
    }
}

#[test]
fn blocking_access_sees_what_the_reactor_wrote() {
    for folder in folders() {
        let path = folder.path().join("both");
        let bytes = pattern(5, Bytes::mib(3));
        let mut rig = Rig::new(Ring::Auto, Some(open(&path)));
        rig.write(DeviceOffset(BLOCK), &bytes[..1 << 20], true).unwrap();
        drop(rig);
        let mut devices = Devices::new();
        devices.insert(DEVICE, open(&path)).unwrap();
        let mut there = vec![0; 1 << 20];
        devices.read(DEVICE, DeviceOffset(BLOCK), &mut there).unwrap();
        assert!(there == bytes[..1 << 20]);
        devices.write(DEVICE, DeviceOffset(8 << 20), &bytes).unwrap();
        devices.flush(DEVICE).unwrap();
        let mut there = vec![0; bytes.len()];
        devices.read(DEVICE, DeviceOffset(8 << 20), &mut there).unwrap();
        assert!(there == bytes);
        assert_eq!(devices.read(DEVICE, DeviceOffset(SIZE.0), &mut there), Err(IoError::Short));
    }
}
