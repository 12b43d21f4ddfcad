//! Each policy on small pools.

use super::*;
use weir_model::{ExtentIndex, VolumeId};

fn device(id: u8, free: u32, idle_us: u64) -> DeviceView {
    DeviceView { id: DeviceId(id), free, extents: free, idle: Nanos::micros(idle_us) }
}

/// Allocates until nothing is free; the ids chosen.
fn fill(name: &str, mut devices: Vec<DeviceView>) -> Vec<u8> {
    let mut policy = by_name(name).expect("a policy of that name");
    assert_eq!(policy.name(), name);
    let key = |i| ExtentKey { volume: VolumeId(1), index: ExtentIndex(i) };
    let mut chosen = Vec::new();
    while let Some(id) = policy.allocate(&devices, key(chosen.len() as u64)) {
        devices[id.index()].free -= 1;
        chosen.push(id.0);
    }
    chosen
}

#[test]
fn each_fills_the_pool_in_its_own_order() {
    let devices = vec![device(0, 2, 8000), device(1, 1, 20), device(2, 3, 90)];
    assert_eq!(fill("sequential", devices.clone()), [0, 0, 1, 2, 2, 2]);
    assert_eq!(fill("stripe", devices.clone()), [0, 1, 2, 0, 2, 2]);
    assert_eq!(fill("hierarchy", devices), [1, 2, 2, 2, 0, 0]);
}

#[test]
fn an_empty_or_full_pool_gives_nothing() {
    for (name, _) in ALL {
        assert_eq!(fill(name, vec![device(0, 0, 1)]), [0u8; 0]);
        assert_eq!(fill(name, vec![]), [0u8; 0]);
    }
}

#[test]
fn chaos_is_not_for_users_and_repeats_itself() {
    assert!(by_name("chaos").is_none());
    let run = |seed| {
        let mut policy = for_tests("chaos").expect("for tests");
        let mut random = Random::new(seed);
        let devices = vec![device(0, 9, 10), device(1, 9, 10)];
        let mut actions = Vec::new();
        for i in 0..50 {
            let key = ExtentKey { volume: VolumeId(1), index: ExtentIndex(i) };
            let blocks = weir_model::BlockRange { first: 0, count: 32 };
            let access = Access { key, blocks, op: weir_model::Op::Write };
            policy.accessed(&access);
            policy.write_to(&devices, &access, &mut random);
            policy.round(&devices, &mut random, &mut actions);
        }
        actions
    };
    assert_eq!(run(7), run(7));
    let actions = run(7);
    let kinds: std::collections::BTreeSet<_> =
        actions.iter().map(|a| format!("{a:?}")[..4].to_owned()).collect();
    assert_eq!(kinds.len(), 4, "copies, moves, drops and refreshes: {kinds:?}");
}
