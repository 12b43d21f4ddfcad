//! Loads everything reachable from a root: tables, map pages, records and the catalogue.

use super::fields::{Fields, u64_at};
use super::layout::{
    CATALOGUE, Identity, MAP, Pointer, RECORDS, Root, Superblock, TABLE, chain, metadata_page,
};
use super::{Defect, DeviceReader, Extent, PAGE, Place, Pool, Volume};
use std::collections::{BTreeMap, BTreeSet};

/// Pointers per table page.
const FANOUT: u64 = 168;
/// Words per map page.
const WORDS: u64 = 504;
/// Records per group.
const GROUP: u64 = 128;

/// The metadata by number, in the form in which deltas change it.
#[derive(Default)]
pub(super) struct Contents {
    /// By volume id: the words of its extents, and their versions.
    words: BTreeMap<u32, BTreeMap<u64, (u64, u64)>>,
    /// By id: the records' bodies, and their versions.
    records: BTreeMap<u32, (Vec<u8>, u64)>,
    volumes: BTreeMap<u32, Volume>,
    /// By id: the volumes being removed.
    intents: BTreeMap<u32, u32>,
}

impl Contents {
    pub(super) fn set_word(&mut self, volume: u32, extent: u64, word: u64, since: u64) {
        self.words.entry(volume).or_default().insert(extent, (word, since));
    }

    pub(super) fn set_record(&mut self, id: u32, body: &[u8], since: u64) {
        self.records.insert(id, (body.to_vec(), since));
    }

    pub(super) fn drop_record(&mut self, id: u32) {
        self.records.remove(&id);
    }

    /// Adds a volume, or changes an existing one, which keeps its size.
    pub(super) fn set_volume(&mut self, id: u32, size: u64, hardening: u8, copies: u8, name: String) {
        let known = self.volumes.get(&id).map_or(size, |volume| volume.size);
        let volume = Volume { name, size: known, hardened: hardening == 1, copies, extents: BTreeMap::new() };
        self.volumes.insert(id, volume);
    }

    pub(super) fn drop_volume(&mut self, id: u32) {
        self.volumes.remove(&id);
        self.words.remove(&id);
    }

    pub(super) fn set_intent(&mut self, id: u32, volume: u32) {
        self.intents.insert(id, volume);
    }

    pub(super) fn end_intent(&mut self, id: u32) {
        self.intents.remove(&id);
    }

    /// Resolves every word and record to locations on devices.
    pub(super) fn into_pool(self, devices: &[Superblock], sequence: u64) -> Result<Pool, Defect> {
        let mut pool = Pool { sequence, volumes: self.volumes, ..Pool::default() };
        pool.removing = self.intents.into_values().collect();
        for (id, volume) in &mut pool.volumes {
            for (index, (word, since)) in self.words.get(id).into_iter().flatten() {
                let what = || Defect {
                    device: 0,
                    what: "extent",
                    at: *index,
                    why: format!("volume {id} has the word {word:#x} there"),
                };
                let mut extent = match word >> 56 {
                    0 if *word == 0 => continue,
                    1 => direct(devices, *word).ok_or_else(what)?,
                    2 => {
                        let (body, said) = self.records.get(&(*word as u32)).ok_or_else(what)?;
                        let extent = record(devices, body, *word)?;
                        Extent { version: *said, ..extent }
                    }
                    _ => return Err(what()),
                };
                extent.version = extent.version.max(*since);
                volume.extents.insert(*index, extent);
            }
        }
        Ok(pool)
    }
}

/// Decodes an extent described by a word alone: one whole location, every block valid.
fn direct(devices: &[Superblock], word: u64) -> Option<Extent> {
    let (device, extent) = ((word >> 48) as u8, word as u32);
    let blocks = 0..devices.get(usize::from(device))?.blocks() as u16;
    Some(Extent { copies: 1, places: vec![whole(devices, device, extent, blocks)?], ..Extent::default() })
}

