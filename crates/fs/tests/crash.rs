//! Power losses at every store, flush and fence of random operations.
//!
//! What recovery finds must be a state after some operation, no older than the last one that was durable, and
//! clean by the check. `WEIR_FS_SEED` sets the first seed, `WEIR_FS_HISTORIES` how many there are.

mod support;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use support::model::{Model, ROOT};
use support::operation::{Mix, Operation};
use support::pair::{self, Pair, Run, format, format_with_tiers};
use support::tiers::without_marker;
use weir_fs::layout::inode::Kind;
use weir_fs::namespace::{Durability, FileSystem};
use weir_fs::nvm::{Granule, Simulated};
use weir_fs::tiers::{SimulatedContainers, TierNumber};

const MIX: Mix = Mix {
    file_bytes_max: 150_000,
    write_bytes_max: 70_000,
    names: 12,
    data_percent: 40,
    remounts: true,
    move_percent: 0,
    passthrough_percent: 0,
    limit_percent: 0,
    is_scattered: false,
};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What a campaign did.
#[derive(Debug, Default)]
struct Counts {
    losses: u64,
    in_recovery: u64,
    /// Losses after which a state other than the last durable one was found.
    newer: u64,
    /// Losses after which there were containers.
    in_containers: u64,
    /// Losses after which files had the sizes of their containers.
    flagged: u64,
    /// Losses while data moved so that free pages became consecutive.
    in_compaction: u64,
    /// Losses while a file without a name got its first one, after which it did not have it, and did.
    first_names: [u64; 2],
}

/// Runs one history and recovers from every power loss in it.
fn history(seed: u64, granule: Granule, durability: Durability, mix: Mix, counts: &mut Counts) {
    let mut random = SmallRng::seed_from_u64(seed);
    let size = random.random_range(if mix.is_scattered { 32..35 } else { 13..24 }) << 16;
    let (memory, containers) = (Simulated::new(size, granule), SimulatedContainers::default());
    let has_tiers = mix.move_percent > 0;
    let mut memory = if has_tiers { format_with_tiers(memory) } else { format(memory) };
    if has_tiers {
        memory.join(containers.clone());
    }
    let mut pair = Pair::with_containers(memory, durability, has_tiers.then_some(containers));
    let (mut steps, mut one_in) = (random.random_range(20..80), 1);
    if mix.is_scattered {
        scatter(&mut pair, &mut random);
        // Each of these operations has hundreds of events, and each loss leaves hundreds of files.
        (steps, one_in) = (steps / 4, 8);
    }
    pair.fs().store_mut().memory_mut().try_few_power_losses(seed, one_in);
    let mut done: Vec<Operation> = Vec::new();
    for step in 0..steps {
        let operation = mix.operation(&mut random, &pair.model);
        let is_first_name = is_first_name(&operation, &pair.model);
        let places = pair.runs();
        let result = pair.run(&operation);
        let has_moved = |(id, run): &(&u64, &Run)| places.get(id).is_some_and(|old| old != *run);
        let has_compacted = pair.runs().iter().filter(has_moved).count() > 4;
        done.push(operation);
        let fail = |error: &str| -> ! {
            panic!("seed {seed}, {granule:?}, {durability:?}, operation {step}: {error}\n{done:#?}")
        };
        let is_durable = result.unwrap_or_else(|error| fail(&error));
        for (event, image) in pair.fs().store_mut().memory_mut().take_losses() {
            let found = recover(image, seed ^ event, &pair, counts);
            let state = found.unwrap_or_else(|error| fail(&format!("loss before event {event}: {error}")));
            counts.newer += u64::from(state > 0);
            counts.in_compaction += u64::from(has_compacted);
            if is_first_name && durability == Durability::EachOperation {
                counts.first_names[usize::from(state > 0)] += 1;
            }
        }
        if is_durable {
            pair.is_durable();
        }
    }
    let end = pair.compare();
    end.unwrap_or_else(|error| {
        panic!("seed {seed}, {granule:?}, {durability:?}, at the end: {error}\n{done:#?}")
    });
}

/// Fills the region with small files and removes every second one.
fn scatter(pair: &mut Pair<Simulated>, random: &mut SmallRng) {
    let name = |nth: u32| format!("small{nth}").into_bytes();
    let run = |pair: &mut Pair<Simulated>, operation| {
        let result = pair.run(&operation);
        result.unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        pair.is_durable();
    };
    let mut files = 0;
    while pair.fs().usage().free_pages > 8 {
        let (kind, permissions, target) = (Kind::File, 0o644, Vec::new());
        run(pair, Operation::Create { parent: ROOT, name: name(files), kind, permissions, target });
        let file = pair.model.find(ROOT, &name(files)).expect("inodes are left");
        let bytes = vec![files as u8 | 1; random.random_range(1..3 * 4096)];
        run(pair, Operation::Write { file, offset: 0, bytes });
        files += 1;
    }
    for nth in (0..files).step_by(2) {
        run(pair, Operation::Unlink { parent: ROOT, name: name(nth) });
    }
    run(pair, Operation::Sync);
}

