//! Space reserved by WRITE_ZEROES with NO_HOLE: until a TRIM of a whole extent frees it, no write to it lacks
//! space.

use super::harness::{EXTENT, Harness, Shape};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{BLOCK, BlockRange, DeviceId, Nanos, Op, PlaceId, PlaceKind, RequestError};
use weir_policy::placement::Action;

const BLOCKS: u64 = EXTENT as u64 / BLOCK;
const ALL: BlockRange = BlockRange { first: 0, count: BLOCKS as u16 };
const ZEROES: Op = Op::WriteZeroes { no_hole: true };

const fn place(device: u8, kind: PlaceKind) -> PlaceId {
    PlaceId { device: DeviceId(device), kind }
}

/// Takes all remaining space, from this extent of the volume on.
fn fill(h: &mut Harness, from: u64) {
    for index in from.. {
        h.submit(index, Op::Write, index * EXTENT as u64, 4096, 9);
        h.run();
        let answer = h.answer().or_else(|| {
            // Consolidation that frees space for the write takes a while.
            h.wait(Nanos::secs(2));
            h.answer()
        });
        match answer.expect("an answer").1 {
            Ok(_) => {}
            Err(RequestError::NoSpace) => return,
            Err(error) => panic!("extent {index}: {error:?}"),
        }
    }
}

/// Runs a history in which an extent is provisioned, written as a whole, changed, and trimmed in two halves:
/// its space must still be reserved.
fn provisioned_written_and_trimmed(between: impl Fn(&mut Harness)) {
    for zeroes_first in [true, false] {
        let mut h = Harness::new(2, "sequential");
        let (half, free) = (vec![0; EXTENT / 2], h.free());
        let mut steps = [(ZEROES, vec![0; EXTENT]), (Op::Write, vec![7; EXTENT])];
        if !zeroes_first {
            steps.swap(0, 1);
        }
        for (op, bytes) in steps {
            h.request(op, 0, &bytes, true).expect("done");
        }
        h.write(0, &[7; EXTENT]);
        h.flush().expect("a flush");
        between(&mut h);
        assert_eq!(h.read(0, EXTENT).1, [7; EXTENT]);
        for at in [0, EXTENT as u64 / 2] {
            h.request(Op::Trim, at, &half, true).expect("a trim");
        }
        assert_eq!(h.read(0, EXTENT).1, [0; EXTENT]);
        assert_eq!(free - h.free(), 1, "the space is kept");
        h.reopen();
        assert_eq!(free - h.free(), 1, "the space is kept over a restart");
        fill(&mut h, 1);
        h.write(0, &[8; EXTENT]);
        h.request(Op::Trim, 0, &[0; EXTENT], true).expect("a trim");
        assert_eq!(h.free(), 1, "a trim of all of it gives the space back");
    }
}

#[test]
fn trim_to_volume_end_frees_the_last_extent() {
    let volume = EXTENT as u64 + 2 * BLOCK;
    let mut h = Harness::of(Shape { volume, ..Shape::default() }, "sequential");
    let free = h.free();
    h.request(ZEROES, 0, &vec![0; volume as usize], true).expect("done");
    h.request(Op::Trim, EXTENT as u64, &[0; BLOCK as usize], true).expect("a trim");
    assert_eq!(free - h.free(), 2, "a part of the extent is not all of it");
    h.request(Op::Trim, EXTENT as u64, &[0; 2 * BLOCK as usize], true).expect("a trim");
    assert_eq!(free - h.free(), 1);
    h.request(Op::Trim, 0, &vec![0; volume as usize], true).expect("a trim");
    assert_eq!(free, h.free());
}

#[test]
fn trimming_a_provisioned_extent_in_pieces_keeps_its_space() {
    provisioned_written_and_trimmed(|_| {});
}

#[test]
fn provisioned_extents_survive_restart() {
    provisioned_written_and_trimmed(Harness::reopen);
}

#[test]
fn moved_extent_stays_provisioned() {
    for kind in [PlaceKind::Whole, PlaceKind::Fine] {
        provisioned_written_and_trimmed(|h| {
            let key = h.key(0);
            h.act(Action::Move { key, blocks: ALL, to: place(1, kind) });
            h.flush().expect("a flush");
        });
    }
}

