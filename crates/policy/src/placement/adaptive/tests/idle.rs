//! `adaptive` in idle time and behind long queues: copies of whole regions, and large writes.

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
    for _ in 0..50 {
        let client = MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::millis(8), Nanos(0));
        pool.devices[1].note(&client);
        settle(&mut pool, &mut policy, 1);
    }
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

/// Regions worth a quarter as much make space, those worth as much do not.
#[test]
fn regions_read_equally_often_do_not_replace_one_another() {
    for (reads, stay) in [(0, 0), (8, 64)] {
        let (mut pool, mut policy) = (pool(), policy());
        // 104 of 128 extents are in use: more than copies take without making space, less than may be filled.
        (0..104).for_each(|extent| pool.map.put(extent, whole(0)));
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

/// A region for which nothing may leave is given up after a minute, for the next one; it ages while it waits.
#[test]
fn region_without_space_does_not_hold_up_the_others() {
    let (mut pool, mut policy) = (pool(), policy());
    (0..104).for_each(|extent| pool.map.put(extent, whole(0)));
    // All that is there is worth half as much as the first region, and a tenth of the second.
    (0..4).for_each(|_| (0..104).for_each(|extent| pool.read(&mut policy, extent, 0, Bytes::kib(128))));
    read_region(&mut pool, &mut policy, 128..160);
    (0..5).for_each(|_| read_region(&mut pool, &mut policy, 160..192));
    policy.promoter.forget();
    settle(&mut pool, &mut policy, 550);
    assert!(there(&pool, 128..160) == 0 && there(&pool, 160..192) < 16, "a few were copied by themselves");
    settle(&mut pool, &mut policy, 400);
    assert_eq!([there(&pool, 128..160), there(&pool, 160..192)], [0, 32]);
}

/// What is copied first of a region does not leave for the rest of it, though it is worth less.
#[test]
fn region_does_not_replace_itself() {
    let (mut pool, mut policy) = (pool(), policy());
    (0..104).for_each(|extent| pool.map.put(extent, whole(0)));
    // Eight extents may leave, and the first eight of the region, which are never read, take their space.
    (0..4).for_each(|_| (0..96).for_each(|extent| pool.read(&mut policy, extent, 0, Bytes::kib(128))));
    read_region(&mut pool, &mut policy, 136..160);
    settle(&mut pool, &mut policy, 200);
    assert_eq!((there(&pool, 0..96), there(&pool, 96..104)), (96, 0));
    assert_eq!((there(&pool, 128..136), there(&pool, 136..160)), (8, 0));
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
