//! Hystor on small pools: device 0 is the fast one.

use super::super::testing::{Pool, device, fine, key, whole};
use super::*;
use proptest::prelude::*;
use weir_model::{Bytes, Hint, Op};

fn hystor(settings: &[(&Key, f64)]) -> Hystor {
    let mut all = Settings::default();
    assert!(settings.iter().all(|(key, value)| all.set(key, *value)));
    Hystor::new(&all)
}

/// Creates a fast device of 8 extents of 32 blocks and two slow ones, with extents 0 to 15 on the slow ones.
fn pool() -> Pool {
    let mut pool = Pool::new(vec![device(0, 8, 100), device(1, 64, 5000), device(2, 64, 5000)]);
    (0..16).for_each(|i| pool.map.put(i, whole(1 + (i % 2) as u8)));
    pool
}

fn range(first: u16, count: u16) -> BlockRange {
    BlockRange { first, count }
}

/// Half the space and no write-back area: 128 blocks to remap.
const REMAP_ONLY: &[(&Key, f64)] = &[(&SPACE, 0.5), (&WRITE_BACK, 0.0), (&UPDATE, 1.0)];
/// 128 blocks, half of them for writes; scrubbing above 48, down to 32.
const HALF: &[(&Key, f64)] = &[(&SPACE, 0.5), (&WRITE_BACK, 0.5)];

#[test]
fn blocks_read_often_by_small_requests_are_copied() {
    let (mut pool, mut policy) = (pool(), hystor(REMAP_ONLY));
    pool.round(&mut policy);
    for _ in 0..100 {
        pool.read(&mut policy, 3, 7, Bytes::kib(4));
    }
    pool.read(&mut policy, 5, 0, Bytes::kib(128));
    pool.now = Nanos::secs(10);
    let actions = pool.round(&mut policy);
    let to = fine(0);
    assert_eq!(actions[0], Action::Copy { key: key(3), blocks: range(7, 1), to });
    assert_eq!(actions[1..], [Action::Copy { key: key(5), blocks: range(0, 32), to }], "there is room");
    pool.act(&actions);
    assert_eq!(policy.areas.resident_blocks(), 33);
    // A period later nothing changes: all blocks are resident.
    pool.now = Nanos::secs(20);
    assert_eq!(pool.round(&mut policy), []);
    // Its home is kept: a clean copy is simply dropped, and written blocks are moved home.
    pool.write(&mut policy, 3, 7, Bytes::kib(4));
    assert_eq!(pool.map.places(key(3)).place(to).map(|p| p.sole), Some(1));
    pool.ask(|context| policy.evict(context, DeviceId(0), 1));
    let (_, actions) = pool.ask(|context| policy.evict(context, DeviceId(0), 1));
    assert_eq!(actions, [Action::Move { key: key(3), blocks: range(0, 32), to: whole(2) }]);
}

fn with_list<'a>(settings: &[(&'a Key, f64)], by_blocks: bool) -> Vec<(&'a Key, f64)> {
    [settings, &[(&RESIDENT_LIST, f64::from(u8::from(by_blocks)))]].concat()
}

/// With the list by blocks, the block that was used last stays although the others of its extent leave.
#[test]
fn blocks_leave_one_by_one() {
    let (mut pool, mut policy) = (pool(), hystor(&with_list(REMAP_ONLY, true)));
    pool.round(&mut policy);
    pool.read(&mut policy, 5, 0, Bytes::kib(16));
    pool.now = Nanos::secs(10);
    let actions = pool.round(&mut policy);
    pool.act(&actions);
    assert_eq!(policy.areas.resident_blocks(), 4);
    pool.read(&mut policy, 5, 0, Bytes::kib(4));
    pool.read(&mut policy, 5, 2, Bytes::kib(4));
    let gone = |pool: &mut Pool, policy: &mut Hystor, wanted| {
        let (_, actions) = pool.ask(|context| policy.evict(context, DeviceId(0), wanted));
        pool.act(&actions);
        actions
    };
    let drop = |block| Action::Drop { key: key(5), blocks: range(block, 1), from: fine(0) };
    assert_eq!(gone(&mut pool, &mut policy, 1), [drop(1)]);
    assert_eq!(pool.map.places(key(5)).place(fine(0)).map(|place| place.of_extent), Some(3));
    pool.write(&mut policy, 5, 0, Bytes::kib(4));
    // A dirty block of the extent: its blocks are written back as they leave.
    let home = whole(2);
    let back = |blocks| Action::Move { key: key(5), blocks, to: home };
    assert_eq!(gone(&mut pool, &mut policy, 2), [back(range(3, 1)), back(range(2, 1))]);
    assert_eq!(policy.areas.resident_blocks(), 1);
    assert_eq!(
        gone(&mut pool, &mut policy, 1),
        [back(range(0, 32))],
        "the last one takes the extent with it"
    );
    assert_eq!((policy.areas.resident_blocks(), policy.areas.is_resident(key(5))), (0, false));
}

