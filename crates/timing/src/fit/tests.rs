use super::*;
use crate::drives::disk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[test]
fn trace_gaps_are_parsed() {
    let text = "R Hit 8 4 1000.5 300\nW Miss 16 2 500 700.25\n";
    let at = |gap| parse(text, gap).unwrap().iter().map(|s| s.at.0).collect::<Vec<_>>();
    assert_eq!(at(Gap::Before), [300_000, 300_000 + 1_000_500 + 700_250]);
    assert_eq!(at(Gap::After), [0, 1_000_500 + 300_000]);
    let first = parse(text, Gap::After).unwrap()[0];
    assert_eq!(
        (first.offset, first.len, first.service_time),
        (DeviceOffset(4096), Bytes(2048), Nanos(1_000_500))
    );
    for bad in ["X Hit 8 4 1 1", "R Hit 8 4 1", "R Hit -8 4 1 1", "R Hit 8 4 -1 1", "R Hit 8 4 NaN 1"] {
        assert_eq!(parse(&format!("{text}{bad}"), Gap::After), Err(BadLine(3)));
    }
}

#[test]
fn accuracy_of_known_times() {
    let times = |of: &[u64]| of.iter().map(|&us| Nanos::micros(us)).collect::<Vec<_>>();
    let same = compare(&times(&[3, 1, 2]), &times(&[3, 1, 2]));
    assert_eq!((same.distance, same.error, same.p99_error()), (0.0, 0.0, 0.0));
    assert!((same.rank - 1.0).abs() < 1e-9);
    // The same distribution in reverse order: only the individual requests are wrong.
    let turned = compare(&times(&[1, 2, 3]), &times(&[3, 2, 1]));
    assert_eq!(turned.distance, 0.0);
    assert!((turned.rank + 1.0).abs() < 1e-9 && (turned.error - 2.0 / 3.0).abs() < 1e-9);
    // All are later by a tenth of the mean.
    let late = compare(&times(&[10, 20, 30]), &times(&[12, 22, 32]));
    assert!((late.distance - 0.1).abs() < 1e-9 && (late.rank - 1.0).abs() < 1e-9);
    // Equal times share their rank.
    assert!((compare(&times(&[1, 1, 2]), &times(&[5, 5, 9])).rank - 1.0).abs() < 1e-9);
}

/// Samples come from a model with parameters other than the published ones: the fit finds the rotation time
/// and predicts samples it was not fitted to.
#[test]
fn fit_recovers_sampled_parameters() {
    let published = disk("hp-c2247a").unwrap();
    let mut real = published.clone();
    real.turn = Nanos(11_130_000);
    real.overheads.read_miss = Nanos(700_000);
    real.overheads.write = Nanos(1_900_000);
    real.zones.iter_mut().for_each(|zone| zone.offset = zone.offset.map(|offset| offset + 20.0));
    let mut rng = SmallRng::seed_from_u64(1);
    let (mut now, sectors) = (0, real.capacity().0 / SECTOR);
    let mut samples: Vec<Sample> = (0..3_000)
        .map(|_| {
            now += rng.random_range(60_000_000..90_000_000);
            let offset = DeviceOffset(rng.random_range(0..sectors - 64) * SECTOR);
            let kind = if rng.random_bool(0.5) { IoKind::Read } else { IoKind::Write { fua: false } };
            Sample {
                at: Nanos(now),
                kind,
                offset,
                len: Bytes(rng.random_range(1..32) * SECTOR),
                service_time: Nanos(0),
            }
        })
        .collect();
    let took = predict(&real, WriteCache::None, &samples);
    samples.iter_mut().zip(took).for_each(|(sample, took)| sample.service_time = took);
    let (first, second) = samples.split_at(2_000);
    let fitted = fit(published, WriteCache::None, first);
    assert!(fitted.turn.0.abs_diff(real.turn.0) < 20, "{}", fitted.turn.0);
    let times: Vec<Nanos> = second.iter().map(|s| s.service_time).collect();
    let accuracy = compare(&times, &predict(&fitted, WriteCache::None, second));
    assert!(accuracy.distance < 0.02 && accuracy.rank > 0.95, "{accuracy:?}");
}
