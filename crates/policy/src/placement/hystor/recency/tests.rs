//! Recency against a naive twin.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Both areas' extents, the least recently used first.
type Twin = [Vec<(ExtentKey, Extent)>; 2];

/// Removes an extent. Returns its area and counts.
fn take(twin: &mut Twin, key: ExtentKey) -> Option<(Area, Extent)> {
    Area::ALL.into_iter().find_map(|area| {
        let list = &mut twin[area as usize];
        let at = list.iter().position(|(k, _)| *k == key)?;
        Some((area, list.remove(at).1))
    })
}

fn touch(twin: &mut Twin, key: ExtentKey) {
    if let Some((area, extent)) = take(twin, key) {
        twin[area as usize].push((key, extent));
    }
}

fn step(
    recency: &mut Recency,
    twin: &mut Twin,
    (what, key, dirty): (u8, ExtentKey, u16),
) -> Result<(), TestCaseError> {
    let extent = Extent { blocks: 32, dirty };
    match what {
        0 | 1 => {
            let area = Area::ALL[usize::from(what)];
            take(twin, key);
            twin[area as usize].push((key, extent));
            recency.insert(area, key, extent);
        }
        2 => {
            touch(twin, key);
            recency.touch(key);
        }
        3 => {
            let first = ExtentKey { index: ExtentIndex(key.index.0 / 2), ..key };
            let mut run = recency.run(first, 64);
            for nth in [63, 0, 5, dirty as u8 % 64, 17, 5] {
                run.touch(nth);
                touch(twin, ExtentKey { index: ExtentIndex(first.index.0 + u64::from(nth)), ..first });
            }
        }
        4 => prop_assert_eq!(recency.remove(key), take(twin, key)),
        _ => {
            let area = Area::ALL[usize::from(what % 2)];
            let oldest = recency.iter_oldest(area).next();
            prop_assert_eq!(oldest, twin[area as usize].first().copied());
            if let Some((key, extent)) = oldest {
                prop_assert_eq!(recency.remove(key), Some((area, extent)));
                take(twin, key);
            }
        }
    }
    for area in Area::ALL {
        let known = twin[area as usize].iter().find(|(k, _)| *k == key).map(|(_, extent)| *extent);
        prop_assert_eq!(recency.get(key).filter(|(of, _)| *of == area).map(|(_, extent)| extent), known);
        prop_assert_eq!(recency.get_mut(area, key).copied(), known);
    }
    Ok(())
}

fn key(volume: u32, index: u64) -> ExtentKey {
    ExtentKey { volume: VolumeId(volume), index: ExtentIndex(index) }
}

proptest! {
    #[test]
    fn matches_vector_model(
        steps in prop::collection::vec((0u8..7, 0u32..2, 0u64..70, 0u16..100), 0..400),
        looks in 1usize..9,
    ) {
        let (mut recency, mut twin) = (Recency::default(), Twin::default());
        for (nth, (what, volume, index, dirty)) in steps.into_iter().enumerate() {
            step(&mut recency, &mut twin, (what, key(volume, index), dirty))?;
            // Looking skips stale uses, so not after each step.
            if nth % looks == 0 {
                for area in Area::ALL {
                    prop_assert_eq!(recency.iter_oldest(area).collect::<Vec<_>>(), &*twin[area as usize]);
                }
            }
        }
        for area in Area::ALL {
            prop_assert_eq!(recency.iter_oldest(area).collect::<Vec<_>>(), &*twin[area as usize]);
            for (key, _) in twin[area as usize].drain(..) {
                prop_assert!(recency.remove(key).is_some());
            }
        }
        prop_assert!(recency.index.is_empty(), "no group is left");
    }
}

#[test]
fn logs_stay_short() {
    let mut recency = Recency::default();
    (0..100).for_each(|i| recency.insert(Area::Remap, key(1, i), Extent::default()));
    for nth in 0..10_000 {
        recency.touch(key(1, nth % 100));
        assert!(recency.logs[0].entries.len() <= 2 * 100 + STALE_MIN, "after {nth}");
    }
    assert_eq!(recency.iter_oldest(Area::Remap).next().map(|(key, _)| key), Some(key(1, 0)));
}
