//! The policies compared with naive twins, and with the figures of the paper.

use super::*;
use proptest::prelude::*;

fn tier(seeks: bool, rate: f64) -> TierLoad {
    TierLoad { seeks, load: 0.0, rate: Some(rate) }
}

fn start(name: &str) -> Box<dyn Distribution> {
    DistributionPolicy::by_name(name).expect("known").start(&DistributionSettings::default())
}

const KB: u64 = 1000;

/// The ten items of figure 5(a), in KB.
fn figure_5() -> Vec<Bytes> {
    [48, 9, 1, 1, 3, 23, 20, 20, 23, 23].map(|size| Bytes(size * KB)).to_vec()
}

/// Figure 5(d): flash gets 100 KB and the disk, at 1.4 MB/s, items 1 and 10.
#[test]
fn trident_distributes_as_figure_5d() {
    let mut tiers = [tier(false, 2e6), tier(true, 1.4e6)];
    let targets = start("trident").distribute(&figure_5(), &mut tiers);
    let sizes = figure_5();
    let sum = |of: usize| {
        let of_tier = sizes.iter().zip(&targets).filter(|(_, target)| **target == of);
        of_tier.map(|(size, _)| size.0).sum::<u64>() / KB
    };
    assert_eq!((sum(0), sum(1)), (100, 71), "{targets:?}");
    assert_eq!(targets[0], 1, "the largest item is on the disk");
    assert!((tiers[0].load - 0.050).abs() < 1e-9 && (tiers[1].load - 0.0507).abs() < 1e-4, "{tiers:?}");
}

/// Conquest's rule leaves the disk idle if all items are small.
#[test]
fn sizes_decide_between_flash_and_disk() {
    let mut tiers = [tier(true, 1e6), tier(false, 1e6), tier(false, 1e6)];
    let items = [SIZE_THRESHOLD, Bytes(SIZE_THRESHOLD.0 - 1), Bytes(10), Bytes(20)];
    assert_eq!(start("by_size").distribute(&items, &mut tiers), [0, 1, 2, 2]);
    let mut only_disks = [tier(true, 1e6), tier(true, 1e6)];
    assert_eq!(start("by_size").distribute(&items, &mut only_disks), [0, 1, 1, 0], "as greedy does");
}

#[test]
fn an_unmeasured_tier_is_neither_preferred_nor_avoided() {
    let unmeasured = TierLoad { rate: None, ..tier(true, 0.0) };
    let mut tiers = [tier(false, 1e6), unmeasured];
    let targets = start("greedy").distribute(&[Bytes(1000); 10], &mut tiers);
    assert_eq!(targets.iter().sum::<usize>(), 5, "{targets:?}");
    assert!((default_rate(&[unmeasured; 2]) - 1e6).abs() < 1.0);
}

/// The steps of figure 6, as it prints them, for one tier of each kind.
fn figure_6(items: &[Bytes], [flash, disk]: [f64; 2], loads: [f64; 2]) -> Vec<usize> {
    let mut e: Vec<(u64, usize)> = items.iter().map(|size| size.0).zip(0..).collect();
    e.sort_unstable();
    let [mut load_flash, mut load_disk] = loads;
    let mut targets = vec![0; items.len()];
    while !e.is_empty() {
        if load_flash <= load_disk {
            let (size, item) = e.remove(0);
            targets[item] = 0;
            load_flash += size as f64 / flash;
        } else {
            let (size, item) = e.remove(e.len() - 1);
            targets[item] = 1;
            load_disk += size as f64 / disk;
        }
    }
    targets
}

fn tiers() -> impl Strategy<Value = Vec<TierLoad>> {
    let tier = (any::<bool>(), 0.0..5.0, prop::option::weighted(0.8, 1e5..1e8))
        .prop_map(|(seeks, load, rate)| TierLoad { seeks, load, rate });
    prop::collection::vec(tier, 1..5)
}

fn items() -> impl Strategy<Value = Vec<Bytes>> {
    prop::collection::vec((0u64..4_000_000).prop_map(Bytes), 0..60)
}

proptest! {
    #[test]
    fn trident_matches_figure_6(
        items in items(), rates in [1e5..1e8, 1e5..1e8], loads in [0.0..2.0, 0.0..2.0],
    ) {
        let mut tiers = [tier(false, rates[0]), tier(true, rates[1])];
        (tiers[0].load, tiers[1].load) = (loads[0], loads[1]);
        let targets = Trident.distribute(&items, &mut tiers);
        prop_assert_eq!(targets, figure_6(&items, rates, loads));
    }

    /// Every item gets a tier, and the loads grow by what was distributed.
    #[test]
    fn loads_grow_by_what_is_distributed(items in items(), before in tiers()) {
        for policy in DISTRIBUTION {
            let mut tiers = before.clone();
            let targets = policy.start(&DistributionSettings::default()).distribute(&items, &mut tiers);
            prop_assert_eq!(targets.len(), items.len());
            for (index, tier) in tiers.iter().enumerate() {
                let sizes = items.iter().zip(&targets).filter(|(_, target)| **target == index);
                let bytes: u64 = sizes.map(|(size, _)| size.0).sum();
                let rate = tier.rate.unwrap_or(default_rate(&before));
                let grown = tier.load - before[index].load;
                prop_assert!((grown - bytes as f64 / rate).abs() < 1e-6, "{}: {:?}", policy.name, tier);
            }
        }
    }

    /// Greedy and trident leave loads that differ by at most the largest item, unless they did before.
    #[test]
    fn loads_become_equal(items in items(), before in tiers()) {
        let spread = |tiers: &[TierLoad]| {
            let loads = || tiers.iter().map(|tier| tier.load);
            loads().fold(0.0, f64::max) - loads().fold(f64::INFINITY, f64::min)
        };
        let slowest = before.iter().filter_map(|tier| tier.rate).fold(default_rate(&before), f64::min);
        let largest = items.iter().max().map_or(0.0, |size| size.0 as f64 / slowest);
        for name in ["trident", "greedy"] {
            let mut tiers = before.clone();
            start(name).distribute(&items, &mut tiers);
            prop_assert!(spread(&tiers) <= spread(&before).max(largest) + 1e-6, "{name}: {tiers:?}");
        }
    }

    #[test]
    fn greedy_and_round_robin_match_their_naive_twins(items in items(), before in tiers()) {
        let mut tiers = before.clone();
        let targets = Greedy.distribute(&items, &mut tiers);
        let mut loads: Vec<f64> = before.iter().map(|tier| tier.load).collect();
        for (size, target) in items.iter().zip(targets) {
            let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
            prop_assert!(loads[target] <= least);
            let is_alike = |index: usize| before[index].seeks == before[target].seeks;
            let is_first = |index: usize| loads[index] <= least && is_alike(index);
            prop_assert!(!(0..target).any(is_first), "the first of equal ones");
            let is_free_flash = |index: usize| loads[index] <= least && !before[index].seeks;
            let flash_is_free = (0..loads.len()).any(is_free_flash);
            prop_assert!(!before[target].seeks || !flash_is_free, "flash first");
            loads[target] += size.0 as f64 / before[target].rate.unwrap_or(default_rate(&before));
        }
        let targets = RoundRobin::default().distribute(&items, &mut before.clone());
        let mut bytes = vec![0; before.len()];
        for (size, target) in items.iter().zip(targets) {
            prop_assert_eq!(bytes.iter().position(|other| Some(other) == bytes.iter().min()), Some(target));
            bytes[target] += size.0;
        }
    }
}
