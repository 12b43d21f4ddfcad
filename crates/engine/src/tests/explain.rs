//! Explanations of a block's location.

use super::harness::{EXTENT, Harness, VOLUME_SIZE};
use crate::{BlockExplanation, ExplainError};
use weir_model::{BlockRange, Bytes, DeviceId, IoKind, Nanos, Op, PlaceId, PlaceKind, VolumeOffset};
use weir_policy::placement::Action;

fn explain(h: &Harness, at: u64) -> BlockExplanation {
    h.engine.explain("vol", VolumeOffset(at)).expect("it is in the volume")
}

const BLOCK_5: u64 = 5 * 4096;

#[test]
fn explanation_has_blocks_address_and_age_of_places() {
    let mut h = Harness::new(2, "hystor");
    let nothing = explain(&h, 77);
    assert!(nothing.places.is_empty() && nothing.number == 0 && !nothing.in_doubt, "{nothing:?}");
    assert_eq!((nothing.policy, nothing.reasons.figures.is_empty()), ("hystor", false));
    h.engine.set_policy(h.now(), weir_policy::placement::by_name("sequential").expect("a policy"));
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    h.pass(Nanos::secs(3));
    let to = PlaceId { device: DeviceId(1), kind: PlaceKind::Fine };
    h.act(Action::Copy { key: h.key(0), blocks: BlockRange { first: 4, count: 3 }, to });
    h.pass(Nanos::secs(2));
    h.devices.log.clear();
    let told = explain(&h, BLOCK_5 + 100);
    assert_eq!((told.block, told.extent, told.number), (VolumeOffset(BLOCK_5), VolumeOffset(0), 5));
    let [home, copy] = &told.places[..] else { panic!("two places: {told:?}") };
    assert!(home.is_whole() && home.id.device == DeviceId(0) && !copy.is_whole());
    assert_eq!(home.blocks, [BlockRange { first: 0, count: 32 }]);
    assert_eq!((copy.id, &copy.blocks[..]), (to, &[BlockRange { first: 4, count: 3 }][..]));
    let age = |age: Option<Nanos>| age.map(|age| age.0 / 1_000_000_000);
    assert_eq!((age(home.age), age(copy.age)), (Some(5), Some(2)));
    assert!(h.devices.log.is_empty(), "asking asks nothing of the devices");
    // The address is the one that a read uses.
    h.read(BLOCK_5, 4096);
    let read = h.devices.log.iter().find(|io| io.kind == IoKind::Read).expect("a read");
    let at = told.places.iter().find(|place| place.id.device == read.device).and_then(|place| place.at);
    assert_eq!(at, Some(read.at));
    assert_eq!(explain(&h, 0).places[1].at, None, "the copy does not hold the first block");
    h.flush().expect("the copy is durable");
    h.reopen();
    let ages: Vec<_> = explain(&h, BLOCK_5).places.iter().map(|place| place.age).collect();
    assert_eq!(ages, [None, None], "nobody remembers");
    h.request(Op::Trim, 0, &[0; EXTENT], true).expect("a trim");
    assert!(explain(&h, BLOCK_5).places.is_empty());
}

#[test]
fn missing_volume_and_offset_are_reported() {
    let h = Harness::new(1, "sequential");
    let none = h.engine.explain("w", VolumeOffset(0)).expect_err("there is none");
    assert_eq!(none, ExplainError::NoVolume("w".into()));
    let at = Bytes(VOLUME_SIZE);
    let beyond = h.engine.explain("vol", VolumeOffset(at.0)).expect_err("it ends before");
    assert_eq!(beyond, ExplainError::OutOfRange { at, volume: "vol".into(), size: at });
    assert!(
        beyond.to_string().starts_with("offset 64 MiB is beyond the end of volume \"vol\"; "),
        "{beyond}"
    );
    assert!(explain(&h, VOLUME_SIZE - 1).places.is_empty());
}