fn whole(
    devices: &[Superblock],
    device: u8,
    extent: u32,
    blocks: impl IntoIterator<Item = u16>,
) -> Option<Place> {
    let at = |block| Some((block, place(devices, device, extent, block)?));
    place(devices, device, extent, 0)?;
    let blocks = blocks.into_iter().map(at).collect::<Option<_>>()?;
    Some(Place { device, whole: true, extents: BTreeSet::from([extent]), blocks })
}

/// Returns the position of a block of a device extent.
fn place(devices: &[Superblock], device: u8, extent: u32, block: u16) -> Option<u64> {
    let sb = devices.get(usize::from(device))?;
    let there = u64::from(extent) < sb.data_extents && u64::from(block) < sb.blocks();
    there.then(|| sb.data_at + u64::from(extent) * sb.extent + u64::from(block) * PAGE)
}

/// Returns the blocks whose bits are set.
fn bitmap(fields: &mut Fields<'_>, blocks: u64) -> Result<Vec<u16>, Defect> {
    let bytes = fields.take((blocks / 8) as usize)?;
    let is_set = |block: &u16| bytes[usize::from(block / 8)] >> (block % 8) & 1 == 1;
    Ok((0..blocks as u16).filter(is_set).collect())
}

/// Decodes an extent described by a record.
fn record(devices: &[Superblock], body: &[u8], word: u64) -> Result<Extent, Defect> {
    let mut fields = Fields::new(body, 0, "record", word & 0xffff_ffff);
    let blocks = devices[0].blocks();
    let (flags, counts) = (fields.u8()?, fields.u8()?);
    if flags & 4 != 0 && fields.u32()? != 1 {
        return Err(fields.defect("it has several owners"));
    }
    let mut extent = Extent { copies: counts >> 4, keeps_space: flags & 1 == 1, ..Extent::default() };
    for _ in 0..counts & 7 {
        let (kind, device) = (fields.u8()?, fields.u8()?);
        let nowhere = |fields: &Fields<'_>| fields.defect(format!("a place is not on device {device}"));
        extent.places.push(match kind {
            1 => {
                let at = fields.u32()?;
                let valid = bitmap(&mut fields, blocks)?;
                whole(devices, device, at, valid).ok_or_else(|| nowhere(&fields))?
            }
            2 => {
                let (mut held, mut extents) = (BTreeMap::new(), BTreeSet::new());
                for block in bitmap(&mut fields, blocks)? {
                    let (at, slot) = (fields.u32()?, fields.u16()?);
                    extents.insert(at);
                    let at = place(devices, device, at, slot).ok_or_else(|| nowhere(&fields))?;
                    held.insert(block, at);
                }
                Place { device, whole: false, extents, blocks: held }
            }
            _ => return Err(fields.defect(format!("a place of kind {kind}"))),
        });
    }
    if flags & 2 != 0 {
        extent.write_intents = bitmap(&mut fields, blocks)?;
    }
    if fields.is_empty() { Ok(extent) } else { Err(fields.defect("there is more than its fields")) }
}

/// Loads everything reachable from a root.
pub(super) fn load(
    raw: &mut dyn DeviceReader,
    superblock: &Superblock,
    root: &Root,
) -> Result<Contents, Defect> {
    let mut contents = Contents::default();
    let pages = table(raw, superblock, root.pages, 0)?;
    let groups = table(raw, superblock, root.records, 1 << 63)?;
    for (group, pointer) in (0..).zip(&groups).filter(|(_, pointer)| !pointer.is_null()) {
        let identity = Identity { kind: RECORDS, object: group, what: "record page" };
        let bytes = chain(raw, superblock, *pointer, identity)?;
        let at = superblock.page_at(pointer.number);
        let mut fields = Fields::new(&bytes, superblock.device, "record page", at);
        while !fields.is_empty() {
            let (id, len) = (fields.u8()?, fields.u16()?);
            let id = (group * GROUP) as u32 + u32::from(id);
            contents.set_record(id, fields.take(len.into())?, 0);
        }
    }
    if root.catalogue.is_null() {
        return Ok(contents);
    }
    let identity = Identity { kind: CATALOGUE, object: 0, what: "catalogue" };
    let bytes = chain(raw, superblock, root.catalogue, identity)?;
    let at = superblock.page_at(root.catalogue.number);
    let mut fields = Fields::new(&bytes, superblock.device, "catalogue", at);
    while !fields.is_empty() {
        match fields.u8()? {
            1 => {
                let (id, size, hardening, copies) =
                    (fields.u32()?, fields.u64()?, fields.u8()?, fields.u8()?);
                let (height, top) = (fields.u8()?, fields.u32()?);
                contents.set_volume(id, size, hardening, copies, fields.name()?);
                let mut tree = Tree { raw, superblock, pages: &pages, volume: id, contents: &mut contents };
                if top != u32::MAX {
                    tree.load(top, height.saturating_sub(1), 0)?;
                }
            }
            2 => {
                let (id, _kind, volume, _progress) =
                    (fields.u32()?, fields.u8()?, fields.u32()?, fields.u64()?);
                contents.set_intent(id, volume);
            }
            kind => return Err(fields.defect(format!("an entry of type {kind}"))),
        }
    }
    Ok(contents)
}

