//! `adaptive` on small pools.

mod idle;

use super::super::MeasuredCommand;
use super::super::testing::{Pool, device, fine, key, whole};
use super::headroom::FILL_LIMIT;
use super::heat::{HeatTable, Mask, PARTS, UNIT_WORTH};
use super::promoter::COPIES_PER_ROUND;
use super::worth::MEMORY_DIVISOR;
use super::*;
use proptest::prelude::*;
use weir_model::{BlockRange, Bytes, ExtentKey, PlaceId};

/// Creates a pool of 32 extents on a device that answers in 100 microseconds, and 1024 on one that takes 8
/// milliseconds.
fn pool() -> Pool {
    let mut pool = Pool::new(vec![device(0, 32, 100), device(1, 1024, 8000)]);
    (0..256).for_each(|extent| pool.map.put(extent, whole(1)));
    pool
}

fn policy() -> Adaptive {
    Adaptive::new(&Settings::default())
}

/// Updates the fast device's free space; slots are divided from the minimum number of extents.
fn update_free_space(pool: &mut Pool) {
    let wholes = pool.map.0.values().filter(|places| places.contains_key(&whole(0))).count() as u32;
    let (slots, device) = (slots(pool), &mut pool.devices[0]);
    let cut = slots.div_ceil(32);
    device.free = device.extents.saturating_sub(wholes + cut);
    device.slots = cut * 32 - slots;
}

/// Runs rounds until no action is requested, or this many.
fn settle(pool: &mut Pool, policy: &mut Adaptive, rounds: u32) -> usize {
    let mut moved = 0;
    update_free_space(pool);
    for _ in 0..rounds {
        pool.now += ROUND;
        let actions = pool.round(policy);
        pool.act(&actions);
        update_free_space(pool);
        moved += actions.len();
    }
    moved
}

fn slots(pool: &Pool) -> u32 {
    let fast = |(_, places): (_, &std::collections::BTreeMap<PlaceId, u32>)| {
        places.get(&fine(0)).copied().unwrap_or(0).count_ones()
    };
    pool.map.0.iter().map(fast).sum()
}

#[test]
fn new_data_goes_to_the_fast_device_until_it_is_nearly_full() {
    let (mut pool, mut policy) = (Pool::new(vec![device(0, 32, 100), device(1, 1024, 8000)]), policy());
    let devices: Vec<_> = (0..40).map(|i| pool.allocate(&mut policy, i).map(|d| d.0)).collect();
    assert_eq!(devices.iter().filter(|d| **d == Some(0)).count(), 30);
    assert!(devices[..30].iter().all(|d| *d == Some(0)));
}

/// The test accesses twice as many extents as the pool has, half of the pool's in slots of the fast device.
#[test]
fn table_memory_is_bounded_and_keeps_residents() {
    let extents = 1u64 << 16;
    let space = Bytes(extents * weir_model::ExtentSize::DEFAULT.bytes().0);
    let mut table = HeatTable::new(8);
    table.set_memory(Bytes(space.0 / MEMORY_DIVISOR), 8);
    for index in 0..2 * extents {
        table.note(key(index), 1, UNIT_WORTH, false);
        if index < extents / 2 {
            table.set_resident(key(index), 1, false);
        }
        if index % 256 == 0 {
            assert!(table.memory().0 <= space.0 / MEMORY_DIVISOR, "{} of {space}", table.memory());
        }
    }
    let known = (0..2 * extents).filter(|index| table.peek(key(*index)).is_some()).count() as u64;
    assert!(known > extents / 2, "{known} of {extents}");
    assert!(table.residents() as u64 > extents / 2 * 9 / 10, "{}", table.residents());
    // An extent that is forgotten is forgotten completely.
    (0..extents).for_each(|index| table.set_resident(key(index), 1, false));
    assert!(table.memory().0 <= space.0 / MEMORY_DIVISOR);
    let there = (0..extents).filter(|index| table.peek(key(*index)).is_some_and(|heat| heat.resident != 0));
    assert_eq!(table.residents(), there.count());
}

