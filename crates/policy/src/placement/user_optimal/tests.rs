use super::super::MeasuredCommand;
use super::super::testing::{Pool, device, key, whole};
use super::*;
use proptest::prelude::*;
use weir_model::Bytes;

/// Returns a device that has answered every command in this time.
fn measured(id: u8, micros: u64) -> DeviceView {
    let mut view = device(id, 64, micros);
    view.note(&MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::micros(micros), Nanos(0)));
    view
}

/// Adds a network whose round trips have this standard deviation.
fn remote(mut view: DeviceView, deviation_us: u64) -> DeviceView {
    [10_000 - deviation_us, 10_000 + deviation_us]
        .into_iter()
        .for_each(|trip| view.note_round_trip(Nanos::micros(trip)));
    view
}

fn policy(settings: &[(&Key, f64)]) -> UserOptimal {
    let mut all = Settings::default();
    settings.iter().for_each(|(key, value)| assert!(all.set(key, *value), "{} = {value}", key.name));
    UserOptimal::new(&all)
}

/// Returns a pool with a local device and one behind a network, extent 0 on the first, 1 and 2 on the second.
fn pool(local_us: u64, remote_us: u64) -> Pool {
    let mut pool = Pool::new(vec![measured(0, local_us), remote(measured(1, remote_us), 1000)]);
    pool.now = Nanos::secs(1);
    [0, 1, 1].into_iter().zip(0..).for_each(|(device, index)| pool.map.put(index, whole(device)));
    pool
}

/// Makes every accessed block a candidate.
const ALL_ENTER: (&Key, f64) = (&ENTER, 1.0);

fn read(pool: &mut Pool, policy: &mut UserOptimal, extent: u64, first: u16, kib: u64) -> Vec<Action> {
    let access = pool.access_at(extent, first, Op::Read, Bytes::kib(kib));
    pool.ask(|context| policy.accessed(context, &access)).1
}

fn moved(extent: u64, first: u16, count: u16, to: u8) -> [Action; 1] {
    [Action::Move { key: key(extent), blocks: BlockRange { first, count }, to: whole(to) }]
}

#[test]
fn candidates_move_to_the_device_that_is_faster_by_more_than_delta() {
    // Delta is two standard deviations of the round trip: 2 ms.
    for (local, remote, goes) in [(5000, 7000, false), (5000, 7001, true), (5000, 4000, false)] {
        let mut pool = pool(local, remote);
        let mut policy = policy(&[ALL_ENTER]);
        assert_eq!(read(&mut pool, &mut policy, 1, 3, 8), [], "not a candidate yet");
        let actions = read(&mut pool, &mut policy, 1, 3, 8);
        let expected = if goes { &moved(1, 3, 2, 0)[..] } else { &[] };
        assert_eq!(actions, expected, "{local} us, {remote} us");
    }
}

#[test]
fn data_moves_in_either_direction() {
    let (mut pool, mut policy) = (pool(9000, 5000), policy(&[ALL_ENTER]));
    for _ in 0..2 {
        assert_eq!(read(&mut pool, &mut policy, 1, 0, 4), [], "it is where it should be");
    }
    assert_eq!(read(&mut pool, &mut policy, 0, 0, 4), []);
    assert_eq!(read(&mut pool, &mut policy, 0, 0, 4), moved(0, 0, 1, 1));
}

#[test]
fn few_accessed_blocks_become_candidates() {
    let (mut pool, mut policy) = (pool(5000, 9000), policy(&[(&TOKENS, 100_000.0)]));
    let mut on_list = 0;
    for block in 0..32 {
        for extent in 3..103 {
            pool.map.put(extent, whole(1));
            read(&mut pool, &mut policy, extent, block, 4);
            on_list += usize::from(policy.list.get(&(key(extent), block)).is_some());
        }
    }
    assert!((250..400).contains(&on_list), "{on_list} of 3200 at 10 %");
}

#[test]
fn a_write_goes_to_the_faster_device_once_and_again() {
    let (mut pool, mut policy) = (pool(5000, 9000), policy(&[ALL_ENTER, (&TOKENS, 1.0)]));
    assert_eq!(pool.write(&mut policy, 1, 4, Bytes::kib(8)), WriteTo::InPlace);
    assert_eq!(pool.write(&mut policy, 1, 4, Bytes::kib(8)), WriteTo::Whole(DeviceId(0)));
    let access = pool.access_at(1, 4, Op::Write, Bytes::kib(8));
    let again = pool.ask(|context| policy.write_to(context, &access)).0;
    assert_eq!(again, WriteTo::Whole(DeviceId(0)), "the engine may ask again");
    let other = pool.access_at(1, 9, Op::Write, Bytes::kib(8));
    assert_eq!(pool.ask(|context| policy.write_to(context, &other)).0, WriteTo::InPlace);
    let places = pool.map.places(key(1));
    let blocks = |device| places.place(whole(device)).map(|place| place.of_extent);
    assert_eq!((blocks(0), blocks(1)), (Some(2), Some(30)), "the rest stays");
}

