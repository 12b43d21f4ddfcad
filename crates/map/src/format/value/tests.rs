//! Values survive encoding, and nothing else decodes.

use super::*;
use proptest::prelude::*;

pub(crate) fn any_set(blocks: u16) -> impl Strategy<Value = BlockSet> {
    prop::collection::vec((0..blocks, 0..blocks), 0..6).prop_map(move |runs| {
        let mut set = BlockSet::none(blocks);
        for (a, b) in runs {
            set.insert(BlockRange { first: a.min(b), count: a.abs_diff(b) + 1 });
        }
        set
    })
}

fn any_place(blocks: u16) -> impl Strategy<Value = Place> {
    (any_set(blocks), any::<u8>(), any::<u32>(), any::<bool>()).prop_map(
        move |(valid, device, extent, fine)| {
            let device = DeviceId(device);
            let at = if fine {
                let slot = |b| Slot { extent: DeviceExtent(extent.wrapping_add(u32::from(b))), block: b };
                Location::Fine { device, slots: valid.iter().map(slot).collect() }
            } else {
                Location::Whole(Whole { device, extent: DeviceExtent(extent) })
            };
            Place { at, valid }
        },
    )
}

pub(crate) fn any_record(blocks: u16) -> impl Strategy<Value = Record> {
    (
        prop::collection::vec(any_place(blocks), 0..=PLACES_MAX),
        any::<bool>(),
        1u8..=2,
        prop_oneof![Just(1u32), any::<u32>()],
        prop::option::of(any_set(blocks)),
    )
        .prop_map(|(places, keep, copies, references, intent)| Record {
            places: places.into(),
            space_reserved: keep,
            copies,
            references,
            intent,
        })
}

proptest! {
    #[test]
    fn records_round_trip(
        (blocks, record) in (4u32..=10).prop_flat_map(|log| (Just(1u16 << log), any_record(1 << log))),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        record.encode(blocks, &mut bytes);
        prop_assert_eq!(Record::decode(blocks, &bytes), Some(record));
        prop_assert_eq!(Record::decode(blocks, &bytes[..cut.index(bytes.len())]), None);
        bytes.push(0);
        prop_assert_eq!(Record::decode(blocks, &bytes), None);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(record) = Record::decode(32, &bytes) {
            let mut again = Vec::new();
            record.encode(32, &mut again);
            prop_assert_eq!(Record::decode(32, &again), Some(record));
        }
    }

    #[test]
    fn words_round_trip(word in any::<u64>()) {
        if let Some(decoded) = Word::decode(word) {
            prop_assert_eq!(decoded.encode(), word);
        }
    }
}

#[test]
fn canonical_value_is_simplest() {
    let at = Whole { device: DeviceId(1), extent: DeviceExtent(7) };
    let value = |valid| Value::from(Record::single_place(at, valid));
    assert_eq!(value(BlockSet::all(32)).canonical(32), Value::Direct(at));
    assert_eq!(value(BlockSet::none(32)).canonical(32), Value::Empty);
    let mut kept = Record::single_place(at, BlockSet::none(32));
    kept.space_reserved = true;
    assert_eq!(Value::from(kept.clone()).canonical(32), Value::from(kept));
}

/// A direct entry becomes a record again by [`Record::one`]: a record with any other property must stay a
/// record.
#[test]
fn record_with_properties_stays_record() {
    let at = Whole { device: DeviceId(1), extent: DeviceExtent(7) };
    let full = Record::single_place(at, BlockSet::all(32));
    let says_more = [
        Record { space_reserved: true, ..full.clone() },
        Record { copies: 2, ..full.clone() },
        Record { references: 2, ..full.clone() },
        Record { intent: Some(BlockSet::all(32)), ..full.clone() },
    ];
    for record in says_more {
        let value = Value::from(record.clone());
        assert_eq!(value.canonical(32), value, "{record:?}");
        assert_eq!(value.clone().canonical_place(32), value, "{record:?}");
    }
    // This fails to compile when a field is added, so that the test is extended.
    let Record { places: _, space_reserved: _, copies: _, references: _, intent: _ } = full;
}

#[test]
fn clearing_fine_place_releases_its_slots() {
    let mut valid = BlockSet::none(32);
    valid.insert(BlockRange { first: 2, count: 4 });
    let slot = |block| Slot { extent: DeviceExtent(9), block };
    let slots = (2..6).map(slot).collect();
    let place = Place { at: Location::Fine { device: DeviceId(0), slots }, valid };
    let mut record =
        Record::single_place(Whole { device: DeviceId(0), extent: DeviceExtent(0) }, BlockSet::none(32));
    record.places[0] = place;
    let mut released = Released::new();
    record.clear(BlockRange { first: 3, count: 2 }, &mut released);
    assert_eq!(released[..], [3, 4].map(|b| Chunk::Slot(DeviceId(0), slot(b))));
    let Location::Fine { slots, .. } = &record.places[0].at else { panic!("still fine") };
    assert_eq!(slots[..], [slot(2), slot(5)]);
}

#[test]
fn clone_has_capacity_for_more_slots() {
    for count in 0..40u16 {
        let slots = (0..count).map(|block| Slot { extent: DeviceExtent(7), block }).collect();
        let location = Location::Fine { device: DeviceId(1), slots };
        let cloned = location.clone();
        assert_eq!(cloned, location);
        let Location::Fine { slots, .. } = cloned else { unreachable!("a fine location") };
        let spare = slots.capacity() - slots.len();
        assert!((1..=SPARE_SLOTS).contains(&spare), "{spare} beyond {count}");
    }
}
