//! Data that only lost devices have is reported by volume and range.

use super::harness::{EXTENT, Harness, Shape};
use crate::Notice;
use weir_model::{BlockRange, Bytes, DeviceId, Nanos, PlaceId, PlaceKind, VolumeOffset};
use weir_policy::placement::Action;

/// Returns the reported ranges: the first byte, and the length.
fn reported_ranges(h: &mut Harness) -> Vec<(u64, u64)> {
    let notices = std::iter::from_fn(|| h.engine.next_notice());
    notices
        .filter_map(|notice| match notice {
            Notice::Unreachable { offset, len, .. } => Some((offset.0, len.0)),
            Notice::UnreachableTotal { ranges, bytes } => Some((ranges, bytes.0)),
            _ => None,
        })
        .collect()
}

fn unreachable(h: &Harness) -> Bytes {
    h.engine.status().unreachable
}

#[test]
fn adjacent_unreachable_blocks_are_one_range() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; EXTENT]);
    h.write(EXTENT as u64, &[2; EXTENT]);
    h.write(3 * EXTENT as u64 + 8192, &[3; 4096]);
    h.flush().expect("a flush");
    let on = (0..2)
        .find(|d| h.engine.data.base.places_of_extent(h.key(0)).is_on(DeviceId(*d)))
        .expect("on one of two");
    h.lose(DeviceId(on));
    h.wait(Nanos::millis(10));
    assert_eq!(reported_ranges(&mut h), [(0, 2 * EXTENT as u64), (3 * EXTENT as u64 + 8192, 4096)]);
    let all = Bytes(2 * EXTENT as u64 + 4096);
    let of_volumes: Vec<_> = h.engine.volumes().map(|volume| volume.unreachable).collect();
    assert_eq!((unreachable(&h), of_volumes), (all, vec![all]));
    let lost =
        |h: &Harness, at| h.engine.explain("vol", VolumeOffset(at)).expect("it is there").places[0].is_lost;
    assert!(lost(&h, 0));
    h.write(0, &[4; EXTENT]);
    assert!(!lost(&h, 0));
}

#[test]
fn blocks_with_another_copy_are_reachable() {
    let mut h = Harness::new(3, "sequential");
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    let on = (0..3)
        .find(|d| h.engine.data.base.places_of_extent(h.key(0)).is_on(DeviceId(*d)))
        .expect("somewhere");
    let other = DeviceId((on + 1) % 3);
    let to = PlaceId { device: other, kind: PlaceKind::Fine };
    // Half of it is copied, and one block of that is then valid only there.
    let blocks = BlockRange { first: 0, count: 16 };
    h.act(Action::Copy { key: h.key(0), blocks, to });
    h.flush().expect("a flush");
    h.lose(DeviceId(on));
    h.wait(Nanos::millis(10));
    assert_eq!(reported_ranges(&mut h), [(16 * 4096, 16 * 4096)]);
    h.lose(other);
    h.wait(Nanos::millis(10));
    assert_eq!(unreachable(&h), Bytes(EXTENT as u64), "neither is there");

    let mut h = Harness::of(Shape { devices: 2, members: 2, copies: 2, ..Shape::default() }, "sequential");
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.lose(DeviceId(0));
    h.wait(Nanos::millis(10));
    assert_eq!((reported_ranges(&mut h), unreachable(&h)), (vec![], Bytes(0)));
}

#[test]
fn excess_unreachable_ranges_are_summarized() {
    let mut h = Harness::new(2, "sequential");
    for i in 0..40 {
        h.write(i * EXTENT as u64, &[1; 4096]);
    }
    h.flush().expect("a flush");
    let on = (0..2)
        .find(|d| h.engine.data.base.places_of_extent(h.key(0)).is_on(DeviceId(*d)))
        .expect("on one of two");
    h.lose(DeviceId(on));
    h.wait(Nanos::millis(10));
    let told = reported_ranges(&mut h);
    assert_eq!((told.len(), told.last()), (33, Some(&(40, 40 * 4096))));
}
