//! Random histories of a map beside a naive twin, with power losses anywhere and damage to any page: opening
//! recovers exactly the durable state, or reports damage.

mod support;

use proptest::prelude::*;
use std::cell::Cell;
use support::history::{Coverage, ExtentRef, History, Run, Step};
use support::pool::{self, Shape};
use support::property;
use support::sparse::Sparse;
use support::store::MemStore;
use weir_map::Hardening;
use weir_model::Bytes;

fn location() -> impl Strategy<Value = ExtentRef> {
    // Few extents are used most, so that much happens to each.
    let slot = prop_oneof![4 => 0u8..12, 1 => 0u8..200];
    (0u8..3, slot).prop_map(|(volume, slot)| ExtentRef { volume, slot })
}

fn run() -> impl Strategy<Value = Run> {
    prop_oneof![1 => Just(None), 2 => any::<(u16, u16)>().prop_map(Some)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<u8>().prop_map(Step::Create),
        1 => any::<u8>().prop_map(Step::Remove),
        12 => (location(), any::<u8>()).prop_map(|(at, device)| Step::Place(at, device)),
        24 => (location(), any::<u8>(), run(), prop::bool::weighted(0.2))
            .prop_map(|(at, place, run, durable)| Step::Write { at, place, run, durable }),
        3 => (location(), 1u8..180, run()).prop_map(|(first, count, run)| Step::Many { first, count, run }),
        12 => (location(), run(), any::<u8>()).prop_map(|(at, run, keep)| Step::Clear { at, run, keep }),
        8 => location().prop_map(Step::ReleaseEmpty),
        6 => (location(), any::<u8>(), run())
            .prop_map(|(at, device, run)| Step::WriteFine { at, device, run }),
        12 => (location(), any::<u8>(), any::<bool>(), run(), prop::bool::weighted(0.2))
            .prop_map(|(at, device, fine, run, durable)| Step::Copy { at, device, fine, run, durable }),
        12 => (location(), any::<u8>(), any::<bool>(), prop::bool::weighted(0.4))
            .prop_map(|(at, device, fine, durable)| Step::CopyHeld { at, device, fine, durable }),
        8 => (location(), any::<u8>(), run()).prop_map(|(at, place, run)| Step::Drop { at, place, run }),
        12 => (location(), any::<u8>(), run()).prop_map(|(at, place, run)| Step::Narrow { at, place, run }),
        4 => (location(), run(), any::<bool>())
            .prop_map(|(at, run, settled)| Step::OpenIntent { at, run, settled }),
        6 => any::<u8>().prop_map(Step::Flush),
        6 => (1u8..100).prop_map(Step::Reuse),
        20 => (1u8..6, any::<bool>()).prop_map(|(steps, eager)| Step::Commit { steps, eager }),
        12 => (prop_oneof![9 => 1u8..12, 1 => 100u8..255], 1u8..5)
            .prop_map(|(steps, pages)| Step::Checkpoint { steps, pages }),
        2 => Just(Step::Settle),
        3 => (any::<u64>(), any::<bool>()).prop_map(|(seed, damage)| Step::Crash { seed, damage }),
    ]
}

/// Generates rings of a few pages, including odd sizes, and metadata areas that are soon full.
fn shape() -> impl Strategy<Value = Shape> {
    let meta_pages = prop_oneof![90u64..200, 200u64..1000];
    (16u8..=18, 9u64..40, meta_pages).prop_map(|(extent_log2, journal_pages, meta_pages)| Shape {
        extent_log2,
        journal_pages,
        meta_pages,
    })
}

#[test]
fn recovery_restores_exactly_durable_state() {
    let all = Cell::new(Coverage::default());
    property(150, (shape(), prop::collection::vec(step(), 1..500)), |(shape, steps)| {
        let mut history = History::new(shape);
        history.coverage = all.get();
        history.run(&steps);
        all.set(history.coverage);
    });
    let met = all.get();
    let corners = [
        met.wraps,
        met.checkpoints,
        met.torn_frames,
        met.no_metadata_room,
        met.no_space,
        met.damage_refused,
        met.damage_survived,
        met.older_roots,
        met.cut_recoveries,
        met.removed,
        met.fine,
        met.copies,
        met.drops,
        met.narrowed_first,
        met.kept_full,
    ];
    assert!(corners.iter().all(|n| *n > 0), "the histories miss something: {met:?}");
}

/// Admission ([`weir_map::Map::has_metadata_space`]) keeps checkpoints possible, in volumes so large and so
/// sparse that every extent needs pages of its own on every level.
#[test]
fn admitted_extents_never_fill_the_metadata_area() {
    let inputs = (80u64..350, 1u32..=6, prop::collection::vec((any::<u64>(), 0u8..39), 1..400));
    property(100, inputs, |(meta_pages, distance, steps)| {
        let shape = Shape { extent_log2: 16, journal_pages: 64, meta_pages };
        Sparse::new(shape, distance).run(&steps);
    });
}

/// Page ids are reused only after a checkpoint, so the tables of pages grow with the pages created and
/// removed between two of them, and must be counted too.
#[test]
fn churn_leaves_space_for_checkpoints() {
    let shape = Shape { extent_log2: 16, journal_pages: 4096, meta_pages: 1000 };
    Sparse::new(shape, 2).churn(90);
}

#[test]
fn concurrently_created_volumes_have_unique_ids() {
    let sizes = pool::superblocks(Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 });
    let mut store = MemStore::new(2);
    pool::create(&mut store, &sizes).expect("a pool");
    let (mut map, _) = pool::open(&mut store, &sizes).expect("opened");
    let commit = |map: &mut weir_map::Map| {
        map.begin_commit();
        let mut frame = Vec::new();
        assert!(map.next_frame(|_| None, &mut frame).is_some());
    };
    let first = map.create_volume("first", Bytes::mib(1), Hardening::Flush, 1);
    commit(&mut map);
    map.finish_commit(&mut Vec::new());
    map.set_hardening(first, Hardening::Write);
    commit(&mut map);
    let second = map.create_volume("second", Bytes::mib(1), Hardening::Flush, 1);
    map.finish_commit(&mut Vec::new());
    let third = map.create_volume("third", Bytes::mib(1), Hardening::Flush, 1);
    assert!(first < second && second < third, "{first:?} {second:?} {third:?}");
    commit(&mut map);
    map.finish_commit(&mut Vec::new());
    let name = |id| map.volume(id).map(|v| v.name.clone());
    assert_eq!([second, third].map(name), [Some("second".into()), Some("third".into())]);
}
