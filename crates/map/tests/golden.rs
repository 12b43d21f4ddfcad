//! A pool's metadata as version 1 wrote it: it opens for as long as version 1 is read, and metadata of a
//! newer version is refused.
//!
//! `golden/v1.image.txt` has the pages (rows of 32 bytes that are not all zeros; those of a mirrored pool are
//! in `golden_mirror.rs`), and `golden/v1.contents.txt` their contents once recovery has settled the write
//! intents. When the version rises they stay, and new ones join them: `cargo test -p weir-map --test golden
//! -- --ignored` writes them.

#![allow(clippy::unwrap_used, reason = "writing into a String cannot fail")]

mod support;

use std::fmt::Write;
use support::Rng;
use support::image::{image_of, store_of};
use support::pool::{META, POOL, Shape, create, open, superblocks};
use support::store::MemStore;
use support::twin::{key, whole};
use weir_map::delta::Delta;
use weir_map::{
    BlockSet, Hardening, Intent, IntentKind, Location, Map, MapError, PAGE, Place, Record, RecordId, Slot,
    SpaceReservation, Superblock, Value, Whole, Word, crc32c,
};
use weir_model::{BlockRange, Bytes, DeviceExtent, DeviceId, ErrorKind, Store, VolumeId};

const IMAGE: &str = include_str!("golden/v1.image.txt");
const CONTENTS: &str = include_str!("golden/v1.contents.txt");
const SHAPE: Shape = Shape { extent_log2: 17, journal_pages: 16, meta_pages: 200 };
const BLOCKS: u16 = 32;

fn run(first: u16, count: u16) -> BlockRange {
    BlockRange { first, count }
}

/// Creates everything version 1 can store, some of it in map pages, some in the journal only.
fn sample() -> MemStore {
    let superblocks = superblocks(SHAPE);
    let mut store = MemStore::new(2);
    create(&mut store, &superblocks).expect("nothing fails here");
    let (mut map, _) = open(&mut store, &superblocks).expect("a new pool opens");
    let extent = 1 << SHAPE.extent_log2;
    let plain = map.create_volume("plain", Bytes(40 * extent), Hardening::Flush, 1);
    let sparse = map.create_volume("spärlich", Bytes(600_000 * extent), Hardening::Write, 1);
    let going = map.create_volume("going", Bytes(5 * extent + 512), Hardening::Flush, 1);
    commit(&mut map, &mut store);

    for (index, device, range) in
        [(0, 0, run(0, 32)), (1, 1, run(0, 32)), (2, 1, run(3, 5)), (39, 0, run(31, 1))]
    {
        write(&mut map, plain, index, device, range);
    }
    // Two places, one block each.
    write(&mut map, plain, 7, 0, run(0, 1));
    let second = map.allocate(DeviceId(1)).expect("there is space");
    map.attach_place(key(plain, 7), second);
    map.mark_written(key(plain, 7), second, run(1, 1), None);
    // An empty extent with reserved space.
    write(&mut map, plain, 8, 0, run(0, 32));
    map.clear_blocks(key(plain, 8), run(0, 32), SpaceReservation::Reserve);
    (0..40).for_each(|n| write(&mut map, sparse, n * 14_999, (n % 2) as u8, run(0, 32)));
    commit(&mut map, &mut store);
    map.checkpoint_now(&mut store).expect("there is room");

    // From here on changes are in the journal only.
    write(&mut map, plain, 2, 1, run(8, 24));
    write(&mut map, plain, 12, 0, run(4, 4));
    map.clear_blocks(key(sparse, 14_999), run(0, 32), SpaceReservation::Release);
    map.release_empty_places(key(sparse, 14_999));
    commit(&mut map, &mut store);
    unused_parts(&mut map, plain);
    let intent = Intent { kind: IntentKind::RemoveVolume, volume: going, progress: 3 };
    map.queue(Delta::Intent { id: going.0, intent });
    commit(&mut map, &mut store);
    store
}

/// Creates structures that version 1 defines and nothing writes yet.
fn unused_parts(map: &mut Map, volume: VolumeId) {
    let mut valid = BlockSet::none(BLOCKS);
    valid.insert(run(0, 2));
    valid.insert(run(30, 1));
    let slot = |extent, block| Slot { extent: DeviceExtent(extent), block };
    let slots = vec![slot(200, 5), slot(200, 31), slot(201, 0)];
    let mut record = Record::single_place(whole(1, 199), BlockSet::all(BLOCKS));
    record.places.push(Place { at: Location::Fine { device: DeviceId(1), slots }, valid: valid.clone() });
    record.copies = 2;
    record.references = 3;
    record.intent = Some(valid);
    let id = RecordId(70);
    map.queue(Delta::Record { id, record: record.into() });
    map.queue(Delta::Entry { key: key(volume, 20), word: Word::Record(id) });
    map.queue(Delta::RecordCount { id, count: 1 });
}

