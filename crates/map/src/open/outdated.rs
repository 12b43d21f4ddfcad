//! Devices that are there as older files than the pool has used. See `docs/reference/format.md`, Members and
//! generations.
//!
//! When the file of a device is truncated, removed or replaced while the pool is served, all superblocks say
//! so and carry a higher generation ([`Map::note_damaged`]). A file found later under the device's name whose
//! superblock is of an older generation is from before that, or what was left of it. What the map says of
//! that device does not hold for such a file: where another device has the blocks, that one's count alone;
//! what only the older file has, is used only if the user accepts it.

use crate::format::value::{RecordId, Released, Word};
use crate::map::Map;
use crate::open::members::raise;
use crate::{MapError, Record};
use weir_model::{BlockRange, Bytes, DeviceId, DeviceSet, ExtentKey, Mutant};

impl Map {
    /// The device's file was truncated, removed or replaced: from now on it counts only with a superblock of
    /// this generation ([`Self::devices`]), which must be durable on every other device before anything is
    /// acknowledged that an older file does not have.
    pub fn note_damaged(&mut self, device: DeviceId) {
        raise(&mut self.devices);
        for sb in &mut self.devices {
            sb.damaged.insert(device);
            sb.damaged_since = sb.generation;
        }
    }

    /// Devices that are known to have been damaged and were not there since.
    pub(crate) fn damaged_devices(&self) -> DeviceSet {
        self.devices[0].damaged
    }

    /// What outdated devices hold no longer counts where another device that is there has it, too. In
    /// recovery, before intents are settled and free space is rebuilt.
    ///
    /// # Errors
    /// If an outdated device alone holds blocks, and that is not `accepted`.
    pub(crate) fn discount_outdated(&mut self, outdated: DeviceSet, accepted: bool) -> Result<(), MapError> {
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
                    record.discount_where_trusted(outdated, trusted, &mut add);
                    changed.push((ExtentKey { volume: *volume, index }, id, record));
                }
                _ => {}
            });
        }
        if let (Some((device, bytes)), false) = (alone.first(), accepted) {
            return Err(MapError::Outdated { device: *device, bytes: *bytes });
        }
        for (key, id, record) in changed {
            self.restate(key, id, record);
        }
        Ok(())
    }
}

impl Record {
    /// Places on `outdated` devices no longer hold the blocks that a `trusted` device holds. What outdated
    /// ones hold alone is told to `add`, block by block.
    fn discount_where_trusted(
        &mut self,
        outdated: DeviceSet,
        trusted: DeviceSet,
        add: &mut impl FnMut(DeviceId, Bytes),
    ) {
        let Some(mut held) = self.places.first().map(|place| place.valid.none_of_these()) else { return };
        self.places.iter().filter(|p| trusted.contains(p.device())).for_each(|p| held.union(&p.valid));
        // Free space is rebuilt from what is left.
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
