use super::*;
use crate::drives::{HDD_15K, HDD_7200};

fn native(params: &DiskParams) -> Bytes {
    let ends = params.zones.iter().skip(1).map(|z| z.0).chain([params.cylinders]);
    let sectors: u64 = params.zones.iter().zip(ends).map(|(z, end)| (end - z.0) * z.1).sum();
    Bytes(sectors * u64::from(params.surfaces) * SECTOR)
}

fn capacities(params: &DiskParams) -> Vec<Bytes> {
    let native = native(params);
    vec![Bytes(1), Bytes::mib(1), Bytes::mib(64), Bytes::gib(32), native, Bytes(native.0 * 7 / 2)]
}

#[test]
fn the_cheetahs_seek_table_has_its_published_mean() {
    let curve = SeekCurve::new(HDD_15K.seek);
    let n = HDD_15K.cylinders;
    let total: u128 = (1..n).map(|d| u128::from(2 * (n - d) * curve.time(d).0)).sum();
    let mean_ms = (total / u128::from(n * n)) as f64 / 1e6;
    assert!((mean_ms - 3.79).abs() < 0.01, "{mean_ms} ms");
}

#[test]
fn the_nearline_disks_mean_seek_is_eight_milliseconds() {
    let curve = SeekCurve::new(HDD_7200.seek);
    let n = HDD_7200.cylinders;
    let total: u128 = (1..n).map(|d| u128::from(2 * (n - d) * curve.time(d).0)).sum();
    let mean_ms = (total / u128::from(n * n)) as f64 / 1e6;
    assert!((mean_ms - 8.0).abs() < 0.1, "{mean_ms} ms");
}

#[test]
fn real_capacities_come_out() {
    assert!((native(&HDD_15K).0 as f64 / (286_749_487.0 * 512.0) - 1.0).abs() < 0.002);
    assert!((native(&HDD_7200).0 as f64 / 18e12 - 1.0).abs() < 0.01);
}

#[test]
fn seeks_never_get_shorter_with_distance() {
    for params in [HDD_15K, HDD_7200] {
        let curve = SeekCurve::new(params.seek);
        assert_eq!(curve.time(0), Nanos(0));
        assert!((0..params.cylinders).all(|d| curve.time(d) <= curve.time(d + 1)));
        assert!(params.switch <= params.skew);
    }
}

/// The sequential clock by walking the tracks one by one.
#[test]
fn the_sequential_clock_agrees_with_walking() {
    let g = Geometry::new(&HDD_15K, Bytes::mib(64));
    let (mut sector, mut track) = (0, 0);
    for zone in &g.zones {
        assert_eq!((zone.first_sector, zone.first_track), (sector, track));
        for _ in 0..zone.tracks {
            for angle in 0..zone.sectors_per_track {
                let place = g.place_sectors(sector, sector + 1);
                assert_eq!(place.from.number, track);
                assert_eq!(place.begins.0, track * g.step + angle * g.turn / zone.sectors_per_track);
                assert_eq!(place.ends.0, track * g.step + (angle + 1) * g.turn / zone.sectors_per_track);
                let passed = g.sector_at(place.ends);
                assert!(passed == sector + 1 || passed == sector, "{passed} after {sector}");
                sector += 1;
            }
            track += 1;
        }
    }
    assert_eq!(sector, g.sectors());
}

#[test]
fn every_capacity_is_covered_and_uses_the_stroke() {
    for params in [HDD_15K, HDD_7200] {
        for capacity in capacities(&params) {
            let g = Geometry::new(&params, capacity);
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
    let g = Geometry::new(&HDD_15K, Bytes::mib(64));
    let place = g.place(DeviceOffset(u64::MAX), Bytes(u64::MAX));
    assert_eq!((place.first, place.end), (g.sectors() - 1, g.sectors()));
    let place = g.place(DeviceOffset(100), Bytes(0));
    assert_eq!((place.first, place.end), (0, 1));
    assert_eq!(g.track_of(g.sectors()), g.track_of(g.sectors() - 1));
}

#[test]
fn rotation_brings_the_angle_around() {
    let g = Geometry::new(&HDD_15K, Bytes::mib(64));
    for (now, clock) in [(0, 0), (5, 3), (3, 5), (10 * g.turn + 7, 2), (g.turn - 1, 3 * g.turn)] {
        let wait = g.rotation(Nanos(now), g.angle(Nanos(clock)));
        assert!(wait.0 < g.turn);
        assert_eq!((now + wait.0) % g.turn, clock % g.turn);
    }
}