/// As in Program 1 of the paper: its list of updates has the most costly block first, and each goes to the
/// top.
#[test]
fn period_puts_resident_blocks_on_top_most_costly_first() {
    let (mut pool, mut policy) = (pool(), hystor(&with_list(REMAP_ONLY, true)));
    pool.round(&mut policy);
    for (block, count) in [(0, 5), (1, 50), (2, 20)] {
        (0..count).for_each(|_| pool.read(&mut policy, 5, block, Bytes::kib(4)));
    }
    for period in [10, 20] {
        pool.now = Nanos::secs(period);
        let actions = pool.round(&mut policy);
        pool.act(&actions);
    }
    let list = policy.resident_blocks.as_ref().expect("a list by blocks");
    let from_bottom: Vec<_> = list.iter_oldest().map(|(at, ())| at.block % 32).collect();
    assert_eq!(from_bottom, [1, 2, 0]);
}

#[test]
fn period_replaces_part_of_area() {
    // 128 blocks, of which a tenth changes.
    let (mut pool, mut policy) = (pool(), hystor(&[(&SPACE, 0.5), (&WRITE_BACK, 0.0)]));
    pool.round(&mut policy);
    for period in 1..30u64 {
        let extent = period / 8;
        for block in 0..32 {
            pool.read(&mut policy, extent, block, Bytes::kib(4));
        }
        let before = policy.areas.resident_blocks();
        pool.now = Nanos::secs(10 * period);
        // The plan is executed in portions, a run of an extent at a time.
        for _ in 0..20 {
            let actions = pool.round(&mut policy);
            pool.act(&actions);
            pool.now += ROUND;
        }
        let after = policy.areas.resident_blocks();
        assert!(after <= before + 12, "period {period}: {before} to {after}");
        assert!(after <= 128);
    }
    assert!(policy.areas.resident_blocks() > 90, "{}", policy.areas.resident_blocks());
}

#[test]
fn period_begins_with_the_most_costly_blocks() {
    // Two of 128 blocks change in a period.
    let settings = [(&SPACE, 0.5), (&WRITE_BACK, 0.0), (&UPDATE, 2.0 / 128.0)];
    let (mut pool, mut policy) = (pool(), hystor(&settings));
    pool.round(&mut policy);
    for (extent, block, count) in [(3, 7, 20), (3, 2, 5), (3, 9, 50), (5, 30, 100)] {
        for _ in 0..count {
            pool.read(&mut policy, extent, block, Bytes::kib(4));
        }
    }
    pool.now = Nanos::secs(10);
    let copy = |extent, block| Action::Copy { key: key(extent), blocks: range(block, 1), to: fine(0) };
    assert_eq!(pool.round(&mut policy), [copy(5, 30), copy(3, 9)]);
}

#[test]
fn copies_that_are_gone_are_made_again() {
    let (mut pool, mut policy) = (pool(), hystor(REMAP_ONLY));
    pool.round(&mut policy);
    pool.read(&mut policy, 3, 7, Bytes::kib(8));
    pool.read(&mut policy, 4, 1, Bytes::kib(4));
    pool.now = Nanos::secs(10);
    let actions = pool.round(&mut policy);
    pool.act(&actions);
    // The engine takes back space on the fast device.
    pool.map.put(3, whole(2));
    pool.now = Nanos::secs(20);
    let copy = Action::Copy { key: key(3), blocks: range(7, 2), to: fine(0) };
    assert_eq!(pool.round(&mut policy), [copy], "the other is still there");
}

