//! Running out of space, and recovery from it.

use super::harness::{Harness, Shape};
use crate::{FlushRules, Notice, Options, Percent, SpaceKind, SpaceRules, WhenFull};
use weir_model::{BLOCK, IoKind, Nanos, Op, ReadShape, RequestError};

const EXTENT: u64 = 128 << 10;
const PATIENCE: Nanos = Nanos::secs(30);

/// Sets up a pool without a free extent, whose writes wait.
fn full_pool_with_waiting() -> (Harness, u64) {
    let mut h = Harness::new(1, "sequential");
    h.set_space_rules(SpaceRules {
        when_full: WhenFull::Wait { timeout: PATIENCE },
        warn_at: vec![Percent(50), Percent(90)],
        ..SpaceRules::default()
    });
    let extents = u64::from(h.free());
    for i in 0..extents {
        h.write(i * EXTENT, &[1; 4096]);
    }
    h.flush().expect("a flush");
    (h, extents)
}

#[test]
fn waiting_write_blocks_no_other_request() {
    let (mut h, extents) = full_pool_with_waiting();
    h.submit(1, Op::Write, extents * EXTENT, 4096, 9);
    h.run();
    assert_eq!(h.engine.space_status().waiting, 1);
    assert!(h.answer().is_none());
    // Overwrites, new blocks of allocated extents, reads, flushes.
    h.write(0, &[2; 4096]);
    h.write(8192, &[3; 4096]);
    h.flush().expect("a flush");
    assert_eq!(h.read(0, 4096).1, [2; 4096]);
    assert!(h.answer().is_none());
    // A trim frees space, and its commit follows soon.
    h.submit(2, Op::Trim, EXTENT, EXTENT, 0);
    h.run();
    assert_eq!(h.answer(), Some((2, Ok(ReadShape::Data))));
    assert_eq!(h.answer(), Some((1, Ok(ReadShape::Data))));
    assert_eq!(h.read(extents * EXTENT, 4096).1, [9; 4096]);
    assert_eq!(h.engine.space_status().waiting, 0);
}

#[test]
fn write_waits_for_space_up_to_timeout() {
    let (mut h, extents) = full_pool_with_waiting();
    h.submit(1, Op::Write, extents * EXTENT, 4096, 9);
    h.run();
    let due = h.engine.deadline().expect("it will be refused");
    h.pass(due.since(h.now()) - Nanos(1));
    assert!(h.answer().is_none());
    h.pass(Nanos(1));
    assert_eq!(h.answer(), Some((1, Err(RequestError::NoSpace))));
    assert_eq!(h.read(extents * EXTENT, 4096).0, ReadShape::Zeros);
    assert_eq!(h.engine.space_status().refused, 1);
}

#[test]
fn number_of_waiting_writes_is_bounded() {
    let (mut h, extents) = full_pool_with_waiting();
    for i in 0..66 {
        h.submit(i, Op::Write, (extents + i) * EXTENT, 4096, 9);
    }
    h.run();
    assert_eq!(h.answer(), Some((64, Err(RequestError::NoSpace))));
    assert_eq!(h.answer(), Some((65, Err(RequestError::NoSpace))));
    assert_eq!((h.answer(), h.engine.space_status().waiting), (None, 64));
    // Two extents become free: the first two writes get them, the others continue to wait.
    h.submit(100, Op::Trim, 0, 2 * EXTENT, 0);
    h.run();
    let answers: Vec<_> =
        std::iter::from_fn(|| h.answer()).map(|(id, result)| (id, result.is_ok())).collect();
    assert_eq!(answers, [(100, true), (0, true), (1, true)]);
    assert_eq!(h.engine.space_status().waiting, 62);
}

#[test]
fn removal_and_stop_end_waiting_for_space() {
    let (mut h, extents) = full_pool_with_waiting();
    h.submit(1, Op::Write, extents * EXTENT, 4096, 9);
    h.run();
    h.remove_volume().expect("removed at once");
    assert_eq!(h.answer(), Some((1, Err(RequestError::NoSpace))));
    assert_eq!(u64::from(h.free()), extents);

    let (mut h, extents) = full_pool_with_waiting();
    h.submit(1, Op::Write, extents * EXTENT, 4096, 9);
    h.run();
    h.engine.begin_stop(h.now());
    h.run();
    assert_eq!(h.answer(), Some((1, Err(RequestError::NoSpace))));
    h.stop();
}