#[test]
fn rereads_are_copied() {
    let (mut pool, mut policy) = (pool(), policy());
    settle(&mut pool, &mut policy, 4);
    pool.read(&mut policy, 7, 3, Bytes::kib(4));
    assert_eq!(settle(&mut pool, &mut policy, 1), 0, "once is not enough");
    (0..3).for_each(|_| pool.read(&mut policy, 7, 3, Bytes::kib(4)));
    settle(&mut pool, &mut policy, 1);
    let places = &pool.map.0[&key(7)];
    assert_eq!((places[&fine(0)], places[&whole(1)]), (1 << 3, u32::MAX));
}

#[test]
fn written_data_is_moved() {
    let (mut pool, mut policy) = (pool(), policy());
    // At first the write finds no space there.
    pool.devices[0].free = 1;
    pool.write(&mut policy, 7, 3, Bytes::kib(4));
    pool.devices[0].free = 32;
    (0..3).for_each(|_| pool.read(&mut policy, 7, 3, Bytes::kib(4)));
    settle(&mut pool, &mut policy, 1);
    let places = &pool.map.0[&key(7)];
    assert_eq!((places[&fine(0)], places[&whole(1)]), (1 << 3, !(1 << 3)));
}

#[test]
fn small_writes_go_to_the_fast_device_and_scans_do_not() {
    let (mut pool, mut policy) = (pool(), policy());
    assert_eq!(pool.write(&mut policy, 7, 3, Bytes::kib(4)), WriteTo::Fine(DeviceId(0)));
    let scan = Access { run: Bytes::mib(64), ..pool.access(8, Op::Write, Bytes::kib(128)) };
    pool.ask(|context| policy.accessed(context, &scan));
    assert_eq!(pool.ask(|context| policy.write_to(context, &scan)).0, WriteTo::InPlace);
}

#[test]
fn free_slots_count_as_space() {
    let (mut pool, mut policy) = (pool(), policy());
    pool.devices[0].free = 0;
    assert_eq!(pool.write(&mut policy, 7, 3, Bytes::kib(4)), WriteTo::InPlace);
    pool.devices[0].slots = 160;
    assert_eq!(pool.write(&mut policy, 7, 3, Bytes::kib(4)), WriteTo::Fine(DeviceId(0)));
}

#[test]
fn slower_device_gets_nothing() {
    let (mut pool, mut policy) = (pool(), policy());
    for _ in 0..1000 {
        pool.devices[0].note(&MeasuredCommand::new(true, Bytes::kib(4), 1, Nanos::millis(20), Nanos(0)));
        pool.devices[0].note(&MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::millis(20), Nanos(0)));
    }
    assert_eq!(pool.write(&mut policy, 7, 3, Bytes::kib(4)), WriteTo::InPlace);
    (0..10).for_each(|_| pool.read(&mut policy, 8, 3, Bytes::kib(4)));
    assert_eq!(settle(&mut pool, &mut policy, 4), 0);
}

/// Creates the pool with a fast device that takes this many milliseconds per block; the other one takes 8.
fn pool_with_slow_ssd(milliseconds: u64) -> Pool {
    let mut pool = pool();
    for write in (0..2000).map(|i| i % 2 == 0) {
        let takes = Nanos::millis(milliseconds);
        pool.devices[0].note(&MeasuredCommand::new(write, Bytes::kib(4), 1, takes, Nanos(0)));
    }
    pool
}

