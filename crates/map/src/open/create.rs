//! Creating a pool: laying out its devices and writing the first root.

use crate::format::root::Root;
use crate::format::superblock::{JOURNAL_AT, PoolId, ROOT_AT, Reading, Superblock};
use crate::{MapError, PAGE};
use weir_model::{BLOCK, Bytes, DeviceClass, DeviceId, DeviceOffset, DeviceSet, ExtentSize, IoError, Store};

/// A device of a new pool.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// Its name in the pool file.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// Its class.
    pub class: DeviceClass,
}

/// A new pool.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its random id.
    pub id: PoolId,
    /// Its name.
    pub name: String,
    /// Its extent size.
    pub extent: ExtentSize,
    /// Its devices, in the order of their ids; at most 255.
    pub devices: Vec<NewDevice>,
    /// The metadata members: one, or two that mirror each other.
    pub metadata: Vec<DeviceId>,
}

const JOURNAL_MIN: u64 = 128;
const JOURNAL_MAX: u64 = 16_384;

/// Lays out the devices, as superblocks of generation 1.
///
/// The journal takes 1/16384 of the pool (64 MiB per terabyte), from 512 KiB to 64 MiB. The metadata pages
/// suffice for three versions of a map in which every extent has a record of two places (0.1 % of the pool at
/// 128 KiB extents). In addition, with several devices, all but the largest may be divided into slots, up to
/// an eighth of the pool (at most 0.2 % of the pool more at 128 KiB extents). The metadata pages take at most
/// a quarter of the smaller member.
///
/// # Errors
/// Fails if a device is too small or too large.
pub fn layout(pool: &NewPool) -> Result<Vec<Superblock>, MapError> {
    let members: DeviceSet = pool.metadata.iter().copied().collect();
    let known = members.iter().all(|member| member.index() < pool.devices.len());
    if !known || members.len() != pool.metadata.len() || !(1..=2).contains(&members.len()) {
        return Err(MapError::Mismatch("the metadata must be on one or two of them".into()));
    }
    let metadata = metadata_layout(pool);
    let lay_out = |(i, new): (usize, &NewDevice)| {
        let device = DeviceId(i as u8);
        let (journal_pages, meta_pages) = if members.contains(device) { metadata } else { (0, 0) };
        let data_at = data_at(journal_pages + meta_pages, pool.extent);
        let data_extents = data_extents(device, new.size, data_at, pool.extent)?;
        Ok(Superblock {
            pool: pool.id,
            generation: 1,
            size: new.size,
            device,
            devices: pool.devices.len() as u8,
            extent: pool.extent,
            class: new.class,
            incarnation: 0,
            journal_pages,
            meta_pages,
            data_at,
            data_extents,
            pool_name: pool.name.clone(),
            device_name: new.name.clone(),
            members: if members.len() == 2 { members } else { DeviceSet::default() },
            missing: DeviceSet::default(),
            abandoned: DeviceSet::default(),
            damaged: DeviceSet::default(),
            damaged_since: 0,
            join_generations: Vec::new(),
        })
    };
    pool.devices.iter().enumerate().map(lay_out).collect()
}

/// Returns the offset of user data on a device with this many pages of journal and metadata.
pub(crate) fn data_at(pages: u64, extent: ExtentSize) -> DeviceOffset {
    let metadata_end = if pages == 0 { 1 << 20 } else { JOURNAL_AT.0 + pages * PAGE as u64 };
    DeviceOffset(metadata_end.next_multiple_of(extent.bytes().0.max(1 << 20)))
}

/// Returns the extents of user data on a device of this size.
///
/// # Errors
/// Fails if there is none, or if there are more than the format can number.
pub(crate) fn data_extents(
    device: DeviceId,
    size: Bytes,
    data_at: DeviceOffset,
    extent: ExtentSize,
) -> Result<u32, MapError> {
    let extent = extent.bytes().0;
    let least = Bytes(data_at.0 + extent + PAGE as u64);
    if size < least {
        return Err(MapError::TooSmall { device, size, least });
    }
    let extents = (Superblock::second_at(size).0 - data_at.0) / extent;
    u32::try_from(extents).map_err(|_| MapError::TooLarge { device, size })
}

/// Returns the pages of the journal and the metadata pages of every member. The smallest member limits them.
fn metadata_layout(pool: &NewPool) -> (u64, u64) {
    let page = PAGE as u64;
    let total: u64 = pool.devices.iter().map(|d| d.size.0).sum();
    let here = pool.metadata.iter().map(|member| pool.devices[member.index()].size.0 / page).min();
    let here = here.unwrap_or(0);
    let journal = (total / 16_384 / page).clamp(JOURNAL_MIN, JOURNAL_MAX).min((here / 8).max(JOURNAL_MIN));
    let largest = pool.devices.iter().map(|d| d.size.0).max().unwrap_or(0);
    let slots = (total - largest).min(total / 8) / BLOCK;
    let extents = total / pool.extent.bytes().0;
    (journal, meta_pages_for(extents, slots, pool.extent).min((here / 4).max(META_MIN)))
}

const META_MIN: u64 = 192;