/// Returns whether an operation gives a file its first name.
fn is_first_name(operation: &Operation, model: &Model) -> bool {
    let Operation::Link { file, parent, name } = operation else { return false };
    model.get(*file).is_linkable && model.find(*parent, name).is_none()
}

/// Mounts what a power loss left, and sometimes loses power again meanwhile.
fn recover(
    mut image: Simulated,
    seed: u64,
    pair: &Pair<Simulated>,
    counts: &mut Counts,
) -> Result<usize, String> {
    counts.losses += 1;
    let mut random = SmallRng::seed_from_u64(seed);
    if random.random_ratio(1, 16) {
        if let Some(containers) = image.containers().cloned() {
            image.join(containers);
        }
        image.try_power_losses(seed, 1);
    }
    let mut fs = open(image)?;
    counts.in_containers += u64::from(has_containers(&fs));
    for (event, image) in fs.store_mut().memory_mut().take_losses() {
        counts.in_recovery += 1;
        let again = open(image).map_err(|error| format!("and before event {event} of recovery: {error}"))?;
        pair.recovered(&again).map_err(|error| format!("and before event {event} of recovery: {error}"))?;
    }
    let found = pair.recovered(&fs)?;
    counts.flagged += u64::from(!fs.flagged_containers().is_empty());
    Ok(found)
}

fn open(image: Simulated) -> Result<FileSystem<Simulated>, String> {
    let containers = image.containers().cloned();
    let fs = pair::open(image, Durability::Sync, containers.as_ref());
    let fs = fs.map_err(|error| format!("mount: {error}"))?;
    match containers.and_then(|containers| without_marker(&fs, &containers)) {
        Some(tier) => Err(format!("mount: {tier:?} is in the table, but its directory has no marker")),
        None => Ok(fs),
    }
}

/// Returns whether files are in containers.
fn has_containers(fs: &FileSystem<Simulated>) -> bool {
    (0..fs.tiers().len() as u32)
        .any(|tier| fs.containers().list(TierNumber(tier)).is_ok_and(|all| !all.is_empty()))
}

fn campaign(granule: Granule, durability: Durability, mix: Mix) {
    let mut counts = Counts::default();
    let first = number("WEIR_FS_SEED", 1);
    for seed in first..first + number("WEIR_FS_HISTORIES", 12) {
        history(seed, granule, durability, mix, &mut counts);
    }
    println!("{granule:?}, {durability:?}: {counts:?}");
    assert!(mix.move_percent == 0 || counts.in_containers > 100 && counts.flagged > 20, "{counts:?}");
    // Mixes of data have few names.
    let has_first_names = mix.data_percent > 50 || counts.first_names.iter().all(|count| *count > 0);
    assert!(durability == Durability::Sync || has_first_names, "{counts:?}");
    assert!(!mix.is_scattered || counts.in_compaction > 20, "{counts:?}");
    assert!(counts.losses > 100 && counts.in_recovery > 10 && counts.newer > 10, "{counts:?}");
}

#[test]
fn persistent_memory_durable_after_each_operation() {
    campaign(Granule::Word, Durability::EachOperation, MIX);
}

#[test]
fn persistent_memory_durable_after_sync() {
    campaign(Granule::Word, Durability::Sync, MIX);
}

#[test]
fn mapped_file_durable_after_sync() {
    campaign(Granule::Sector, Durability::Sync, MIX);
}

/// Small files come and go between two commits.
const SMALL: Mix = Mix { file_bytes_max: 9_000, write_bytes_max: 9_000, names: 2, data_percent: 45, ..MIX };

#[test]
fn persistent_memory_of_small_files() {
    campaign(Granule::Word, Durability::Sync, SMALL);
}

/// Files whose owners have limits give up chunks that they no longer fill.
const LIMITED: Mix = Mix { names: 3, data_percent: 90, limit_percent: 30, ..MIX };

#[test]
fn persistent_memory_of_limited_owners() {
    campaign(Granule::Word, Durability::EachOperation, LIMITED);
}

#[test]
fn mapped_file_of_limited_owners() {
    campaign(Granule::Sector, Durability::Sync, LIMITED);
}

/// Free pages are scattered: files move so that others find space.
const SCATTERED: Mix = Mix { data_percent: 90, is_scattered: true, ..MIX };

#[test]
fn persistent_memory_with_scattered_space() {
    campaign(Granule::Word, Durability::EachOperation, SCATTERED);
}

#[test]
fn mapped_file_with_scattered_space() {
    campaign(Granule::Sector, Durability::Sync, SCATTERED);
}

/// Region and containers lose power together.
const MOVES: Mix = Mix { names: 6, data_percent: 75, move_percent: 35, ..MIX };

#[test]
fn tiers_below_persistent_memory() {
    campaign(Granule::Word, Durability::EachOperation, MOVES);
}

#[test]
fn tiers_below_a_mapped_file() {
    campaign(Granule::Sector, Durability::Sync, MOVES);
}

/// Files are written without the server, synced, and closed.
const PASSTHROUGH: Mix = Mix { names: 3, data_percent: 90, passthrough_percent: 75, ..MOVES };

#[test]
fn containers_that_the_kernel_writes() {
    campaign(Granule::Sector, Durability::Sync, PASSTHROUGH);
}
