use super::*;
use crate::tests::{Load, drive};
use crate::tests::{hdd_15k, hdd_7200};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weir_model::SECTOR;

const READ: IoKind = IoKind::Read;
const WRITE: IoKind = IoKind::Write { fua: false };
const FUA: IoKind = IoKind::Write { fua: true };

/// Completes the only command in flight; returns its completion time.
fn finish(disk: &mut Disk) -> Nanos {
    loop {
        let due = disk.next().expect("a command in flight");
        if disk.pop(due).is_some() {
            return due;
        }
    }
}

fn one(disk: &mut Disk, now: Nanos, kind: IoKind, at: u64, len: Bytes) -> Nanos {
    disk.submit(now, IoId(0), kind, DeviceOffset(at), len);
    finish(disk)
}

#[test]
fn the_mean_rotational_wait_is_half_a_turn() {
    // One track, so there are no seeks; writes to the media, so no buffer helps.
    let mut disk = Disk::new(hdd_15k(), Bytes(700 * SECTOR), WriteCache::None);
    let mut rng = SmallRng::seed_from_u64(1);
    let (mut now, mut waited, n) = (Nanos(0), 0, 20_000);
    for _ in 0..n {
        let start = now + Nanos(rng.random_range(0..10_000_000));
        now = one(&mut disk, start, WRITE, rng.random_range(0..700) * SECTOR, Bytes(512));
        waited += (now - start).0 - hdd_15k().overheads.write.0;
    }
    let half_turns = waited as f64 / f64::from(n) / (hdd_15k().turn.0 as f64 / 2.0);
    assert!((half_turns - 1.0).abs() < 0.02, "{half_turns} half turns");
}

/// The rate of a sequential run within each zone, at depth 1 with every command's overhead, equals the
/// sectors per track over rotation time and skew.
#[test]
fn sequential_reads_stream_at_each_zones_rate() {
    for params in [hdd_15k(), hdd_7200()] {
        let capacity = Bytes::gib(64);
        for zone in 0..params.zones.len() {
            for len in [Bytes::kib(64), Bytes::mib(1)] {
                let mut disk = Disk::new(params, capacity, WriteCache::Volatile);
                let first = disk.geometry.first_sector_of_zone(zone) * SECTOR;
                let mut now = one(&mut disk, Nanos(0), READ, first, len);
                let (begin, total) = (now, 128 << 20);
                for at in (first + len.0..first + len.0 + total).step_by(len.0 as usize) {
                    now = one(&mut disk, now, READ, at, len);
                }
                let rate = total as f64 / (now - begin).as_secs_f64();
                let Zone { sectors_per_track: spt, track_skew, .. } = params.zones[zone];
                let media =
                    (spt * SECTOR) as f64 / (params.turn.as_secs_f64() * (1.0 + track_skew / spt as f64));
                assert!((rate / media - 1.0).abs() < 0.02, "zone {zone} at {len}: {rate} for {media}");
            }
        }
    }
}

#[test]
fn sequential_writes_settle_at_the_outer_zones_rate() {
    for params in [hdd_15k(), hdd_7200()] {
        let mut disk = Disk::new(params, Bytes::gib(64), WriteCache::Volatile);
        let len = Bytes::kib(256);
        let (mut now, mut begin) = (Nanos(0), Nanos(0));
        for i in 0..4096 {
            if i == 2048 {
                begin = now;
            }
            now = one(&mut disk, now, WRITE, i * len.0, len);
        }
        let rate = (2048 * len.0) as f64 / (now - begin).as_secs_f64();
        let Zone { sectors_per_track: spt, track_skew, .. } = params.zones[0];
        let media = (spt * SECTOR) as f64 / (params.turn.as_secs_f64() * (1.0 + track_skew / spt as f64));
        assert!(rate < media * 1.03 && rate > media * 0.85, "{rate} for {media}");
    }
}

#[test]
fn without_a_cache_sequential_writes_at_depth_one_miss_turns() {
    let mut disk = Disk::new(hdd_15k(), Bytes::gib(64), WriteCache::None);
    let mut now = one(&mut disk, Nanos(0), WRITE, 0, Bytes(4096));
    for i in 1..100 {
        let end = one(&mut disk, now, WRITE, i * 4096, Bytes(4096));
        assert!((end - now).0 >= hdd_15k().turn.0);
        now = end;
    }
}

