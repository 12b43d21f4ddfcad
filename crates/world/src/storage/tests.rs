//! Tests of the storage against a naive implementation: for every sector, the list of values it may have
//! after a power loss.

use super::*;
use crate::{Rng, Seed};
use proptest::prelude::*;

const SECTORS: u64 = 24;

#[derive(Clone, Debug)]
enum Step {
    Write {
        at: u64,
        sectors: u64,
        fua: bool,
    },
    Flush,
    FailFlush,
    /// The writes given up by a failed flush are in the cache again.
    Requeue,
    PowerLoss {
        in_flight: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..SECTORS, 1u64..12, any::<bool>(), any::<bool>())
            .prop_map(|(at, sectors, a, b)| Step::Write { at, sectors: sectors.min(SECTORS - at), fua: a && b }),
        2 => Just(Step::Flush),
        1 => Just(Step::FailFlush),
        1 => Just(Step::Requeue),
        1 => (0..SECTORS).prop_map(|in_flight| Step::PowerLoss { in_flight }),
    ]
}

fn read(storage: &Storage, sector: u64) -> u8 {
    whole(sector, |at, bytes| storage.read(at, bytes))
}

fn read_durable(storage: &Storage, sector: u64) -> u8 {
    whole(sector, |at, bytes| storage.read_durable(at, bytes))
}

fn whole(sector: u64, read: impl Fn(DeviceOffset, &mut [u8])) -> u8 {
    let mut bytes = [0; SECTOR as usize];
    read(DeviceOffset(sector * SECTOR), &mut bytes);
    assert!(bytes.iter().all(|b| *b == bytes[0]), "sector {sector} torn within");
    bytes[0]
}

/// One sector of the naive implementation: the newest value, and all possible values after a power loss.
#[derive(Clone)]
struct SectorModel {
    live: u8,
    durable: Vec<(u8, bool)>,
}

proptest! {
    #[test]
    fn power_loss_leaves_only_allowed_data(
        steps in prop::collection::vec(step(), 1..60), seed in any::<u64>(),
    ) {
        let mut storage = Storage::new(Bytes(SECTORS * SECTOR), true);
        let mut rng = Rng::new(Seed(seed));
        let mut twin = vec![SectorModel { live: 0, durable: vec![(0, true)] }; SECTORS as usize];
        let mut value = 0;
        for step in steps {
            value += 1;
            match step {
                Step::Write { at, sectors, fua } => {
                    let bytes = vec![value; (sectors * SECTOR) as usize];
                    storage.check(DeviceOffset(at * SECTOR), Bytes(bytes.len() as u64)).unwrap();
                    storage.write(DeviceOffset(at * SECTOR), &bytes, fua);
                    for sector in &mut twin[at as usize..(at + sectors) as usize] {
                        sector.live = value;
                        if fua {
                            sector.durable.clear();
                        }
                        sector.durable.push((value, true));
                    }
                }
                Step::Flush => {
                    storage.flush(storage.mark());
                    for sector in &mut twin {
                        // The newest write that no failed flush gave up replaces older ones.
                        if let Some(newest) = sector.durable.iter().rposition(|d| d.1) {
                            sector.durable.drain(..newest);
                        }
                    }
                }
                Step::FailFlush => {
                    storage.fail_flush();
                    for sector in &mut twin {
                        sector.durable[1..].iter_mut().for_each(|d| d.1 = false);
                    }
                }
                Step::Requeue => {
                    storage.requeue_failed_writes();
                    twin.iter_mut().flat_map(|sector| &mut sector.durable).for_each(|d| d.1 = true);
                }
                Step::PowerLoss { in_flight } => {
                    let bytes = vec![value; SECTOR as usize].into_boxed_slice();
                    let at = DeviceOffset(in_flight * SECTOR);
                    let write = Write::in_flight(at, bytes, DamagedSectors::default());
                    storage.lose_power(vec![write], &mut rng);
                    twin[in_flight as usize].durable.push((value, true));
                    for (number, sector) in twin.iter_mut().enumerate() {
                        let found = read(&storage, number as u64);
                        prop_assert!(sector.durable.iter().any(|d| d.0 == found), "sector {}", number);
                        prop_assert_eq!(read_durable(&storage, number as u64), found, "sector {}", number);
                        *sector = SectorModel { live: found, durable: vec![(found, true)] };
                    }
                }
            }
            for (number, sector) in twin.iter().enumerate() {
                prop_assert_eq!(read(&storage, number as u64), sector.live);
            }
        }
    }
}

#[test]
fn a_flush_covers_what_had_completed_when_it_was_submitted() {
    let mut storage = Storage::new(Bytes(4096), true);
    let mut bytes = [0; 512];
    storage.write(DeviceOffset(0), &[1; 512], false);
    let mark = storage.mark();
    storage.write(DeviceOffset(512), &[2; 512], false);
    storage.flush(mark);
    storage.read_durable(DeviceOffset(0), &mut bytes);
    assert_eq!(bytes, [1; 512]);
    storage.read_durable(DeviceOffset(512), &mut bytes);
    assert_eq!(bytes, [0; 512]);
}

#[test]
fn without_a_cache_every_write_is_durable() {
    let mut storage = Storage::new(Bytes(4096), false);
    storage.write(DeviceOffset(0), &[1; 512], false);
    let mut bytes = [0; 512];
    storage.read_durable(DeviceOffset(0), &mut bytes);
    assert_eq!(bytes, [1; 512]);
}

#[test]
fn rot_is_in_live_and_durable_bytes() {
    for fua in [true, false] {
        let mut storage = Storage::new(Bytes(4096), true);
        storage.write(DeviceOffset(0), &[1; 512], fua);
        storage.rot(DeviceOffset(3), 6);
        let (mut live, mut durable) = ([0; 4], [0; 4]);
        storage.read(DeviceOffset(0), &mut live);
        storage.read_durable(DeviceOffset(0), &mut durable);
        let written = u8::from(fua);
        assert_eq!((live, durable), ([1, 1, 1, 7], [written, written, written, written ^ 6]));
    }
}

#[test]
fn out_of_range_access_is_refused() {
    let storage = Storage::new(Bytes(4096), true);
    assert_eq!(storage.check(DeviceOffset(0), Bytes(4096)), Ok(()));
    assert_eq!(storage.check(DeviceOffset(512), Bytes(4096)), Err(IoError::Short));
    assert_eq!(storage.check(DeviceOffset(u64::MAX - 511), Bytes(512)), Err(IoError::Short));
    assert_eq!(storage.check(DeviceOffset(1), Bytes(512)), Err(IoError::Os(weir_model::Errno::EINVAL)));
}

#[test]
fn truncated_data_stays_lost_after_power_loss() {
    let mut storage = Storage::new(Bytes(SECTORS * SECTOR), true);
    storage.write(DeviceOffset(0), &[7; (SECTORS * SECTOR) as usize], true);
    storage.truncate(Bytes(5 * SECTOR));
    storage.regrow();
    storage.write(DeviceOffset(20 * SECTOR), &[0; SECTOR as usize], false);
    storage.lose_power(Vec::new(), &mut Rng::new(Seed(1)));
    let found: Vec<u8> = (0..SECTORS).map(|sector| read(&storage, sector)).collect();
    assert!(
        found[..5].iter().all(|byte| *byte == 7) && found[5..].iter().all(|byte| *byte == 0),
        "{found:?}"
    );
}
