//! An independent reader of the on-disk format, which reconstructs a pool from the raw bytes of its devices.
//!
//! It is written from `docs/reference/format.md` and shares no code with `weir-map`, so that it does not
//! repeat the map's mistakes. [`superblocks`] reads each device's superblocks; [`read`] reads the pool as
//! described by *one* metadata member and *one* of its two roots, with the journal since: every extent with
//! the locations of its blocks. All of the up to four combinations must give the same pool.
//!
//! It only reads, refuses anything that does not verify, and does not resolve write intents.

mod contents;
mod fields;
mod journal;
mod layout;

pub use layout::{Root, Superblock};

use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Size of a page, and of a block of user data.
pub const PAGE: u64 = 4096;

/// Access to the bytes of a pool's devices.
pub trait DeviceReader {
    /// Reads bytes of a device. The range is within the device.
    fn read(&mut self, device: u8, at: u64, bytes: &mut [u8]);
}

/// A deviation from the format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("device {device}: {what} at {at:#x}: {why}")]
pub struct Defect {
    /// The device.
    pub device: u8,
    /// The expected structure.
    pub what: &'static str,
    /// Its position.
    pub at: u64,
    /// The reason why it is invalid.
    pub why: String,
}

/// A pool as its metadata describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Its volumes by id, including those being removed.
    pub volumes: BTreeMap<u32, Volume>,
    /// Volumes whose removal has begun.
    pub removing: Vec<u32>,
    /// Sequence of the next journal frame.
    pub sequence: u64,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether map changes are durable at every write.
    pub hardened: bool,
    /// Required number of copies.
    pub copies: u8,
    /// Extents with at least one location, by number.
    pub extents: BTreeMap<u64, Extent>,
}

/// An extent of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Required number of copies.
    pub copies: u8,
    /// Whether its space is kept where it holds no data.
    pub keeps_space: bool,
    /// Locations of its blocks.
    pub places: Vec<Place>,
    /// Blocks with a write intent.
    pub write_intents: Vec<u16>,
    /// Sequence of the root or frame that last described it.
    pub version: u64,
}

/// A location of an extent's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The device.
    pub device: u8,
    /// True for a whole extent of the device, false for single slots.
    pub whole: bool,
    /// The device extents that it occupies, or whose slots it occupies.
    pub extents: BTreeSet<u32>,
    /// The blocks for which it has the current contents, with the byte offset of each on the device.
    pub blocks: BTreeMap<u16, u64>,
}

impl Pool {
    /// Reports whether the two are equal, regardless of their versions.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let same = |(a, b): (&Extent, &Extent)| {
            (a.copies, a.keeps_space, &a.places, &a.write_intents)
                == (b.copies, b.keeps_space, &b.places, &b.write_intents)
        };
        let alike = |(a, b): (&Volume, &Volume)| {
            (&a.name, a.size, a.hardened, a.copies) == (&b.name, b.size, b.hardened, b.copies)
                && a.extents.keys().eq(b.extents.keys())
                && a.extents.values().zip(b.extents.values()).all(same)
        };
        (self.sequence, &self.removing) == (other.sequence, &other.removing)
            && self.volumes.keys().eq(other.volumes.keys())
            && self.volumes.values().zip(other.volumes.values()).all(alike)
    }
}

impl Extent {
    /// Returns the locations of a block, with the byte offset on each device.
    pub fn holders(&self, block: u16) -> impl Iterator<Item = (&Place, u64)> {
        self.places.iter().filter_map(move |place| Some((place, *place.blocks.get(&block)?)))
    }

    /// Returns the blocks with at least one location.
    #[must_use]
    pub fn stored_blocks(&self) -> BTreeSet<u16> {
        self.places.iter().flat_map(|place| place.blocks.keys().copied()).collect()
    }
}

/// Reads both copies of a device's superblock, the first one first.
pub fn superblocks(raw: &mut dyn DeviceReader, device: u8, size: u64) -> [Result<Superblock, Defect>; 2] {
    [0, size / PAGE * PAGE - PAGE].map(|at| Superblock::read(raw, device, at))
}

/// Reads both root slots of a metadata member.
pub fn roots(raw: &mut dyn DeviceReader, superblock: &Superblock) -> [Result<Root, Defect>; 2] {
    [0, 1].map(|slot| Root::read(raw, superblock, slot))
}

/// Reads the pool from one root of a metadata member and the journal since. `devices` are the superblocks of
/// all devices, by number.
///
/// # Errors
/// Fails if anything reachable from the root, or a frame that must exist, does not verify.
pub fn read(
    raw: &mut dyn DeviceReader,
    devices: &[Superblock],
    member: u8,
    root: &Root,
) -> Result<Pool, Defect> {
    let superblock = &devices[usize::from(member)];
    let mut contents = contents::load(raw, superblock, root)?;
    let sequence = journal::replay(raw, superblock, root, &mut contents)?;
    contents.into_pool(devices, sequence)
}