#[test]
fn metadata_waits_while_no_action_is_possible() {
    let (mut pool, mut policy) = (pool(), hystor(REMAP_ONLY));
    let mut access = pool.access_at(2, 4, Op::Read, Bytes::kib(8));
    access.hint = Hint::Metadata;
    for _ in 0..2 {
        let asked = pool.ask(|context| {
            context.actions_max = 0;
            policy.accessed(context, &access);
        });
        assert_eq!(asked.1, []);
    }
    let copy = Action::Copy { key: key(2), blocks: range(4, 2), to: fine(0) };
    let actions = pool.round(&mut policy);
    assert_eq!(actions.iter().filter(|action| **action == copy).count(), 1, "{actions:?}");
}

#[test]
fn metadata_is_remapped_at_first_sight() {
    let (mut pool, mut policy) = (pool(), hystor(REMAP_ONLY));
    let mut access = pool.access_at(2, 4, Op::Read, Bytes::kib(8));
    access.hint = Hint::Metadata;
    let copy = [Action::Copy { key: key(2), blocks: range(4, 2), to: fine(0) }];
    assert_eq!(pool.ask(|context| policy.accessed(context, &access)).1, copy);
    pool.act(&copy);
    let mut again = pool.access_at(2, 4, Op::Read, Bytes::kib(8));
    again.hint = Hint::Metadata;
    assert_eq!(pool.ask(|context| policy.accessed(context, &again)).1, []);
    access.op = Op::Write;
    assert_eq!(pool.ask(|context| policy.write_to(context, &access)).0, WriteTo::Fine(DeviceId(0)));
    access.hint = Hint::None;
    access.blocks.first = 9;
    assert_eq!(pool.ask(|context| policy.write_to(context, &access)).0, WriteTo::InPlace, "other blocks");
}

#[test]
fn writes_are_buffered_and_scrubbed_in_order() {
    let (mut pool, mut policy) = (pool(), hystor(HALF));
    pool.round(&mut policy);
    // 64 blocks of write-back area: six extents of ten blocks, unordered.
    for extent in [9, 2, 7, 0, 5] {
        assert_eq!(pool.write(&mut policy, extent, 0, Bytes::kib(40)), WriteTo::Fine(DeviceId(0)));
    }
    assert_eq!(policy.areas.dirty(), 50);
    let actions = pool.round(&mut policy);
    let keys: Vec<_> = actions.iter().map(|a| a.key().index.0).collect();
    assert_eq!(keys, [0, 2], "from 50 to 30: below 32");
    assert_eq!(actions[0], Action::Copy { key: key(0), blocks: range(0, 32), to: whole(1) });
    pool.act(&actions);
    assert_eq!(pool.round(&mut policy), []);
    assert_eq!((policy.areas.dirty(), policy.areas.buffered_blocks()), (30, 50), "clean copies stay");
    // A write larger than the remaining space is in place. A small one is buffered, and a clean copy is
    // evicted.
    assert_eq!(pool.write(&mut policy, 11, 0, Bytes::kib(80)), WriteTo::InPlace);
    assert_eq!(pool.write(&mut policy, 11, 0, Bytes::kib(40)), WriteTo::Fine(DeviceId(0)));
    let actions = pool.round(&mut policy);
    // Of the two clean ones, 2 was written first.
    assert_eq!(actions, [Action::Drop { key: key(2), blocks: range(0, 32), from: fine(0) }]);
    pool.act(&actions);
    assert_eq!(policy.areas.buffered_blocks(), 50);
}

#[test]
fn first_writes_are_buffered_and_get_a_home_when_scrubbed() {
    let (mut pool, mut policy) = (pool(), hystor(HALF));
    pool.round(&mut policy);
    for extent in 20..26 {
        assert_eq!(pool.write(&mut policy, extent, 0, Bytes::kib(36)), WriteTo::Fine(DeviceId(0)));
    }
    let actions = pool.round(&mut policy);
    assert!(actions.len() >= 2);
    for action in &actions {
        let Action::Copy { to, .. } = action else { panic!("{action:?}") };
        assert!(to.device != DeviceId(0) && to.kind == PlaceKind::Whole, "{action:?}");
    }
}