#[test]
fn space_warnings_are_reported_once_per_crossing() {
    let (mut h, extents) = full_pool_with_waiting();
    let mut told = || std::iter::from_fn(|| h.engine.next_notice()).collect::<Vec<_>>();
    let filling = |notice: &Notice| match notice {
        Notice::Filling { space: SpaceKind::Data, at, .. } => Some(at.0),
        _ => None,
    };
    assert_eq!(told().iter().filter_map(filling).collect::<Vec<_>>(), [50, 90]);
    h.set_space_rules(SpaceRules {
        when_full: WhenFull::Error,
        warn_at: vec![Percent(90)],
        ..SpaceRules::default()
    });
    for _ in 0..5 {
        let refused = h.request(Op::Write, extents * EXTENT, &[1; 4096], false);
        assert_eq!(refused, Err(RequestError::NoSpace));
    }
    let status = h.engine.space_status();
    assert_eq!((status.full, status.warning, status.refused), (Some(SpaceKind::Data), Some(Percent(90)), 5));
    assert_eq!(status.used, status.total);
    h.request(Op::Trim, 0, &[0; 1 << 20], true).expect("a trim");
    h.pass(Nanos::secs(10));
    h.write(0, &[1; 4096]);
    let told: Vec<_> = std::iter::from_fn(|| h.engine.next_notice()).collect();
    assert_eq!(told, [Notice::Full(SpaceKind::Data), Notice::SpaceAvailable]);
    assert_eq!(h.engine.space_status().full, None);
}

/// Sets up a pool whose metadata area fills long before its devices: one extent in each map page.
fn tiny_metadata() -> (Harness, u64) {
    let shape = Shape { volume: 1 << 44, ..Shape::default() };
    (Harness::of(shape, "sequential"), 700 * EXTENT)
}

#[test]
fn freed_records_free_metadata_space() {
    let mut h = Harness::of(Shape::default(), "sequential");
    let need = |h: &Harness| h.engine.map().metadata_requirement().0;
    let mut change = |op, len: usize| {
        h.request(op, 0, &vec![1; len], false).expect("room");
        h.flush().expect("a flush");
        need(&h)
    };
    change(Op::Write, 128 << 10);
    let empty = change(Op::Trim, 128 << 10);
    assert!(change(Op::Write, 4096) > empty, "part of an extent has a record");
    assert_eq!(change(Op::Trim, 128 << 10), empty);
}

#[test]
fn full_metadata_refuses_only_new_extents() {
    let (mut h, apart) = tiny_metadata();
    let mut written = 0;
    while h.request(Op::Write, written * apart, &[1; 128 << 10], false).is_ok() {
        written += 1;
    }
    assert!(written > 8 && h.free() > 0, "{written} written");
    assert_eq!(h.engine.space_status().full, Some(SpaceKind::Metadata));
    h.flush().expect("a flush");
    // Parts of whole extents: the records do not fit, so zeros are written.
    for (i, op) in [Op::Trim, Op::WriteZeroes { no_hole: false }, Op::WriteZeroes { no_hole: true }]
        .into_iter()
        .enumerate()
    {
        let at = i as u64 * apart;
        h.request(op, at + BLOCK, &[0; 100 << 10], true).expect("zeros");
        let (_, bytes) = h.read(at, 128 << 10);
        let zeros = BLOCK as usize..(100 << 10) + BLOCK as usize;
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == u8::from(!zeros.contains(&i))), "{op:?}");
    }
    h.request(Op::Trim, 3 * apart, &[0; 128 << 10], true).expect("a trim");
    h.write(written * apart, &[1; 4096]);
    h.remove_volume().expect("removed");
    assert!(!h.engine.status().read_only);
}

mod property {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, u64, u64),
        Clear(Op, u64, u64, u64),
        Flush,
        Reopen,
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = || (0u64..60, 0u64..32, 1u64..=32);
        let clear = prop_oneof![
            Just(Op::Trim),
            Just(Op::WriteZeroes { no_hole: false }),
            Just(Op::WriteZeroes { no_hole: true })
        ];
        prop_oneof![
            5 => place().prop_map(|(e, b, n)| Step::Write(e, b, n)),
            2 => (0u64..60).prop_map(|e| Step::Write(e, 0, 32)),
            3 => (clear.clone(), place()).prop_map(|(op, (e, b, n))| Step::Clear(op, e, b, n)),
            1 => (clear, 0u64..60).prop_map(|(op, e)| Step::Clear(op, e, 0, 32)),
            3 => Just(Step::Flush),
            1 => Just(Step::Reopen),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        /// However full data and metadata are, operations that take no space succeed, every checkpoint has
        /// space, and the contents match a plain model. (Only flushed states are reopened.)
        #[test]
        fn only_allocating_requests_are_refused(steps in prop::collection::vec(step(), 1..250)) {
            let (mut h, apart) = tiny_metadata();
            let mut model: BTreeMap<u64, [u8; 32]> = BTreeMap::new();
            let mut placed = std::collections::BTreeSet::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(extent, first, count) => {
                        let count = count.min(32 - first);
                        let byte = number as u8 | 1;
                        let at = extent * apart + first * BLOCK;
                        match h.request(Op::Write, at, &vec![byte; (count * BLOCK) as usize], false) {
                            Ok(_) => {
                                placed.insert(extent);
                                let blocks = model.entry(extent).or_default();
                                blocks[first as usize..(first + count) as usize].fill(byte);
                            }
                            Err(error) => {
                                prop_assert_eq!(error, RequestError::NoSpace);
                                prop_assert!(!placed.contains(&extent), "an overwrite was refused");
                            }
                        }
                    }
                    Step::Clear(op, extent, first, count) => {
                        let count = count.min(32 - first);
                        let at = extent * apart + first * BLOCK;
                        let done = h.request(op, at, &vec![0; (count * BLOCK) as usize], false);
                        let keeps = op == Op::WriteZeroes { no_hole: true };
                        if keeps && !placed.contains(&extent) {
                            if done.is_ok() { placed.insert(extent); }
                            continue;
                        }
                        prop_assert!(done.is_ok(), "{:?} was refused: {:?}", op, done);
                        if let Some(blocks) = model.get_mut(&extent) {
                            blocks[first as usize..(first + count) as usize].fill(0);
                        }
                        if !keeps && model.get(&extent).is_none_or(|b| b.iter().all(|b| *b == 0)) {
                            placed.remove(&extent);
                        }
                    }
                    Step::Flush => { h.flush().expect("a flush"); }
                    Step::Reopen => { h.flush().expect("a flush"); h.reopen(); }
                }
                prop_assert!(!h.engine.data.base.durability.checkpoint.no_space, "a checkpoint without room");
                prop_assert!(!h.engine.status().read_only);
            }
            for (extent, blocks) in &model {
                let (_, bytes) = h.read(extent * apart, 128 << 10);
                let right = bytes.chunks(4096).zip(blocks).all(|(b, v)| b.iter().all(|b| b == v));
                prop_assert!(right, "extent {}", extent);
            }
            h.remove_volume().expect("removed");
        }
    }
}

