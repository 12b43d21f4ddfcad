//! A second reader of a pool's metadata, written from `docs/reference/format.md` alone: it shares no code
//! with the map, and finds in the golden image the same contents as the map. If the two disagree, the
//! document or the map is wrong.

#![allow(clippy::unwrap_used, reason = "writing into a String cannot fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const IMAGE: &str = include_str!("golden/v1.image.txt");
const CONTENTS: &str = include_str!("golden/v1.contents.txt");
const PAGE: usize = 4096;
const NONE: u64 = u64::MAX;

/// Pages by device and number; absent pages are zeros.
type Devices = BTreeMap<(u8, u64), Vec<u8>>;

fn devices() -> Devices {
    let mut devices = Devices::new();
    for page in IMAGE.split("page ").skip(1) {
        let (title, rows) = page.split_once('\n').expect("a title");
        let (number, device) = title.split_once(" of device ").expect("page and device");
        let mut bytes = vec![0; PAGE];
        for row in rows.lines() {
            let (at, hex) = row.split_once(' ').expect("offset and bytes");
            let at = usize::from_str_radix(at, 16).expect("an offset");
            for i in 0..hex.len() / 2 {
                bytes[at + i] = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("two digits");
            }
        }
        devices.insert((device.parse().expect("a device"), number.parse().expect("a page")), bytes);
    }
    devices
}

/// Returns a little-endian number of any width.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the CRC-32C, computed bit by bit, with the four bytes at `field` taken as zero.
fn crc(bytes: &[u8], field: usize) -> u64 {
    let mut crc = u32::MAX;
    for (i, byte) in bytes.iter().enumerate() {
        crc ^= if (field..field + 4).contains(&i) { 0 } else { u32::from(*byte) };
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    u64::from(!crc)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).expect("UTF-8")
}

/// Reads fields one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(len);
        self.0 = tail;
        head
    }
    fn number(&mut self, width: usize) -> u64 {
        number(self.bytes(width), 0, width)
    }
}

struct Place {
    device: u8,
    /// The extent of a whole place, or the slot of each valid block of a fine one.
    whole: Option<u64>,
    slots: Vec<(u64, u64)>,
    valid: BTreeSet<u16>,
}

struct Record {
    keep: bool,
    copies: u8,
    owners: u64,
    places: Vec<Place>,
    intent: BTreeSet<u16>,
}

struct Volume {
    name: String,
    size: u64,
    hardening: u64,
    copies: u64,
}

#[derive(Default)]
struct Pool {
    disk: Devices,
    member: u8,
    id: Vec<u8>,
    blocks: u16,
    extent: u64,
    journal_pages: u64,
    volumes: BTreeMap<u64, Volume>,
    intents: BTreeMap<u64, (u64, u64, u64)>,
    words: BTreeMap<(u64, u64), u64>,
    records: BTreeMap<u64, Record>,
    next_volume: u64,
    /// The name and the extents of user data of each device.
    devices: Vec<(String, u64)>,
}

impl Pool {
    fn page(&self, device: u8, number: u64) -> Vec<u8> {
        self.disk.get(&(device, number)).cloned().unwrap_or_else(|| vec![0; PAGE])
    }

    fn superblocks(&mut self) {
        let mut device = 0;
        loop {
            let page = self.page(device, 0);
            assert_eq!((&page[..8], number(&page, 8, 4)), (&b"weirSB01"[..], crc(&page, 8)));
            assert_eq!((number(&page, 12, 4), number(&page, 16, 8)), (1, 0), "version and features");
            let last = number(&page, 64, 8) / PAGE as u64 - 1;
            assert_eq!(page, self.page(device, last), "the second copy");
            assert_eq!(page[72], device);
            if number(&page, 76, 4) & 1 == 1 {
                (self.member, self.id) = (device, page[40..56].to_vec());
                self.extent = 1 << page[74];
                self.blocks = (self.extent / PAGE as u64) as u16;
                self.journal_pages = number(&page, 88, 8);
            }
            self.devices.push((text(&page[184..248]), number(&page, 112, 8)));
            device += 1;
            if device == page[73] {
                return;
            }
        }
    }

