//! `adaptive` in idle time and behind long queues: copies of whole regions, and large writes.

use super::super::super::Action;
use super::super::idle_copies::Replacement;
use super::*;

/// Creates a pool of 128 extents on a device that answers in 100 microseconds, and 1024 on one that takes 8
/// milliseconds; the data is on the latter.
fn pool() -> Pool {
    let mut pool = Pool::new(vec![device(0, 128, 100), device(1, 1024, 8000)]);
    (0..512).for_each(|extent| pool.map.put(extent, whole(1)));
    pool
}

/// Reads all of these extents so often that the region is worth a copy, though no part of it is while the
/// devices count as busy.
fn read_region(pool: &mut Pool, policy: &mut Adaptive, extents: std::ops::Range<u64>) {
    for _ in 0..8 {
        extents.clone().for_each(|extent| pool.read(policy, extent, 0, Bytes::kib(128)));
    }
}

/// Puts 104 of the fast device's 128 extents to use: more than copies take without making space, less than
/// may be filled. All of them are read this often.
fn fill_fast_device(pool: &mut Pool, policy: &mut Adaptive, reads: u32) {
    (0..104).for_each(|extent| pool.map.put(extent, whole(0)));
    for _ in 0..reads {
        (0..104).for_each(|extent| pool.read(policy, extent, 0, Bytes::kib(128)));
    }
}

/// Lets this many rounds pass in which the disk serves a client.
fn settle_busy(pool: &mut Pool, policy: &mut Adaptive, rounds: u32) {
    for _ in 0..rounds {
        let client = MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::millis(8), Nanos(0));
        pool.devices[1].note(&client);
        settle(pool, policy, 1);
    }
}

/// Returns how many of these extents have all their blocks on the fast device.
fn there(pool: &Pool, extents: std::ops::Range<u64>) -> usize {
    let is_there = |extent: &u64| {
        let places = &pool.map.0[&key(*extent)];
        places.contains_key(&whole(0)) || places.get(&fine(0)) == Some(&u32::MAX)
    };
    extents.filter(is_there).count()
}

#[test]
fn regions_are_copied_whole_while_the_disk_is_idle() {
    let (mut pool, mut policy) = (pool(), policy());
    // The extents 40 to 47 are never read, and come along.
    read_region(&mut pool, &mut policy, 32..40);
    read_region(&mut pool, &mut policy, 48..64);
    settle_busy(&mut pool, &mut policy, 50);
    assert_eq!(there(&pool, 32..64), 0, "a client is busy there");
    settle(&mut pool, &mut policy, 40);
    assert_eq!(there(&pool, 32..64), 32);
    assert_eq!(there(&pool, 0..32) + there(&pool, 64..512), 0);
    let home = |extent: u64| pool.map.0[&key(extent)].get(&whole(1)) == Some(&u32::MAX);
    assert!((32..64).all(home), "copies leave the home as it was");
}

#[test]
fn region_read_little_is_not_copied() {
    let (mut pool, mut policy) = (pool(), policy());
    (32..64).for_each(|extent| pool.read(&mut policy, extent, 0, Bytes::kib(128)));
    settle(&mut pool, &mut policy, 100);
    assert_eq!(there(&pool, 0..512), 0);
}

/// Regions worth nothing make space, those worth an eighth as much do not.
#[test]
fn regions_that_are_read_do_not_replace_one_another() {
    for (reads, stay) in [(0, 0), (1, 64)] {
        let (mut pool, mut policy) = (pool(), policy());
        fill_fast_device(&mut pool, &mut policy, 0);
        settle(&mut pool, &mut policy, 100);
        for _ in 0..reads {
            (0..64).for_each(|extent| pool.read(&mut policy, extent, 0, Bytes::kib(128)));
        }
        read_region(&mut pool, &mut policy, 128..160);
        settle(&mut pool, &mut policy, 400);
        assert_eq!(there(&pool, 128..160), 32, "after {reads} reads of the others");
        assert!(there(&pool, 0..64) >= stay, "{} after {reads} reads", there(&pool, 0..64));
        assert!(there(&pool, 0..104) < 104, "some left for it");
        assert!(there(&pool, 0..104) + 32 >= 104, "no more than it takes: {}", there(&pool, 0..104));
    }
}

