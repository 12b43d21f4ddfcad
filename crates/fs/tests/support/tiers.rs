//! Tiers of simulated containers, and moves to them.

use std::collections::BTreeSet;
use weir_fs::error::{Error, Result};
use weir_fs::layout::Ino;
use weir_fs::layout::inode::Form;
use weir_fs::namespace::{Eviction, FileSystem, Scan};
use weir_fs::nvm::Memory;
use weir_fs::tiers::{Class, Container, Tier, TierNumber};

/// Returns a tier of flash and one of disks.
pub fn simulated() -> Vec<Tier> {
    let tier = |class, path: &str| Tier { class, path: path.into(), uuid: [9; 16], next: 1 };
    vec![tier(Class::Flash, "/flash"), tier(Class::Disk, "/disk")]
}

/// Returns the tier that a file should go to.
fn target<M: Memory>(fs: &FileSystem<M>, ino: Ino) -> Result<TierNumber> {
    let size = fs.inode(ino)?.size;
    fs.targets(&[size])[0].first().copied().ok_or(Error::NoTier)
}

/// Begins to evict a file, and copies it to its container.
pub fn begin<M: Memory>(fs: &mut FileSystem<M>, ino: Ino) -> Result<Eviction> {
    let tier = target(fs, ino)?;
    let eviction = fs.begin_eviction(ino, tier)?;
    match copy(fs, &eviction) {
        Ok(()) => Ok(eviction),
        Err(error) => {
            fs.cancel_eviction(&eviction);
            Err(error)
        }
    }
}

fn copy<M: Memory>(fs: &FileSystem<M>, eviction: &Eviction) -> Result<()> {
    let containers = fs.containers();
    let mut offset = 0;
    while let Some((at, bytes)) = fs.eviction_part(eviction, offset)? {
        containers.write(eviction.container, at, &bytes).map_err(Error::Container)?;
        offset = at + bytes.len() as u64;
    }
    containers.set_len(eviction.container, eviction.size).map_err(Error::Container)?;
    Ok(())
}

pub fn finish<M: Memory>(fs: &mut FileSystem<M>, eviction: &Eviction) -> Result<()> {
    fs.containers().sync(eviction.container).map_err(Error::Container)?;
    fs.finish_eviction(eviction)
}

/// Evicts a file step by step.
pub fn evict<M: Memory>(fs: &mut FileSystem<M>, ino: Ino) -> Result<()> {
    let eviction = begin(fs, ino)?;
    finish(fs, &eviction)
}

fn containers<M: Memory>(fs: &FileSystem<M>) -> Vec<Container> {
    let tiers = (0..fs.tiers().len() as u32).map(TierNumber);
    let list = |tier| fs.containers().list(tier).expect("the tier is there");
    tiers.flat_map(|tier| list(tier).into_iter().map(move |number| Container { tier, number })).collect()
}

fn scan<M: Memory>(fs: &FileSystem<M>) -> Scan {
    let mut scan = Scan::default();
    while fs.scan(&mut scan) {}
    scan
}

/// Removes containers that no file has.
pub fn sweep<M: Memory>(fs: &FileSystem<M>) {
    let scan = scan(fs);
    for container in containers(fs) {
        fs.remove_garbage(container, &scan);
    }
}

/// Returns the containers that no file has.
pub fn unreferenced<M: Memory>(fs: &FileSystem<M>) -> Vec<Container> {
    let scan = scan(fs);
    containers(fs).into_iter().filter(|container| !scan.has(*container)).collect()
}

/// Returns how many files are in containers.
pub fn evicted<M: Memory>(fs: &FileSystem<M>, inos: &BTreeSet<Ino>) -> usize {
    let is_evicted = |ino: &&Ino| fs.inode(**ino).is_ok_and(|inode| matches!(inode.form, Form::Container(_)));
    inos.iter().filter(is_evicted).count()
}
