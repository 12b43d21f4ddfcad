//! Sets with two fast kinds, derived from the best sets with one.
//!
//! There are as many such sets as pairs of offers for each slow kind, and each pair is a size of its own for
//! which the trace has to be played. So the search is bounded, on the assumption that good sets with two fast
//! kinds are close to good sets with one of the two.

use super::device_set::{IdleReads, capacity_needed};
use super::{AdviseError, DeviceGroup, DeviceSet, Limits, Offer, RequiredCapacity, SetFigures, frontier};
use std::collections::BTreeSet;

/// Number of sets with one fast kind that get a second one.
const BASE_SETS: usize = 6;
/// Number of second kinds tried for each.
const KINDS_PER_SET: usize = 12;

/// Returns sets with two fast kinds. It takes the six best judged sets with one fast kind on the frontier, by
/// the rule of the limits, and adds a second fast kind, faster or slower than the first: the faster one is
/// not larger than the other, both together are too small for all data, and the price is within the budget.
/// If more than twelve qualify, it takes twelve from the cheapest to the most expensive. So there are at most
/// 72, each once.
///
/// # Errors
/// Fails if an offer's model is unknown.
pub fn with_second(
    offers: &[Offer],
    wanted: &RequiredCapacity,
    sets: &[DeviceSet],
    judged: &[SetFigures],
    limits: &Limits,
) -> Result<Vec<DeviceSet>, AdviseError> {
    let reads = IdleReads::of(offers)?;
    let choices = frontier(judged).into_iter().filter(|index| sets[*index].fast.is_some());
    let choices: Vec<_> = choices.map(|index| (index, judged[index])).collect();
    let mut found = BTreeSet::new();
    for index in limits.rank(&choices).into_iter().take(BASE_SETS) {
        let Some(one) = sets[index].fast else { continue };
        let slow = sets[index].slow;
        let pairs = reads.fast_candidates(slow).filter_map(|other| pair(&reads, one, other));
        let wider = pairs.map(|(fast, second)| DeviceSet { fast: Some(fast), second: Some(second), slow });
        let is_of_use = |set: &DeviceSet| {
            let sizes: Vec<_> = set.fast_kinds().map(|several| several.size(offers)).collect();
            let is_affordable = limits.budget.is_none_or(|most| set.price(offers) <= most);
            sizes.is_sorted()
                && sizes.iter().map(|size| size.0).sum::<u64>() < capacity_needed(wanted).0
                && is_affordable
        };
        let mut wider: Vec<_> = wider.filter(is_of_use).collect();
        wider.sort_by_key(|set| (set.price(offers), *set));
        let step = wider.len().div_ceil(KINDS_PER_SET).max(1);
        found.extend(wider.into_iter().step_by(step));
    }
    Ok(found.into_iter().collect())
}