/// A large write goes to the fast device only if the disk's queue is long, and space is left beyond what is
/// kept free for small writes.
#[test]
fn large_writes_relieve_a_long_queue() {
    let (mut pool, mut policy) = (pool(), policy());
    let served = MeasuredCommand::new(true, Bytes::kib(128), 1, Nanos::millis(10), Nanos(0));
    (0..100).for_each(|_| pool.devices[1].note(&served));
    let mut target = |pool: &mut Pool, queue: u32| {
        pool.devices[1].in_flight = queue;
        let write = Access { run: Bytes::mib(64), ..pool.access(300, Op::Write, Bytes::kib(128)) };
        pool.ask(|context| policy.accessed(context, &write));
        pool.ask(|context| policy.write_to(context, &write)).0
    };
    assert_eq!(target(&mut pool, 5), WriteTo::InPlace, "60 ms");
    assert_eq!(target(&mut pool, 15), WriteTo::Fine(DeviceId(0)), "160 ms");
    pool.devices[0].free = 12;
    assert_eq!(target(&mut pool, 15), WriteTo::InPlace, "91 % are in use");
    pool.devices[0].free = 0;
    assert_eq!(target(&mut pool, 15), WriteTo::InPlace, "nothing is free");
}

/// A region for which nothing may leave is given up after a minute, for the next one.
#[test]
fn region_without_space_does_not_hold_up_the_others() {
    let (mut pool, mut policy) = (pool(), policy());
    fill_fast_device(&mut pool, &mut policy, 1);
    read_region(&mut pool, &mut policy, 128..160);
    // Read so often that they are still worth a copy when the first ones are given up.
    (0..2).for_each(|_| read_region(&mut pool, &mut policy, 160..192));
    policy.promoter.forget();
    settle(&mut pool, &mut policy, 640);
    assert_eq!([there(&pool, 128..160), there(&pool, 160..192)], [0, 0]);
    (0..64).for_each(|extent| pool.map.put(extent, whole(1)));
    settle(&mut pool, &mut policy, 100);
    assert_eq!([there(&pool, 128..160), there(&pool, 160..192)], [0, 32]);
}

/// The time that a region waited for space does not count for the next one.
#[test]
fn each_region_waits_for_space_anew() {
    let (mut pool, mut policy) = (pool(), policy());
    fill_fast_device(&mut pool, &mut policy, 1);
    (0..4).for_each(|_| read_region(&mut pool, &mut policy, 128..160));
    (0..4).for_each(|_| read_region(&mut pool, &mut policy, 160..192));
    policy.promoter.forget();
    settle(&mut pool, &mut policy, 400);
    (0..64).for_each(|extent| pool.map.put(extent, whole(1)));
    while there(&pool, 128..160) < 32 {
        settle(&mut pool, &mut policy, 1);
    }
    (0..64).for_each(|extent| pool.map.put(extent, whole(0)));
    settle(&mut pool, &mut policy, 400);
    assert!(there(&pool, 160..192) < 16);
    (0..104).for_each(|extent| pool.map.put(extent, whole(1)));
    settle(&mut pool, &mut policy, 100);
    assert_eq!(there(&pool, 160..192), 32);
}