#[test]
fn no_space_writes_in_place() {
    let mut alone = Pool::new(vec![device(0, 8, 100)]);
    let mut policy = hystor(HALF);
    assert_eq!(alone.write(&mut policy, 0, 0, Bytes::kib(4)), WriteTo::InPlace);
    assert_eq!(alone.round(&mut policy), []);
    let mut pool = pool();
    pool.devices[0].free = 0;
    assert_eq!(pool.write(&mut policy, 0, 0, Bytes::kib(4)), WriteTo::InPlace);
    pool.devices[0].free = 8;
    pool.devices[0].is_usable = false;
    let mut policy = hystor(HALF);
    assert_eq!(pool.write(&mut policy, 0, 0, Bytes::kib(4)), WriteTo::Fine(DeviceId(1)), "the next fastest");
}

#[test]
fn earlier_policy_copies_are_adopted() {
    let (mut pool, mut policy) = (pool(), hystor(HALF));
    pool.act(&[Action::Copy { key: key(4), blocks: range(0, 3), to: fine(0) }]);
    pool.act(&[Action::Move { key: key(6), blocks: range(0, 5), to: fine(0) }]);
    pool.round(&mut policy);
    assert_eq!((policy.areas.buffered_blocks(), policy.areas.dirty()), (8, 5));
}

/// Creates two fast devices of 8 extents of 32 blocks and two slow ones, with extents 0 to 15 on the slow
/// ones.
fn two_fast() -> Pool {
    let devices = vec![device(0, 8, 100), device(1, 8, 250), device(2, 64, 4000), device(3, 64, 5000)];
    let mut pool = Pool::new(devices);
    (0..16).for_each(|i| pool.map.put(i, whole(2 + (i % 2) as u8)));
    pool
}

/// Like [`HALF`], with two copies.
const DUPLEXED: &[(&Key, f64)] = &[(&SPACE, 0.5), (&WRITE_BACK, 0.5), (&COPIES, 2.0)];
const BOTH_FAST_DEVICES: WriteTo = WriteTo::FineDuplexed([DeviceId(0), DeviceId(1)]);

#[test]
fn dirty_blocks_are_duplexed_until_destaged() {
    let (mut pool, mut policy) = (two_fast(), hystor(DUPLEXED));
    pool.round(&mut policy);
    assert_eq!(policy.remark(), None);
    for extent in [9, 2, 7, 0, 5] {
        assert_eq!(pool.write(&mut policy, extent, 0, Bytes::kib(40)), BOTH_FAST_DEVICES);
    }
    assert_eq!(pool.write(&mut policy, 20, 0, Bytes::kib(4)), BOTH_FAST_DEVICES, "its first write");
    assert_eq!((policy.areas.dirty(), policy.areas.buffered_blocks()), (51, 51), "counted once");
    let actions = pool.round(&mut policy);
    assert_eq!(actions[0], Action::Copy { key: key(0), blocks: range(0, 32), to: whole(2) });
    assert_eq!(actions[1], Action::Copy { key: key(2), blocks: range(0, 32), to: whole(2) });
    pool.act(&actions);
    // Blocks at home have one copy, which takes only its own space; blocks written again have two.
    let second = |i| Action::Drop { key: key(i), blocks: range(0, 32), from: fine(1) };
    let actions = pool.round(&mut policy);
    assert_eq!(actions, [second(0), second(2)]);
    pool.act(&actions);
    let held = |pool: &Pool, i| {
        [fine(0), fine(1)].map(|id| pool.map.places(key(i)).place(id).map_or(0, |p| p.of_extent))
    };
    assert_eq!((held(&pool, 0), held(&pool, 7)), ([10, 0], [10, 10]));
    assert_eq!(pool.write(&mut policy, 0, 1, Bytes::kib(4)), BOTH_FAST_DEVICES);
    assert_eq!(held(&pool, 0), [10, 1]);
    // The second device is lost: one copy is left, and the policy reports it.
    pool.devices[1].is_usable = false;
    pool.round(&mut policy);
    assert_eq!(pool.write(&mut policy, 1, 0, Bytes::kib(4)), WriteTo::Fine(DeviceId(0)));
    assert_eq!(policy.remark(), Some(copies::NO_SECOND_DEVICE));
}

