//! File-system metadata found by the volume's superblock.

use super::harness::Harness;
use weir_model::{Bytes, Errno, IoError, IoKind, Nanos, PlaceKind};
use weir_policy::placement::{Placement, by_name};

/// Returns the first two blocks of a file system of 8192 blocks of 4 KiB in one group, with bitmaps at blocks
/// 20 and 21 and 4 blocks of inodes at 40.
fn file_system() -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let mut put = |at: usize, number: &[u8]| bytes[at..][..number.len()].copy_from_slice(number);
    put(1024 + 0x04, &8192u32.to_le_bytes());
    put(1024 + 0x18, &2u32.to_le_bytes());
    put(1024 + 0x20, &32_768u32.to_le_bytes());
    put(1024 + 0x28, &128u32.to_le_bytes());
    put(1024 + 0x38, &0xEF53u16.to_le_bytes());
    for (at, block) in [(0, 20), (4, 21), (8, 40)] {
        put(4096 + at, &u32::to_le_bytes(block));
    }
    bytes
}

fn found(h: &Harness) -> Option<Bytes> {
    h.engine.volumes().next().expect("a volume").metadata
}

/// Returns how many blocks of the volume's first extents are in slots.
fn in_slots(h: &Harness) -> u32 {
    let records = (0..2).filter_map(|i| h.record(h.key(i)));
    let places = records.flat_map(|record| record.places);
    places.filter(|p| p.at.id().kind == PlaceKind::Fine).map(|p| p.valid.count()).sum()
}

fn metadata_on_fast() -> Box<dyn Placement> {
    by_name("metadata_on_fast").expect("a policy")
}

#[test]
fn metadata_found_by_superblock_is_hinted() {
    let mut h = Harness::new(2, "sequential");
    h.engine.set_policy(h.now(), metadata_on_fast());
    h.run();
    assert_eq!(found(&h), None, "there is none yet");
    h.write(0, &file_system());
    h.write(20 * 4096, &[1; 8192]);
    assert_eq!((found(&h), in_slots(&h)), (None, 0));
    h.wait(Nanos::secs(6));
    // Superblock and descriptors, two bitmaps, and inodes of 128 bytes.
    assert_eq!(found(&h), Some(Bytes((2 + 2 + 4) * 4096)));
    h.write(20 * 4096, &[2; 8192]);
    h.write(22 * 4096, &[3; 4096]);
    assert_eq!(in_slots(&h), 2, "the bitmaps, not what lies beside them");
    // A superblock written just before its read is read once more.
    h.write(0, &[0; 4096]);
    h.wait(Nanos::millis(4999));
    h.write(0, &file_system());
    h.wait(Nanos::secs(6));
    assert_eq!(found(&h), Some(Bytes(8 * 4096)));
    // A superblock written again is read again, with the same result; without one there is no result.
    h.write(0, &file_system());
    h.wait(Nanos::secs(6));
    assert_eq!(found(&h), Some(Bytes(8 * 4096)));
    h.write(0, &[0; 4096]);
    h.wait(Nanos::secs(6));
    assert_eq!(found(&h), None);
}

#[test]
fn unreadable_superblock_gives_no_hints() {
    let mut h = Harness::new(2, "sequential");
    h.engine.set_policy(h.now(), metadata_on_fast());
    h.run();
    h.write(0, &file_system());
    (0..3).for_each(|_| h.fail_next(IoKind::Read, IoError::Os(Errno::EIO)));
    h.wait(Nanos::secs(6));
    assert_eq!(found(&h), None);
    h.write(0, &file_system());
    h.wait(Nanos::secs(6));
    assert_eq!(found(&h), Some(Bytes(8 * 4096)));
    // A policy that does not watch metadata causes no survey.
    h.flush().expect("a flush");
    h.reopen();
    h.wait(Nanos::secs(6));
    assert_eq!(found(&h), None);
    h.engine.set_policy(h.now(), metadata_on_fast());
    h.wait(Nanos::secs(1));
    assert_eq!(found(&h), Some(Bytes(8 * 4096)), "it was there");
}
