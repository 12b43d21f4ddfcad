//! Consistency of the map, once all of it verifies: every extent and slot has one owner, every record's
//! reference count is right, volumes and intents are valid.

use super::image::Image;
use super::report::{CheckCounts, Finding, Remedy, Report, Severity};
use crate::format::value::{Location, Place, RecordId, Slot, Whole, Word};
use crate::{IntentKind, Space, Superblock};
use rustc_hash::{FxHashMap, FxHashSet};
use weir_model::{DeviceExtent, DeviceId, DeviceSet, ExtentIndex, VolumeId};

const REPORT_BUG: &str = "save everything (weir pool dump), copy what is readable, and report it";

struct Contents<'a> {
    image: &'a Image,
    superblocks: &'a [Option<Superblock>],
    member: &'a Superblock,
    report: &'a mut Report,
}

/// Checks the recovered map, adding to the report; `member` is the member it was read from.
pub(super) fn check(
    image: &Image,
    superblocks: &[Option<Superblock>],
    member: &Superblock,
    report: &mut Report,
) {
    let mut contents = Contents { image, superblocks, member, report };
    contents.count_contents();
    contents.check_volumes();
    let named = contents.check_records();
    contents.check_owners(&named);
}

/// The devices that extents use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceUse {
    pub(super) with_data: DeviceSet,
    /// The devices with data that another device has as well, or should have.
    pub(super) with_copies: DeviceSet,
}

/// Returns the devices that the map says contain anything.
pub(super) fn devices_in_use(image: &Image) -> DeviceUse {
    let mut uses = DeviceUse::default();
    image.for_each_word(|volume, _, word| {
        let copies = image.catalogue.volumes.get(&volume).map_or(1, |volume| volume.copies);
        let mut add = |device, is_copied: bool| {
            uses.with_data.insert(device);
            if is_copied || copies > 1 {
                uses.with_copies.insert(device);
            }
        };
        match Word::decode(word) {
            Some(Word::Direct(whole)) => add(whole.device, false),
            Some(Word::Record(id)) => {
                let Some(record) = image.records.get(id) else { return };
                for (i, place) in record.places.iter().enumerate() {
                    let mut others = record.places.iter().enumerate().filter(|(j, _)| *j != i);
                    add(place.at.id().device, others.any(|(_, other)| other.valid.intersects(&place.valid)));
                }
            }
            _ => {}
        }
    });
    uses
}

