//! Wear levelling.

use super::*;
use std::collections::BTreeSet;
use weir_model::Rng;

/// Writes a tenth of the pages again and again; returns the wear and what it cost.
fn worn(levelling: WearLevelling) -> (Wear, Counters) {
    let config = LogConfig::for_device(4096, 0.2, 32, Metadata::default()).expect("valid settings");
    let mut log = greedy(LogConfig { wear: levelling, ..config }, 4096);
    let mut random = Rng::new(Seed(3));
    for address in 0..4096 {
        log.write(address, Stream(0), &mut Simulated).expect("there is room");
    }
    for _ in 0..400_000 {
        log.write(random.below(400), Stream(0), &mut Simulated).expect("there is spare space");
    }
    let places: BTreeSet<_> = (0..4096).filter_map(|address| log.find(address)).collect();
    assert_eq!((places.len(), log.valid()), (4096, 4096));
    assert_eq!(log.segments().map(|segment| segment.valid).sum::<u32>(), 4096);
    let erases = log.wear().mean * f64::from(config.segments);
    assert!((erases - log.counters().erases as f64).abs() < 1e-6);
    (log.wear(), *log.counters())
}

#[test]
fn static_levelling_bounds_the_gap() {
    let (none, copies_without) = worn(WearLevelling::default());
    let (dynamic, _) = worn(WearLevelling { dynamic: true, max_gap: None });
    let (both, copies) = worn(WearLevelling { dynamic: true, max_gap: Some(20) });
    // Segments with cold data are not erased at all.
    assert!(none.least <= 1 && none.deviation > 50.0, "{none:?}");
    assert!(dynamic.least <= 1 && dynamic.most <= none.most, "{dynamic:?} {none:?}");
    assert!(both.most - both.least <= 30 && both.deviation < 10.0, "{both:?}");
    assert_eq!(copies_without.levelled, 0);
    assert!(copies.levelled > 0 && copies.copied < copies_without.copied + copies.user / 5, "{copies:?}");
}

#[test]
fn free_segments_are_taken_by_wear() {
    let wear = WearLevelling { dynamic: true, max_gap: None };
    let config = LogConfig { wear, ..small() }.with_append_points(2, CopyTo::Last);
    let mut log = greedy(config, 100);
    let mut random = Rng::new(Seed(5));
    for _ in 0..3000 {
        log.write(random.below(100), Stream(0), &mut Simulated).expect("there is spare space");
    }
    let erases = |state| {
        let mut all: Vec<_> = log.segments().filter(|s| s.state == state).map(|s| s.erases).collect();
        all.sort_unstable();
        all
    };
    let free = erases(SegmentState::Free);
    let open = |stream| log.segments().find(|s| s.state == SegmentState::Open && s.stream == Stream(stream));
    assert!(open(0).or(open(1)).is_some_and(|s| s.erases <= free[free.len() - 1] + 3), "{free:?}");
    assert!(log.wear().deviation < 6.0, "{:?}", log.wear());
}
