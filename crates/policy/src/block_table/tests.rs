//! The table by hand, and compared with a naive twin.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn at(volume: u32, block: u64) -> BlockAddress {
    BlockAddress { volume: VolumeId(volume), block }
}

/// Returns the candidates, of which the bits must be the same blocks.
fn candidates(table: &mut BlockTable, quota: u64) -> Vec<BlockAddress> {
    let _ = table.visit_candidates(quota, |found| {
        let mut bits = [0; BTES / 64];
        found.blocks().for_each(|block| bits[usize::from(block) / 64] |= 1 << (block % 64));
        assert_eq!(*found.bits(), bits);
        ControlFlow::Continue(())
    });
    table.candidates(quota)
}

#[test]
fn small_requests_have_larger_weight() {
    let weights =
        [512, 1024, 1536, 4096, 8192, 32 << 10, 64 << 10, 128 << 10].map(|len| inverse_bitmap(Bytes(len)));
    assert_eq!(weights, [128, 64, 64, 16, 8, 2, 1, 1]);
}

#[test]
fn full_counter_halves_its_page() {
    let mut table = BlockTable::default();
    let (near, far) = (at(0, 7), at(0, 5000));
    table.access(VolumeId(0), near.block, 1, 1000);
    table.access(VolumeId(0), far.block, 1, 1000);
    for _ in 0..511 {
        table.access(VolumeId(0), 0, 1, 128);
    }
    assert_eq!((table.counter(at(0, 0)), table.counter(near)), (65408, 1000));
    table.access(VolumeId(0), 0, 1, 128);
    assert_eq!((table.counter(at(0, 0)), table.counter(near), table.counter(far)), (32832, 500, 1000));
    let sub = |i: usize| table.bmds[0][i];
    // The sub-region's counter was full earlier: 65536 - 1000 are 504 accesses.
    assert_eq!((sub(0).unique, sub(4).unique), (2, 1));
    assert_eq!(table.region(VolumeId(0), 0).map(|region| region.unique), Some(3));
}

/// Counters that differed may be equal then, and equal ones are in the order of their blocks.
#[test]
fn a_page_whose_counters_were_halved_is_ordered_anew() {
    let mut table = BlockTable::default();
    for (block, weight) in [(0, 60_000), (9, 3), (4, 2)] {
        table.access(VolumeId(0), block, 1, weight);
    }
    assert_eq!(table.candidates(3), [0, 9, 4].map(|block| at(0, block)));
    table.access(VolumeId(0), 0, 1, 30_000);
    assert_eq!(table.candidates(3), [0, 4, 9].map(|block| at(0, block)));
}

#[test]
fn quota_prefers_hot_and_dense_regions() {
    let mut table = BlockTable::default();
    // Region 0: one sub-region with 1 block of 30. Region 1: sub-regions with 2 blocks of 20 and 10, and with
    // 3 blocks of 10 each. Counters: 30, and 30 + 30 = 60.
    table.access(VolumeId(0), 0, 1, 30);
    table.access(VolumeId(0), REGION, 1, 20);
    table.access(VolumeId(0), REGION + 1, 1, 10);
    table.access(VolumeId(0), REGION + 2048, 3, 10);
    // Of 3: region 0 (fewest blocks) has 3 * 30 / 90 = 1 and uses it. Region 1 has 2: its first sub-region 2
    // * 30 / 60 = 1, its hottest block; the other the last one.
    assert_eq!(table.candidates(3), [at(0, 0), at(0, REGION), at(0, REGION + 2048)]);
    // Of 6: region 0 has 2, uses 1, and 1 passes on: region 1 has 5, of these 2 and 3.
    let all = [0, REGION, REGION + 1, REGION + 2048, REGION + 2049, REGION + 2050].map(|b| at(0, b));
    assert_eq!(table.candidates(6), all);
    assert_eq!(table.candidates(100), all);
    assert_eq!(table.candidates(0), []);
    table.forget(VolumeId(0));
    assert_eq!(table.candidates(100), []);
}