#[test]
fn nothing_moves_while_responses_are_alike() {
    for (takes, copied) in [(5, true), (7, false), (9, false)] {
        let (mut pool, mut policy) = (pool_with_slow_ssd(takes), policy());
        (0..10).for_each(|_| pool.read(&mut policy, 7, 3, Bytes::kib(4)));
        settle(&mut pool, &mut policy, 2);
        assert_eq!(pool.map.0[&key(7)].contains_key(&fine(0)), copied, "{takes} ms");
    }
    for (takes, copied) in [(7, None), (9, None), (12, Some(1 << 3))] {
        let (mut pool, mut policy) = (pool_with_slow_ssd(takes), policy());
        pool.map.put(300, whole(0));
        pool.read(&mut policy, 300, 3, Bytes::kib(4));
        settle(&mut pool, &mut policy, 2);
        let places = &pool.map.0[&key(300)];
        assert_eq!(places.get(&whole(1)).copied(), copied, "{takes} ms: what was read, no more");
    }
}

#[test]
fn only_lasting_queue_redirects_writes() {
    let (mut pool, mut policy) = (pool_with_slow_ssd(1), policy());
    pool.write(&mut policy, 7, 3, Bytes::kib(4));
    pool.map.put(7, fine(0));
    pool.devices[0].in_flight = 32;
    assert_eq!(pool.write(&mut policy, 7, 3, Bytes::kib(4)), WriteTo::Fine(DeviceId(0)));
    for _ in 0..200 {
        (0..20).for_each(|_| pool.read(&mut policy, 8, 3, Bytes::kib(4)));
        pool.now += ROUND;
        pool.round(&mut policy);
    }
    assert_eq!(pool.write(&mut policy, 7, 3, Bytes::kib(4)), WriteTo::Whole(DeviceId(1)));
}

/// The load changes: the newly hot set replaces the old one, and then nothing moves any more.
#[test]
fn changed_load_converges() {
    let (mut pool, mut policy) = (pool(), policy());
    // Two hot sets, each nearly as large as the fast device.
    for set in [0, 128] {
        let mut random = weir_model::Rng::new(weir_model::Seed(set));
        let mut moved = [0; 60];
        for second in &mut moved {
            for _ in 0..1000 {
                let (extent, block) = (set + random.below(32), random.below(22) as u16);
                pool.read(&mut policy, extent, block, Bytes::kib(4));
            }
            *second = settle(&mut pool, &mut policy, 10);
        }
        let there = (set..set + 32).filter_map(|extent| pool.map.0[&key(extent)].get(&fine(0)));
        let hot: u32 = there.map(|mask| mask.count_ones()).sum();
        assert!(hot > 32 * 22 * 9 / 10, "{hot} of {} hot blocks, {moved:?}", 32 * 22);
        assert!(moved[50..].iter().sum::<usize>() < 10 * 100, "{moved:?}");
    }
}

#[test]
fn earlier_policy_copies_are_evicted() {
    let (mut pool, mut policy) = (pool(), policy());
    (0..32).for_each(|extent| pool.map.put(extent, whole(0)));
    (0..30).for_each(|extent| pool.read(&mut policy, extent, 3, Bytes::kib(4)));
    assert_eq!(settle(&mut pool, &mut policy, 2000), 0, "nothing moves only because the policy is new");
    pool.write(&mut policy, 40, 3, Bytes::kib(4));
    settle(&mut pool, &mut policy, 2000);
    let left = (0..32).filter(|extent| pool.map.places(key(*extent)).is_on(DeviceId(0))).count();
    assert!((26..=29).contains(&left), "{left}");
    pool.devices[0].is_usable = false;
    assert_eq!(settle(&mut pool, &mut policy, 1), 0, "there is no other");
}

/// In a burst no more leaves the fast device than writes need, and the rest once the disk has time.
#[test]
fn burst_evicts_only_for_writes() {
    let (mut pool, mut policy) = (pool(), policy());
    let there =
        |pool: &Pool| (0..32).filter(|extent| pool.map.places(key(*extent)).is_on(DeviceId(0))).count();
    // 31 of 32 extents are in use; one must leave even in a burst, and later another one.
    (0..31).for_each(|extent| pool.map.put(extent, whole(0)));
    pool.devices[1].in_flight = 9;
    settle(&mut pool, &mut policy, 10);
    pool.write(&mut policy, 40, 3, Bytes::kib(4));
    settle(&mut pool, &mut policy, 300);
    assert_eq!(there(&pool), 30, "down to what copies may fill");
    pool.devices[1].in_flight = 1;
    settle(&mut pool, &mut policy, 300);
    assert!(there(&pool) < 30, "{} of 30", there(&pool));
}