    fn root(&self) -> Vec<u8> {
        let slots = [(64 << 10) / PAGE as u64, (128 << 10) / PAGE as u64];
        let valid = slots.map(|slot| self.page(self.member, slot)).into_iter().filter(|page| {
            page[..8] == *b"weirRT01" && page[16..32] == self.id && number(page, 8, 4) == crc(page, 8)
        });
        valid.max_by_key(|page| number(page, 32, 8)).expect("a valid root")
    }

    /// Returns the payloads of a chain of pages, after verifying each.
    fn chain(&self, pointer: &[u8], kind: u8, level: Option<u8>, object: u64) -> (Vec<u8>, u8) {
        let first = (192 << 10) / PAGE as u64 + self.journal_pages;
        let (mut at, mut payload, mut found) = (number(pointer, 0, 8), Vec::new(), 0);
        while at != NONE {
            let page = self.page(self.member, first + at);
            assert_eq!(number(&page, 0, 4), crc(&page, 0), "page {at}");
            assert_eq!((page[4], &page[8..24]), (kind, &self.id[..]), "page {at}");
            assert!(level.is_none_or(|level| level == page[5]), "page {at}");
            let (own, sequence) = (number(&page, 24, 8), number(&page, 32, 8));
            assert_eq!((own, sequence), (at, number(pointer, 8, 8)), "page {at}");
            assert_eq!(number(&page, 40, 8), object, "page {at}");
            payload.extend(&page[64..64 + number(&page, 6, 2) as usize]);
            (at, found) = (number(&page, 48, 8), page[5]);
        }
        (payload, found)
    }

    /// Returns a table's pointers, in order of ids.
    fn table(&self, ids: u64, top: &[u8], records: bool) -> Vec<Vec<u8>> {
        if ids == 0 {
            return Vec::new();
        }
        // The number of pointers on each level, the objects' level first.
        let mut counts = vec![ids];
        while counts.len() == 1 || counts[counts.len() - 1] > 1 {
            counts.push(counts[counts.len() - 1].div_ceil(168));
        }
        let mut pointers = vec![top.to_vec()];
        for level in (1..counts.len()).rev() {
            let mut below = Vec::new();
            for (index, pointer) in pointers.iter().enumerate() {
                let object = index as u64 | if records { 1 << 63 } else { 0 };
                let (payload, _) = self.chain(pointer, 1, Some(level as u8), object);
                below.extend(payload.chunks(24).map(<[u8]>::to_vec));
            }
            assert_eq!(below.len() as u64, counts[level - 1]);
            pointers = below;
        }
        pointers
    }

    fn load(&mut self, root: &[u8]) {
        let pages = self.table(number(root, 104, 8), &root[112..136], false);
        let groups = self.table(number(root, 136, 8), &root[144..168], true);
        for (group, pointer) in groups.iter().enumerate() {
            let (payload, _) = self.chain(pointer, 3, Some(0), group as u64);
            let mut fields = Fields(&payload);
            while !fields.0.is_empty() {
                let id = group as u64 * 128 + fields.number(1);
                let length = fields.number(2) as usize;
                let record = self.record(fields.bytes(length));
                self.records.insert(id, record);
            }
        }
        self.next_volume = number(root, 72, 8);
        let (payload, _) = self.chain(&root[80..104], 4, Some(0), 0);
        let mut fields = Fields(&payload);
        while !fields.0.is_empty() {
            match fields.number(1) {
                1 => {
                    let (id, size) = (fields.number(4), fields.number(8));
                    let (hardening, copies) = (fields.number(1), fields.number(1));
                    let (height, top) = (fields.number(1), fields.number(4));
                    let name = name(&mut fields);
                    self.volumes.insert(id, Volume { name, size, hardening, copies });
                    if top != u64::from(u32::MAX) {
                        self.walk(&pages, id, top, height as u8 - 1, 0);
                    }
                }
                2 => self.intent(&mut fields),
                other => panic!("type {other} in the catalogue"),
            }
        }
    }

