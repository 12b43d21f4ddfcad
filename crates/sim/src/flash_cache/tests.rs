//! The cache against one that looks at every page, and what it must never do.

mod naive;

use super::play::Player;
use super::*;
use crate::cache::{
    AdmissionPolicy, AdmissionSettings, BlockTrace, EvictionPolicy, Loader, Setup, WriteMode, critical_blocks,
};
use weir_model::{Bytes, Nanos, Op, Seed, VolumeOffset};
use weir_policy::reclaim;
use weir_trace::Record;

pub(super) fn record(op: Op, block: u64, blocks: u64) -> Record {
    crate::testing::record(op, block * 4096, blocks * 4096)
}

pub(super) fn load(records: &[Record]) -> BlockTrace {
    let mut loader = Loader::default();
    records.iter().for_each(|record| loader.take(record));
    loader.finish().expect("a trace")
}

pub(super) fn cache(capacity: u32, evict: Evict) -> FlashCache {
    FlashCache {
        capacity,
        admission: AdmissionPolicy::by_name("all").expect("it is listed"),
        settings: AdmissionSettings::default(),
        write_budget: None,
        evict,
        mode: WriteMode::Through,
        log: CacheLog {
            over_provisioning: 0.6,
            segment: SegmentSize::Bytes(Bytes(4 * 4096)),
            kept_free: 0.08,
            separate_copies: false,
            victims: Victims::Policy(reclaim::by_name("greedy").expect("it is listed")),
        },
        containers: Vec::new(),
        warm_up: WarmUp::Requests(0),
        rated_cycles: 3000,
        seed: Seed(1),
    }
}

pub(super) fn lru() -> Evict {
    Evict::Cache(EvictionPolicy::by_name("lru").expect("it is listed"))
}

pub(super) const fn gc(share: f64) -> Evict {
    Evict::Cleaner(Guarantee { share, drop: Drop::Page })
}

/// Writes to random blocks, from a linear congruential generator.
fn random_writes(count: u64, blocks: u64) -> Vec<Record> {
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % blocks
    };
    (0..count).map(|_| record(Op::Write, draw(), 1)).collect()
}

#[test]
fn hits_and_cache_writes_of_cache_based_eviction_equal_those_without_flash() {
    let mut records = random_writes(4000, 300);
    records.iter_mut().step_by(3).for_each(|record| record.op = Op::Read);
    let trace = load(&records);
    for policy in EvictionPolicy::ALL.iter().filter(|policy| policy.name != "belady") {
        for mode in [WriteMode::Through, WriteMode::Around, WriteMode::Back { dirty: 0.4 }] {
            let on_flash = FlashCache { mode, ..cache(100, Evict::Cache(policy)) };
            let outcome = play(&trace, &on_flash).expect("a cache");
            let setup = Setup {
                eviction: policy,
                admission: on_flash.admission,
                settings: on_flash.settings,
                capacity: 100,
                mode,
            };
            assert_eq!(outcome.cache, crate::cache::play(&trace, &setup), "{}, {mode:?}", policy.name);
            assert_eq!(outcome.flash.pages.written, outcome.cache.cache_writes());
            assert!(outcome.flash.valid_pages <= 100, "{}", policy.name);
            assert_eq!(outcome.flash.pages.dropped, 0);
        }
    }
    let offline = EvictionPolicy::by_name("belady").expect("it is listed");
    assert_eq!(
        play(&trace, &cache(100, Evict::Cache(offline))).map(drop),
        Err(FlashCacheError::Offline("belady"))
    );
}

/// OLDEST first under uniform overwrites: FLWA is `1 / (1 - u)` with `(u - 1) / ln u` the share of valid
/// pages in the segments in use.
#[test]
fn amplification_of_uniform_writes_is_that_of_the_closed_form() {
    let trace = load(&random_writes(400_000, 20_000));
    let log = CacheLog {
        over_provisioning: 0.2,
        segment: SegmentSize::Count(512),
        victims: Victims::Policy(reclaim::by_name("oldest").expect("it is listed")),
        ..cache(1, lru()).log
    };
    let all = FlashCache { log, warm_up: WarmUp::Pass, ..cache(20_000, lru()) };
    let outcome = play(&trace, &all).expect("a cache");
    let expected = weir_flash::analytic::oldest(outcome.flash.space.spare_factor);
    let flwa = outcome.flash.flwa.expect("writes");
    assert!((flwa / expected - 1.0).abs() < 0.03, "{flwa} and {expected}");
    assert_eq!((outcome.cache.clwa(), outcome.flash.tcwa), (Some(1.0), Some(flwa)), "all writes hit");
    assert_eq!(outcome.flash.warm_up, "the whole trace");
}