/// A write waits for space for the first blocks of an extent. A later clear there takes effect after it, also
/// for a client that does not wait for the write because its connection is lost.
#[test]
fn clear_is_ordered_after_write_waiting_for_space() {
    for (op, first) in [(Op::WriteZeroes { no_hole: false }, 1), (Op::Trim, 1), (Op::Trim, 0)] {
        let (mut h, extents) = full_pool_with_waiting();
        let at = (extents + 1) * EXTENT;
        h.submit(1, Op::Write, at, 4096, 9);
        h.run();
        h.submit(2, op, (extents + first) * EXTENT, 3 * EXTENT, 0);
        h.run();
        assert_eq!(h.answer(), None, "{op:?}: the write is not done");
        // Another request frees space.
        h.submit(3, Op::Trim, 0, EXTENT, 0);
        h.run();
        h.submit(4, Op::Flush, 0, 0, 0);
        h.run();
        let mut answered: Vec<_> = std::iter::from_fn(|| h.answer()).map(|(id, r)| (id, r.is_ok())).collect();
        answered.sort_unstable();
        assert_eq!(answered, [(1, true), (2, true), (3, true), (4, true)], "{op:?}");
        assert_eq!(h.read(at, 4096).0, ReadShape::Zeros, "{op:?}");
    }
}

/// Flushes that no party waits for are delayed on slow devices; a write that waits for space makes this one
/// urgent.
#[test]
fn waiting_for_space_flushes_slow_device_at_once() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 4096]);
    h.devices.delay_next = Some(IoKind::Flush);
    h.begin(Op::Flush, 0, 0);
    h.pass(Nanos::millis(10));
    h.release(None);
    assert!(matches!(h.answer(), Some((_, Ok(_)))));
    let flushes = FlushRules { slow_threshold: Nanos(0), ..FlushRules::default() };
    h.set_options(Options { flushes, ..Options::default() });
    let extents = u64::from(h.free());
    for i in 1..extents {
        h.write(i * EXTENT, &[1; 4096]);
    }
    h.flush().expect("a flush");
    // The last extent is allocated and freed, which needs a flush, while the disk is in use.
    h.devices.delay_next = Some(IoKind::Read);
    h.begin(Op::Read, 0, 4096);
    h.write(extents * EXTENT, &[2; 4096]);
    h.request(Op::Trim, extents * EXTENT, &[0; EXTENT as usize], false).expect("a trim");
    h.devices.log.clear();
    h.submit(1, Op::Write, (extents + 1) * EXTENT, 4096, 3);
    h.run();
    assert_eq!(h.commands(IoKind::Flush), 1);
    // The space is quarantined until the read has ended.
    h.release(None);
    let answers = [h.answer(), h.answer()].map(|answer| answer.expect("an answer"));
    assert!(answers.iter().all(|(_, result)| result.is_ok()), "{answers:?}");
}

/// The release of an extent is durable, but a read of it is in flight. A write that needs the space proceeds
/// when that read ends: no commit and no other request may follow.
#[test]
fn write_proceeds_when_quarantined_space_is_released() {
    let mut h = Harness::new(1, "sequential");
    let extents = u64::from(h.free());
    (0..extents).for_each(|extent| h.write(extent * EXTENT, &[1; 4096]));
    h.flush().expect("a flush");
    h.devices.delay_next = Some(IoKind::Read);
    h.begin(Op::Read, 0, 4096);
    h.request(Op::Trim, 0, &[0; EXTENT as usize], true).expect("a trim");
    h.submit(1, Op::Write, extents * EXTENT, 4096, 9);
    h.run();
    assert_eq!((h.answer(), h.engine.space_status().waiting), (None, 1));
    h.release(None);
    let answers: Vec<_> = std::iter::from_fn(|| h.answer()).collect();
    assert!(answers.contains(&(1, Ok(ReadShape::Data))), "{answers:?}");
}
