//! Reported space use of volumes and the pool, compared with a count over the visible map.

use super::harness::{EXTENT, Harness, Shape};
use crate::{Percent, SpaceKind, SpaceRules, WhenFull};
use proptest::prelude::*;
use std::collections::BTreeSet;
use weir_map::{ExtentState, Location};
use weir_model::{BLOCK, BlockRange, DeviceId, Errno, IoError, IoKind, Op, PlaceId, PlaceKind, RequestError};
use weir_policy::placement::Action;

const BLOCKS: u64 = EXTENT as u64 / BLOCK;
const ALL: BlockRange = BlockRange { first: 0, count: BLOCKS as u16 };
const EXTENTS: u64 = 8;

/// Returns the space of the volume, and the number of device extents it occupies.
fn naive(h: &Harness) -> (u64, u64) {
    let (mut bytes, mut extents) = (0, BTreeSet::new());
    for index in 0..EXTENTS {
        match h.engine.map().find(h.key(index)) {
            ExtentState::Empty => {}
            ExtentState::Direct(whole) => {
                bytes += EXTENT as u64;
                extents.insert((whole.device, whole.extent));
            }
            ExtentState::Record(record) => {
                for place in &record.places {
                    match &place.at {
                        Location::Whole(whole) => {
                            bytes += EXTENT as u64;
                            extents.insert((whole.device, whole.extent));
                        }
                        Location::Fine { device, slots } => {
                            bytes += slots.len() as u64 * BLOCK;
                            extents.extend(slots.iter().map(|slot| (*device, slot.extent)));
                        }
                    }
                }
            }
        }
    }
    (bytes, extents.len() as u64)
}

/// Checks the reported use with anything in flight: the volume's figure is exact; the pool's is exact except
/// for shared extents all of whose slots have just been freed.
fn check(h: &Harness, settled: bool) -> Result<(), TestCaseError> {
    let (bytes, extents) = naive(h);
    let status = h.engine.status();
    prop_assert_eq!(status.volumes.iter().map(|v| v.allocated.0).sum::<u64>(), bytes);
    let used = status.space.used.0 / EXTENT as u64;
    let of_devices = status.devices.iter().map(|d| d.total.0 - d.free.0).sum::<u64>() / EXTENT as u64;
    prop_assert_eq!(used, of_devices, "one way of counting");
    let exact = settled || h.engine.map().pending_release_count() == 0;
    prop_assert!(used == extents || !exact && used > extents, "{} of {}", used, extents);
    if settled {
        prop_assert_eq!(status.devices.iter().map(|d| d.releasing.0).sum::<u64>(), 0);
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Do(Op, u64, u64, u64),
    Move(u64, u8, bool),
    Copy(u64, u8, bool),
    Drop(u64, u8, bool),
    Flush,
    FailFlush,
    Reopen,
    Recreate,
}

fn step() -> impl Strategy<Value = Step> {
    let op = || {
        prop_oneof![
            3 => Just(Op::Write),
            2 => Just(Op::Trim),
            1 => Just(Op::WriteZeroes { no_hole: true }),
            1 => Just(Op::WriteZeroes { no_hole: false })
        ]
    };
    let target = || (0..EXTENTS, 0u8..2, any::<bool>());
    prop_oneof![
        6 => (op(), 0..EXTENTS, 0..BLOCKS, 1..=BLOCKS).prop_map(|(op, e, b, n)| Step::Do(op, e, b, n)),
        6 => (op(), 0..EXTENTS).prop_map(|(op, e)| Step::Do(op, e, 0, BLOCKS)),
        3 => target().prop_map(|(e, device, fine)| Step::Move(e, device, fine)),
        2 => target().prop_map(|(e, device, fine)| Step::Copy(e, device, fine)),
        2 => target().prop_map(|(e, device, fine)| Step::Drop(e, device, fine)),
        3 => Just(Step::Flush),
        1 => Just(Step::FailFlush),
        1 => Just(Step::Reopen),
        1 => Just(Step::Recreate),
    ]
}

fn history(copies: u8, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut h = Harness::of(Shape { devices: 2, members: 2, copies, ..Shape::default() }, "sequential");
    let place = |device, fine| PlaceId {
        device: DeviceId(device),
        kind: if fine { PlaceKind::Fine } else { PlaceKind::Whole },
    };
    for step in steps {
        match step {
            Step::Do(op, extent, first, count) => {
                let bytes = vec![1; (count.min(BLOCKS - first) * BLOCK) as usize];
                // A device's state may make it refuse the request.
                let _ = h.request(op, extent * EXTENT as u64 + first * BLOCK, &bytes, false);
            }
            Step::Move(extent, device, fine) => {
                h.act(Action::Move { key: h.key(extent), blocks: ALL, to: place(device, fine) });
            }
            Step::Copy(extent, device, fine) => {
                h.act(Action::Copy { key: h.key(extent), blocks: ALL, to: place(device, fine) });
            }
            Step::Drop(extent, device, fine) => {
                h.act(Action::Drop { key: h.key(extent), blocks: ALL, from: place(device, fine) });
            }
            Step::Flush => drop(h.flush()),
            Step::FailFlush => {
                h.fail_next(IoKind::Flush, IoError::Os(Errno::EIO));
                let _ = h.flush();
                h.forget_failures();
            }
            Step::Reopen => h.reopen(),
            Step::Recreate => {
                if h.remove_volume().is_ok() {
                    h.create_volume().expect("a volume");
                }
            }
        }
        check(&h, false)?;
    }
    if h.flush().is_ok() {
        // Space freed by a commit is released by the next one.
        let _ = h.flush();
        check(&h, h.engine.map().pending_release_count() == 0)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn reported_usage_matches_the_map(
        copies in 1u8..=2,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        history(copies, steps)?;
    }
}

/// The pool is filled and trimmed without a single flush.
#[test]
fn full_pool_usage_is_exact_before_and_after_trim() {
    let mut h = Harness::new(1, "sequential");
    h.set_space_rules(SpaceRules {
        when_full: WhenFull::Error,
        warn_at: vec![Percent(80), Percent(95)],
        ..SpaceRules::default()
    });
    let total = u64::from(h.free()) * EXTENT as u64;
    let refused =
        (0..).map(|i| h.request(Op::Write, i * EXTENT as u64, &[1; 4096], false)).find(Result::is_err);
    assert_eq!(refused, Some(Err(RequestError::NoSpace)));
    let status = h.engine.status();
    assert_eq!((status.volumes[0].allocated.0, status.space.used.0), (total, total));
    assert_eq!((status.space.full, status.space.warning), (Some(SpaceKind::Data), Some(Percent(95))));
    // A quarter is freed. No write, flush or time has to follow.
    h.begin(Op::Trim, 0, total / 4 / EXTENT as u64 * EXTENT as u64);
    assert_eq!(h.answer().map(|(_, result)| result.is_ok()), Some(true));
    let status = h.engine.status();
    assert_eq!(status.volumes[0].allocated, status.space.used);
    assert!(status.space.used.0 <= total * 3 / 4 + EXTENT as u64, "{}", status.space.used);
    assert_eq!((status.space.full, status.space.warning), (None, None));
    assert_eq!(status.devices[0].total - status.devices[0].free, status.space.used);
    h.flush().expect("a flush");
    assert_eq!(h.engine.space_status().warning, None);
}