    fn walk(&mut self, pages: &[Vec<u8>], volume: u64, page: u64, level: u8, first: u64) {
        let (payload, _) = self.chain(&pages[page as usize], 2, Some(level), page);
        for (slot, word) in payload.chunks(8).enumerate() {
            let (word, extent) = (number(word, 0, 8), first + slot as u64 * 504u64.pow(level.into()));
            match (word >> 56, level) {
                (0, _) => assert_eq!(word, 0),
                (1 | 2, 0) => drop(self.words.insert((volume, extent), word)),
                (3, 1..) => self.walk(pages, volume, word & 0xffff_ffff, level - 1, extent),
                _ => panic!("word {word:#x} at level {level}"),
            }
        }
    }

    fn bitmap(&self, fields: &mut Fields<'_>) -> BTreeSet<u16> {
        let bytes = fields.bytes(usize::from(self.blocks) / 8);
        (0..self.blocks).filter(|b| bytes[usize::from(b / 8)] >> (b % 8) & 1 == 1).collect()
    }

    fn record(&self, bytes: &[u8]) -> Record {
        let mut fields = Fields(bytes);
        let (flags, counts) = (fields.number(1), fields.number(1));
        let owners = if flags & 4 != 0 { fields.number(4) } else { 1 };
        let mut places = Vec::new();
        for _ in 0..counts & 7 {
            let (kind, device) = (fields.number(1), fields.number(1) as u8);
            let whole = (kind == 1).then(|| fields.number(4));
            let valid = self.bitmap(&mut fields);
            let slots = match kind {
                1 => Vec::new(),
                2 => valid.iter().map(|_| (fields.number(4), fields.number(2))).collect(),
                other => panic!("a place of kind {other}"),
            };
            places.push(Place { device, whole, slots, valid });
        }
        let intent = if flags & 2 != 0 { self.bitmap(&mut fields) } else { BTreeSet::new() };
        assert!(fields.0.is_empty());
        Record { keep: flags & 1 != 0, copies: (counts >> 4) as u8, owners, places, intent }
    }

    fn intent(&mut self, fields: &mut Fields<'_>) {
        let id = fields.number(4);
        let intent = (fields.number(1), fields.number(4), fields.number(8));
        self.intents.insert(id, intent);
    }

    fn replay(&mut self, root: &[u8]) {
        let first = (192 << 10) / PAGE as u64;
        let ring: Vec<u8> =
            (0..self.journal_pages).flat_map(|page| self.page(self.member, first + page)).collect();
        let (journal, incarnation) = (number(root, 40, 8), number(root, 68, 4));
        let (mut at, mut sequence) = (number(root, 48, 8) as usize, number(root, 56, 8));
        let mut predecessor = number(root, 64, 4);
        loop {
            let follows = |at: &usize| {
                let frame = &ring[*at..];
                let length = number(frame, 48, 4) as usize;
                frame[..4] == *b"wJF1"
                    && frame[8..24] == self.id
                    && (number(frame, 24, 8), number(frame, 32, 8)) == (journal, sequence)
                    && (number(frame, 52, 4), number(frame, 56, 4)) == (predecessor, incarnation)
                    && (64..=frame.len().min(256 << 10)).contains(&length)
                    && number(frame, 4, 4) == crc(&frame[..length], 4)
            };
            let Some(here) = [at, 0].into_iter().find(follows) else { return };
            let length = number(&ring, here + 48, 4) as usize;
            let mut fields = Fields(&ring[here + 64..here + length]);
            for _ in 0..number(&ring, here + 60, 4) {
                self.delta(&mut fields);
            }
            assert!(fields.0.is_empty());
            predecessor = number(&ring, here + 4, 4);
            sequence += 1;
            at = (here + length.next_multiple_of(PAGE)) % ring.len();
        }
    }

    fn delta(&mut self, fields: &mut Fields<'_>) {
        match fields.number(1) {
            1 => {
                let key = (fields.number(4), fields.number(8));
                match fields.number(8) {
                    0 => drop(self.words.remove(&key)),
                    word => drop(self.words.insert(key, word)),
                }
            }
            2 => {
                let (id, length) = (fields.number(4), fields.number(2) as usize);
                let record = self.record(fields.bytes(length));
                self.records.insert(id, record);
            }
            3 => drop(self.records.remove(&fields.number(4))),
            4 => {
                let (id, size) = (fields.number(4), fields.number(8));
                let (hardening, copies) = (fields.number(1), fields.number(1));
                let name = name(fields);
                let size = self.volumes.get(&id).map_or(size, |volume| volume.size);
                self.volumes.insert(id, Volume { name, size, hardening, copies });
                self.next_volume = self.next_volume.max(id + 1);
            }
            5 => drop(self.volumes.remove(&fields.number(4))),
            6 => self.intent(fields),
            7 => drop(self.intents.remove(&fields.number(4))),
            8 => {
                let (id, count) = (fields.number(4), fields.number(4));
                self.records.get_mut(&id).expect("a record").owners = count;
            }
            other => panic!("a delta of type {other}"),
        }
    }