/// A cache of that many blocks with little over-provisioning.
fn tight(capacity: u32, evict: Evict) -> FlashCache {
    let log = CacheLog { over_provisioning: 0.25, ..cache(capacity, evict).log };
    FlashCache { log, warm_up: WarmUp::Pass, ..cache(capacity, evict) }
}

#[test]
fn cleaning_drops_instead_of_copying_down_to_the_guarantee() {
    let trace = load(&random_writes(60_000, 240));
    let figures = |evict| play(&trace, &tight(200, evict)).expect("a cache");
    let (by_cache, full, half, none) = (figures(lru()), figures(gc(1.0)), figures(gc(0.5)), figures(gc(0.0)));
    let flwa = |outcome: &FlashCacheOutcome| outcome.flash.flwa.expect("writes");
    assert!(flwa(&by_cache) > flwa(&full), "{by_cache:?}, {full:?}");
    assert!(flwa(&full) > flwa(&half), "{full:?}, {half:?}");
    assert_eq!((flwa(&none), none.flash.pages.copied), (1.0, 0), "nothing is copied without a guarantee");
    let hits = |outcome: &FlashCacheOutcome| outcome.cache.all().hit_ratio();
    assert!(hits(&full) > hits(&by_cache) - 0.005, "as much is valid at least");
    assert!(full.flash.valid_pages >= 200 && full.flash.guarantee == Some(1.0));
    assert!(hits(&full) > hits(&none));
    assert_eq!(none.cache.evicted, none.flash.pages.dropped);
}

#[test]
fn dirty_neighbours_are_written_back_in_the_order_of_addresses() {
    // Segments of four blocks; blocks 7, 5, 6 and 20 fill the first one.
    let order = [7, 5, 6, 20];
    let filler = (30..46).map(|block| record(Op::Read, block, 1));
    let records: Vec<_> = order.iter().map(|block| record(Op::Write, *block, 1)).chain(filler).collect();
    let trace = load(&records);
    let plan = FlashCache { mode: WriteMode::Back { dirty: 1.0 }, ..cache(10, gc(0.0)) };
    let outcome = play(&trace, &plan).expect("a cache");
    assert_eq!((outcome.cache.back_end_evicted, outcome.cache.dirty), (4, 0));
    let mut player = Player::new(&trace, &plan).expect("a cache");
    player.play(0).expect("it goes on");
    let first = FlashCache { log: CacheLog { over_provisioning: 0.3, ..plan.log }, ..plan };
    let mut player = Player::new(&trace, &first).expect("a cache");
    player.play(0).expect("it goes on");
    // Numbers of blocks are in the order of their first access: 7 is 0, 5 is 1, 6 is 2, 20 is 3.
    let written: Vec<u32> = player.keeper.all_written_back.iter().map(|block| block.0).collect();
    assert_eq!(written, [1, 2, 0, 3]);
}

/// Without neighbours, what the cleaner writes back is dropped: the rest of a victim that is only dropped in
/// part stays dirty.
#[test]
fn only_what_is_dropped_is_written_back() {
    // Few enough blocks are written that the cache never writes any back by itself.
    let records: Vec<_> = random_writes(3000, 240)
        .iter()
        .map(|one| one.offset.0 / 4096)
        .map(|block| record(if block < 120 { Op::Write } else { Op::Read }, 2 * block, 1))
        .collect();
    let trace = load(&records);
    let plan = FlashCache { mode: WriteMode::Back { dirty: 1.0 }, ..tight(150, gc(1.0)) };
    let mut player = Player::new(&trace, &plan).expect("a cache");
    let keys: Vec<_> = trace.keys().iter().map(|key| key * 4096).collect();
    let (mut seen, mut dropped) = (0, 0);
    for (end, request) in records.iter().enumerate() {
        player.play_one(end).expect("it goes on");
        let new = player.keeper.all_written_back.split_off(seen);
        for block in &new {
            // The block of the request itself may have been dropped, and then written again.
            let is_own = keys[block.index()] == request.offset.0;
            assert!(is_own || !player.contains(*block), "request {end}: {block:?} is still there");
            dropped += usize::from(!is_own);
        }
        player.keeper.all_written_back.extend(new);
        seen = player.keeper.all_written_back.len();
    }
    assert!(dropped > 100, "{dropped}");
}

#[test]
fn whole_segments_are_dropped_or_copied() {
    let trace = load(&random_writes(20_000, 120));
    let by = |drop| {
        let evict = Evict::Cleaner(Guarantee { share: 1.0, drop });
        play(&trace, &tight(100, evict)).expect("a cache").flash
    };
    let (pages, segments) = (by(Drop::Page), by(Drop::Segment));
    assert!(segments.valid_pages >= 100 && segments.pages.dropped > 0, "{segments:?}");
    assert!(segments.pages.copied != pages.pages.copied);
}

