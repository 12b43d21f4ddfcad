//! Devices that are present as older files than the pool has used. See `docs/reference/format.md`, Members
//! and generations.
//!
//! When the file of a device is truncated, removed or replaced while the pool is served, all superblocks
//! record this and get a higher generation ([`Map::note_damaged`]). A file found later under the device's
//! name whose superblock has an older generation is from before that, or is the remainder of the damaged one.
//! The map is wrong about such a file: where another device has the blocks, only that one counts; blocks that
//! only the older file has are used only if the user accepts it.

use crate::format::value::{RecordId, Released, Word};
use crate::map::Map;
use crate::open::members::increment_generation;
use crate::{MapError, Record};
use weir_model::{BlockRange, Bytes, DeviceId, DeviceSet, ExtentKey, Mutant};

impl Map {
    /// Records that the device's file was truncated, removed or replaced: from now on it counts only with a
    /// superblock of this generation ([`Self::devices`]), which must be durable on every other device before
    /// anything is acknowledged that an older file does not have.
    pub fn note_damaged(&mut self, device: DeviceId) {
        increment_generation(&mut self.devices);
        for sb in &mut self.devices {
            sb.damaged.insert(device);
            sb.damaged_since = sb.generation;
        }
    }

    /// Returns the devices known to be damaged that have not been present since.
    pub(crate) fn damaged_devices(&self) -> DeviceSet {
        self.devices[0].damaged
    }

    /// Makes places on outdated devices invalid for blocks that another present device has too. For recovery,
    /// before intents are settled and free space is rebuilt.
    ///
    /// # Errors
    /// Fails if only an outdated device has some blocks, and that is not `accepted`.
    pub(crate) fn exclude_outdated(&mut self, outdated: DeviceSet, accepted: bool) -> Result<(), MapError> {
        if outdated.is_empty() || self.planted.is(Mutant::OutdatedDeviceTrusted) {
            return Ok(());
        }
        let trusted = self.present.without(outdated);
        let mut alone: Vec<(DeviceId, Bytes)> = Vec::new();
        let mut add = |device: DeviceId, bytes: Bytes| match alone.iter_mut().find(|(of, _)| *of == device) {
            Some((_, sum)) => sum.0 += bytes.0,
            None => alone.push((device, bytes)),
        };
        let mut changed: Vec<(ExtentKey, RecordId, Record)> = Vec::new();
        for (volume, v) in &self.catalogue.volumes {
            self.pages.for_each(v.tree, &mut |index, word| match Word::decode(word) {
                Some(Word::Direct(whole)) if outdated.contains(whole.device) => {
                    add(whole.device, self.extent.bytes());
                }
                Some(Word::Record(id)) => {
                    let Some(record) = self.records.get(id) else { return };
                    if !record.places.iter().any(|place| outdated.contains(place.device())) {
                        return;
                    }
                    let mut record = record.into_owned();
                    record.exclude_where_trusted(outdated, trusted, &mut add);
                    changed.push((ExtentKey { volume: *volume, index }, id, record));
                }
                _ => {}
            });
        }
        if let (Some((device, bytes)), false) = (alone.first(), accepted) {
            return Err(MapError::Outdated { device: *device, bytes: *bytes });
        }
        for (key, id, record) in changed {
            self.set_recovered_record(key, id, record);
        }
        Ok(())
    }
}

impl Record {
    /// Makes places on `outdated` devices invalid for the blocks that a `trusted` device has. Calls `add` for
    /// each block that only outdated ones have.
    fn exclude_where_trusted(
        &mut self,
        outdated: DeviceSet,
        trusted: DeviceSet,
        add: &mut impl FnMut(DeviceId, Bytes),
    ) {
        let Some(mut held) = self.places.first().map(|place| place.valid.empty_like()) else { return };
        self.places.iter().filter(|p| trusted.contains(p.device())).for_each(|p| held.union(&p.valid));
        // Free space is rebuilt from the remaining places.
        let mut released = Released::new();
        for place in self.places.iter_mut().filter(|place| outdated.contains(place.device())) {
            let blocks: Vec<u16> = place.valid.iter().collect();
            for block in blocks {
                match held.contains(block) {
                    true => place.clear(BlockRange { first: block, count: 1 }, &mut released),
                    false => add(place.device(), Bytes(weir_model::BLOCK)),
                }
            }
        }
    }
}
