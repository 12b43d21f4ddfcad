//! Tiers of simulated containers, and moves to them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use weir_fs::error::{Error, Result};
use weir_fs::layout::inode::Form;
use weir_fs::layout::{Ino, Time};
use weir_fs::namespace::{Eviction, FileSystem, Scan};
use weir_fs::nvm::Memory;
use weir_fs::tiers::{Class, Container, SimulatedContainers, Tier, TierNumber};

/// UUID of the tiers that a region has from the beginning.
const FIRST: [u8; 16] = [255; 16];

/// Returns a tier of flash and one of disks.
pub fn simulated() -> Vec<Tier> {
    let tier = |class, path: &str| Tier::new(class, path.into(), FIRST);
    vec![tier(Class::Flash, "/flash"), tier(Class::Disk, "/disk")]
}

/// Tiers that a file system has at most at a time.
pub const TIERS_MAX: usize = 4;

/// Adds a tier, unless there are enough.
pub fn add_tier<M: Memory>(fs: &mut FileSystem<M>, number: u8) -> Result<()> {
    if fs.tiers().iter().filter(|tier| !tier.is_removed()).count() == TIERS_MAX {
        return Err(Error::NoTier);
    }
    let class = if number.is_multiple_of(2) { Class::Flash } else { Class::Disk };
    fs.add_tier(class, format!("/added-{number}").into(), [number; 16]).map(|_| ())
}

/// Moves all files out of a tier, and removes it if `remove`.
pub fn empty_tier<M: Memory>(fs: &mut FileSystem<M>, tier: TierNumber, remove: bool) -> Result<()> {
    fs.set_leaving(tier, true)?;
    if !remove {
        return fs.empty_tier(tier).map_err(|(_, error)| error);
    }
    // Nothing of this is durable before the removal.
    for ino in fs.files_in_tier(tier) {
        fs.move_out(ino)?;
    }
    fs.remove_tier(tier)
}

/// Returns a tier of the table whose directory has no marker of it, if it ever had one.
pub fn without_marker<M: Memory>(fs: &FileSystem<M>, containers: &SimulatedContainers) -> Option<TierNumber> {
    let tiers = (0..).map(TierNumber).zip(fs.tiers());
    let mut added = tiers.filter(|(_, tier)| !tier.is_removed() && tier.uuid != FIRST);
    added.find(|(number, tier)| containers.marker(*number) != Some(tier.uuid)).map(|(number, _)| number)
}

/// Returns the tier that a file should go to, other than the one that it is in.
fn target<M: Memory>(fs: &FileSystem<M>, ino: Ino) -> Result<(TierNumber, bool)> {
    let inode = fs.inode(ino)?;
    let from = match inode.form {
        Form::Container(container) => Some(container.tier),
        _ => None,
    };
    let tier = fs.targets(&[inode.size])[0].iter().copied().find(|tier| Some(*tier) != from);
    Ok((tier.ok_or(Error::NoTier)?, from.is_some()))
}

/// Begins to evict a file, or to move it to another tier, and copies it to its container.
pub fn begin<M: Memory>(fs: &mut FileSystem<M>, ino: Ino) -> Result<Eviction> {
    let (tier, is_in_container) = target(fs, ino)?;
    let eviction = match is_in_container {
        true => fs.begin_relocation(ino, tier)?,
        false => fs.begin_eviction(ino, tier)?,
    };
    let created = fs.containers().create(eviction.container).map_err(Error::Container);
    match created.and_then(|()| copy(fs, &eviction)) {
        Ok(()) => Ok(eviction),
        Err(error) => {
            fs.cancel_eviction(&eviction);
            Err(error)
        }
    }
}

/// Writes bytes to a file as a mount does: to a container beside other operations, of which there are none.
pub fn write<M: Memory>(
    fs: &mut FileSystem<M>,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
    now: Time,
) -> Result<usize> {
    match fs.begin_container_write(ino, offset, bytes.len() as u64)? {
        Some(write) => fs.finish_container_write(&write, write.write(bytes), bytes, now),
        None => fs.write(ino, offset, bytes, now),
    }
}

fn copy<M: Memory>(fs: &FileSystem<M>, eviction: &Eviction) -> Result<()> {
    let containers = fs.containers();
    if let Some(from) = eviction.from {
        let mut bytes = vec![0; eviction.size as usize];
        containers.read(from, 0, &mut bytes).map_err(Error::Container)?;
        return containers.write(eviction.container, 0, &bytes).map_err(Error::Container);
    }
    let mut offset = 0;
    while let Some((at, bytes)) = fs.eviction_part(eviction, offset)? {
        containers.write(eviction.container, at, &bytes).map_err(Error::Container)?;
        offset = at + bytes.len() as u64;
    }
    containers.set_len(eviction.container, eviction.size).map_err(Error::Container)?;
    Ok(())
}

pub fn finish<M: Memory>(fs: &mut FileSystem<M>, eviction: &Eviction) -> Result<()> {
    match fs.containers().sync(eviction.container) {
        Ok(()) => fs.finish_eviction(eviction),
        // Its tier was removed.
        Err(error) => {
            fs.cancel_eviction(eviction);
            if error.kind() == ErrorKind::NotFound {
                Err(Error::Changing)
            } else {
                Err(Error::Container(error))
            }
        }
    }
}

/// Evicts a file step by step.
pub fn evict<M: Memory>(fs: &mut FileSystem<M>, ino: Ino) -> Result<()> {
    let eviction = begin(fs, ino)?;
    finish(fs, &eviction)
}

fn containers<M: Memory>(fs: &FileSystem<M>) -> Vec<Container> {
    let tiers = (0..).map(TierNumber).zip(fs.tiers()).filter(|(_, tier)| !tier.is_removed());
    let list = |tier| fs.containers().list(tier).expect("the tier is there");
    tiers.flat_map(|(tier, _)| list(tier).into_iter().map(move |number| Container { tier, number })).collect()
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

/// Checks that no container is garbage.
///
/// # Errors
/// Returns those that no file has.
pub fn every_container_has_a_file<M: Memory>(fs: &FileSystem<M>) -> Result<(), String> {
    let scan = scan(fs);
    let garbage: Vec<_> = containers(fs).into_iter().filter(|container| !scan.has(*container)).collect();
    if garbage.is_empty() { Ok(()) } else { Err(format!("no file has {garbage:?}")) }
}

/// Returns how many files are in containers.
pub fn evicted<M: Memory>(fs: &FileSystem<M>, inos: &BTreeSet<Ino>) -> usize {
    let is_evicted = |ino: &&Ino| fs.inode(**ino).is_ok_and(|inode| matches!(inode.form, Form::Container(_)));
    inos.iter().filter(is_evicted).count()
}