/// A region that leaves does not take along parts of the next one, however little these are worth; and no
/// more leaves in a round than the mover can take.
#[test]
fn only_unread_regions_leave_and_few_at_a_time() {
    let (mut pool, mut policy) = (pool(), policy());
    fill_fast_device(&mut pool, &mut policy, 0);
    settle(&mut pool, &mut policy, 100);
    (32..104).for_each(|extent| pool.read(&mut policy, extent, 0, Bytes::kib(128)));
    (200..216).for_each(|extent| pool.map.put(extent, whole(0)));
    (24..32).for_each(|extent| pool.map.put(extent, whole(1)));
    read_region(&mut pool, &mut policy, 128..160);
    policy.promoter.forget();
    for _ in 0..100 {
        update_free_space(&mut pool);
        pool.now += ROUND;
        let actions = pool.round(&mut policy);
        let leaving = actions.iter().filter(|action| matches!(action, Action::Move { .. })).count();
        assert!(leaving <= 16, "{leaving}");
        pool.act(&actions);
    }
    assert_eq!((there(&pool, 32..104), there(&pool, 128..160)), (72, 32));
}

/// What is copied first of a region does not leave for the rest of it, though it is worth less.
#[test]
fn region_does_not_replace_itself() {
    let (mut pool, mut policy) = (pool(), policy());
    fill_fast_device(&mut pool, &mut policy, 0);
    // Eight extents may leave, and the first eight of the region, which are never read, take their space.
    (0..4).for_each(|_| (0..96).for_each(|extent| pool.read(&mut policy, extent, 0, Bytes::kib(128))));
    read_region(&mut pool, &mut policy, 136..160);
    settle(&mut pool, &mut policy, 200);
    assert_eq!((there(&pool, 0..96), there(&pool, 96..104)), (96, 0));
    assert_eq!((there(&pool, 128..136), there(&pool, 136..160)), (8, 0));
}

/// Blocks that are read stay, though their region is worth nothing on average; also if it is the only one on
/// the fast device.
#[test]
fn blocks_that_are_read_do_not_leave_with_their_region() {
    for (size, used) in [(128, 104), (40, 32)] {
        let (mut pool, mut policy) = (pool(), policy());
        (pool.devices[0].extents, pool.devices[0].free) = (size, size);
        for extent in 0..used {
            pool.map.0.get_mut(&key(extent)).expect("it is there").insert(fine(0), u32::MAX);
            policy.worth.table.set_resident(key(extent), u32::MAX, false);
        }
        settle(&mut pool, &mut policy, 100);
        (0..2).for_each(|_| pool.read(&mut policy, 5, 3, Bytes::kib(4)));
        read_region(&mut pool, &mut policy, 128..160);
        policy.promoter.forget();
        settle(&mut pool, &mut policy, 400);
        let blocks = |extent: u64| pool.map.0[&key(extent)].get(&fine(0)).copied().unwrap_or(0);
        assert_eq!((blocks(5), blocks(6)), (1 << 3, 0), "{used} of {size}");
    }
}

/// The only region on the fast device is examined once per round, though its last block stays.
#[test]
fn search_for_what_leaves_ends() {
    let (mut pool, mut policy) = (pool(), policy());
    settle(&mut pool, &mut policy, 1);
    policy.worth.table.note(key(5), 1 << 3, 200, false);
    for extent in 0..8 {
        pool.map.0.get_mut(&key(extent)).expect("it is there").insert(fine(0), u32::MAX);
        policy.worth.table.set_resident(key(extent), u32::MAX, false);
    }
    let replacement = Replacement { region: key(128), part_worth: 10, parts: 1024 };
    let fast = policy.tiers.fast();
    let Adaptive { evictor, worth, headroom, burst, stripe, .. } = &mut policy;
    let state = (&*headroom, *burst, Some(replacement));
    let (gone, actions) = pool.ask(|context| evictor.round(context, fast, worth, state, stripe));
    assert_eq!((gone, actions.len()), (255, 9), "the blocks around the one that stays leave in two runs");
}