#[test]
fn blocks_of_the_least_counter_are_candidates() {
    let mut table = BlockTable::default();
    table.access(VolumeId(0), 0, BTES as u64, 1);
    let all: Vec<_> = (0..BTES as u64).map(|block| at(0, block)).collect();
    assert_eq!(table.candidates(1 << 20), all);
    assert_eq!(table.candidates(10), all[..10]);
}

#[test]
fn full_table_memory_is_bounded() {
    let mut table = BlockTable::default();
    let blocks = 16 * BTES as u64 * 64;
    table.access(VolumeId(0), 0, blocks, 1);
    let (memory, space) = (table.memory().0 as f64, blocks as f64 * 4096.0);
    assert!(memory / space < 0.001, "{} of {}", table.memory(), Bytes(blocks * 4096));
    // Scattered: a page for each 4 MiB touched.
    let mut sparse = BlockTable::default();
    (0..512).for_each(|i| sparse.access(VolumeId(0), i * BTES as u64, 1, 1));
    assert!(sparse.memory().0 < 512 * 4096 * 101 / 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Compares with a naive twin: flat maps of counters, where a page is all counters with the same prefix.
    #[test]
    fn matches_flat_map_model(
        steps in prop::collection::vec((0u32..2, 0u64..6, 0u64..3, 0u64..4, 0u32..8, 1u16..600), 1..60),
    ) {
        let mut table = BlockTable::default();
        let mut blocks: BTreeMap<BlockAddress, u16> = BTreeMap::new();
        let mut subs: BTreeMap<(u32, u64), u16> = BTreeMap::new();
        let mut regions: BTreeMap<(u32, u64), u16> = BTreeMap::new();
        let bump = |counter: u16, by: u16| (counter.checked_add(by), counter / 2 + by);
        for (volume, region, sub, block, log, times) in steps {
            let block = region * REGION + sub * BTES as u64 + block;
            let weight = 1u16 << log;
            for _ in 0..times {
                table.access(VolumeId(volume), block, 1, weight);
                let here = blocks.entry(at(volume, block)).or_default();
                let (sum, halved) = bump(*here, weight);
                *here = sum.unwrap_or(halved);
                if sum.is_none() {
                    let page = block / BTES as u64;
                    let is_on_page = |b: &BlockAddress| b.volume.0 == volume && b.block / BTES as u64 == page;
                    let same = |b: &BlockAddress| is_on_page(b) && b.block != block;
                    blocks.iter_mut().filter(|(b, _)| same(b)).for_each(|(_, c)| *c /= 2);
                }
                let key = (volume, block / BTES as u64);
                let here = subs.entry(key).or_default();
                let (sum, halved) = bump(*here, weight);
                *here = sum.unwrap_or(halved);
                if sum.is_none() {
                    let region = key.1 / BMDS as u64;
                    let same = |k: &(u32, u64)| k.0 == volume && k.1 / BMDS as u64 == region && *k != key;
                    subs.iter_mut().filter(|(k, _)| same(k)).for_each(|(_, c)| *c /= 2);
                }
                let key = (volume, block / REGION);
                let here = regions.entry(key).or_default();
                let (sum, halved) = bump(*here, weight);
                *here = sum.unwrap_or(halved);
                if sum.is_none() {
                    regions.iter_mut().filter(|(k, _)| **k != key).for_each(|(_, c)| *c /= 2);
                }
            }
        }
        for (block, counter) in &blocks {
            prop_assert_eq!(table.counter(*block), *counter);
        }
        for ((volume, sub), counter) in &subs {
            let region = table.region(VolumeId(*volume), sub / BMDS as u64).expect("accessed");
            prop_assert_eq!(table.bmds[region.child as usize][*sub as usize % BMDS].counter, *counter);
        }
        for ((volume, region), counter) in &regions {
            let entry = table.region(VolumeId(*volume), *region).expect("accessed");
            let below = blocks.keys().filter(|b| b.volume.0 == *volume && b.block / REGION == *region).count();
            prop_assert_eq!((entry.counter, usize::from(entry.unique)), (*counter, below));
        }
        // A halved counter may be 0: of the block, its sub-region, or its region.
        let is_counted = |at: &BlockAddress| {
            let sub = (at.volume.0, at.block / BTES as u64);
            blocks[at] > 0 && subs[&sub] > 0 && regions[&(sub.0, sub.1 / BMDS as u64)] > 0
        };
        let mut candidates = table.candidates(1 << 40);
        candidates.sort_unstable();
        prop_assert_eq!(candidates, blocks.keys().copied().filter(is_counted).collect::<Vec<_>>());
        prop_assert!(table.candidates(3).len() <= 3);
        let mut again = BlockTable::import(&table.export()).expect("what was exported");
        prop_assert_eq!(again.export(), table.export());
        prop_assert_eq!(again.candidates(5), table.candidates(5));
        prop_assert!(blocks.keys().all(|b| again.counter(*b) == table.counter(*b)));
    }

    /// What is remembered of earlier selections does not change the next ones: an imported table has none.
    /// Few accesses are noted, of many a part only.
    #[test]
    fn repeated_selections_match_first_ones(
        steps in prop::collection::vec(
            (prop::collection::vec((0u64..2048, 1u64..200, 0u16..8, 1u16..700), 0..12), 0u64..1500),
            1..12,
        ),
        few in prop::collection::vec(
            (prop::collection::vec((0u64..2048, 1u64..80, 0u16..8), 0..9), 0u64..1500),
            1..12,
        ),
    ) {
        let mut table = BlockTable::default();
        for (accesses, quota) in steps {
            for (first, count, log, times) in accesses {
                // Many times, at times, so that counters are halved.
                (0..times).for_each(|_| table.access(VolumeId(0), first, 1, 1 << log));
                table.access(VolumeId(0), first, count, 1 << log);
            }
            let mut again = BlockTable::import(&table.export()).expect("what was exported");
            prop_assert_eq!(candidates(&mut table, quota), again.candidates(quota), "quota {}", quota);
        }
        for (accesses, quota) in few {
            for (first, count, log) in accesses {
                table.access(VolumeId(0), first, count, 1 << log);
            }
            let mut again = BlockTable::import(&table.export()).expect("what was exported");
            prop_assert_eq!(candidates(&mut table, quota), again.candidates(quota), "quota {}", quota);
        }
    }

    /// The resident blocks of the candidates are those with the flag.
    #[test]
    fn residents_are_the_flagged_blocks(
        steps in prop::collection::vec((any::<bool>(), 0u64..3000), 0..60),
    ) {
        let mut table = BlockTable::default();
        table.access(VolumeId(0), 0, 3000, 1);
        for (on, block) in steps {
            table.set(at(0, block), Flags::METADATA, !on);
            table.set(at(0, block), Flags::RESIDENT, on);
        }
        let mut again = BlockTable::import(&table.export()).expect("what was exported");
        for table in [&mut table, &mut again] {
            let mut residents = Vec::new();
            let _ = table.visit_candidates(1 << 40, |found| {
                let is_resident = |block: &u16| {
                    found.residents()[usize::from(*block) / 64] >> (block % 64) & 1 != 0
                };
                residents.extend(found.blocks().filter(is_resident).map(|block| found.address(block)));
                ControlFlow::Continue(())
            });
            residents.sort_unstable();
            let has_flag = |block: &BlockAddress| table.has(*block, Flags::RESIDENT);
            let expected: Vec<_> = (0..3000).map(|block| at(0, block)).filter(has_flag).collect();
            prop_assert_eq!(residents, expected);
        }
    }

    #[test]
    fn import_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..80) {
        let _ = BlockTable::import(&bytes);
        let mut table = BlockTable::default();
        table.access(VolumeId(3), REGION + 5, 4, 16);
        let mut damaged = table.export();
        for (to, from) in damaged.iter_mut().skip(at).zip(&bytes) {
            *to = *from;
        }
        let _ = BlockTable::import(&damaged);
    }
}
