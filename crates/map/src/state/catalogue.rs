//! The catalogue: the pool's volumes and the multi-step operations in progress.

use crate::format::codec::{Put, Reader};
use crate::format::value::PageId;
use crate::state::pages::Tree;
use litemap::LiteMap;
use std::collections::BTreeMap;
use weir_model::{Bytes, VolumeId};

/// The time at which a map change must be durable: a question of virtual allocation (the dissertation behind
/// it, chapter II).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hardening {
    /// No later than the next FLUSH or FUA.
    #[default]
    Flush,
    /// Before the write that caused it is acknowledged.
    Write,
}

/// The maximum length of a volume name, in bytes.
pub const NAME_MAX: usize = 128;

/// A volume's durable properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name: 1 to [`NAME_MAX`] bytes.
    pub name: String,
    /// Its size as its users see it.
    pub size: Bytes,
    /// When its map changes become durable.
    pub hardening: Hardening,
    /// The copies of every block: 1 or 2.
    pub copies: u8,
    /// Its extents.
    pub tree: Tree,
}

/// The kind of a multi-step operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentKind {
    /// The volume is being removed: its extents are freed, then it is deleted.
    RemoveVolume,
}

/// A multi-step operation in progress, which recovery resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The kind of operation.
    pub kind: IntentKind,
    /// Its volume.
    pub volume: VolumeId,
    /// Its progress, in extents; everything before is done.
    pub progress: u64,
}

/// Volumes and intents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Volumes by id. There are few, and every request looks one up.
    pub volumes: LiteMap<VolumeId, Volume>,
    /// Intents by id.
    pub intents: BTreeMap<u32, Intent>,
    /// The id of the next volume; ids are never reused.
    pub next_volume: u32,
}

const TYPE_VOLUME: u8 = 1;
const TYPE_INTENT: u8 = 2;
const NO_PAGE: u32 = u32::MAX;

impl Catalogue {
    /// Returns the encoded catalogue.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, volume) in &self.volumes {
            out.push(TYPE_VOLUME);
            out.put_u32(id.0);
            out.put_u64(volume.size.0);
            out.extend([volume.hardening as u8, volume.copies, volume.tree.height]);
            out.put_u32(volume.tree.root.map_or(NO_PAGE, |p| p.0));
            put_name(&volume.name, &mut out);
        }
        for (id, intent) in &self.intents {
            out.push(TYPE_INTENT);
            put_intent(*id, intent, &mut out);
        }
        out
    }

    /// Decodes the result of [`Self::encode`]; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8], next_volume: u32) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let mut catalogue = Self { next_volume, ..Self::default() };
        while !r.is_empty() {
            match r.u8()? {
                TYPE_VOLUME => {
                    let id = VolumeId(r.u32()?);
                    let size = Bytes(r.u64()?);
                    let (hardening, copies) = (hardening(r.u8()?)?, r.u8()?);
                    let height = r.u8().filter(|h| (1..=8).contains(h))?;
                    let root = Some(r.u32()?).filter(|p| *p != NO_PAGE).map(PageId);
                    let name = name(&mut r)?;
                    let tree = Tree { height, root };
                    let volume = Volume { name, size, hardening, copies, tree };
                    catalogue.volumes.insert(id, volume);
                }
                TYPE_INTENT => {
                    let (id, intent) = intent(&mut r)?;
                    catalogue.intents.insert(id, intent);
                }
                _ => return None,
            }
        }
        Some(catalogue)
    }

    /// Returns the volumes with this id and above, ascending.
    pub fn volumes_from(&self, first: VolumeId) -> impl Iterator<Item = (&VolumeId, &Volume)> {
        self.volumes.iter().skip_while(move |(id, _)| **id < first)
    }

    /// Returns the volume with this name.
    pub fn by_name(&self, name: &str) -> Option<VolumeId> {
        self.volumes.iter().find(|(_, v)| v.name == name).map(|(id, _)| *id)
    }

    /// Whether the volume is being removed.
    pub fn is_being_removed(&self, id: VolumeId) -> bool {
        self.intents.values().any(|i| i.kind == IntentKind::RemoveVolume && i.volume == id)
    }
}

pub(crate) fn hardening(byte: u8) -> Option<Hardening> {
    match byte {
        0 => Some(Hardening::Flush),
        1 => Some(Hardening::Write),
        _ => None,
    }
}

pub(crate) fn put_name(name: &str, out: &mut Vec<u8>) {
    let len = name.floor_char_boundary(NAME_MAX);
    out.push(len as u8);
    out.extend_from_slice(&name.as_bytes()[..len]);
}

pub(crate) fn name(r: &mut Reader<'_>) -> Option<String> {
    let len = usize::from(r.u8()?);
    let name = std::str::from_utf8(r.take(len)?).ok()?;
    (1..=NAME_MAX).contains(&len).then(|| name.to_owned())
}

pub(crate) fn put_intent(id: u32, intent: &Intent, out: &mut Vec<u8>) {
    out.put_u32(id);
    out.push(match intent.kind {
        IntentKind::RemoveVolume => 1,
    });
    out.put_u32(intent.volume.0);
    out.put_u64(intent.progress);
}

pub(crate) fn intent(r: &mut Reader<'_>) -> Option<(u32, Intent)> {
    let id = r.u32()?;
    let kind = match r.u8()? {
        1 => IntentKind::RemoveVolume,
        _ => return None,
    };
    Some((id, Intent { kind, volume: VolumeId(r.u32()?), progress: r.u64()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogue_round_trips() {
        let mut catalogue = Catalogue { next_volume: 9, ..Catalogue::default() };
        let volume = Volume {
            name: "häuser".into(),
            size: Bytes::gib(3),
            hardening: Hardening::Write,
            copies: 2,
            tree: Tree { height: 2, root: Some(PageId(4)) },
        };
        catalogue.volumes.insert(VolumeId(8), volume);
        let intent = Intent { kind: IntentKind::RemoveVolume, volume: VolumeId(8), progress: 77 };
        catalogue.intents.insert(3, intent);
        let bytes = catalogue.encode();
        assert_eq!(Catalogue::decode(&bytes, 9), Some(catalogue));
        for cut in 1..bytes.len() {
            if cut != 28 {
                // (28 is where the volume ends: a valid catalogue without the intent.)
                assert_eq!(Catalogue::decode(&bytes[..cut], 9), None, "cut at {cut}");
            }
        }
    }
}