#[test]
fn unmeasured_devices_buffer_nothing() {
    let (mut pool, mut policy) = (two_fast(), hystor(DUPLEXED));
    let measured: Vec<_> = pool.devices.iter().map(|device| device.idle_response).collect();
    pool.devices[1..].iter_mut().for_each(|device| device.idle_response = Nanos::MAX);
    pool.round(&mut policy);
    pool.act(&[Action::Copy { key: key(4), blocks: range(0, 8), to: fine(0) }]);
    let home = WriteTo::Whole(DeviceId(2));
    assert_eq!(pool.write(&mut policy, 4, 0, Bytes::kib(4)), home, "not over the clean copy");
    assert_eq!(pool.write(&mut policy, 30, 0, Bytes::kib(4)), WriteTo::InPlace, "there is no home yet");
    pool.devices.iter_mut().zip(measured).for_each(|(device, idle)| device.idle_response = idle);
    assert_eq!(pool.write(&mut policy, 0, 0, Bytes::kib(4)), BOTH_FAST_DEVICES);
}

#[test]
fn unbuffered_write_skips_clean_copy() {
    let (mut pool, mut policy) = (two_fast(), hystor(&[DUPLEXED, &[(&BUFFER, 8192.0)]].concat()));
    pool.round(&mut policy);
    pool.act(&[Action::Copy { key: key(4), blocks: range(0, 8), to: fine(0) }]);
    let home = WriteTo::Whole(DeviceId(2));
    assert_eq!(pool.write(&mut policy, 4, 0, Bytes::kib(12)), home, "too large");
    // Left by a server for which other devices were the fast ones.
    pool.map.put(5, whole(0));
    pool.act(&[Action::Copy { key: key(5), blocks: range(0, 8), to: fine(2) }]);
    let home_on_fast = WriteTo::Whole(DeviceId(0));
    assert_eq!(pool.write(&mut policy, 5, 0, Bytes::kib(12)), home_on_fast, "not over the slots' clean copy");
    pool.devices[1].free = 0;
    assert_eq!(pool.write(&mut policy, 4, 0, Bytes::kib(4)), home, "no room for the second copy");
    let access = pool.access(30, Op::Write, Bytes::kib(4));
    let (to, _) = pool.ask(|context| policy.allocate(context, &access));
    assert!(to.is_some_and(|to| to >= DeviceId(2)), "homes are on the slow ones");
}