fn write(map: &mut Map, volume: VolumeId, index: u64, device: u8, range: BlockRange) {
    let key = key(volume, index);
    let place = match map.find(key) {
        weir_map::ExtentState::Record(record) => match record.places[0].at {
            Location::Whole(whole) => whole,
            Location::Fine { .. } => panic!("not made here"),
        },
        _ => {
            let place = map.allocate(DeviceId(device)).expect("there is space");
            map.attach_place(key, place);
            place
        }
    };
    map.mark_written(key, place, range, None);
}

fn commit(map: &mut Map, store: &mut MemStore) {
    let mut bytes = Vec::new();
    map.begin_commit();
    while let Some(to) = map.next_frame(|_| None, &mut bytes) {
        store.write(META, to, &bytes).expect("nothing fails here");
        store.flush(META).expect("nothing fails here");
    }
    map.finish_commit(&mut Vec::new());
}

fn runs(set: &BlockSet) -> String {
    let (mut text, mut at) = (String::new(), 0);
    while at < BLOCKS {
        let (range, inside) = set.run(at, BLOCKS);
        if inside {
            write!(text, " {}-{}", range.first, range.end() - 1).unwrap();
        }
        at = range.end();
    }
    text
}

fn describe(map: &Map) -> String {
    let place = |Whole { device, extent }: Whole| format!("device {} extent {}", device.0, extent.0);
    let mut text = String::new();
    for (id, volume) in &map.catalogue().volumes {
        let (hardening, copies) = (volume.hardening, volume.copies);
        writeln!(
            text,
            "volume {} {:?}: {} bytes, {hardening:?}, {copies} copies",
            id.0, volume.name, volume.size.0
        )
        .unwrap();
        map.for_each(*id, |index, value| match value {
            Value::Empty => {}
            Value::Direct(whole) => writeln!(text, "  {}: {}", index.0, place(*whole)).unwrap(),
            Value::Record(record) => {
                let (keep, copies, owners) = (record.space_reserved, record.copies, record.references);
                writeln!(text, "  {}: record, keep {keep}, {copies} copies, {owners} owners", index.0)
                    .unwrap();
                for p in &record.places {
                    let at = match &p.at {
                        Location::Whole(whole) => place(*whole),
                        Location::Fine { device, slots } => {
                            let slot = |s: &Slot| format!(" {}/{}", s.extent.0, s.block);
                            format!("device {} slots{}", device.0, slots.iter().map(slot).collect::<String>())
                        }
                    };
                    writeln!(text, "    {at}: blocks{}", runs(&p.valid)).unwrap();
                }
                if let Some(intent) = &record.intent {
                    writeln!(text, "    write intent: blocks{}", runs(intent)).unwrap();
                }
            }
        });
    }
    for (id, intent) in &map.catalogue().intents {
        writeln!(text, "intent {id}: {:?} {} from {}", intent.kind, intent.volume.0, intent.progress)
            .unwrap();
    }
    for sb in map.devices() {
        let space = map.space(sb.device);
        writeln!(
            text,
            "device {} {:?}: {} of {} extents free",
            sb.device.0,
            sb.device_name,
            space.free(),
            space.extents()
        )
        .unwrap();
    }
    writeln!(text, "next volume {}", map.catalogue().next_volume).unwrap();
    text
}

#[test]
fn version_1_pool_opens_unchanged() {
    let mut store = store_of(IMAGE);
    let superblocks = superblocks(SHAPE);
    for time in ["first", "second"] {
        let (map, older_root) = open(&mut store, &superblocks).expect("version 1 is read");
        assert_eq!(describe(&map), CONTENTS, "opened for the {time} time");
        assert_eq!((map.pool(), older_root), (POOL, false));
    }
}