/// Two fast devices are filled as one, the one that answers sooner first; an extent's parts stay together.
#[test]
fn fast_devices_fill_together() {
    let mut pool = Pool::new(vec![device(0, 32, 100), device(1, 1024, 8000), device(2, 32, 110)]);
    (0..256).for_each(|extent| pool.map.put(extent, whole(1)));
    let mut policy = policy();
    for extent in 0..60 {
        (0..4).for_each(|_| pool.read(&mut policy, extent, 3, Bytes::kib(4)));
        settle(&mut pool, &mut policy, 4);
        if extent == 29 {
            assert!((0..30).all(|extent| pool.map.0[&key(extent)].contains_key(&fine(0))));
            (pool.devices[0].extents, pool.devices[0].free) = (1, 0);
        }
    }
    assert!((32..60).all(|extent| pool.map.0[&key(extent)].contains_key(&fine(2))), "the first was full");
    pool.devices[0] = device(0, 32, 100);
    assert_eq!(
        pool.write(&mut policy, 50, 4, Bytes::kib(4)),
        WriteTo::Fine(DeviceId(2)),
        "beside its others"
    );
    assert_eq!(pool.write(&mut policy, 70, 4, Bytes::kib(4)), WriteTo::Fine(DeviceId(0)));
    pool.devices[0].is_usable = false;
    assert_eq!(
        pool.write(&mut policy, 71, 4, Bytes::kib(4)),
        WriteTo::Fine(DeviceId(2)),
        "the other goes on"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Under random requests the policy never fills the fast device beyond its limit, counts the space in use
    /// correctly, and loses no block.
    #[test]
    fn fill_limit_is_respected(
        steps in prop::collection::vec((0u64..256, 0u16..32, 1u16..33, 0u8..4, 1u8..6), 1..200),
    ) {
        let (mut pool, mut policy) = (pool(), policy());
        for (extent, first, count, what, times) in steps {
            let count = count.min(32 - first);
            let bytes = Bytes(u64::from(count) * 4096);
            for _ in 0..times {
                match what {
                    0 => { pool.write(&mut policy, extent, first, bytes); }
                    1 | 2 => pool.read(&mut policy, extent, first, bytes),
                    _ => { settle(&mut pool, &mut policy, 1); }
                }
                update_free_space(&mut pool);
            }
            // Endless requests get no more than the brim, plus the blocks of one write.
            let limit = (FILL_LIMIT * 32.0 * 32.0) as u32 + 32 + 32 * COPIES_PER_ROUND as u32;
            prop_assert!(slots(&pool) <= limit);
        }
        settle(&mut pool, &mut policy, 20);
        for extent in 0..256 {
            let places = pool.map.0.get(&key(extent)).cloned().unwrap_or_default();
            let all = places.values().fold(0, |all, valid| all | valid);
            prop_assert_eq!(all, u32::MAX, "extent {}", extent);
        }
        let there = |key: &ExtentKey| pool.map.places(*key).is_on(DeviceId(0));
        let known = |key: &ExtentKey| policy.worth.table.clone().get(*key).is_some_and(|heat| heat.resident != 0 || heat.whole);
        prop_assert!(pool.map.0.keys().filter(|key| there(key)).all(known), "something there is not known");
    }

    /// Compares with a naive twin of everything known, part by part, whatever is forgotten.
    #[test]
    fn worthiest_parts_fit_space(
        steps in prop::collection::vec((0u64..12, any::<Mask>(), 0u16..2000, 0u8..8), 1..200),
        room in 0u32..400,
    ) {
        let mut table = HeatTable::new(8);
        for (extent, parts, worth, what) in steps {
            match what {
                0 => { table.advance_epoch(0, true); }
                _ => { table.note(key(extent), parts, worth, what == 1); }
            }
        }
        let known = (0..12).filter_map(|extent| table.peek(key(extent)));
        let worths = known.flat_map(|heat| (0..PARTS).map(move |part| heat.max_worth(1 << part)));
        let worths: Vec<u16> = worths.collect();
        let (least, more_than) = table.worthiest(room);
        let worthier = |than: u16| worths.iter().filter(|worth| **worth > than).count() as u32;
        if more_than > 0 {
            prop_assert!(worthier(more_than) <= room);
            prop_assert!(worthier(least - 1) > room);
            prop_assert!(f64::from(more_than) < 1.25 * f64::from(least) + 1.0);
        } else {
            prop_assert!(worthier(7) <= room, "what is left is worth next to nothing");
        }
    }

    /// Compares with a naive twin: blocks one by one.
    #[test]
    fn parts_match_block_model(blocks in 1u16..300, first in 0u16..300, count in 0u16..300) {
        let cut = PartLayout::new(blocks);
        let range = BlockRange { first: first % blocks, count: count.min(blocks - first % blocks) };
        let (mut touched, mut outside) = (0u32, 0u32);
        for block in 0..blocks {
            let part = 1 << (block / cut.part_blocks);
            if (range.first..range.end()).contains(&block) { touched |= part } else { outside |= part }
        }
        prop_assert_eq!(cut.parts(range), touched);
        prop_assert_eq!(cut.parts_within(range), touched & !outside);
        let mut left = touched;
        let mut seen = 0;
        while let Some((run, mask)) = cut.first_run(left) {
            prop_assert_eq!(cut.parts(run), mask);
            prop_assert!(mask & !left == 0 && run.end() <= blocks);
            seen |= mask;
            left &= !mask;
        }
        prop_assert_eq!(seen, touched);
    }
}

/// Three devices answer alike, and their measurements vary.
#[test]
fn equal_devices_cause_no_copies() {
    for seed in 0..8 {
        let mut random = weir_model::Rng::new(weir_model::Seed(seed));
        let mut pool = Pool::new((0..3).map(|id| device(id, 1024, 80 + u64::from(id) * 15)).collect());
        let mut policy = policy();
        for extent in 0..30 {
            let device = pool.allocate(&mut policy, extent).expect("there is space");
            assert_eq!(device.0, (extent % 3) as u8, "striped");
            pool.map.put(extent, whole(device.0));
        }
        for step in 0..20_000u64 {
            for view in &mut pool.devices {
                view.in_flight = random.below(32) as u32;
                let response = Nanos::micros(50 + random.below(200));
                let write = random.below(2) == 0;
                view.note(&MeasuredCommand::new(
                    write,
                    Bytes::kib(4),
                    1 + view.in_flight,
                    response,
                    Nanos(0),
                ));
            }
            let (extent, block) = (random.below(30), random.below(32) as u16);
            match random.below(2) {
                0 => pool.read(&mut policy, extent, block, Bytes::kib(4)),
                _ => assert_eq!(
                    pool.write(&mut policy, extent, block, Bytes::kib(4)),
                    WriteTo::InPlace,
                    "seed {seed}, step {step}"
                ),
            }
            if step % 20 == 0 {
                pool.now += ROUND;
                assert_eq!(pool.round(&mut policy), [], "seed {seed}, step {step}");
            }
        }
    }
}

/// A device that has been far busier than the others for seconds gets no new extents until that is over.
#[test]
fn busy_device_gets_no_new_extents() {
    let mut pool = Pool::new((0..3).map(|id| device(id, 1024, 80)).collect());
    let mut policy = policy();
    let chosen = |pool: &mut Pool, policy: &mut Adaptive, seconds: u64, busy: u32| {
        for _ in 0..seconds * 10 {
            pool.now += ROUND;
            pool.devices[1].in_flight = busy;
            pool.round(policy);
        }
        let all: Vec<_> = (0..9).filter_map(|extent| pool.allocate(policy, extent)).collect();
        all.iter().filter(|device| device.0 == 1).count()
    };
    assert_eq!(chosen(&mut pool, &mut policy, 0, 32), 3, "a moment's queue says nothing");
    assert_eq!(chosen(&mut pool, &mut policy, 5, 32), 0);
    assert_eq!(chosen(&mut pool, &mut policy, 30, 0), 3);
}

/// Copies requested for a fast device are not made on the next one, which may have the blocks already.
#[test]
fn requests_expire_with_fast_device() {
    let mut pool = Pool::new(vec![device(0, 32, 100), device(1, 1024, 2500), device(2, 1024, 8000)]);
    (0..600).for_each(|extent| pool.map.put(extent, whole(2)));
    (600..608).for_each(|extent| pool.map.put(extent, whole(1)));
    let mut policy = policy();
    // There is no space, so the copies are queued.
    pool.devices[0].free = 0;
    pool.round(&mut policy);
    for extent in 600..608 {
        (0..4).for_each(|_| pool.read(&mut policy, extent, 3, Bytes::kib(4)));
    }
    pool.devices[0].is_usable = false;
    assert_eq!(pool.round(&mut policy), [], "all of it is on the device that is the fast one now");
}

#[test]
fn new_data_requests_no_space() {
    let (mut pool, mut policy) = (pool(), policy());
    (0..32).for_each(|extent| pool.map.put(extent, whole(0)));
    settle(&mut pool, &mut policy, 4);
    pool.write(&mut policy, 400, 3, Bytes::kib(4));
    assert_eq!(settle(&mut pool, &mut policy, 2000), 0, "nothing leaves for what has a place of its own");
}

#[test]
fn failed_eviction_stays_resident() {
    let (mut pool, mut policy) = (pool(), policy());
    pool.round(&mut policy);
    // Every other block, none of it worth anything any more.
    for extent in 0..40 {
        pool.map.0.get_mut(&key(extent)).expect("it is there").insert(fine(0), 0x5555_5555);
        policy.worth.table.set_resident(key(extent), 0x5555_5555, false);
    }
    policy.headroom.request_space();
    (pool.devices[0].free, pool.devices[0].slots) = (0, 0);
    let mut actions = Vec::new();
    let mut context = PolicyContext {
        now: Nanos::secs(1),
        devices: &pool.devices,
        measured: 1000,
        extent: weir_model::ExtentSize::DEFAULT,
        map: &pool.map,
        random: &mut pool.random,
        actions: &mut actions,
        actions_max: 5,
    };
    policy.round(&mut context);
    assert_eq!(actions.len(), 5);
    pool.act(&actions);
    let known = (0..40)
        .map(|extent| policy.worth.table.peek(key(extent)).map_or(0, |heat| heat.resident.count_ones()));
    assert_eq!(known.sum::<u32>(), slots(&pool));
}

#[test]
fn inventory_finds_later_copies() {
    let (mut pool, mut policy) = (pool(), policy());
    settle(&mut pool, &mut policy, 10);
    // The volume's own policy has put them there.
    pool.map.0.get_mut(&key(5)).expect("it is there").insert(fine(0), 1);
    settle(&mut pool, &mut policy, 10);
    assert!(policy.worth.table.peek(key(5)).is_some_and(|heat| heat.resident != 0));
}

#[test]
fn inventory_does_not_remember_copies_that_are_gone() {
    let (mut pool, mut policy) = (pool(), policy());
    settle(&mut pool, &mut policy, 10);
    pool.map.0.get_mut(&key(5)).expect("it is there").insert(fine(0), 1);
    settle(&mut pool, &mut policy, 10);
    // The volume's own policy takes them back, and the policy learns of it.
    pool.map.0.get_mut(&key(5)).expect("it is there").remove(&fine(0));
    policy.worth.table.set_resident(key(5), 0, false);
    settle(&mut pool, &mut policy, 10);
    assert_eq!(policy.worth.table.peek(key(5)).map_or(0, |heat| heat.resident), 0);
}
