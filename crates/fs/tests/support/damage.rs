//! File systems with known contents, and damage to their metadata.

use super::operation::{Mix, Operation};
use super::pair::{self, Pair, format, format_with_tiers};
use super::snapshot::{Snapshot, of_file_system};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use weir_fs::layout::chunk::ENTRY_BYTES;
use weir_fs::layout::inode::{Form, INODE_BYTES};
use weir_fs::layout::quota::{Limit, Owner};
use weir_fs::layout::tier::TIERS_AT;
use weir_fs::layout::{Chunk, Geometry, Ino, PAGE_BYTES, Time};
use weir_fs::namespace::{Change, Durability, FileSystem};
use weir_fs::nvm::{Granule, Memory as _, Simulated};
use weir_fs::tiers::SimulatedContainers;

pub type Fs = FileSystem<Simulated>;

const MIX: Mix = Mix {
    file_bytes_max: 200_000,
    write_bytes_max: 90_000,
    names: 40,
    data_percent: 30,
    remounts: false,
    move_percent: 0,
    passthrough_percent: 0,
    limit_percent: 0,
    is_scattered: false,
};

/// A file system that random operations have filled, and what it has.
pub struct Sample {
    pub memory: Simulated,
    pub snapshot: Snapshot,
    /// The inode of each path.
    pub inos: BTreeMap<String, u64>,
    containers: Option<SimulatedContainers>,
}

impl Sample {
    /// Returns a sample; every other one has tiers.
    pub fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let memory = Simulated::new(random.random_range(28..48) << 16, Granule::Word);
        let containers = (seed % 2 == 1).then(SimulatedContainers::default);
        let memory = if containers.is_some() { format_with_tiers(memory) } else { format(memory) };
        let mix = Mix { move_percent: if containers.is_some() { 20 } else { 0 }, ..MIX };
        let mut pair = Pair::with_containers(memory, Durability::Sync, containers.clone());
        for _ in 0..random.random_range(40..160) {
            let operation = mix.operation(&mut random, &pair.model);
            pair.run(&operation).expect("the operation behaves");
        }
        pair.run(&Operation::Sync).expect("no failure");
        // What the last group changed would be made right by the log.
        let fs = pair.fs();
        let change = Change { permissions: Some(0o751), ..Change::default() };
        fs.set_attributes(Ino::ROOT, &change, Time::default()).expect("no failure");
        let limit = Limit { bytes: Some(1 << 40), inodes: None };
        // A region without space for it is a sample, too.
        let _ = fs.set_limit(Owner::User(7), limit);
        fs.sync().expect("no failure");
        let (snapshot, inos) = of_file_system(pair.fs()).expect("a sound file system");
        let memory = pair.fs().store().memory().after_power_loss(|count| count - 1);
        Self { memory, snapshot, inos, containers }
    }

    /// Mounts a memory that has, or once had, what the sample has.
    pub fn open(&self, memory: Simulated) -> weir_fs::error::Result<Fs> {
        pair::open(
            memory,
            Durability::Sync,
            self.containers.as_ref().map(SimulatedContainers::copied).as_ref(),
        )
    }
}

/// A change of some bytes, and the inode whose fields, tree, names or attributes they are.
#[derive(Clone, Debug)]
pub struct Damage {
    pub at: u64,
    pub bytes: Vec<u8>,
    pub owner: Option<u64>,
}

/// Returns the address of an inode.
pub fn inode_at(fs: &Fs, ino: Ino) -> u64 {
    let geometry = fs.superblock().geometry;
    let (index, slot) = geometry.slot_of(ino);
    let chunk = Chunk(fs.store().load_u32(geometry.inode_map_at() + index * 4));
    geometry.chunk_at(chunk) + slot * INODE_BYTES
}

/// Returns a place of metadata: where it begins, its length, and the inode it belongs to.
fn place(random: &mut SmallRng, fs: &Fs, inos: &[u64]) -> (u64, u64, Option<u64>) {
    let geometry = fs.superblock().geometry;
    let ino = inos[random.random_range(0..inos.len())];
    let inode = fs.inode(Ino(ino)).expect("a sound file system");
    let chunk = |random: &mut SmallRng| geometry.entry_at(Chunk(random.random_range(0..geometry.chunks())));
    let map = fs.store().load_u32(geometry.inode_map_at());
    match random.random_range(0..12) {
        0 => (random.random_range(0..2) * PAGE_BYTES, 112, None),
        1 => (Geometry::ROOTS_AT, 32, None),
        2 if !fs.tiers().is_empty() && random.random_ratio(1, 4) => (TIERS_AT, 64, None),
        2 => (Geometry::LOG_AT, 256, None),
        3..5 => (chunk(random), ENTRY_BYTES, None),
        5 => (geometry.inode_map_at(), 8, None),
        6 => (geometry.chunk_at(Chunk(map)), 64, None),
        7 => match inode.attributes {
            Some((first, _)) => (first.address(), 64, Some(ino)),
            None => (geometry.table_at(), ENTRY_BYTES, None),
        },
        8..10 => match inode.form {
            Form::Run { first, .. } if inode.is_directory() => {
                let page = random.random_range(0..u64::from(inode.buckets));
                (first.address() + page * PAGE_BYTES, 512, Some(ino))
            }
            Form::Tree { root, .. } => (root.address(), 32, Some(ino)),
            _ => (inode_at(fs, Ino(ino)), INODE_BYTES, Some(ino)),
        },
        _ => (inode_at(fs, Ino(ino)), 152, Some(ino)),
    }
}

/// Damages one to three places: flips a bit, or zeroes, fills or replaces a word.
pub fn damage(random: &mut SmallRng, sample: &Sample) -> Vec<Damage> {
    let fs = FileSystem::open_read_only(sample.memory.clone()).expect("a sound file system");
    let inos: Vec<_> = sample.inos.values().copied().collect();
    let count = [1, 1, 2, 3][random.random_range(0..4)];
    let one = |random: &mut SmallRng| {
        let (start, len, owner) = place(random, &fs, &inos);
        let at = start + random.random_range(0..len / 8) * 8;
        let mut bytes = fs.store().bytes::<8>(at);
        match random.random_range(0..8) {
            0..5 => bytes[random.random_range(0..8)] ^= 1 << random.random_range(0..8),
            5 => bytes = [0; 8],
            6 => bytes = [0xff; 8],
            _ => bytes = random.random::<u64>().to_le_bytes(),
        }
        Damage { at, bytes: bytes.to_vec(), owner }
    };
    (0..count).map(|_| one(random)).collect()
}

/// Returns the memory with these damages.
pub fn damaged(sample: &Sample, damages: &[Damage]) -> Simulated {
    let mut memory = sample.memory.clone();
    for damage in damages {
        memory.store(damage.at, &damage.bytes);
    }
    memory.after_power_loss(|count| count - 1)
}