#[test]
fn a_budget_limits_what_misses_write() {
    let reads: Vec<_> = (0..20_000)
        .map(|n| Record { at: Nanos::millis(n * 10), ..record(Op::Read, n * 7919 % 5000, 1) })
        .collect();
    let trace = load(&reads);
    let of = |write_budget| play(&trace, &FlashCache { write_budget, ..cache(1000, lru()) });
    let (free, limited) = (of(None).expect("a cache"), of(Some(Bytes::gib(1))).expect("a cache"));
    let per_day = |outcome: &FlashCacheOutcome| outcome.flash.lifetime.bytes_per_day.expect("times");
    assert!(per_day(&free) > 30e9, "{}", per_day(&free));
    // A minute of budget that was kept before is 200 s / 60 s = 0.3 more.
    assert!(per_day(&limited) < 1.4 * Bytes::gib(1).0 as f64, "{}", per_day(&limited));
    assert!(limited.flash.lifetime.life_years > free.flash.lifetime.life_years);
    let untimed = load(&random_writes(10, 5));
    let refused = play(&untimed, &FlashCache { write_budget: Some(Bytes(1)), ..cache(100, lru()) });
    assert_eq!(refused.map(drop), Err(FlashCacheError::NoTimes));
}

#[test]
fn containers_keep_their_guarantees() {
    // The first half of the addresses is written rarely, the second one all the time.
    let mut records = random_writes(40_000, 500);
    for (n, record) in records.iter_mut().enumerate() {
        let is_quiet = n % 20 == 0;
        record.offset = VolumeOffset(record.offset.0 % (250 * 4096) + if is_quiet { 0 } else { 250 * 4096 });
    }
    let trace = load(&records);
    for excess in [0.0, 2.0] {
        for evict in [lru(), gc(1.0)] {
            let containers = vec![Container { size: Bytes(250 * 4096), share: 0.4 }];
            let mut plan = FlashCache { containers, ..cache(200, evict) };
            plan.log.victims = Victims::Weighted(reclaim::Weights { space: 1.0, age: 0.5, excess });
            let flash = play(&trace, &plan).expect("a cache").flash;
            let [quiet, busy] = flash.containers[..] else { panic!("{flash:?}") };
            assert_eq!((quiet.capacity_blocks, busy.capacity_blocks), (80, 120));
            assert!(quiet.valid_blocks >= 80 && busy.valid_blocks >= 120, "{quiet:?}, {busy:?}");
            assert_eq!(quiet.requests + busy.requests, 40_000);
            assert!(quiet.byte_hit_ratio > 0.2 && busy.byte_hit_ratio > 0.4, "{quiet:?}, {busy:?}");
        }
    }
    let all = FlashCache { containers: vec![Container { size: Bytes(1), share: 1.0 }], ..cache(200, lru()) };
    assert_eq!(play(&trace, &all).map(drop), Err(FlashCacheError::Containers { capacity: 200 }));
}

/// Of one container, too, the excess decides which segment is cleaned.
#[test]
fn excess_of_the_only_container_is_weighed() {
    let trace = load(&random_writes(20_000, 400));
    let by = |excess| {
        let mut plan = tight(200, gc(0.5));
        plan.log.victims = Victims::Weighted(reclaim::Weights { space: 1.0, age: 0.0, excess });
        play(&trace, &plan).expect("a cache").flash.pages
    };
    let (without, with) = (by(0.0), by(2.0));
    assert!(with.dropped > without.dropped, "full segments are cleaned first: {with:?}, {without:?}");
}

#[test]
fn too_little_flash_is_refused() {
    let trace = load(&random_writes(100, 50));
    let tight = CacheLog { over_provisioning: 0.05, kept_free: 0.1, ..cache(1, lru()).log };
    let refused = play(&trace, &FlashCache { log: tight, ..cache(1000, lru()) });
    assert!(matches!(refused, Err(FlashCacheError::Config { capacity: 1000, .. })), "{refused:?}");
    let half = play(&trace, &FlashCache { log: tight, ..cache(1000, gc(0.5)) });
    assert!(half.is_ok(), "{half:?}");
}

#[test]
fn critical_size_is_what_a_policy_admits() {
    let scan: Vec<_> = (0..64).map(|i| record(Op::Read, i * 64, 64)).collect();
    let trace = load(&scan);
    let critical = |name| {
        let policy = AdmissionPolicy::by_name(name).expect("it is listed");
        critical_blocks(&trace, policy, &AdmissionSettings::default())
    };
    assert_eq!((critical("all"), critical("sequential")), (4096, 1024));
    assert_eq!(critical("touch_count"), 4096 - 256);
}