fn meta_pages_for(extents: u64, slots: u64, extent: ExtentSize) -> u64 {
    let group_pages = crate::map::record_pages(extent.blocks()) as u64;
    let leaves = extents / 500 + 1;
    let groups = extents / crate::state::records::GROUP as u64 + 1;
    let slot_bytes = slots * crate::map::slot_bytes(extent.blocks()) as u64;
    let slot_pages = slot_bytes.div_ceil(crate::format::page::PAYLOAD as u64) + groups.min(slots);
    let objects = leaves + groups * group_pages + slot_pages;
    // The tables that name the objects are included, as in `Map::metadata_requirement`.
    3 * (objects + objects / 100) + META_MIN
}

/// Creates the pool. All data on the devices is lost. Until the last step the devices are no pool: a power
/// loss before that leaves nothing that could be opened.
///
/// # Errors
/// Fails if a device is too small, or if it fails.
pub fn create(store: &mut dyn Store, pool: &NewPool) -> Result<Vec<Superblock>, MapError> {
    let superblocks = layout(pool)?;
    create_with_layout(store, &superblocks)?;
    Ok(superblocks)
}

/// Creates the pool that these superblocks describe, for layouts other than [`layout`]'s.
///
/// # Errors
/// Fails if a device fails.
pub fn create_with_layout(store: &mut dyn Store, superblocks: &[Superblock]) -> Result<(), MapError> {
    for sb in superblocks {
        write(store, sb.device, DeviceOffset(0), &[0; PAGE])?;
        write(store, sb.device, Superblock::second_at(sb.size), &[0; PAGE])?;
        flush(store, sb.device)?;
    }
    for sb in superblocks.iter().filter(|sb| sb.is_metadata_member()) {
        for sequence in 1..=2 {
            let root = Root::empty(sequence, 1);
            write(store, sb.device, ROOT_AT[root.slot()], &root.encode(sb.pool)[..])?;
        }
        flush(store, sb.device)?;
    }
    for sb in superblocks {
        write_superblock(store, sb)?;
    }
    Ok(())
}

/// Writes both copies of a superblock, one after the other, so that one is good at any instant.
///
/// # Errors
/// Fails if the device fails.
pub fn write_superblock(store: &mut dyn Store, sb: &Superblock) -> Result<(), MapError> {
    let page = sb.encode();
    for at in [DeviceOffset(0), Superblock::second_at(sb.size)] {
        write(store, sb.device, at, &page[..])?;
        flush(store, sb.device)?;
    }
    Ok(())
}

/// Like [`write_superblock`], but a power loss may tear both copies: for mutation testing.
pub(crate) fn write_superblock_unordered(store: &mut dyn Store, sb: &Superblock) -> Result<(), MapError> {
    let page = sb.encode();
    for at in [DeviceOffset(0), Superblock::second_at(sb.size)] {
        write(store, sb.device, at, &page[..])?;
    }
    flush(store, sb.device)
}

/// Writes the first copy only: for mutation testing.
pub(crate) fn write_first_superblock(store: &mut dyn Store, sb: &Superblock) -> Result<(), MapError> {
    write(store, sb.device, DeviceOffset(0), &sb.encode()[..])?;
    flush(store, sb.device)
}

/// Reads a device's superblock: the better copy, or `None` if the device has none.
///
/// # Errors
/// Fails if the device fails, or if all its superblocks are damaged or of an unknown version.
pub fn read_superblock(
    store: &mut dyn Store,
    device: DeviceId,
    size: Bytes,
) -> Result<Option<Superblock>, MapError> {
    if size.0 < 2 * PAGE as u64 {
        return Ok(None);
    }
    let mut read_at = |at| {
        let mut page = vec![0; PAGE];
        read(store, device, at, &mut page).map(|()| Superblock::decode(&page))
    };
    // An unreadable copy is treated like a damaged one: the other copy replaces it.
    let (first, second) = match (read_at(DeviceOffset(0)), read_at(Superblock::second_at(size))) {
        (Err(error), Err(_)) => return Err(error),
        (first, second) => (first.unwrap_or(Reading::Damaged), second.unwrap_or(Reading::Damaged)),
    };
    Superblock::select_newer(device, first, second)
}

fn failed(device: DeviceId, what: &'static str, at: DeviceOffset) -> impl FnOnce(IoError) -> MapError {
    move |error| MapError::Io { device, what, at, error }
}

pub(crate) fn read(
    store: &mut dyn Store,
    device: DeviceId,
    at: DeviceOffset,
    bytes: &mut [u8],
) -> Result<(), MapError> {
    store.read(device, at, bytes).map_err(failed(device, "read", at))
}

pub(crate) fn write(
    store: &mut dyn Store,
    device: DeviceId,
    at: DeviceOffset,
    bytes: &[u8],
) -> Result<(), MapError> {
    store.write(device, at, bytes).map_err(failed(device, "write", at))
}

pub(crate) fn flush(store: &mut dyn Store, device: DeviceId) -> Result<(), MapError> {
    store.flush(device).map_err(failed(device, "flush", DeviceOffset(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_pages_are_enough_for_three_versions_of_every_slot() {
        let (extents, slots, extent) = (24_576, 98_304, ExtentSize::DEFAULT);
        let pages = |slots| meta_pages_for(extents, slots, extent);
        // A slot takes six bytes, and a place of its own with a bitmap of 32 blocks.
        let bytes = 3 * slots * (6 + 2 + 4);
        assert!((pages(slots) - pages(0)) * PAGE as u64 >= bytes, "{} for {bytes} bytes", pages(slots));
    }
}
