//! The superblock: the pool that a device belongs to, and the device's layout. See
//! `docs/reference/format.md`.

use crate::format::checksum::crc32c_without;
use crate::{MapError, PAGE};
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceOffset, DeviceSet, ExtentSize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"weirSB01";
/// The format version that this crate writes and reads.
pub const VERSION: u32 = 1;
/// Incompatible feature: the metadata is mirrored on two members.
pub const MIRRORED: u64 = 1 << 4;
/// Incompatible feature: some devices count only if their superblocks have a certain generation or a newer
/// one.
pub const DAMAGED: u64 = 1 << 5;
/// Incompatible feature: some devices have replaced others.
pub const REPLACED: u64 = 1 << 6;
/// The incompatible features that this crate knows.
pub const INCOMPATIBLE_KNOWN: u64 = MIRRORED | DAMAGED | REPLACED;
/// The offsets of root slots 0 and 1 on a metadata member.
pub const ROOT_AT: [DeviceOffset; 2] = [DeviceOffset(64 << 10), DeviceOffset(128 << 10)];
/// The offset of the journal on a metadata member.
pub const JOURNAL_AT: DeviceOffset = DeviceOffset(192 << 10);
const CRC_AT: usize = 8;
/// The maximum number of devices in a pool.
const DEVICES_MAX: usize = 255;
const NAME_BYTES: usize = 64;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    version: U32,
    incompatible: U64,
    read_only_compatible: U64,
    compatible: U64,
    pool: [u8; 16],
    generation: U64,
    size: U64,
    device: u8,
    devices: u8,
    extent_log2: u8,
    class: u8,
    flags: U32,
    incarnation: U32,
    zero: U32,
    journal_pages: U64,
    meta_pages: U64,
    data_at: U64,
    data_extents: U64,
    pool_name: [u8; NAME_BYTES],
    device_name: [u8; NAME_BYTES],
    members: [u8; DeviceSet::BYTES],
    missing: [u8; DeviceSet::BYTES],
    abandoned: [u8; DeviceSet::BYTES],
    damaged: [u8; DeviceSet::BYTES],
    damaged_since: U64,
    joined: [U64; DEVICES_MAX],
    rest: [u8; PAGE - 384 - 8 * DEVICES_MAX],
}

const _: () = assert!(size_of::<Raw>() == PAGE);

/// The random id of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(pub [u8; 16]);

impl std::fmt::Display for PoolId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A decoded superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The pool.
    pub pool: PoolId,
    /// The generation; every change of any of the pool's superblocks increments it.
    pub generation: u64,
    /// The device's size when it joined.
    pub size: Bytes,
    /// The device's number in the pool.
    pub device: DeviceId,
    /// The number of devices in the pool.
    pub devices: u8,
    /// The pool's extent size.
    pub extent: ExtentSize,
    /// The device's class.
    pub class: DeviceClass,
    /// The incarnation; it increments whenever the device returns after it was lost.
    pub incarnation: u32,
    /// Pages of the journal ring; zero unless the device is a metadata member.
    pub journal_pages: u64,
    /// Metadata pages after the journal; zero unless the device is a metadata member.
    pub meta_pages: u64,
    /// The offset of user data.
    pub data_at: DeviceOffset,
    /// Extents of user data.
    pub data_extents: u32,
    /// The pool's name, at most 64 bytes.
    pub pool_name: String,
    /// The device's name, at most 64 bytes.
    pub device_name: String,
    /// The two metadata members of a pool with mirrored metadata; otherwise empty.
    pub members: DeviceSet,
    /// Devices that the pool has continued without. The metadata on a member among them is stale.
    pub missing: DeviceSet,
    /// Devices that were absent when a rollback was accepted: they may have continued without the others.
    pub abandoned: DeviceSet,
    /// Devices whose files were truncated, removed or replaced while in use: a file found under their name
    /// counts only if its superblock has the generation [`Self::damaged_since`] or a newer one.
    pub damaged: DeviceSet,
    /// The generation at which the last damage was found.
    pub damaged_since: u64,
    /// By device id, the generation at which the device replaced another one; zero for original devices.
    /// Empty if no device was replaced.
    pub join_generations: Vec<u64>,
}

/// The content of a page at a superblock's location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A good superblock.
    Good(Box<Superblock>),
    /// No weir superblock.
    Absent,
    /// A damaged superblock.
    Damaged,
    /// A good superblock of a version or with features that this crate does not know.
    Unknown {
        /// "format version" or "incompatible feature bits".
        what: &'static str,
        /// The stored value.
        found: u64,
        /// The value that this version supports.
        known: u64,
    },
}

