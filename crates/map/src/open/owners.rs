//! Space ownership, determined when a pool is opened: every extent and slot has one owner, or is free.

use crate::format::page::PageNumber;
use crate::format::value::{Location, Place, RecordId, Value, Word};
use crate::map::Map;
use crate::state::records::GROUP;
use crate::{MapError, Space};
use weir_model::{DeviceExtent, DeviceId, Mutant, PlaceKind};

impl Map {
    /// Frees the space that no page, record or slot names.
    ///
    /// Records are visited in the order in which they are in memory, not in that of the extents that name
    /// them: if most extents have a record, nearly every access would otherwise miss the processor's caches.
    ///
    /// # Errors
    /// Fails if anything is named twice, or does not exist.
    pub(crate) fn rebuild_space(&mut self) -> Result<(), MapError> {
        self.size_absent_devices();
        let mut owners = Owners {
            spaces: self.devices.iter().map(|sb| Space::new(sb.data_extents)).collect(),
            blocks: self.blocks,
            records: vec![0; self.records.group_count() * GROUP / 64],
            named: 0,
            conflict: None,
        };
        for (id, volume) in &self.catalogue.volumes {
            self.pages.for_each(volume.tree, &mut |index, word| {
                let owner = || format!("volume {} extent {}", id.0, index.0);
                match Word::decode(word) {
                    Some(Word::Direct(whole)) => owners.claim_location(&Location::Whole(whole), owner),
                    Some(Word::Record(record)) => owners.claim_record(record, owner),
                    _ => {}
                }
            });
        }
        let mut found = 0;
        self.records.for_each(|id, record| {
            if owners.is_named(id) {
                found += 1;
                let forgotten = |p: &&Place| {
                    self.planted.is(Mutant::SlotsFreeAfterOpening) && p.at.id().kind == PlaceKind::Fine
                };
                let places = record.places.iter().filter(|p| !forgotten(p));
                places.for_each(|p| owners.claim_location(&p.at, || format!("record {}", id.0)));
            }
        });
        if found != owners.named {
            owners.conflict.get_or_insert("an extent names a record that does not exist".into());
        }
        if let Some(why) = owners.conflict {
            return Err(self.damaged("map", PageNumber(0), why));
        }
        self.spaces = owners.spaces;
        self.space_changes += 1;
        Ok(())
    }

    /// Gives absent devices as many extents as the map names on them.
    fn size_absent_devices(&mut self) {
        if self.absent().is_empty() {
            return;
        }
        let mut extents = vec![0; self.devices.len()];
        let mut count = |device: DeviceId, extent: DeviceExtent| {
            if let Some(most) = extents.get_mut(device.index()) {
                *most = extent.0.saturating_add(1).max(*most);
            }
        };
        for volume in self.catalogue.volumes.keys() {
            self.for_each(*volume, |_, value| match value {
                Value::Empty => {}
                Value::Direct(whole) => count(whole.device, whole.extent),
                Value::Record(record) => record.places.iter().for_each(|place| match &place.at {
                    Location::Whole(whole) => count(whole.device, whole.extent),
                    Location::Fine { device, slots } => {
                        slots.iter().for_each(|slot| count(*device, slot.extent));
                    }
                }),
            });
        }
        for device in self.absent().iter() {
            self.devices[device.index()].data_extents = extents[device.index()];
        }
    }
}

/// The space found to have an owner.
struct Owners {
    spaces: Vec<Space>,
    blocks: u16,
    /// One bit per record id that some extent names.
    records: Vec<u64>,
    named: usize,
    /// The first object that has two owners, or does not exist.
    conflict: Option<String>,
}

impl Owners {
    fn claim_location(&mut self, location: &Location, owner: impl Fn() -> String) {
        let blocks = self.blocks;
        let taken = match location {
            Location::Whole(whole) => {
                self.spaces.get_mut(whole.device.index()).is_some_and(|s| s.mark_owned(whole.extent))
            }
            Location::Fine { device, slots } => self
                .spaces
                .get_mut(device.index())
                .is_some_and(|s| slots.iter().all(|slot| s.mark_slot_owned(*slot, blocks))),
        };
        if !taken {
            self.note_conflict(|| {
                format!("{location:?}, named by {}, has another owner or does not exist", owner())
            });
        }
    }

    fn claim_record(&mut self, record: RecordId, owner: impl Fn() -> String) {
        let mask = 1 << (record.0 % 64);
        match self.records.get_mut(record.0 as usize / 64) {
            Some(word) if *word & mask == 0 => {
                *word |= mask;
                self.named += 1;
            }
            Some(_) => {
                self.note_conflict(|| {
                    format!("record {}, named by {}, has another owner", record.0, owner())
                });
            }
            None => self.note_conflict(|| format!("there is no record {}, named by {}", record.0, owner())),
        }
    }

    fn is_named(&self, record: RecordId) -> bool {
        self.records[record.0 as usize / 64] >> (record.0 % 64) & 1 == 1
    }

    fn note_conflict(&mut self, why: impl Fn() -> String) {
        if self.conflict.is_none() {
            self.conflict = Some(why());
        }
    }
}