#[test]
fn a_part_of_a_block_is_written_in_place() {
    let (mut pool, mut policy) = (pool(5000, 9000), policy(&[ALL_ENTER]));
    for _ in 0..3 {
        let mut access = pool.access_at(1, 4, Op::Write, Bytes::kib(4));
        access.bytes = Bytes(512);
        assert_eq!(pool.ask(|context| policy.write(context, &access)).0, WriteTo::InPlace);
    }
    let whole = pool.access_at(1, 4, Op::Write, Bytes::kib(4));
    let to = pool.ask(|context| policy.write(context, &whole)).0;
    assert_eq!(to, WriteTo::Whole(DeviceId(0)), "they made it a candidate");
}

#[test]
fn reads_or_writes_alone_migrate_if_so_set() {
    for (on, read_moves, write_moves) in [(0.0, true, true), (1.0, true, false), (2.0, false, true)] {
        let (mut pool, mut policy) = (pool(5000, 9000), policy(&[ALL_ENTER, (&ON, on)]));
        assert_eq!(policy.subscriptions().writes, write_moves);
        read(&mut pool, &mut policy, 1, 0, 4);
        read(&mut pool, &mut policy, 2, 0, 4);
        assert_eq!(!read(&mut pool, &mut policy, 1, 0, 4).is_empty(), read_moves, "on = {on}");
        let to = pool.write(&mut policy, 2, 0, Bytes::kib(4));
        assert_eq!(to == WriteTo::Whole(DeviceId(0)), write_moves, "on = {on}");
    }
}

#[test]
fn without_token_or_space_nothing_migrates() {
    let (mut pool, mut policy) = (pool(5000, 9000), policy(&[ALL_ENTER]));
    for block in 0..8 {
        read(&mut pool, &mut policy, 1, block, 4);
    }
    let mut count = 0;
    for block in 0..8 {
        count += read(&mut pool, &mut policy, 1, block, 4).len();
    }
    assert_eq!(count, 4, "four tokens a second");
    pool.now = Nanos::secs(2);
    pool.devices[0].free = 4;
    assert_eq!(read(&mut pool, &mut policy, 1, 0, 4), [], "the rest is for new data");
    pool.devices[0].free = 5;
    assert_eq!(read(&mut pool, &mut policy, 1, 0, 4).len(), 1, "no token was spent before");
}

#[test]
fn blocks_on_two_devices_and_extents_with_a_third_stay() {
    let mut pool = pool(5000, 9000);
    pool.devices.push(remote(measured(2, 1000), 1000));
    let mut policy = policy(&[ALL_ENTER]);
    pool.act(&moved(1, 0, 4, 0));
    for _ in 0..2 {
        assert_eq!(read(&mut pool, &mut policy, 1, 2, 16), [], "on both devices");
    }
    // The fastest device would be the third place of the extent.
    assert_eq!(read(&mut pool, &mut policy, 1, 8, 4), []);
    assert_eq!(read(&mut pool, &mut policy, 1, 8, 4), moved(1, 8, 1, 0));
    assert_eq!(read(&mut pool, &mut policy, 2, 8, 4), []);
    assert_eq!(read(&mut pool, &mut policy, 2, 8, 4), moved(2, 8, 1, 2));
}

#[test]
fn devices_within_half_of_delta_are_tied() {
    let mut pool = pool(5000, 9000);
    pool.devices = vec![
        remote(measured(0, 5000), 1000),
        remote(measured(1, 9000), 1000),
        remote(measured(2, 5900), 1000),
        remote(measured(3, 6100), 1000),
    ];
    let mut policy = policy(&[ALL_ENTER, (&TOKENS, 100_000.0)]);
    let mut chosen = [0; 4];
    for extent in 10..210 {
        pool.map.put(extent, whole(1));
        read(&mut pool, &mut policy, extent, 0, 4);
        for action in read(&mut pool, &mut policy, extent, 0, 4) {
            let Action::Move { to, .. } = action else { panic!("{action:?}") };
            chosen[to.device.index()] += 1;
        }
    }
    assert!(chosen[0] > 60 && chosen[2] > 60 && chosen[0] + chosen[2] == 200, "{chosen:?}");
    // Data of a device that is far from the slowest does not migrate.
    pool.map.put(3, whole(3));
    pool.devices[0] = remote(measured(0, 1000), 1000);
    for _ in 0..2 {
        assert_eq!(read(&mut pool, &mut policy, 3, 0, 4), []);
    }
}

