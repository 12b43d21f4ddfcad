//! The tier table: the container directories below a region.

use super::fields::{Reader, Writer};
use super::superblock::checksum;
use super::{Ino, PAGE_BYTES};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// Address of the tier table, a page.
pub const TIERS_AT: u64 = 3 * PAGE_BYTES;
const MAGIC: [u8; 8] = *b"weirtier";
const HEADER_BYTES: usize = 16;
const CHECKED_BYTES: usize = PAGE_BYTES as usize - 8;
/// Bytes of a tier's entry before its path.
const ENTRY_BYTES: usize = 32;
/// Tiers that the table has space for at most.
pub const TIERS_MAX: u32 = ((CHECKED_BYTES - HEADER_BYTES) / ENTRY_BYTES) as u32;

/// A tier, by its place in the tier table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierNumber(pub u32);

impl TierNumber {
    /// The tier of files whose data is lost because their tier was removed without them. It never exists.
    pub const LOST: Self = Self(u32::MAX);
}

/// A container: a file of a tier, by its number there. A number is never used again once an inode had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    /// The tier.
    pub tier: TierNumber,
    /// The number, at least 1.
    pub number: u64,
}

impl Container {
    /// Returns what a file has instead of a container that is lost.
    pub const fn lost(ino: Ino) -> Self {
        Self { tier: TierNumber::LOST, number: ino.0 }
    }

    /// Returns whether the data of the file that has this is lost.
    pub fn is_lost(self) -> bool {
        self.tier == TierNumber::LOST
    }
}

/// What a tier is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Flash: small files suit it.
    Flash,
    /// Disks, which seek: large files suit them.
    Disk,
}

impl Class {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flash => "flash",
            Self::Disk => "disk",
        }
    }
}

/// What the region uses a tier for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes files.
    Active,
    /// It is being removed: it takes no file, and its files move elsewhere.
    Leaving,
    /// It was removed. Its place in the table stays, so that no number of a container is used again; the next
    /// tier that is added takes the place.
    Removed,
}

impl Role {
    const ALL: [Self; 3] = [Self::Active, Self::Leaving, Self::Removed];

    const fn code(self) -> u16 {
        match self {
            Self::Active => 0,
            Self::Leaving => 1,
            Self::Removed => 2,
        }
    }
}

/// A tier: a directory on another file system, which holds containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// What it is made of.
    pub class: Class,
    /// What it is used for.
    pub role: Role,
    /// Path of the directory.
    pub path: PathBuf,
    /// Identity, which the directory's marker has, too.
    pub uuid: [u8; 16],
    /// Number of the next container.
    pub next: u64,
}

impl Tier {
    /// Number that no container reaches.
    pub const NUMBER_END: u64 = 1 << 62;

    /// Returns a tier that takes files.
    pub const fn new(class: Class, path: PathBuf, uuid: [u8; 16]) -> Self {
        Self { class, role: Role::Active, path, uuid, next: 1 }
    }

    /// Returns what is left of a tier that was removed, whose next container would have this number.
    pub const fn removed(next: u64) -> Self {
        Self { class: Class::Disk, role: Role::Removed, path: PathBuf::new(), uuid: [0; 16], next }
    }

    /// Returns whether it was removed.
    pub fn is_removed(&self) -> bool {
        self.role == Role::Removed
    }
}

/// Returns the page that holds the tiers; `None` if their paths do not fit.
pub fn encode(tiers: &[Tier]) -> Option<[u8; PAGE_BYTES as usize]> {
    let entry_bytes = |tier: &Tier| ENTRY_BYTES + tier.path.as_os_str().len().next_multiple_of(8);
    if HEADER_BYTES + tiers.iter().map(entry_bytes).sum::<usize>() > CHECKED_BYTES {
        return None;
    }
    let mut page = [0; PAGE_BYTES as usize];
    let mut writer = Writer(&mut page);
    writer.bytes(&MAGIC);
    writer.u32(tiers.len() as u32);
    writer.u32(0);
    for tier in tiers {
        let path = tier.path.as_os_str().as_bytes();
        writer.u64(tier.next);
        writer.bytes(&tier.uuid);
        writer.u16(match tier.class {
            Class::Flash => 1,
            Class::Disk => 2,
        });
        writer.u16(tier.role.code());
        writer.u32(path.len() as u32);
        writer.bytes(path);
        writer.bytes(&[0; 8][..path.len().next_multiple_of(8) - path.len()]);
    }
    let sum = checksum(&page[..CHECKED_BYTES]);
    page[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    Some(page)
}

/// Reads the tiers; `None` if the page is damaged.
pub fn decode(page: &[u8; PAGE_BYTES as usize]) -> Option<Vec<Tier>> {
    let mut reader = Reader(page);
    let (magic, count, _) = (reader.bytes::<8>(), reader.u32(), reader.u32());
    if magic != MAGIC || checksum(&page[..CHECKED_BYTES]).to_le_bytes() != page[CHECKED_BYTES..] {
        return None;
    }
    let mut rest = &page[HEADER_BYTES..CHECKED_BYTES];
    let mut tiers = Vec::new();
    for _ in 0..count {
        let (entry, after) = rest.split_at_checked(ENTRY_BYTES)?;
        let mut reader = Reader(entry);
        let (next, uuid) = (reader.u64(), reader.bytes());
        let (class, role, len) = (reader.u16(), reader.u16(), reader.u32() as usize);
        let class = match class {
            1 => Class::Flash,
            2 => Class::Disk,
            _ => return None,
        };
        let role = Role::ALL.into_iter().find(|known| known.code() == role)?;
        let path = OsString::from_vec(after.get(..len)?.to_vec()).into();
        tiers.push(Tier { class, role, path, uuid, next });
        rest = after.get(len.next_multiple_of(8)..)?;
    }
    Some(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(path: &str, class: Class) -> Tier {
        Tier { next: 5, ..Tier::new(class, path.into(), [7; 16]) }
    }

    #[test]
    fn a_table_is_read_back_and_damage_is_noticed() {
        let leaving = Tier { role: Role::Leaving, ..tier("/mnt/disk/one", Class::Disk) };
        let tiers = [tier("/mnt/ssd", Class::Flash), leaving, Tier::removed(9), tier("/", Class::Disk)];
        let page = encode(&tiers).expect("the paths fit");
        assert_eq!(decode(&page).as_deref(), Some(&tiers[..]));
        assert_eq!(decode(&[0; 4096]), None);
        // The number of a container, among others: a wrong one would be used again.
        for (at, byte) in [(0, 0), (8, 200), (HEADER_BYTES, 4), (HEADER_BYTES + 24, 9), (4095, 255)] {
            let mut damaged = page;
            damaged[at] = byte;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn paths_that_do_not_fit_are_refused() {
        let long = tier(&"x".repeat(2010), Class::Disk);
        assert!(encode(std::slice::from_ref(&long)).is_some());
        assert_eq!(encode(&[long.clone(), long]), None);
    }
}