#[test]
fn the_cache_absorbs_a_burst_then_throttles_to_the_arm() {
    let capacity = Bytes::gib(64);
    let mut disk = Disk::new(hdd_7200(), capacity, WriteCache::Volatile);
    let burst = Load { depth: 4, count: 1000, random_writes: 100, ..Load::reads(capacity) };
    let fast = drive(&mut disk, &burst);
    assert!(fast.per_second() > 8_000.0, "{fast:?}");
    let long = drive(&mut disk, &Load { count: 10_000, start: fast.end, ..burst });
    assert!(long.per_second() < 800.0, "{long:?}");
}

#[test]
fn flush_waits_for_what_was_cached_before_it() {
    for cache in [WriteCache::Volatile, WriteCache::Protected, WriteCache::None] {
        let mut disk = Disk::new(hdd_15k(), Bytes::gib(64), cache);
        let mut now = Nanos(0);
        for i in 0..10 {
            now = one(&mut disk, now, WRITE, i * 5_000_000_000, Bytes(4096));
        }
        let flushed = one(&mut disk, now, IoKind::Flush, 0, Bytes(0));
        if cache == WriteCache::Volatile {
            assert!(disk.dirty.is_empty() && flushed - now > Nanos::millis(10), "{}", flushed - now);
        } else {
            assert_eq!(flushed, now + hdd_15k().overheads.write);
        }
    }
}

/// New writes keep arriving near the arm while a flush waits for a distant one.
#[test]
fn flush_is_not_starved_by_later_writes() {
    let mut disk = Disk::new(hdd_15k(), Bytes::gib(64), WriteCache::Volatile);
    let mut now = one(&mut disk, Nanos(0), WRITE, 60 << 30, Bytes(4096));
    now = one(&mut disk, now, WRITE, 0, Bytes(4096));
    disk.submit(now, IoId(999_999), IoKind::Flush, DeviceOffset(0), Bytes(0));
    let begun = now;
    for i in 0.. {
        disk.submit(now, IoId(i), WRITE, DeviceOffset(i % 4000 * 9000), Bytes(4096));
        let id = loop {
            now = disk.next().expect("a command in flight");
            if let Some(id) = disk.pop(now) {
                break id;
            }
        };
        if id == IoId(999_999) {
            break;
        }
        assert!(now - begun < Nanos::secs(2), "flush still waiting");
    }
}

#[test]
fn fua_waits_for_media_unless_cache_protected() {
    let mut disk = Disk::new(hdd_15k(), Bytes::gib(64), WriteCache::Volatile);
    assert!(one(&mut disk, Nanos(0), FUA, 30 << 30, Bytes(4096)) > Nanos::millis(3));
    let mut disk = Disk::new(hdd_15k(), Bytes::gib(64), WriteCache::Protected);
    assert!(one(&mut disk, Nanos(0), FUA, 30 << 30, Bytes(4096)) < Nanos::millis(1));
}

#[test]
fn recent_data_is_served_from_buffer() {
    let mut disk = Disk::new(hdd_15k(), Bytes::gib(64), WriteCache::Volatile);
    let mut now = one(&mut disk, Nanos(0), READ, 1 << 30, Bytes::kib(64));
    now = one(&mut disk, now + Nanos::millis(1), READ, 50 << 30, Bytes::kib(64));
    let end = one(&mut disk, now, READ, 1 << 30, Bytes::kib(64));
    assert!(end - now < Nanos::millis(1), "{}", end - now);
    now = end;
    disk.submit(now, IoId(1), WRITE, DeviceOffset(40 << 30), Bytes::kib(4));
    disk.submit(now, IoId(2), WRITE, DeviceOffset(20 << 30), Bytes::kib(4));
    disk.submit(now, IoId(3), READ, DeviceOffset(20 << 30), Bytes::kib(4));
    for _ in 0..3 {
        assert!(finish(&mut disk) - now < Nanos::millis(1));
    }
}

/// A distant command among an endless supply of near ones.
#[test]
fn distant_command_is_not_starved() {
    let mut disk = Disk::new(hdd_15k(), Bytes::gib(64), WriteCache::Volatile);
    let mut random = 1u64;
    let mut near = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        DeviceOffset((random >> 40) * 512)
    };
    for i in 0..16 {
        disk.submit(Nanos(0), IoId(i), READ, near(), Bytes(4096));
    }
    disk.submit(Nanos(0), IoId(999_999), READ, DeviceOffset(60 << 30), Bytes(4096));
    let mut i = 16;
    loop {
        let now = disk.next().expect("commands in flight");
        match disk.pop(now) {
            Some(IoId(999_999)) => break,
            Some(_) => {
                disk.submit(now, IoId(i), READ, near(), Bytes(4096));
                i += 1;
            }
            None => {}
        }
        assert!(now < Nanos::secs(2), "far command still waiting");
    }
}
