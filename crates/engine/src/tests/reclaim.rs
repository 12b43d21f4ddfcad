//! Eviction of copies for new data.

use super::harness::{EXTENT, Harness, Shape};
use weir_model::{BlockRange, DeviceId, Nanos, Op, PlaceId, PlaceKind, RequestError};
use weir_policy::placement::Action;

const ALL: BlockRange = BlockRange { first: 0, count: 32 };

const fn there(kind: PlaceKind) -> PlaceId {
    PlaceId { device: DeviceId(1), kind }
}

/// Writes new extents from this one on until one is refused. Returns that one.
fn fill(h: &mut Harness, from: u64) -> u64 {
    let refused = (from..).find(|i| {
        h.submit(*i, Op::Write, i * EXTENT as u64, 4096, *i as u8);
        h.run();
        let answer = h.answer().or_else(|| {
            // Writing back takes a while.
            h.wait(Nanos::secs(1));
            h.answer()
        });
        let Some((_, result)) = answer else { panic!("no answer to write {i}") };
        assert!(matches!(result, Ok(_) | Err(RequestError::NoSpace)), "{result:?}");
        result.is_err()
    });
    refused.expect("it fills up")
}

fn check(h: &mut Harness, extents: u64) {
    for i in 0..extents {
        assert_eq!(h.read(i * EXTENT as u64, 4096).1, [i as u8; 4096], "extent {i}");
    }
}

#[test]
fn cached_copies_are_evicted_for_new_data() {
    for kind in [PlaceKind::Whole, PlaceKind::Fine] {
        let mut h = Harness::new(2, "sequential");
        let extents = u64::from(h.free());
        let copied = extents / 8;
        for i in 0..copied {
            h.write(i * EXTENT as u64, &[i as u8; EXTENT]);
            let key = h.key(i);
            h.act(Action::Copy { key, blocks: ALL, to: there(kind) });
            assert_eq!(h.places(i).len(), 2);
        }
        h.flush().expect("a flush");
        assert_eq!(fill(&mut h, copied), extents, "with copies in {kind:?} places");
        assert_eq!(h.free(), 0);
        check(&mut h, extents);
        h.flush().expect("a flush");
        h.reopen();
        check(&mut h, extents);
    }
}

#[test]
fn dirty_slots_are_written_back_for_space() {
    let mut h = Harness::new(2, "sequential");
    let extents = u64::from(h.free());
    let some = BlockRange { first: 0, count: 8 };
    for i in 0..32 {
        h.write(i * EXTENT as u64, &[i as u8; EXTENT]);
        let key = h.key(i);
        h.act(Action::Move { key, blocks: some, to: there(PlaceKind::Fine) });
        assert_eq!(h.places(i).iter().map(|p| p.1).collect::<Vec<_>>(), [24, 8]);
    }
    assert_eq!(fill(&mut h, 32), extents);
    check(&mut h, extents);
}

#[test]
fn copies_on_lost_devices_are_not_evicted() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[7; EXTENT]);
    let key = h.key(0);
    h.act(Action::Copy { key, blocks: ALL, to: there(PlaceKind::Whole) });
    h.flush().expect("a flush");
    h.lose(DeviceId(0));
    fill(&mut h, 1);
    assert_eq!(h.places(0).len(), 2);
}

#[test]
fn mirrored_copies_are_not_evicted() {
    let mut h = Harness::of(Shape { devices: 2, members: 2, copies: 2, ..Shape::default() }, "sequential");
    let extents = u64::from(h.free());
    assert_eq!(fill(&mut h, 0), extents / 2);
    assert!((0..extents / 2).all(|i| h.places(i).len() == 2));
}

#[test]
fn writes_fail_without_rewalk_if_nothing_is_evictable() {
    let mut h = Harness::new(1, "sequential");
    let extents = u64::from(h.free());
    assert_eq!(fill(&mut h, 0), extents);
    let due = h.engine.deadline();
    h.submit(1, Op::Write, extents * EXTENT as u64, 4096, 9);
    assert_eq!(h.answer(), Some((1, Err(RequestError::NoSpace))));
    assert_eq!(h.engine.deadline(), due);
}
