//! Superblocks survive encoding; damage, foreign data and newer versions are distinguished.

use super::*;
use proptest::prelude::*;

fn sample() -> Superblock {
    Superblock {
        pool: PoolId([7; 16]),
        generation: 3,
        size: Bytes::gib(1),
        device: DeviceId(1),
        devices: 3,
        extent: ExtentSize::DEFAULT,
        class: DeviceClass::Hdd,
        incarnation: 2,
        journal_pages: 16,
        meta_pages: 64,
        data_at: DeviceOffset(1 << 20),
        data_extents: 1000,
        pool_name: "home".into(),
        device_name: "länger".into(),
        members: DeviceSet::default(),
        missing: [DeviceId(0), DeviceId(2)].into_iter().collect(),
        abandoned: [DeviceId(2)].into_iter().collect(),
        damaged: [DeviceId(2)].into_iter().collect(),
        damaged_since: 2,
        join_generations: vec![0, 7, 0],
    }
}

#[test]
fn superblock_round_trips() {
    assert_eq!(Superblock::decode(&sample().encode()[..]), Reading::Good(Box::new(sample())));
}

#[test]
fn foreign_damaged_and_newer_are_distinguished() {
    assert_eq!(Superblock::decode(&[0; PAGE]), Reading::Absent);
    assert_eq!(Superblock::decode(b"short"), Reading::Absent);
    let mut damaged = sample().encode();
    damaged[60] ^= 1;
    assert_eq!(Superblock::decode(&damaged[..]), Reading::Damaged);
    let mut newer = sample().encode();
    newer[12] = 2;
    let crc = crc32c_without(&newer[..], CRC_AT);
    newer[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    let Reading::Unknown { what, found, .. } = Superblock::decode(&newer[..]) else {
        panic!("a newer version")
    };
    assert_eq!((what, found), ("format version", 2));
}

#[test]
fn impossible_layout_is_damage() {
    let mut wrong = sample();
    wrong.data_extents = 100_000;
    assert_eq!(Superblock::decode(&wrong.encode()[..]), Reading::Damaged);
}

#[test]
fn newer_valid_copy_is_selected() {
    let old = Reading::Good(Box::new(sample()));
    let mut newer = sample();
    newer.generation = 4;
    let new = Reading::Good(Box::new(newer.clone()));
    let choose = |a, b| Superblock::select_newer(DeviceId(1), a, b);
    assert_eq!(choose(old.clone(), new.clone()).unwrap(), Some(newer.clone()));
    assert_eq!(choose(Reading::Damaged, new).unwrap(), Some(newer));
    assert_eq!(choose(Reading::Absent, Reading::Absent).unwrap(), None);
    assert!(matches!(choose(Reading::Damaged, Reading::Absent), Err(MapError::Damaged { .. })));
}

proptest! {
    #[test]
    fn arbitrary_page_never_panics(
        mut page in prop::collection::vec(any::<u8>(), PAGE),
        fix in any::<bool>(),
    ) {
        page[..8].copy_from_slice(&MAGIC);
        if fix {
            page[12..40].fill(0);
            page[12] = 1;
            let crc = crc32c_without(&page, CRC_AT);
            page[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        }
        Superblock::decode(&page);
    }
}

/// A device with the same good page everywhere, which fails to read at these offsets.
struct Unreadable(Vec<DeviceOffset>);

impl weir_model::Store for Unreadable {
    fn read(&mut self, _: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), weir_model::IoError> {
        bytes.copy_from_slice(&sample().encode()[..]);
        if self.0.contains(&at) { Err(weir_model::IoError::Os(weir_model::Errno::EIO)) } else { Ok(()) }
    }
    fn write(&mut self, _: DeviceId, _: DeviceOffset, _: &[u8]) -> Result<(), weir_model::IoError> {
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), weir_model::IoError> {
        Ok(())
    }
}

#[test]
fn one_readable_copy_suffices() {
    let size = sample().size;
    let copies = [DeviceOffset(0), Superblock::second_at(size)];
    for bad in copies {
        let read = crate::open::create::read_superblock(&mut Unreadable(vec![bad]), DeviceId(1), size);
        assert_eq!(read.expect("the other copy"), Some(sample()));
    }
    let neither = crate::open::create::read_superblock(&mut Unreadable(copies.to_vec()), DeviceId(1), size);
    assert!(matches!(neither, Err(MapError::Io { .. })));
}