#[test]
fn deviations_of_devices_count_as_well() {
    for (of_single, expected) in [(0.0, Nanos::millis(1)), (1.0, Nanos::millis(3))] {
        let mut pool = Pool::new(vec![measured(0, 5000), measured(1, 5000)]);
        let mut policy = policy(&[(&DEVIATION, of_single)]);
        // Single responses of 2 and 8 ms; means of a second are 4 and 6 ms.
        for second in 0..40u64 {
            let fast = if second % 2 == 0 { 4 } else { 2 };
            for command in 0..6 {
                let response = Nanos::millis(if command < fast { 2 } else { 8 });
                let command = MeasuredCommand::new(true, Bytes::kib(4), 1, response, Nanos(0));
                pool.devices[1].note(&command);
            }
            pool.now += Nanos::secs(1);
            pool.round(&mut policy);
        }
        let deviation = policy.deviation(&pool.devices[1]);
        let near = deviation.0.abs_diff(expected.0) < 200_000;
        assert!(near, "of single responses: {of_single}: {deviation}");
        assert_eq!(policy.delta(&pool.devices[0], &pool.devices[1]), Nanos(2 * deviation.0));
    }
}

/// A policy that begins while the pool runs has measured nothing yet.
#[test]
fn responses_before_the_first_round_are_no_second() {
    let mut pool = Pool::new(vec![measured(0, 5000), measured(1, 5000)]);
    let note = |pool: &mut Pool, millis: u64| {
        let response = Nanos::millis(millis);
        pool.devices[0].note(&MeasuredCommand::new(true, Bytes::kib(4), 1, response, Nanos(0)));
    };
    (0..1000).for_each(|_| note(&mut pool, 300));
    let mut policy = policy(&[]);
    for _ in 0..10 {
        pool.now += Nanos::secs(1);
        pool.round(&mut policy);
        note(&mut pool, 5);
    }
    assert_eq!(policy.deviation(&pool.devices[0]), Nanos(0));
}

#[test]
fn inactive_extents_are_merged_in_quiet_times() {
    let (mut pool, mut policy) = (pool(5000, 9000), policy(&[ALL_ENTER]));
    pool.act(&moved(1, 0, 4, 0));
    pool.act(&moved(2, 0, 20, 0));
    read(&mut pool, &mut policy, 1, 8, 4);
    read(&mut pool, &mut policy, 2, 8, 4);
    pool.now += Nanos::secs(59);
    assert_eq!(pool.round(&mut policy), [], "not inactive yet");
    pool.now += Nanos::secs(1);
    pool.devices[1].in_flight = 1;
    assert_eq!(pool.round(&mut policy), [], "a client waits");
    pool.devices[1].in_flight = 0;
    let actions = pool.round(&mut policy);
    assert_eq!(actions, [moved(1, 0, 32, 1), moved(2, 0, 32, 0)].concat());
    pool.act(&actions);
    pool.now += Nanos::secs(100);
    assert_eq!(pool.round(&mut policy), [], "nothing is left");
}

#[test]
fn short_space_and_a_restart_merge_as_well() {
    let (mut pool, mut policy) = (pool(5000, 9000), policy(&[]));
    pool.act(&moved(1, 0, 4, 0));
    pool.devices[0].in_flight = 1;
    pool.devices[0].free = 8;
    assert_eq!(pool.round(&mut policy), [], "found in the map now");
    pool.now += Nanos::secs(60);
    assert_eq!(pool.round(&mut policy), moved(1, 0, 32, 1));
}

#[test]
fn sequential_allocation_begins_with_the_local_device() {
    let mut pool = Pool::new(vec![device(0, 2, 100), device(1, 1, 100), device(2, 2, 100)]);
    let mut policy = policy(&[(&ALLOCATION, 1.0), (&FIRST, 1.0)]);
    let all: Vec<_> = (0..6).map_while(|i| pool.allocate(&mut policy, i)).map(|id| id.0).collect();
    assert_eq!(all, [1, 2, 2, 0, 0]);
}

#[test]
fn trimmed_blocks_are_no_candidates() {
    let (mut pool, mut policy) = (pool(5000, 9000), policy(&[ALL_ENTER]));
    read(&mut pool, &mut policy, 1, 0, 16);
    let trim = pool.access_at(1, 1, Op::Trim, Bytes::kib(8));
    pool.ask(|context| policy.accessed(context, &trim));
    let listed = [0, 1, 2, 3].map(|block| policy.list.get(&(key(1), block)).is_some());
    assert_eq!(listed, [true, false, false, true]);
}