/// Loads the pointers of a table, by id. `top_bit` marks the objects of its pages.
fn table(
    raw: &mut dyn DeviceReader,
    superblock: &Superblock,
    (ids, top): (u64, Pointer),
    top_bit: u64,
) -> Result<Vec<Pointer>, Defect> {
    // Number of pointers of each level, from the lowest one up to the page that the root points to.
    let mut counts = vec![ids];
    while counts.last().is_some_and(|count| *count > 1) || (counts.len() == 1 && ids == 1) {
        counts.push(counts[counts.len() - 1].div_ceil(FANOUT));
    }
    let mut pointers = if ids == 0 { Vec::new() } else { vec![top] };
    for level in (1..counts.len()).rev() {
        let mut below = Vec::new();
        for (index, pointer) in (0..).zip(&pointers) {
            let here = (counts[level - 1] - index * FANOUT).min(FANOUT);
            if pointer.is_null() {
                below.extend((0..here).map(|_| *pointer));
                continue;
            }
            let identity = Identity { kind: TABLE, object: index | top_bit, what: "table page" };
            let page = metadata_page(raw, superblock, *pointer, identity)?;
            let fits = page.payload.len() as u64 == here * Pointer::BYTES as u64;
            if !fits || usize::from(page.level) != level {
                let at = superblock.page_at(pointer.number);
                let why = format!("{} bytes at level {} of a table", page.payload.len(), page.level);
                return Err(Defect { device: superblock.device, what: identity.what, at, why });
            }
            below.extend((0..here as usize).map(|n| Pointer::at(&page.payload, n * Pointer::BYTES)));
        }
        pointers = below;
    }
    Ok(pointers)
}

/// The map of a volume while it is loaded.
struct Tree<'a> {
    raw: &'a mut dyn DeviceReader,
    superblock: &'a Superblock,
    pages: &'a [Pointer],
    volume: u32,
    contents: &'a mut Contents,
}

impl Tree<'_> {
    /// Loads a page and everything below it; `first` is the first extent it covers.
    fn load(&mut self, id: u32, level: u8, first: u64) -> Result<(), Defect> {
        let nothing = Pointer { number: u64::MAX, sequence: 0 };
        let pointer = *self.pages.get(id as usize).unwrap_or(&nothing);
        let identity = Identity { kind: MAP, object: id.into(), what: "map page" };
        let page = metadata_page(self.raw, self.superblock, pointer, identity)?;
        let at = self.superblock.page_at(pointer.number);
        let defect = |why: String| Defect { device: self.superblock.device, what: identity.what, at, why };
        if page.level != level {
            return Err(defect(format!("it is of level {}, not {level}", page.level)));
        }
        let each = WORDS.pow(level.into());
        for slot in 0..page.payload.len() / 8 {
            let word = u64_at(&page.payload, slot * 8);
            let index = first + slot as u64 * each;
            match (level, word >> 56) {
                (_, 0) if word == 0 => {}
                (0, 1 | 2) => self.contents.set_word(self.volume, index, word, 0),
                (1.., 3) => self.load(word as u32, level - 1, index)?,
                _ => return Err(defect(format!("it holds the word {word:#x}"))),
            }
        }
        Ok(())
    }
}
