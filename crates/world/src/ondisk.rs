//! An independent reader of the on-disk format: what a pool holds, from the raw bytes of its devices.
//!
//! Written from `docs/reference/format.md` and sharing no code with `weir-map`, so that a mistake in the map
//! is not repeated here. [`superblocks`] says what each device calls itself; [`read`] gives the pool as *one*
//! metadata member and *one* of its two roots, with the journal since, describe it: every extent with the
//! places that hold its blocks. Each of the up to four combinations must give the same pool.
//!
//! It reads only, refuses whatever does not verify, and settles no write intents.

mod contents;
mod fields;
mod journal;
mod layout;

pub use layout::{Root, Superblock};

use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// The size of a page, and of a block of users' data.
pub const PAGE: u64 = 4096;

/// The bytes of a pool's devices.
pub trait Raw {
    /// Reads bytes of a device. They lie on it.
    fn read(&mut self, device: u8, at: u64, bytes: &mut [u8]);
}

/// Something on a device is not what the format says.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("device {device}: {what} at {at:#x}: {why}")]
pub struct Defect {
    /// The device.
    pub device: u8,
    /// What should be there.
    pub what: &'static str,
    /// Where.
    pub at: u64,
    /// What is wrong with it.
    pub why: String,
}

/// A pool as its metadata describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Its volumes by id. Those that are being removed are among them.
    pub volumes: BTreeMap<u32, Volume>,
    /// Volumes whose removal has begun.
    pub leaving: Vec<u32>,
    /// Sequence of the next journal frame.
    pub sequence: u64,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Whether map changes are durable at every write.
    pub hardened: bool,
    /// Copies wanted.
    pub copies: u8,
    /// Extents that have any place, by number.
    pub extents: BTreeMap<u64, Extent>,
}

/// An extent of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Copies wanted.
    pub copies: u8,
    /// Whether its space is kept where it holds nothing.
    pub keeps_space: bool,
    /// Where its blocks are.
    pub places: Vec<Place>,
    /// Blocks with a write intent.
    pub intended: Vec<u16>,
    /// Sequence of the root or frame this was last said in.
    pub version: u64,
}

/// A place that holds blocks of an extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The device.
    pub device: u8,
    /// Whether it is a whole extent of the device, or single slots.
    pub whole: bool,
    /// The extents of the device that it takes, or takes slots of.
    pub extents: BTreeSet<u32>,
    /// The blocks for which it holds the truth, and the byte offset of each on the device.
    pub blocks: BTreeMap<u16, u64>,
}

impl Pool {
    /// Whether they hold the same, whenever each of it was said.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&Extent, &Extent)| {
            (a.copies, a.keeps_space, &a.places, &a.intended)
                == (b.copies, b.keeps_space, &b.places, &b.intended)
        };
        let alike = |(a, b): (&Volume, &Volume)| {
            (&a.name, a.size, a.hardened, a.copies) == (&b.name, b.size, b.hardened, b.copies)
                && a.extents.keys().eq(b.extents.keys())
                && a.extents.values().zip(b.extents.values()).all(same)
        };
        (self.sequence, &self.leaving) == (other.sequence, &other.leaving)
            && self.volumes.keys().eq(other.volumes.keys())
            && self.volumes.values().zip(other.volumes.values()).all(alike)
    }
}

impl Extent {
    /// The places that hold a block, and where on their devices.
    pub fn holders(&self, block: u16) -> impl Iterator<Item = (&Place, u64)> {
        self.places.iter().filter_map(move |place| Some((place, *place.blocks.get(&block)?)))
    }

    /// The blocks that any place holds.
    #[must_use]
    pub fn held(&self) -> BTreeSet<u16> {
        self.places.iter().flat_map(|place| place.blocks.keys().copied()).collect()
    }
}

/// Both copies of a device's superblock, the first one first.
pub fn superblocks(raw: &mut dyn Raw, device: u8, size: u64) -> [Result<Superblock, Defect>; 2] {
    [0, size / PAGE * PAGE - PAGE].map(|at| Superblock::read(raw, device, at))
}

/// Both root slots of a metadata member.
pub fn roots(raw: &mut dyn Raw, superblock: &Superblock) -> [Result<Root, Defect>; 2] {
    [0, 1].map(|slot| Root::read(raw, superblock, slot))
}

/// The pool as one root of a metadata member and the journal since describe it. `devices` are the superblocks
/// of all devices, by number.
///
/// # Errors
/// If anything the root reaches, or a frame that must be there, does not verify.
pub fn read(raw: &mut dyn Raw, devices: &[Superblock], member: u8, root: &Root) -> Result<Pool, Defect> {
    let superblock = &devices[usize::from(member)];
    let mut contents = contents::load(raw, superblock, root)?;
    let sequence = journal::replay(raw, superblock, root, &mut contents)?;
    contents.into_pool(devices, sequence)
}