/// Returns the image with a field of every superblock (or of the first copies only) replaced, with a correct
/// checksum.
fn with_field(at: usize, value: u64, bytes: usize, both: bool) -> MemStore {
    let mut store = store_of(IMAGE);
    for sb in superblocks(SHAPE) {
        let second = Superblock::second_at(sb.size).0 / PAGE as u64;
        for number in [0, second].into_iter().take(if both { 2 } else { 1 }) {
            let mut page = store.page(sb.device, number);
            page[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            page[8..12].fill(0);
            let crc = crc32c(&page);
            page[8..12].copy_from_slice(&crc.to_le_bytes());
            store.set_page(sb.device, number, page);
        }
    }
    store
}

/// The existing incompatible features: mirrored metadata, damaged devices, and devices that replaced others.
const KNOWN_BITS: [u32; 3] = [4, 5, 6];

#[test]
fn newer_format_is_refused() {
    let superblocks = superblocks(SHAPE);
    let advice = "use the version that wrote it, or a newer one";
    let newer = |at, value, bytes, both| {
        let error = open(&mut with_field(at, value, bytes, both), &superblocks).expect_err("it is newer");
        assert!(matches!(error, MapError::Unknown { .. }) && error.kind() == ErrorKind::Refused);
        error.to_string()
    };
    for both in [true, false] {
        assert_eq!(
            newer(12, 2, 4, both),
            format!(
                "device #0: format version 0x2 is not known to this version of weir (it knows 0x1); {advice}"
            )
        );
        for bit in 0..64 {
            if !KNOWN_BITS.contains(&bit) {
                let message = newer(16, 1 << bit, 8, both);
                assert!(
                    message.contains(&format!("incompatible feature bits {:#x}", 1u64 << bit)),
                    "{message}"
                );
            }
            let message = newer(24, 1 << bit, 8, both);
            assert!(message.contains("forbid writing") && message.ends_with(advice), "{message}");
        }
    }
    // Compatible features may be ignored.
    let (map, _) = open(&mut with_field(32, u64::MAX, 8, true), &superblocks).expect("they are compatible");
    assert_eq!(describe(&map), CONTENTS);
}

/// Flips any bit of any page of the image: the check reports it, or the page is not in use; and opening finds
/// the same contents, or refuses where the check reports damage. Only the last frame of a journal without a
/// mirror may be taken for a torn one.
#[test]
fn every_flipped_bit_is_detected() {
    let superblocks = superblocks(SHAPE);
    let sizes: Vec<_> = superblocks.iter().map(|sb| Some(sb.size)).collect();
    let whole = store_of(IMAGE);
    assert_eq!(weir_map::check(&mut whole.clone(), &sizes).findings, []);
    let (first, last) = (48, 48 + SHAPE.journal_pages);
    let (mut rng, mut silent) = (Rng(1), 0);
    for device in [DeviceId(0), DeviceId(1)] {
        for number in whole.pages(device).flat_map(|number| [number; 24]).collect::<Vec<_>>() {
            let bit = rng.below(PAGE as u64 * 8) as usize;
            let mut store = whole.clone();
            let mut page = store.page(device, number);
            page[bit / 8] ^= 1 << (bit % 8);
            store.set_page(device, number, page);
            let report = weir_map::check(&mut store, &sizes);
            let is_damage = report.worst_severity() == Some(weir_map::check::Severity::Damage);
            let at = format!("bit {bit} of page {number} of device {}", device.0);
            let in_journal = (first..last).contains(&number);
            match open(&mut store, &superblocks) {
                Err(error) => assert!(is_damage, "{at}: {error}, but {:#?}", report.findings),
                Ok((map, _)) => {
                    assert!(!is_damage, "{at}: {:#?}", report.findings);
                    let torn = in_journal && report.findings.iter().any(|f| f.what == "journal");
                    assert!(torn || describe(&map) == CONTENTS, "{at}: it opens with other contents");
                }
            }
            silent += u32::from(report.findings.is_empty());
            assert!(!report.findings.is_empty() || in_journal || !is_reached(&whole, number), "{at}");
        }
    }
    assert!(silent < 200, "{silent} flips were in nothing that counts");
}

/// Whether a page of the image is a superblock, a root, or in its map.
fn is_reached(whole: &MemStore, number: u64) -> bool {
    let mut without = whole.clone();
    without.set_page(DeviceId(0), number, [0; PAGE]);
    let sizes: Vec<_> = superblocks(SHAPE).iter().map(|sb| Some(sb.size)).collect();
    !weir_map::check(&mut without, &sizes).findings.is_empty()
}

#[test]
#[ignore = "writes the image anew: only when the version rises"]
#[allow(clippy::disallowed_methods, reason = "the one place that writes the image")]
fn write_image() {
    let mut store = sample();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    std::fs::write(format!("{folder}/v1.image.txt"), image_of(&store)).expect("the folder is there");
    let (map, _) = open(&mut store, &superblocks(SHAPE)).expect("what was written opens");
    std::fs::write(format!("{folder}/v1.contents.txt"), describe(&map)).expect("the folder is there");
    assert_eq!(map.members(), [META]);
}
