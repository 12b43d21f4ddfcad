//! Each policy on small pools.

use super::testing::{Pool, device};
use super::*;
use weir_model::{Bytes, Op};

/// Allocates until nothing is free. Returns the ids chosen.
fn fill(name: &str, devices: Vec<DeviceView>) -> Vec<u8> {
    let mut policy = by_name(name).expect("a policy of that name");
    assert_eq!(policy.name(), name);
    let mut pool = Pool::new(devices);
    (0..).map_while(|i| pool.allocate(&mut *policy, i)).map(|id| id.0).collect()
}

#[test]
fn allocation_order_is_as_documented() {
    let devices = vec![device(0, 2, 8000), device(1, 1, 20), device(2, 3, 90)];
    assert_eq!(fill("sequential", devices.clone()), [0, 0, 1, 2, 2, 2]);
    assert_eq!(fill("stripe", devices.clone()), [0, 1, 2, 0, 2, 2]);
    assert_eq!(fill("weighted_stripe", devices.clone()), [0, 1, 2, 2, 0, 2]);
    assert_eq!(fill("user_optimal", devices.clone()), [0, 1, 2, 0, 2, 2]);
    assert_eq!(fill("hierarchy", devices), [1, 2, 2, 2, 0, 0]);
}

#[test]
fn full_pool_allocates_nothing() {
    for PolicyInfo { name, .. } in ALL {
        assert_eq!(fill(name, vec![device(0, 0, 1)]), [0u8; 0], "{name}");
        assert_eq!(fill(name, vec![]), [0u8; 0], "{name}");
        let devices = vec![device(0, 20, 8000), device(1, 10, 20), device(2, 30, 90)];
        assert_eq!(fill(name, devices).len(), 60, "{name}");
    }
}

#[test]
fn key_defaults_are_in_range() {
    for PolicyInfo { name, keys, .. } in ALL {
        for (i, key) in keys.iter().enumerate() {
            assert!(key.allows(key.default), "{name}.{}", key.name);
            assert!(keys[..i].iter().all(|other| other.name != key.name), "{name}.{} twice", key.name);
            assert!(!key.description.is_empty(), "{name}.{}", key.name);
        }
    }
}

#[test]
fn chaos_is_hidden_and_deterministic() {
    assert!(by_name("chaos").is_none());
    let run = |seed| {
        let mut policy = for_tests("chaos").expect("for tests").create();
        let mut pool = Pool::new(vec![device(0, 9, 10), device(1, 9, 10)]);
        pool.random = weir_model::Rng::new(weir_model::Seed(seed));
        let mut actions = Vec::new();
        for i in 0..50 {
            let access = pool.access(i, Op::Write, Bytes::kib(128));
            pool.ask(|context| policy.accessed(context, &access));
            pool.ask(|context| policy.write_to(context, &access));
            actions.extend(pool.round(&mut *policy));
        }
        actions
    };
    assert_eq!(run(7), run(7));
    let actions = run(7);
    let kinds: std::collections::BTreeSet<_> =
        actions.iter().map(|a| format!("{a:?}")[..4].to_owned()).collect();
    assert_eq!(kinds.len(), 4, "copies, moves, drops and refreshes: {kinds:?}");
}

#[test]
fn every_policy_explains_any_block() {
    let names = ["a".to_owned(), "b".to_owned()];
    for PolicyInfo { name, .. } in ALL {
        let mut policy = by_name(name).expect("a policy of that name");
        let mut pool = Pool::new(vec![device(0, 20, 8000), device(1, 10, 20)]);
        let explain = |pool: &mut Pool, policy: &dyn Placement, index| {
            let (key, places) = (testing::key(index), pool.map.places(testing::key(index)));
            pool.ask(|context| policy.explain(context, &Question { key, block: 3, places, names: &names }))
        };
        explain(&mut pool, &*policy, 0);
        for i in 0..6 {
            pool.now += Nanos::secs(1);
            pool.write(&mut *policy, i % 3, 0, Bytes::kib(32));
            pool.read(&mut *policy, i % 3, 3, Bytes::kib(4));
            pool.round(&mut *policy);
        }
        let (reasons, actions) = explain(&mut pool, &*policy, 1);
        assert!(!reasons.figures.is_empty() && actions.is_empty(), "{name}: {reasons:?}");
        assert_eq!(explain(&mut pool, &*policy, 1).0, reasons, "{name}: asking changes nothing");
    }
}