const FLAG_METADATA: u32 = 1;
const CLASSES: [DeviceClass; 4] = [DeviceClass::Nvm, DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Remote];

impl Superblock {
    /// Returns the offset of the second copy on a device of this size.
    pub const fn second_at(size: Bytes) -> DeviceOffset {
        DeviceOffset((size.0 / PAGE as u64 - 1) * PAGE as u64)
    }

    /// Whether the device is a metadata member.
    pub const fn is_metadata_member(&self) -> bool {
        self.journal_pages > 0
    }

    /// Returns the offset of metadata page 0.
    pub const fn pages_at(&self) -> DeviceOffset {
        DeviceOffset(JOURNAL_AT.0 + self.journal_pages * PAGE as u64)
    }

    /// Whether this is the superblock of an older file of a device that, according to `newest`, was
    /// truncated, removed or replaced while in use.
    pub fn is_outdated(&self, newest: &Self) -> bool {
        newest.damaged.contains(self.device) && self.generation < newest.damaged_since
    }

    /// Returns the generation at which a device replaced another one, according to this superblock; zero if
    /// it did not. A device's own superblock is its identity.
    pub fn join_generation(&self, device: DeviceId) -> u64 {
        self.join_generations.get(device.index()).copied().unwrap_or(0)
    }

    /// Whether the device has just replaced another one, and no opening has used it yet: it is
    /// [outdated](Self::is_outdated) because nothing is on it.
    pub fn is_blank(&self) -> bool {
        self.generation != 0 && self.generation == self.join_generation(self.device)
    }

    /// Notes that the device replaced another one at this generation.
    pub(crate) fn set_join_generation(&mut self, device: DeviceId, generation: u64) {
        self.join_generations.resize(self.devices.into(), 0);
        if let Some(joined) = self.join_generations.get_mut(device.index()) {
            *joined = generation.max(*joined);
        }
    }

    fn incompatible(&self) -> u64 {
        let feature = |has: bool, bit: u64| if has { bit } else { 0 };
        feature(!self.members.is_empty(), MIRRORED)
            | feature(!self.damaged.is_empty(), DAMAGED)
            | feature(!self.join_generations.is_empty(), REPLACED)
    }

    /// Returns the page to store.
    pub fn encode(&self) -> Box<[u8; PAGE]> {
        let mut raw = Raw {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            incompatible: self.incompatible().into(),
            read_only_compatible: 0.into(),
            compatible: 0.into(),
            pool: self.pool.0,
            generation: self.generation.into(),
            size: self.size.0.into(),
            device: self.device.0,
            devices: self.devices,
            extent_log2: self.extent.bytes().0.trailing_zeros() as u8,
            class: CLASSES.iter().position(|c| *c == self.class).unwrap_or(1) as u8,
            flags: if self.is_metadata_member() { FLAG_METADATA } else { 0 }.into(),
            incarnation: self.incarnation.into(),
            zero: 0.into(),
            journal_pages: self.journal_pages.into(),
            meta_pages: self.meta_pages.into(),
            data_at: self.data_at.0.into(),
            data_extents: u64::from(self.data_extents).into(),
            pool_name: padded(&self.pool_name),
            device_name: padded(&self.device_name),
            members: self.members.encode(),
            missing: self.missing.encode(),
            abandoned: self.abandoned.encode(),
            damaged: self.damaged.encode(),
            damaged_since: self.damaged_since.into(),
            joined: [U64::ZERO; DEVICES_MAX],
            rest: [0; PAGE - 384 - 8 * DEVICES_MAX],
        };
        for (stored, joined) in raw.joined.iter_mut().zip(&self.join_generations) {
            *stored = (*joined).into();
        }
        raw.crc = crc32c_without(raw.as_bytes(), CRC_AT).into();
        let mut page = Box::new([0; PAGE]);
        page.copy_from_slice(raw.as_bytes());
        page
    }