#[test]
fn second_device_must_be_fast() {
    let second = |idle: &[u64]| {
        let devices = idle.iter().enumerate().map(|(i, idle)| device(i as u8, 8, *idle));
        let (mut pool, mut policy) = (Pool::new(devices.collect()), hystor(DUPLEXED));
        pool.round(&mut policy);
        assert_eq!(policy.remark().is_some(), policy.second.is_none());
        policy.second
    };
    assert_eq!(second(&[100]), None);
    assert_eq!(second(&[100, 120]), None, "nothing is left for homes");
    assert_eq!(second(&[100, 5000, 5200]), None, "the others are slow");
    assert_eq!(second(&[5000, 120, 100]), Some(DeviceId(1)));
    assert_eq!(
        second(&[2, 80, 5000]),
        Some(DeviceId(1)),
        "memory, and a drive that is nearer to it than a disk"
    );
    assert_eq!(second(&[100, 110, 105]), Some(DeviceId(2)), "all alike");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// If all actions are executed, the policy's counts of its areas match the map, and both areas stay
    /// within their quotas, except for the blocks that one extent may add.
    #[test]
    fn counts_match_map(
        steps in prop::collection::vec((0u8..9, 0u64..16, 0u16..32, 1u64..9), 1..200),
        metadata: bool,
        by_blocks: bool,
    ) {
        let (mut pool, mut policy, mut trimmed) = (pool(), hystor(&with_list(HALF, by_blocks)), false);
        for (what, extent, first, count) in steps {
            let bytes = Bytes(count.min(32 - u64::from(first)) * 4096);
            match what {
                0..=2 => drop(pool.write(&mut policy, extent, first, bytes)),
                3 | 4 => pool.read(&mut policy, extent, first, bytes),
                8 => {
                    let all = pool.access_at(extent, 0, Op::Trim, Bytes::kib(128));
                    pool.ask(|context| policy.accessed(context, &all));
                    pool.map.0.remove(&key(extent));
                    trimmed = true;
                }
                5 if metadata => {
                    let mut access = pool.access_at(extent, first, Op::Read, bytes);
                    access.hint = Hint::Metadata;
                    let (_, actions) = pool.ask(|context| policy.accessed(context, &access));
                    pool.act(&actions);
                }
                _ => {
                    pool.now += Nanos::millis(if what == 7 { 10_000 } else { 100 });
                    let actions = pool.round(&mut policy);
                    pool.act(&actions);
                }
            }
            let there: u64 = (0..16)
                .filter_map(|i| pool.map.places(key(i)).place(fine(0)))
                .map(|p| u64::from(p.of_extent))
                .sum();
            // Copies of blocks that were trimmed meanwhile come to nothing, which the policy does not learn.
            let blocks = policy.areas.blocks();
            prop_assert!(trimmed || blocks >= there, "{blocks} of {there}");
            prop_assert!(policy.areas.buffered_blocks() <= 64 + 32);
            if let Some(list) = &policy.resident_blocks {
                let listed: Vec<_> = list.iter().map(|(at, ())| at).collect();
                let is_listed = |at: &BlockAddress| policy.table.has(*at, Flags::RESIDENT);
                prop_assert!(listed.iter().all(is_listed));
                let all = (0..16 * 32).map(|block| BlockAddress { volume: key(0).volume, block });
                prop_assert_eq!(all.filter(is_listed).count(), listed.len());
            }
        }
        // In quiet periods, dirty blocks stay below the high watermark, except for the blocks that one extent
        // may add: a write in place can make clean blocks of it dirty, which is noticed at the next look.
        for _ in 0..40 {
            pool.now += ROUND;
            let actions = pool.round(&mut policy);
            pool.act(&actions);
        }
        let dirty: u64 = (0..16)
            .filter(|i| !policy.areas.is_resident(key(*i)))
            .filter_map(|i| pool.map.places(key(i)).place(fine(0)))
            .map(|p| u64::from(p.sole))
            .sum();
        prop_assert!(dirty <= 48 + 32, "{dirty}");
    }

    /// If all actions are executed, dirty blocks are in two places at any time, and in quiet periods clean
    /// ones in one.
    #[test]
    fn every_dirty_block_is_duplexed(
        steps in prop::collection::vec((0u8..8, 0u64..20, 0u16..32, 1u64..9), 1..200),
        by_blocks: bool,
    ) {
        let (mut pool, mut policy) = (two_fast(), hystor(&with_list(DUPLEXED, by_blocks)));
        for (what, extent, first, count) in steps {
            let bytes = Bytes(count.min(32 - u64::from(first)) * 4096);
            match what {
                0..=3 => drop(pool.write(&mut policy, extent, first, bytes)),
                4 | 5 => pool.read(&mut policy, extent, first, bytes),
                _ => {
                    pool.now += Nanos::millis(if what == 7 { 10_000 } else { 100 });
                    let actions = pool.round(&mut policy);
                    pool.act(&actions);
                }
            }
            for i in 0..20 {
                let places = pool.map.places(key(i));
                let alone = places.as_slice().iter().filter(|p| p.id.kind == PlaceKind::Fine).map(|p| p.sole);
                prop_assert_eq!(alone.sum::<u16>(), 0, "of extent {}", i);
            }
        }
    }
}

#[test]
fn reads_prefer_areas_unless_soonest() {
    assert_eq!(hystor(&[]).read_from(), ReadFrom::Slots, "as published");
    assert_eq!(hystor(&[(&READS, SOONEST as f64)]).read_from(), ReadFrom::Soonest);
}