impl Contents<'_> {
    fn add(
        &mut self,
        severity: Severity,
        what: &'static str,
        why: String,
        consequence: &str,
        remedy: Remedy,
    ) {
        let (device, at) = (self.member.device, self.member.pages_at());
        self.report.add(Finding { severity, what, device, at, why, consequence: consequence.into(), remedy });
    }

    fn report_damage(&mut self, what: &'static str, why: String, consequence: &str) {
        self.add(Severity::Damage, what, why, consequence, Remedy::Manual(REPORT_BUG));
    }

    fn count_contents(&mut self) {
        let volumes = &self.image.catalogue.volumes;
        let extents = volumes.values().map(|v| self.image.pages.mapped(v.tree)).sum();
        let records = self.image.records.live() as u64;
        self.report.counts =
            CheckCounts { volumes: volumes.len() as u64, extents, records, ..self.report.counts };
        if self.image.unreached_pages > 0 {
            let why = format!("{} map pages belong to no volume", self.image.unreached_pages);
            let matters = "they take space in the metadata area; nothing is lost";
            self.add(Severity::Leak, "map page", why, matters, Remedy::Free);
        }
    }

    fn check_volumes(&mut self) {
        let catalogue = &self.image.catalogue;
        let mut names = FxHashSet::default();
        for (id, volume) in &catalogue.volumes {
            if !names.insert(&volume.name) {
                let why = format!("two volumes are named {:?}, one is {}", volume.name, id.0);
                self.report_damage("volume", why, "clients reach only one of them");
            }
            if id.0 >= catalogue.next_volume {
                let why = format!("volume {} exists, the next to be made is {}", id.0, catalogue.next_volume);
                self.report_damage("volume", why, "another volume may be given the same id");
            }
            if !(1..=2).contains(&volume.copies) {
                let why = format!("volume {:?} is to have {} copies", volume.name, volume.copies);
                self.report_damage("volume", why, "weir knows one or two");
            }
            let last = self.member.extent.count(volume.size);
            if let Some(beyond) = self.image.pages.next_mapped(volume.tree, ExtentIndex(last)) {
                let why = format!("extent {} of volume {:?} is beyond its end", beyond.0, volume.name);
                self.report_damage("volume", why, "space is taken that no client can reach");
            }
        }
        for (id, intent) in &catalogue.intents {
            let IntentKind::RemoveVolume = intent.kind;
            if !catalogue.volumes.contains_key(&intent.volume) {
                let why = format!("intent {id} is to remove volume {}, which is gone", intent.volume.0);
                let matters = "its removal was cut short before the last step";
                self.add(Severity::Note, "intent", why, matters, Remedy::Reopen);
            }
        }
    }

    /// Checks records and the extents that name them. Returns how often each is named.
    fn check_records(&mut self) -> FxHashMap<RecordId, u32> {
        let mut named: FxHashMap<RecordId, u32> = FxHashMap::default();
        let mut missing = Vec::new();
        self.image.for_each_word(|volume, index, word| {
            let Some(Word::Record(id)) = Word::decode(word) else { return };
            *named.entry(id).or_default() += 1;
            if self.image.records.get(id).is_none() {
                missing.push((id, volume, index));
            }
        });
        for (id, volume, index) in missing {
            let why =
                format!("there is no record {}, named by {}", id.0, self.describe_extent(volume, index));
            self.report_damage("record", why, "where the extent's data is is not known");
        }
        let blocks = self.member.extent.blocks();
        for (id, record) in self.image.records() {
            match named.get(&id) {
                None => {
                    let why = format!("record {} is named by no extent", id.0);
                    let matters = "it and the space it names are taken for nothing";
                    self.add(Severity::Leak, "record", why, matters, Remedy::Free);
                }
                Some(times) if *times != record.references => {
                    let why = format!("record {} counts {} owners, has {times}", id.0, record.references);
                    self.report_damage("record", why, "its space may be given away while it is in use");
                }
                Some(_) => {}
            }
            let is_past = |place: &Place| match &place.at {
                Location::Whole(_) => false,
                Location::Fine { slots, .. } => slots.iter().any(|slot| slot.block >= blocks),
            };
            if record.places.iter().any(is_past) {
                let why = format!("record {} names a slot past its extent's end", id.0);
                self.report_damage("record", why, "the block would be read from elsewhere");
            }
        }
        named
    }

    fn describe_extent(&self, volume: VolumeId, index: ExtentIndex) -> String {
        let name = self.image.catalogue.volumes.get(&volume).map_or("?", |v| &v.name);
        format!("extent {} of volume {name} ({})", index.0, volume.0)
    }

    /// Checks that every piece of space is named once, and exists.
    fn check_owners(&mut self, named: &FxHashMap<RecordId, u32>) {
        let blocks = self.member.extent.blocks();
        let mut spaces: Vec<Option<Space>> =
            self.superblocks.iter().map(|sb| sb.as_ref().map(|sb| Space::new(sb.data_extents))).collect();
        // The names of owners, by device and extent, for space named twice.
        let mut contested: FxHashMap<(DeviceId, DeviceExtent), Vec<String>> = FxHashMap::default();
        let mut beyond = Vec::new();
        self.for_each_owned_piece(named, |piece, owner| {
            let (device, extent) = piece.extent();
            match spaces.get_mut(device.index()) {
                // Its superblock is reported already.
                Some(None) => {}
                Some(Some(space)) if extent.0 < space.extents() => {
                    if !piece.take(space, blocks) {
                        contested.entry((device, extent)).or_default();
                    }
                }
                _ => beyond.push(format!("extent {} of device {device}, named by {}", extent.0, owner())),
            }
        });
        if !contested.is_empty() {
            self.for_each_owned_piece(named, |piece, owner| {
                if let Some(owners) = contested.get_mut(&piece.extent()) {
                    owners.push(owner());
                }
            });
        }
        for why in beyond {
            self.report_damage(
                "place",
                format!("{why}, does not exist"),
                "the data cannot be read; the pool does not open",
            );
        }
        let mut contested: Vec<_> = contested.into_iter().collect();
        contested.sort();
        for ((device, extent), owners) in contested {
            let at = self.superblocks.get(device.index()).and_then(Option::as_ref).map(|sb| {
                let start = u64::from(extent.0) * sb.extent.bytes().0;
                weir_model::DeviceOffset(sb.data_at.0 + start)
            });
            self.report.add(Finding {
                severity: Severity::Damage,
                what: "place",
                device,
                at: at.unwrap_or_default(),
                why: format!("extent {} has several owners: {}", extent.0, owners.join(", ")),
                consequence: "they overwrite each other's data; the pool does not open".into(),
                remedy: Remedy::Manual(REPORT_BUG),
            });
        }
    }

    /// Calls `f` with every piece of space that any extent or unnamed record names, and with its owner.
    fn for_each_owned_piece(
        &self,
        named: &FxHashMap<RecordId, u32>,
        mut f: impl FnMut(Piece, &dyn Fn() -> String),
    ) {
        self.image.for_each_word(|volume, index, word| {
            let owner = || self.describe_extent(volume, index);
            match Word::decode(word) {
                Some(Word::Direct(whole)) => f(Piece::Whole(whole), &owner),
                Some(Word::Record(id)) => {
                    let record = self.image.records.get(id);
                    let places = record.iter().flat_map(|record| &record.places);
                    places.for_each(|place| for_each_piece(&place.at, |piece| f(piece, &owner)));
                }
                _ => {}
            }
        });
        for (id, record) in self.image.records().filter(|(id, _)| !named.contains_key(id)) {
            let owner = || format!("record {}", id.0);
            record.places.iter().for_each(|place| for_each_piece(&place.at, |piece| f(piece, &owner)));
        }
    }
}

/// A piece of space that must have one owner.
#[derive(Clone, Copy)]
enum Piece {
    Whole(Whole),
    Slot(DeviceId, Slot),
}

impl Piece {
    fn extent(self) -> (DeviceId, DeviceExtent) {
        match self {
            Self::Whole(whole) => (whole.device, whole.extent),
            Self::Slot(device, slot) => (device, slot.extent),
        }
    }

    fn take(self, space: &mut Space, blocks: u16) -> bool {
        match self {
            Self::Whole(whole) => space.mark_owned(whole.extent),
            Self::Slot(_, slot) => slot.block < blocks && space.mark_slot_owned(slot, blocks),
        }
    }
}

fn for_each_piece(at: &Location, mut f: impl FnMut(Piece)) {
    match at {
        Location::Whole(whole) => f(Piece::Whole(*whole)),
        Location::Fine { device, slots } => slots.iter().for_each(|slot| f(Piece::Slot(*device, *slot))),
    }
}
