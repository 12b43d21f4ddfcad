//! Random operations against a model that does what POSIX says, without power losses.

mod support;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use support::operation::{Mix, Operation};
use support::pair::{Pair, format, format_with_tiers};
use weir_fs::namespace::Durability;
use weir_fs::nvm::{Granule, Mapped, Memory, Simulated};
use weir_fs::tiers::{SimulatedContainers, TierNumber};

const NAMES: Mix = Mix {
    file_bytes_max: 300_000,
    write_bytes_max: 90_000,
    names: 60,
    data_percent: 35,
    remounts: true,
    move_percent: 0,
    passthrough_percent: 0,
    limit_percent: 0,
    is_scattered: false,
};
const DATA: Mix = Mix { names: 4, data_percent: 95, ..NAMES };
const MANY: Mix = Mix { names: 3000, data_percent: 5, ..NAMES };

fn run<M: Memory>(memory: M, mix: Mix, durability: Durability, seed: u64, operations: u32) {
    run_pair(Pair::new(format(memory), durability), mix, durability, seed, operations);
}

fn run_pair<M: Memory>(mut pair: Pair<M>, mix: Mix, durability: Durability, seed: u64, operations: u32) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut history: Vec<Operation> = Vec::new();
    for number in 0..operations {
        let operation = mix.operation(&mut random, &pair.model);
        let result = pair.run(&operation).and_then(|_| {
            pair.is_durable();
            if number % 50 == 49 || number + 1 == operations { pair.compare() } else { Ok(()) }
        });
        history.push(operation);
        if let Err(error) = result {
            let last = &history[history.len().saturating_sub(60)..];
            panic!("seed {seed}, {durability:?}, operation {number}: {error}\n{last:#?}");
        }
    }
}

/// Returns the number of operations: more with `WEIR_FS_OPERATIONS`.
fn operations(default: u32) -> u32 {
    std::env::var("WEIR_FS_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the first seed: another one with `WEIR_FS_SEED`.
fn seed() -> u64 {
    std::env::var("WEIR_FS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn names_agree_with_the_model() {
    for (number, durability) in [Durability::Sync, Durability::EachOperation].into_iter().enumerate() {
        let memory = Simulated::new(4 << 20, Granule::Sector);
        run(memory, NAMES, durability, seed() + number as u64, operations(3000));
    }
}

#[test]
fn contents_agree_with_the_model() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let memory = Mapped::create(&directory.path().join("region"), 8 << 20, false).expect("a region");
    run(memory, DATA, Durability::Sync, seed(), operations(10_000));
}

#[test]
fn large_directories_agree_with_the_model() {
    let memory = Simulated::new(16 << 20, Granule::Sector);
    run(memory, MANY, Durability::Sync, seed(), operations(4000));
}

/// The region is too small for the operations: many fail for lack of space, and change nothing.
#[test]
fn a_full_region_agrees_with_the_model() {
    for number in 0..4 {
        let memory = Simulated::new(13 << 16, Granule::Sector);
        run(memory, NAMES, Durability::Sync, seed() + number, operations(2000));
    }
}

const MOVES: Mix = Mix { names: 8, data_percent: 85, move_percent: 30, ..NAMES };

#[test]
fn contents_of_evicted_and_promoted_files_agree_with_the_model() {
    for (number, durability) in [Durability::Sync, Durability::EachOperation].into_iter().enumerate() {
        let memory = format_with_tiers(Simulated::new(4 << 20, Granule::Sector));
        let pair = Pair::with_containers(memory, durability, Some(SimulatedContainers::default()));
        run_pair(pair, MOVES, durability, seed() + number as u64, operations(4000));
    }
}

/// Flash is nearly always full: files move to the disk tier.
#[test]
fn a_full_tier_agrees_with_the_model() {
    let memory = format_with_tiers(Simulated::new(2 << 20, Granule::Sector));
    let containers = SimulatedContainers::default();
    containers.limit(TierNumber(0), 300_000);
    let pair = Pair::with_containers(memory, Durability::Sync, Some(containers));
    run_pair(pair, MOVES, Durability::Sync, seed(), operations(3000));
}

/// What the region has no space for goes to containers: no operation on contents fails.
#[test]
fn a_full_region_with_tiers_agrees_with_the_model() {
    for number in 0..4 {
        let memory = format_with_tiers(Simulated::new(13 << 16, Granule::Sector));
        let pair = Pair::with_containers(memory, Durability::Sync, Some(SimulatedContainers::default()));
        run_pair(pair, Mix { move_percent: 5, ..NAMES }, Durability::Sync, seed() + number, operations(2000));
    }
}