    /// Selects one copy of every block with a write intent, as recovery does.
    fn settle(&mut self) {
        for record in self.records.values_mut() {
            for block in std::mem::take(&mut record.intent) {
                let holders = record.places.iter_mut().filter(|place| place.valid.contains(&block));
                for place in holders.skip(1) {
                    let at = place.valid.iter().position(|b| *b == block).expect("it is valid");
                    place.valid.remove(&block);
                    if place.whole.is_none() {
                        place.slots.remove(at);
                    }
                }
            }
            let keep = record.keep;
            record.places.retain(|place| keep || !place.valid.is_empty());
        }
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        let mut taken = BTreeSet::new();
        for (id, volume) in &self.volumes {
            let Volume { name, size, copies, .. } = volume;
            let hardening = ["Flush", "Write"][volume.hardening as usize];
            writeln!(text, "volume {id} {name:?}: {size} bytes, {hardening}, {copies} copies").unwrap();
            for ((_, extent), word) in self.words.range((*id, 0)..=(*id, u64::MAX)) {
                let low = word & 0xffff_ffff;
                if word >> 56 == 1 {
                    let device = (word >> 48 & 0xff) as u8;
                    assert!(taken.insert((device, low, None)), "two owners");
                    writeln!(text, "  {extent}: device {device} extent {low}").unwrap();
                    continue;
                }
                let Record { keep, copies, owners, places, .. } = &self.records[&low];
                writeln!(text, "  {extent}: record, keep {keep}, {copies} copies, {owners} owners").unwrap();
                for place in places {
                    write!(text, "    device {}", place.device).unwrap();
                    match place.whole {
                        Some(whole) => {
                            assert!(taken.insert((place.device, whole, None)), "two owners");
                            write!(text, " extent {whole}").unwrap();
                        }
                        None => write!(text, " slots").unwrap(),
                    }
                    for (extent, slot) in &place.slots {
                        assert!(taken.insert((place.device, *extent, Some(*slot))), "two owners");
                        write!(text, " {extent}/{slot}").unwrap();
                    }
                    writeln!(text, ": blocks{}", runs(&place.valid)).unwrap();
                }
            }
        }
        for (id, (kind, volume, progress)) in &self.intents {
            assert_eq!(*kind, 1);
            writeln!(text, "intent {id}: RemoveVolume {volume} from {progress}").unwrap();
        }
        for (device, (name, extents)) in self.devices.iter().enumerate() {
            let owned: BTreeSet<_> =
                taken.iter().filter(|it| usize::from(it.0) == device).map(|it| it.1).collect();
            let free = extents - owned.len() as u64;
            writeln!(text, "device {device} {name:?}: {free} of {extents} extents free").unwrap();
        }
        writeln!(text, "next volume {}", self.next_volume).unwrap();
        text
    }
}

fn name(fields: &mut Fields<'_>) -> String {
    let length = fields.number(1) as usize;
    String::from_utf8(fields.bytes(length).to_vec()).expect("UTF-8")
}

fn runs(blocks: &BTreeSet<u16>) -> String {
    let mut text = String::new();
    for first in blocks.iter().filter(|b| **b == 0 || !blocks.contains(&(**b - 1))) {
        let last = (*first..).take_while(|b| blocks.contains(b)).last().unwrap_or(*first);
        write!(text, " {first}-{last}").unwrap();
    }
    text
}

#[test]
fn independent_reader_agrees_with_map() {
    let mut pool = Pool { disk: devices(), ..Pool::default() };
    pool.superblocks();
    let root = pool.root();
    pool.load(&root);
    pool.replay(&root);
    pool.settle();
    assert_eq!(pool.describe(), CONTENTS);
}
