//! File systems in memory, with simulated containers, for unit tests.

use crate::layout::inode::{Form, Kind};
use crate::layout::superblock::Superblock;
use crate::layout::{Geometry, Ino, Time};
use crate::namespace::{Durability, FileSystem, New};
use crate::nvm::{Granule, Simulated};
use crate::tiers::{Class, Container, SimulatedContainers, Tier};
use std::sync::Arc;

pub(crate) type Fs = FileSystem<Simulated>;

pub(crate) const NOW: Time = Time { seconds: 1, nanos: 0 };

pub(crate) fn superblock() -> Superblock {
    let geometry = Geometry::new(2 << 20, Geometry::CHUNK_BYTES_MIN).expect("a possible size");
    Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: true }
}

/// A file to create.
pub(crate) const NEW: New<'static> =
    New { kind: Kind::File, permissions: 0o644, uid: 0, gid: 0, device: 0, target: &[], attributes: &[] };

/// Returns a new file system with tiers of these classes.
pub(crate) fn file_system(classes: &[Class]) -> (Fs, SimulatedContainers) {
    let tier = |class: &Class| Tier::new(*class, class.name().into(), [3; 16]);
    let tiers: Vec<_> = classes.iter().map(tier).collect();
    let memory = Simulated::new(2 << 20, Granule::Word);
    let memory = FileSystem::create_with_tiers(memory, &superblock(), &tiers, (0, 0), NOW);
    let containers = SimulatedContainers::default();
    (open(memory.expect("a new file system"), &containers), containers)
}

pub(crate) fn open(memory: Simulated, containers: &SimulatedContainers) -> Fs {
    let port = Arc::new(containers.clone());
    FileSystem::open_with(memory, Durability::Sync, |_, _| Ok(port)).expect("the file system")
}

/// Creates a file with [`contents`].
pub(crate) fn file(fs: &mut Fs, name: &str, bytes: u64) -> Ino {
    let (ino, _) = fs.create_file(Ino::ROOT, name.as_bytes(), &NEW, NOW).expect("a new file");
    fs.write(ino, 0, &contents(ino, bytes), NOW).expect("space");
    ino
}

/// Returns what a file has: no byte is zero, and no two files have the same.
pub(crate) fn contents(ino: Ino, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + ino.0) as u8 | 1).collect()
}

/// Creates a file that is durable in a container.
pub(crate) fn evicted_file(fs: &mut Fs, name: &str) -> (Ino, Container) {
    let ino = file(fs, name, 9000);
    fs.evict_now(ino).expect("a tier takes it");
    fs.sync().expect("no failure");
    match fs.inode(ino).expect("it exists").form {
        Form::Container(container) => (ino, container),
        form => panic!("a file in a tier, not {form:?}"),
    }
}