/// Nothing leaves for a region in progress while clients use the disk.
#[test]
fn nothing_leaves_while_the_disk_is_busy() {
    let (mut pool, mut policy) = (pool(), policy());
    fill_fast_device(&mut pool, &mut policy, 1);
    read_region(&mut pool, &mut policy, 128..160);
    policy.promoter.forget();
    settle(&mut pool, &mut policy, 50);
    settle_busy(&mut pool, &mut policy, 20);
    (0..12).for_each(|_| assert!(policy.worth.table.advance_epoch(0, true)));
    settle_busy(&mut pool, &mut policy, 40);
    assert_eq!(there(&pool, 0..104), 104, "though they are worth nothing now");
    settle(&mut pool, &mut policy, 100);
    assert!(there(&pool, 0..104) < 104);
}

/// A disk that answers nothing is not idle, unless its commands may be the mover's own.
#[test]
fn hanging_disk_is_not_idle() {
    let (mut pool, mut policy) = (pool(), policy());
    read_region(&mut pool, &mut policy, 32..64);
    pool.devices[1].in_flight = 20;
    settle(&mut pool, &mut policy, 100);
    assert_eq!(there(&pool, 32..64), 0);
    pool.devices[1].in_flight = 8;
    settle(&mut pool, &mut policy, 100);
    assert_eq!(there(&pool, 32..64), 32);
}

/// Nothing is copied to a fast device with so long a queue that the disk answers sooner.
#[test]
fn nothing_is_copied_to_an_overloaded_device() {
    let (mut pool, mut policy) = (pool(), policy());
    read_region(&mut pool, &mut policy, 32..64);
    policy.promoter.forget();
    let answered = MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::micros(100), Nanos(0));
    (0..100).for_each(|_| pool.devices[0].note(&answered));
    (pool.devices[0].in_flight, pool.devices[1].in_flight) = (200, 20);
    for _ in 0..300 {
        pool.read(&mut policy, 300, 0, Bytes::kib(4));
        settle(&mut pool, &mut policy, 1);
    }
    pool.devices[1].in_flight = 0;
    settle(&mut pool, &mut policy, 60);
    assert_eq!(there(&pool, 32..64), 0);
}

/// While more than the headroom is free, nothing leaves for a region.
#[test]
fn nothing_leaves_while_space_is_free() {
    let (mut pool, mut policy) = (pool(), policy());
    (0..32).for_each(|extent| pool.map.put(extent, whole(0)));
    settle(&mut pool, &mut policy, 100);
    read_region(&mut pool, &mut policy, 128..160);
    settle(&mut pool, &mut policy, 200);
    assert_eq!((there(&pool, 0..32), there(&pool, 128..160)), (32, 32));
}

/// Of a region of which four extents have data, only so much makes space as they take.
#[test]
fn only_missing_parts_need_space() {
    let (mut pool, mut policy) = (pool(), policy());
    (0..104).for_each(|extent| pool.map.put(extent, whole(0)));
    pool.map.0.retain(|at, _| *at < key(132));
    settle(&mut pool, &mut policy, 100);
    (0..10).for_each(|_| read_region(&mut pool, &mut policy, 128..132));
    policy.promoter.forget();
    for extent in 128..132 {
        pool.map.0.get_mut(&key(extent)).expect("it is there").remove(&fine(0));
    }
    (128..132).for_each(|extent| policy.worth.table.set_resident(key(extent), 0, false));
    settle(&mut pool, &mut policy, 400);
    assert_eq!(there(&pool, 128..132), 4);
    assert!(there(&pool, 0..104) >= 100, "{} stay", there(&pool, 0..104));
}

/// More runs of blocks than are copied per round leave no gaps behind.
#[test]
fn fragmented_region_becomes_whole() {
    let (mut pool, mut policy) = (pool(), policy());
    settle(&mut pool, &mut policy, 100);
    for extent in 32..64 {
        pool.map.0.get_mut(&key(extent)).expect("it is there").insert(fine(0), 0x5555_5555);
        policy.worth.table.set_resident(key(extent), 0x5555_5555, false);
    }
    read_region(&mut pool, &mut policy, 40..64);
    settle(&mut pool, &mut policy, 400);
    assert_eq!(there(&pool, 32..64), 32);
}

