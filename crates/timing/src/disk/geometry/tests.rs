use super::*;
use crate::tests::{hdd_15k, hdd_7200};

fn capacities(params: &DiskParams) -> Vec<Bytes> {
    let native = params.capacity();
    vec![Bytes(1), Bytes::mib(1), Bytes::mib(64), Bytes::gib(32), native, Bytes(native.0 * 7 / 2)]
}

#[test]
fn the_cheetahs_seek_table_has_its_published_mean() {
    let curve = SeekCurve::new(&hdd_15k().seek);
    let n = hdd_15k().cylinders;
    let total: u128 = (1..n).map(|d| u128::from(2 * (n - d) * curve.time(d).0)).sum();
    let mean_ms = (total / u128::from(n * n)) as f64 / 1e6;
    assert!((mean_ms - 3.79).abs() < 0.01, "{mean_ms} ms");
}

#[test]
fn the_nearline_disks_mean_seek_is_eight_milliseconds() {
    let curve = SeekCurve::new(&hdd_7200().seek);
    let n = hdd_7200().cylinders;
    let total: u128 = (1..n).map(|d| u128::from(2 * (n - d) * curve.time(d).0)).sum();
    let mean_ms = (total / u128::from(n * n)) as f64 / 1e6;
    assert!((mean_ms - 8.0).abs() < 0.1, "{mean_ms} ms");
}

#[test]
fn layouts_have_real_capacities() {
    assert!((hdd_15k().capacity().0 as f64 / (286_749_487.0 * 512.0) - 1.0).abs() < 0.002);
    assert!((hdd_7200().capacity().0 as f64 / 18e12 - 1.0).abs() < 0.01);
}

#[test]
fn seeks_never_get_shorter_with_distance() {
    for params in [hdd_15k(), hdd_7200()] {
        let curve = SeekCurve::new(&params.seek);
        assert_eq!(curve.time(0), Nanos(0));
        assert!((0..params.cylinders).all(|d| curve.time(d) <= curve.time(d + 1)));
        let skews = params.zones.iter().map(|z| z.track_skew / z.sectors_per_track as f64);
        assert!(skews.into_iter().all(|turns| params.switch.0 as f64 <= turns * params.turn.0 as f64));
    }
}

/// The sequential clock agrees with a walk over the tracks one by one.
#[test]
fn sequential_clock_matches_track_walk() {
    let g = Geometry::new(hdd_15k(), Bytes::mib(64));
    let (mut sector, mut track, mut clock) = (0, 0, 0);
    for span in &g.spans {
        assert_eq!((span.first_sector, span.first_track, span.begins), (sector, track, clock));
        for number in 1..=span.tracks {
            for angle in 0..span.sectors_per_track {
                let place = g.place_sectors(sector, sector + 1);
                assert_eq!(place.from.number, track);
                assert_eq!(place.begins.0, clock + angle * g.turn / span.sectors_per_track);
                assert_eq!(place.ends.0, clock + (angle + 1) * g.turn / span.sectors_per_track);
                let passed = g.sector_at(place.ends);
                assert!(passed == sector + 1 || passed == sector, "{passed} after {sector}");
                sector += 1;
            }
            track += 1;
            clock += span.step;
            if number % (g.leg * g.surfaces) == 0 {
                clock += span.group_step;
            }
        }
    }
    assert_eq!(sector, g.sectors());
}

/// The published layouts of drives at their own size: addresses, defective and spare sectors, against a walk
/// over all of a zone's sectors.
#[test]
fn defective_and_spare_sectors_hold_no_addresses() {
    for name in ["cheetah-9lp", "atlas-10k", "hp-c2247a"] {
        let params = crate::drives::disk(name).expect("a disk");
        let g = Geometry::new(params, params.capacity());
        assert_eq!(Bytes(g.sectors() * SECTOR), params.capacity());
        for (span, zone) in g.spans.iter().zip(&params.zones) {
            let slipped = |physical: u64| zone.slips.iter().any(|s| (s.0..s.0 + s.1).contains(&physical));
            let mut physical = 0;
            for address in 0..(span.end - span.first_sector).min(40_000) {
                while slipped(physical) {
                    physical += 1;
                }
                assert_eq!(span.physical(address), physical, "{name}: {address}");
                assert_eq!(span.address(physical), address, "{name}: {physical}");
                physical += 1;
            }
            let last = span.physical(span.end - span.first_sector - 1);
            assert!(last < span.tracks * span.sectors_per_track);
        }
    }
    let own = |name| crate::drives::disk(name).expect("a disk").capacity().0 / SECTOR;
    assert_eq!([own("cheetah-9lp"), own("atlas-10k"), own("hp-c2247a")], [17_783_240, 17_938_986, 2_054_864]);
}

/// A head that reaches a track early passes the sectors before the wanted one, of this track only.
#[test]
fn sectors_passed_early_are_on_the_track() {
    let params = hdd_15k();
    let g = Geometry::new(params, params.capacity());
    let spt = params.zones[0].sectors_per_track;
    assert_eq!(g.passed_before(spt + 10, Nanos(0)), spt + 10);
    assert_eq!(g.passed_before(spt + 10, Nanos(params.turn.0 * 5 / spt + 5)), spt + 5);
    assert_eq!(g.passed_before(spt + 10, params.turn), spt);
}

#[test]
fn every_capacity_is_covered_and_uses_the_stroke() {
    for params in [hdd_15k(), hdd_7200()] {
        for capacity in capacities(params) {
            let g = Geometry::new(params, capacity);
            let wanted = capacity.0.div_ceil(SECTOR);
            assert!(g.sectors() >= wanted);
            assert!(g.sectors() <= wanted + wanted / 500 + 5000, "{} for {wanted}", g.sectors());
            let last = g.place_sectors(g.sectors() - 1, g.sectors()).to;
            assert!(last.cylinder < params.cylinders);
            if capacity >= Bytes::gib(32) {
                assert!(last.cylinder > params.cylinders / 100 * 98, "{last:?}");
            }
        }
    }
}

#[test]
fn addresses_past_the_end_are_its_last_sectors() {
    let g = Geometry::new(hdd_15k(), Bytes::mib(64));
    let place = g.place(DeviceOffset(u64::MAX), Bytes(u64::MAX));
    assert_eq!((place.first, place.end), (g.sectors() - 1, g.sectors()));
    let place = g.place(DeviceOffset(100), Bytes(0));
    assert_eq!((place.first, place.end), (0, 1));
    assert_eq!(g.track_of(g.sectors()), g.track_of(g.sectors() - 1));
}

#[test]
fn rotation_brings_the_angle_around() {
    let g = Geometry::new(hdd_15k(), Bytes::mib(64));
    for (now, clock) in [(0, 0), (5, 3), (3, 5), (10 * g.turn + 7, 2), (g.turn - 1, 3 * g.turn)] {
        let wait = g.rotational_delay(Nanos(now), g.angle(Nanos(clock)));
        assert!(wait.0 < g.turn);
        assert_eq!((now + wait.0) % g.turn, clock % g.turn);
    }
}
