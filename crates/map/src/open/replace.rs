//! Replacement of a permanently lost device by a blank one. See `docs/reference/format.md`, Members and
//! generations.
//!
//! The blank device gets a superblock of a generation before the one from which, according to all other
//! superblocks, the device counts: it is treated like an [older file](crate::outdated). The next opening
//! frees the space that the map names there, rewrites a metadata member, and copies are made again.
//!
//! All superblocks record permanently when it joined, so the lost device is never mistaken for it.

use crate::create::{NewDevice, write_superblock};
use crate::format::value::Value;
use crate::map::Map;
use crate::open::create::{data_at, data_extents};
use crate::open::members::increment_generation;
use crate::open::open_with;
use crate::{MapError, OpenOptions, Superblock};
use weir_model::{Bytes, DeviceId, DeviceSet, Store};

/// Replaces the device of this id, which is not among those `found`, with the blank device that `store` has
/// under that id. Opens the pool without it, as [`open`](crate::open()) does with these options.
///
/// A power loss during the replacement leaves the pool without the device, or with the new one.
///
/// # Errors
/// Fails, changing nothing, if the device is present, if the pool cannot be opened without it, if only it has
/// some data, or if the new one is too small for the extents that the map names there. Fails if a device
/// fails; the pool may then be in the state after an opening without the device.
pub fn replace(
    store: &mut dyn Store,
    found: &[Superblock],
    device: DeviceId,
    new: &NewDevice,
    options: &OpenOptions,
) -> Result<Superblock, MapError> {
    replace_with(store, found, device, options, |map| map.new_superblock(device, new))
}

/// Like [`replace`], for other layouts: the new device's superblock is given, except its generation.
///
/// # Errors
/// As [`replace`].
pub fn replace_with_layout(
    store: &mut dyn Store,
    found: &[Superblock],
    new: &Superblock,
    options: &OpenOptions,
) -> Result<Superblock, MapError> {
    replace_with(store, found, new.device, options, |map| {
        map.refuse_too_small(new)?;
        Ok(new.clone())
    })
}

fn replace_with(
    store: &mut dyn Store,
    found: &[Superblock],
    device: DeviceId,
    options: &OpenOptions,
    superblock: impl FnOnce(&Map) -> Result<Superblock, MapError>,
) -> Result<Superblock, MapError> {
    if found.iter().any(|sb| sb.device == device) {
        return Err(MapError::DevicePresent { device });
    }
    let without = options.without.or([device].into_iter().collect());
    let options = OpenOptions { without, ..*options };
    // Every refusal comes before anything is recorded.
    let (mut map, _, new) = open_with(store, found, &options, |map| {
        map.refuse_if_only_copy(device)?;
        superblock(map)
    })?;
    let new = map.join(new);
    // The other devices record the replacement before the new device has a superblock.
    map.write_superblocks(store)?;
    write_superblock(store, &new)?;
    Ok(new)
}

impl Map {
    /// Refuses to lose a device that has data no present device has.
    fn refuse_if_only_copy(&self, device: DeviceId) -> Result<(), MapError> {
        let held = |volume| {
            let mut blocks = 0;
            self.for_each(volume, |_, value| blocks += self.only_copy_blocks(device, value));
            Bytes(blocks * weir_model::BLOCK)
        };
        let volumes = self.catalogue.volumes.iter().map(|(id, volume)| (&volume.name, held(*id)));
        let alone: Vec<_> = volumes.filter(|(_, bytes)| bytes.0 > 0).collect();
        match alone.first() {
            None => Ok(()),
            Some((name, bytes)) => Err(MapError::OnlyCopy {
                device,
                volume: (*name).clone(),
                bytes: *bytes,
                others: alone.len() - 1,
            }),
        }
    }

    /// Counts the blocks of an extent that only this device has, among the present ones and it.
    fn only_copy_blocks(&self, device: DeviceId, value: &Value) -> u64 {
        let record = match value {
            Value::Empty => return 0,
            Value::Direct(whole) => return if whole.device == device { self.blocks.into() } else { 0 },
            Value::Record(record) => record,
        };
        let at_hand = |place: DeviceId| place != device && self.present.contains(place);
        let is_held = |block| record.places.iter().any(|p| at_hand(p.device()) && p.valid.contains(block));
        let here = record.places.iter().filter(|place| place.device() == device);
        here.flat_map(|place| place.valid.iter()).filter(|block| !is_held(*block)).count() as u64
    }

    /// Returns the new device's superblock.
    fn new_superblock(&self, device: DeviceId, new: &NewDevice) -> Result<Superblock, MapError> {
        let other = self.layout();
        let (journal_pages, meta_pages) = match other.members.contains(device) {
            true => (other.journal_pages, other.meta_pages),
            false => (0, 0),
        };
        let data_at = data_at(journal_pages + meta_pages, self.extent);
        let superblock = Superblock {
            device,
            size: new.size,
            class: new.class,
            journal_pages,
            meta_pages,
            data_at,
            data_extents: data_extents(device, new.size, data_at, self.extent)?,
            device_name: new.name.clone(),
            ..other.clone()
        };
        self.refuse_too_small(&superblock)?;
        Ok(superblock)
    }

    /// Refuses a device with fewer extents than the map names on the one it replaces.
    fn refuse_too_small(&self, new: &Superblock) -> Result<(), MapError> {
        let Superblock { device, size, data_at, data_extents, .. } = *new;
        let named = self.devices[device.index()].data_extents;
        if data_extents >= named {
            return Ok(());
        }
        let least = Bytes(data_at.0 + u64::from(named) * self.extent.bytes().0 + crate::PAGE as u64);
        Err(MapError::TooSmall { device, size, least })
    }

    /// Makes the new device replace the lost one. It is outdated: it has a generation that no other device
    /// ever had, and counts from the next one on. Returns its superblock.
    fn join(&mut self, new: Superblock) -> Superblock {
        increment_generation(&mut self.devices);
        let generation = self.devices[0].generation;
        for sb in &mut self.devices {
            sb.set_join_generation(new.device, generation);
        }
        self.note_damaged(new.device);
        Superblock {
            generation,
            join_generations: self.devices[0].join_generations.clone(),
            incarnation: 0,
            missing: DeviceSet::default(),
            abandoned: DeviceSet::default(),
            damaged: DeviceSet::default(),
            damaged_since: 0,
            ..new
        }
    }
}