/// Extents of 64 KiB have 16 parts: the mean is over these, whether the place is a whole one or not.
#[test]
fn worth_of_regions_of_small_extents() {
    let (mut table, cut) = (HeatTable::new(64), PartLayout::new(16));
    for extent in 0..32 {
        table.note(key(extent), 0xffff, 100, false);
    }
    assert_eq!(table.region_worth(cut, key(0), false), 100);
    (0..32).for_each(|extent| table.set_resident(key(extent), cut.all(), extent % 2 == 0));
    assert_eq!((table.region_worth(cut, key(0), true), table.region_worth(cut, key(0), false)), (100, 0));
}

/// Other devices are the fast ones: no region that was in progress or waiting is copied to them.
#[test]
fn regions_expire_with_fast_device() {
    let (mut pool, mut policy) = (pool(), policy());
    fill_fast_device(&mut pool, &mut policy, 1);
    read_region(&mut pool, &mut policy, 128..160);
    (0..2).for_each(|_| read_region(&mut pool, &mut policy, 160..192));
    settle(&mut pool, &mut policy, 50);
    policy.forget();
    (0..64).for_each(|extent| pool.map.put(extent, whole(1)));
    let before = there(&pool, 128..192);
    settle(&mut pool, &mut policy, 100);
    assert_eq!(there(&pool, 128..192), before);
}

/// An extent is copied once space was made for all of it, and while space is not short.
#[test]
fn extents_are_copied_into_space_made_for_them() {
    let (mut pool, mut policy) = (pool(), policy());
    fill_fast_device(&mut pool, &mut policy, 1);
    read_region(&mut pool, &mut policy, 128..160);
    policy.promoter.forget();
    settle(&mut pool, &mut policy, 50);
    let fast = policy.tiers.fast();
    for (made, is_short, is_copied) in [(31, false, false), (1, true, false), (0, false, true)] {
        policy.idle_copies.note_space(made);
        let Adaptive { idle_copies, worth, headroom, promoter, .. } = &mut policy;
        let state = (worth, headroom, is_short);
        let (_, actions) = pool.ask(|context| idle_copies.round(context, fast, state, promoter));
        assert_eq!(!actions.is_empty(), is_copied, "{made} more parts, short: {is_short}");
    }
}

/// A region worth less than half the price is not copied: what is worth the price would displace it.
#[test]
fn regions_must_be_worth_half_the_price() {
    let (mut pool, mut policy) = (pool(), policy());
    read_region(&mut pool, &mut policy, 128..160);
    // More than fit the fast device, and worth five times as much.
    (0..5).for_each(|_| read_region(&mut pool, &mut policy, 256..416));
    policy.promoter.forget();
    settle(&mut pool, &mut policy, 100);
    assert_eq!(there(&pool, 128..160), 0);
    assert!(there(&pool, 256..416) >= 64);
}

/// The region read first is dropped once too many wait.
#[test]
fn regions_read_last_wait() {
    let mut copies = IdleCopies::default();
    (0..1500).for_each(|region| copies.note_miss(key(region * 32)));
    let text = format!("{copies:?}");
    assert!(text.contains(&format!("ExtentIndex({})", 1499 * 32)) && !text.contains("ExtentIndex(0)"));
}

/// Whole places on the fast device are no misses of the region: nothing is copied over them.
#[test]
fn whole_places_are_not_copied() {
    let (mut pool, mut policy) = (pool(), policy());
    (32..40).for_each(|extent| pool.map.put(extent, whole(0)));
    settle(&mut pool, &mut policy, 100);
    read_region(&mut pool, &mut policy, 40..64);
    // What is known of places on the fast device may be incomplete.
    policy.worth.table.forget_residents();
    settle(&mut pool, &mut policy, 100);
    assert_eq!(there(&pool, 32..64), 32);
    assert!((32..40).all(|extent| !pool.map.0[&key(extent)].contains_key(&fine(0))));
}