    /// Decodes a page of any content.
    pub fn decode(page: &[u8]) -> Reading {
        let Ok((raw, _)) = Raw::read_from_prefix(page) else { return Reading::Absent };
        if raw.magic != MAGIC {
            return Reading::Absent;
        }
        if raw.crc.get() != crc32c_without(raw.as_bytes(), CRC_AT) {
            return Reading::Damaged;
        }
        let unknown = |what, found, known| Reading::Unknown { what, found, known };
        if raw.version.get() != VERSION {
            return unknown("format version", raw.version.get().into(), VERSION.into());
        }
        if raw.incompatible.get() & !INCOMPATIBLE_KNOWN != 0 {
            return unknown("incompatible feature bits", raw.incompatible.get(), INCOMPATIBLE_KNOWN);
        }
        if raw.read_only_compatible.get() != 0 {
            return unknown("feature bits that forbid writing", raw.read_only_compatible.get(), 0);
        }
        Self::check(&raw).map_or(Reading::Damaged, |sb| Reading::Good(Box::new(sb)))
    }

    fn check(raw: &Raw) -> Option<Self> {
        let page = PAGE as u64;
        let sb = Self {
            pool: PoolId(raw.pool),
            generation: raw.generation.get(),
            size: Bytes(raw.size.get()),
            device: DeviceId(raw.device),
            devices: raw.devices,
            extent: ExtentSize::new(Bytes(1u64.checked_shl(u32::from(raw.extent_log2))?))?,
            class: *CLASSES.get(usize::from(raw.class))?,
            incarnation: raw.incarnation.get(),
            journal_pages: raw.journal_pages.get(),
            meta_pages: raw.meta_pages.get(),
            data_at: DeviceOffset(raw.data_at.get()),
            data_extents: u32::try_from(raw.data_extents.get()).ok()?,
            pool_name: unpadded(&raw.pool_name)?,
            device_name: unpadded(&raw.device_name)?,
            members: DeviceSet::decode(&raw.members),
            missing: DeviceSet::decode(&raw.missing),
            abandoned: DeviceSet::decode(&raw.abandoned),
            damaged: DeviceSet::decode(&raw.damaged),
            damaged_since: raw.damaged_since.get(),
            join_generations: match raw.incompatible.get() & REPLACED {
                0 => Vec::new(),
                _ => raw.joined.iter().take(raw.devices.into()).map(|joined| joined.get()).collect(),
            },
        };
        let metadata_end = (sb.journal_pages.checked_add(sb.meta_pages)?)
            .checked_mul(page)?
            .checked_add(if sb.is_metadata_member() { JOURNAL_AT.0 } else { page })?;
        let data_len = u64::from(sb.data_extents).checked_mul(sb.extent.bytes().0)?;
        let fits = metadata_end <= sb.data_at.0
            && sb.data_at.0.checked_add(data_len)? <= Self::second_at(Bytes(sb.size.0.max(page))).0
            && sb.device.0 < sb.devices
            && (raw.flags.get() & FLAG_METADATA != 0) == sb.is_metadata_member()
            && raw.incompatible.get() == sb.incompatible()
            && (sb.members.is_empty() || sb.members.contains(sb.device) == sb.is_metadata_member());
        fits.then_some(sb)
    }

    /// Returns the better of a device's two copies: the valid one with the higher generation.
    ///
    /// # Errors
    /// Fails if neither is good, or if one has an unknown version or features: a newer weir has begun to
    /// change the pool, and the other copy is obsolete.
    pub fn select_newer(device: DeviceId, first: Reading, second: Reading) -> Result<Option<Self>, MapError> {
        let at = DeviceOffset(0);
        match (first, second) {
            (Reading::Good(a), Reading::Good(b)) => {
                if a.pool != b.pool {
                    return Err(MapError::Mismatch(format!(
                        "device {device} has superblocks of two pools ({} and {})",
                        a.pool, b.pool
                    )));
                }
                Ok(Some(if a.generation >= b.generation { *a } else { *b }))
            }
            (Reading::Unknown { what, found, known }, _) | (_, Reading::Unknown { what, found, known }) => {
                Err(MapError::Unknown { device, what, found, known })
            }
            (Reading::Good(a), _) | (_, Reading::Good(a)) => Ok(Some(*a)),
            (Reading::Damaged, _) | (_, Reading::Damaged) => Err(MapError::Damaged {
                device,
                what: "superblock",
                at,
                why: "neither copy has a valid checksum and layout".into(),
            }),
            (Reading::Absent, Reading::Absent) => Ok(None),
        }
    }
}

fn padded(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let len = name.floor_char_boundary(NAME_BYTES);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes
}

fn unpadded(bytes: &[u8; NAME_BYTES]) -> Option<String> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(NAME_BYTES);
    std::str::from_utf8(&bytes[..end]).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests;