/// Returns the two kinds, the faster one first; `None` if they are about equally fast.
fn pair(reads: &IdleReads, one: DeviceGroup, other: DeviceGroup) -> Option<(DeviceGroup, DeviceGroup)> {
    match (reads.is_faster(one, other), reads.is_faster(other, one)) {
        (true, _) => Some((one, other)),
        (_, true) => Some((other, one)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{offer, skewed};
    use super::super::{Cents, Demand, MeasuredPart, RunSettings, Search, Years};
    use super::*;
    use weir_model::{Bytes, Nanos, Seed};

    fn offers() -> Vec<Offer> {
        vec![
            offer("nvm", 25, 60, None, "nvm"),
            offer("nvme", 50, 40, Some(60), "samsung-980-pro"),
            offer("ssd", 100, 50, Some(100), "ssd-sata"),
            offer("disk", 1000, 60, None, "hdd-7200"),
        ]
    }

    fn several(offer: usize) -> DeviceGroup {
        DeviceGroup { offer, count: 1 }
    }

    #[test]
    fn a_second_kind_is_faster_and_no_larger_or_slower_and_no_smaller() {
        let (offers, slow) = (offers(), several(3));
        let wanted = RequiredCapacity { capacity: Bytes::gib(500), active: Bytes::gib(500) };
        let judged = |price: u64, millis| SetFigures {
            price: Cents(price * 100),
            mean: Nanos::millis(millis),
            p99: Nanos::millis(10 * millis),
            life: Years::UNLIMITED,
        };
        let sets = [None, Some(several(2))].map(|fast| DeviceSet { fast, second: None, slow });
        let all = [judged(60, 10), judged(110, 3)];
        let names = |limits: &Limits| -> Vec<_> {
            let wider = with_second(&offers, &wanted, &sets, &all, limits).expect("sets");
            wider.iter().map(|set| set.name(&offers)).collect()
        };
        let free = Limits::default();
        // Two of the NVMe SSD are as large as the SATA one; three times as much memory is not on sale.
        let expected =
            ["nvm + ssd + disk", "2 x nvm + ssd + disk", "nvme + ssd + disk", "2 x nvme + ssd + disk"];
        assert_eq!(names(&free), expected);
        assert_eq!(names(&Limits { budget: Some(Cents(16_000)), ..free }), ["nvme + ssd + disk"]);
        let less = RequiredCapacity { capacity: Bytes::gib(120), ..wanted };
        let few = with_second(&offers, &less, &sets, &all, &free).expect("sets");
        let few: Vec<_> = few.iter().map(|set| set.name(&offers)).collect();
        assert_eq!(few, ["nvm + ssd + disk"], "others have room for all of it");
        // A set with one kind only gets no second one.
        assert!(with_second(&offers, &wanted, &sets[..1], &all[..1], &free).expect("none").is_empty());
    }

    #[test]
    fn number_of_candidates_is_bounded() {
        let drives = ["nvm", "optane-p5800x", "samsung-980-pro", "ssd-sata"];
        let mut offers: Vec<_> = (0..400)
            .map(|n| offer(&n.to_string(), 20 + n, 10 + n, Some(n), drives[n as usize % drives.len()]))
            .collect();
        offers.push(offer("disk", 10_000, 100, None, "hdd-7200"));
        let wanted = RequiredCapacity { capacity: Bytes::gib(5000), active: Bytes::gib(500) };
        let fast = |offer| DeviceSet { fast: Some(several(offer)), second: None, slow: several(400) };
        let sets: Vec<_> = (0..400).map(fast).collect();
        // Each is more expensive and faster than the one before.
        let judged = |n: u64| SetFigures {
            price: Cents(1000 + n),
            mean: Nanos(1_000_000_000 / 2u64.pow(n as u32 / 20)),
            p99: Nanos::secs(1),
            life: Years::UNLIMITED,
        };
        let judged: Vec<_> = (0..400).map(judged).collect();
        let wider = with_second(&offers, &wanted, &sets, &judged, &Limits::default()).expect("sets");
        assert!((BASE_SETS..=BASE_SETS * KINDS_PER_SET).contains(&wider.len()), "{}", wider.len());
        let prices: BTreeSet<_> = wider.iter().map(|set| set.price(&offers)).collect();
        let (least, most) = (prices.first().expect("one"), prices.last().expect("one"));
        assert!(most.0 > least.0 * 3 / 2, "from the cheapest to the dearest: {least} to {most}");
    }

    #[test]
    fn predictions_for_two_kinds_match_the_engine() {
        let trace = skewed();
        let demand = Demand::new(&trace, MeasuredPart::of(&trace, 1_000_000)).expect("a demand");
        let offers = offers();
        let wanted = RequiredCapacity { capacity: Bytes::gib(500), active: Bytes::gib(500) };
        let search = Search::new(&demand, &offers, wanted);
        let set = DeviceSet { fast: Some(several(0)), second: Some(several(2)), slow: several(3) };
        let jobs = search.jobs(&[set]);
        assert_eq!((jobs.len(), jobs[0].streams.len()), (1, 3), "{jobs:?}");
        let found: Vec<_> = jobs.iter().map(|job| search.play(job)).collect();
        let predicted = &search.forecasts(&[set], &jobs, &found)[0];
        let rating = crate::FlashRating { cycles: 3_000, spare: 0.07 };
        let runs = RunSettings { policy: "adaptive", requests: 1_000_000, seed: Seed(1), rating };
        let simulated = search.simulate(&set, &trace, &runs).expect("a run");
        let off = |predicted: Nanos, simulated: Nanos| predicted.as_secs_f64() / simulated.as_secs_f64();
        let mean = off(predicted.figures.mean, simulated.figures.mean);
        let p99 = off(predicted.figures.p99, simulated.figures.p99);
        assert!((0.5..2.0).contains(&mean) && (0.5..2.0).contains(&p99), "{mean} {p99}");
        // The faster kind's share of the fast devices' work.
        let served: Vec<_> = simulated.outcome.devices.iter().map(|device| device.served).collect();
        let names: Vec<_> = simulated.outcome.devices.iter().map(|device| &device.name[..]).collect();
        assert_eq!(names, ["fast", "middle", "slow"]);
        let share = predicted.fastest_share / predicted.hit_share;
        assert!((share - served[0] / (served[0] + served[1])).abs() < 0.1, "{share} for {served:?}");
        // Each kind is written to, and the one that wears out first determines the life.
        assert!(predicted.figures.life < Years::UNLIMITED && simulated.figures.life < Years::UNLIMITED);
    }
}