#[test]
fn copied_and_dropped_extent_stays_provisioned() {
    provisioned_written_and_trimmed(|h| {
        let key = h.key(0);
        h.act(Action::Copy { key, blocks: ALL, to: place(1, PlaceKind::Whole) });
        h.flush().expect("a flush");
        h.act(Action::Drop { key, blocks: ALL, from: place(0, PlaceKind::Whole) });
        h.flush().expect("a flush");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Do(Op, u64, u64, u64),
    Move(u64, u8, bool),
    Copy(u64, u8, bool),
    Drop(u64, u8, bool),
    Flush,
    Reopen,
}

const EXTENTS: u64 = 6;

fn step() -> impl Strategy<Value = Step> {
    let part = || (0..EXTENTS, 0..BLOCKS, 1..=BLOCKS);
    let op = || {
        prop_oneof![Just(Op::Write), Just(Op::Trim), Just(ZEROES), Just(Op::WriteZeroes { no_hole: false })]
    };
    let target = || (0..EXTENTS, 0u8..2, any::<bool>());
    prop_oneof![
        4 => (op(), part()).prop_map(|(op, (e, first, count))| Step::Do(op, e, first, count)),
        4 => (op(), 0..EXTENTS).prop_map(|(op, e)| Step::Do(op, e, 0, BLOCKS)),
        2 => target().prop_map(|(e, device, fine)| Step::Move(e, device, fine)),
        1 => target().prop_map(|(e, device, fine)| Step::Copy(e, device, fine)),
        1 => target().prop_map(|(e, device, fine)| Step::Drop(e, device, fine)),
        3 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut h = Harness::new(2, "sequential");
    let mut model: BTreeMap<u64, [u8; BLOCKS as usize]> = BTreeMap::new();
    let mut kept = BTreeSet::new();
    let kind = |fine| if fine { PlaceKind::Fine } else { PlaceKind::Whole };
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Do(op, extent, first, count) => {
                let count = count.min(BLOCKS - first);
                let byte = if op == Op::Write { number as u8 | 1 } else { 0 };
                let at = extent * EXTENT as u64 + first * BLOCK;
                let done = h.request(op, at, &vec![byte; (count * BLOCK) as usize], false);
                prop_assert!(done.is_ok(), "{:?}: {:?}", op, done);
                let blocks = model.entry(extent).or_insert([0; BLOCKS as usize]);
                blocks[first as usize..(first + count) as usize].fill(byte);
                match op {
                    Op::Trim if count == BLOCKS => drop(kept.remove(&extent)),
                    _ if op == ZEROES => drop(kept.insert(extent)),
                    _ => {}
                }
            }
            Step::Move(extent, device, fine) => {
                h.act(Action::Move { key: h.key(extent), blocks: ALL, to: place(device, kind(fine)) });
            }
            Step::Copy(extent, device, fine) => {
                h.act(Action::Copy { key: h.key(extent), blocks: ALL, to: place(device, kind(fine)) });
            }
            Step::Drop(extent, device, fine) => {
                h.act(Action::Drop { key: h.key(extent), blocks: ALL, from: place(device, kind(fine)) });
            }
            Step::Flush => drop(h.flush().expect("a flush")),
            Step::Reopen => {
                h.flush().expect("a flush");
                h.reopen();
            }
        }
    }
    h.flush().expect("a flush");
    fill(&mut h, EXTENTS);
    for extent in 0..EXTENTS {
        let (_, bytes) = h.read(extent * EXTENT as u64, EXTENT);
        let blocks = model.get(&extent).copied().unwrap_or([0; BLOCKS as usize]);
        let right = bytes.chunks(BLOCK as usize).zip(blocks).all(|(b, v)| b.iter().all(|b| *b == v));
        prop_assert!(right, "extent {}", extent);
        if kept.contains(&extent) {
            for first in 0..BLOCKS {
                let done = h.request(Op::Write, extent * EXTENT as u64 + first * BLOCK, &[3; 4096], false);
                prop_assert!(done.is_ok(), "extent {} block {}: {:?}", extent, first, done);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    /// Holds whatever else happens to the extents, and however full the pool is.
    #[test]
    fn write_to_reserved_space_never_runs_out(steps in prop::collection::vec(step(), 1..60)) {
        check(steps)?;
    }
}