#[test]
fn locality_moves_every_access_and_makes_space_for_it() {
    // The local device is the slower one.
    let (mut pool, mut policy) = (pool(9000, 5000), policy(&[(&RULE, 1.0)]));
    assert_eq!(read(&mut pool, &mut policy, 0, 0, 4), [], "local already");
    for first in 0..10 {
        assert_eq!(read(&mut pool, &mut policy, 1, first, 4), moved(1, first, 1, 0), "no list, no token");
    }
    pool.map.put(5, whole(0));
    pool.devices[0].free = 4;
    assert_eq!(read(&mut pool, &mut policy, 2, 0, 4), moved(5, 0, 32, 1), "it was never accessed");
    pool.map.put(5, whole(1));
    assert_eq!(read(&mut pool, &mut policy, 2, 0, 4), moved(0, 0, 32, 1), "it was accessed longest ago");
    let reasons = pool.ask(|context| {
        let places = context.map.places(key(2));
        policy.explain(context, &Question { key: key(2), block: 0, places, names: &[] })
    });
    assert!(reasons.0.moves_if[0].contains("behind a network"), "{reasons:?}");
}

/// The rule as published, on a plain list and a device for each block.
struct Twin {
    responses: Vec<u64>,
    /// Standard deviation of the round trip to each device.
    deviations: Vec<u64>,
    capacity: usize,
    list: Vec<(u64, u16)>,
    devices: Vec<[usize; 32]>,
}

impl Twin {
    fn access(&mut self, extent: u64, block: u16) {
        let item = (extent, block);
        let was_listed = self.list.contains(&item);
        self.list.retain(|other| *other != item);
        self.list.insert(0, item);
        self.list.truncate(self.capacity);
        let blocks = self.devices[extent as usize];
        let a = blocks[usize::from(block)];
        let possible: Vec<usize> = match blocks.iter().find(|device| **device != a) {
            Some(second) => vec![*second],
            None => (0..self.responses.len()).filter(|device| *device != a).collect(),
        };
        let Some(b) = possible.into_iter().min_by_key(|device| self.responses[*device]) else { return };
        let delta = 2 * self.deviations[a].max(self.deviations[b]);
        let is_slowest = self.responses.iter().all(|other| *other <= self.responses[a] + delta / 2);
        if was_listed && is_slowest && self.responses[a] > self.responses[b] + delta {
            self.devices[extent as usize][usize::from(block)] = b;
        }
    }
}

proptest! {
    /// Every block is where a naive twin says.
    #[test]
    fn blocks_migrate_by_the_published_rule(
        devices in prop::collection::vec((1u64..20_000, 0u64..3000), 2..5),
        capacity in 1usize..20,
        steps in prop::collection::vec((0u64..4, 0u16..6, any::<bool>()), 1..150),
    ) {
        // No ties: those are drawn.
        let most = devices.iter().map(|(_, deviation)| *deviation).max().unwrap_or(0);
        let mut responses: Vec<_> = devices.iter().map(|(response, _)| *response).collect();
        responses.sort_unstable();
        prop_assume!(responses.windows(2).all(|pair| pair[1] > pair[0] + most + 10));
        let views = devices.iter().zip(0..);
        let views = views.map(|((response, deviation), id)| remote(measured(id, *response), *deviation));
        let mut pool = Pool::new(views.collect());
        pool.now = Nanos::secs(1);
        let mut policy = policy(&[ALL_ENTER, (&TOKENS, 100_000.0), (&LIST, capacity as f64)]);
        let mut twin = Twin {
            responses: devices.iter().map(|(response, _)| *response).collect(),
            deviations: devices.iter().map(|(_, deviation)| *deviation).collect(),
            capacity,
            list: Vec::new(),
            devices: (0..4).map(|extent| [extent % devices.len(); 32]).collect(),
        };
        (0..4).for_each(|extent| pool.map.put(extent, whole((extent as usize % devices.len()) as u8)));
        for (extent, block, is_write) in steps {
            if is_write {
                pool.write(&mut policy, extent, block, Bytes::kib(4));
            } else {
                pool.read(&mut policy, extent, block, Bytes::kib(4));
            }
            twin.access(extent, block);
            for (device, block) in twin.devices[extent as usize].iter().zip(0..) {
                let places = pool.access_at(extent, block, Op::Read, Bytes::kib(4)).places;
                prop_assert_eq!(places.device(), Some(DeviceId(*device as u8)), "block {}", block);
            }
        }
    }
}
