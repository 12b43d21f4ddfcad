//! A pool of devices in memory, with metadata areas as small as a test wants.

use super::store::MemStore;
use weir_map::root::Root;
use weir_map::superblock::{JOURNAL_AT, ROOT_AT};
use weir_map::{Map, MapError, OpenOptions, PAGE, PoolId, Superblock};
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceOffset, DeviceSet, ExtentSize, Planted};

/// The metadata member.
pub const META: DeviceId = DeviceId(0);
pub const POOL: PoolId = PoolId([9; 16]);
/// The sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The extent size as a power of two: 16 to 18.
    pub extent_log2: u8,
    pub journal_pages: u64,
    pub meta_pages: u64,
}

pub fn superblocks(shape: Shape) -> Vec<Superblock> {
    superblocks_of(shape, &[150, 250])
}

/// Returns superblocks of devices with this many extents for data each.
pub fn superblocks_of(shape: Shape, devices: &[u32]) -> Vec<Superblock> {
    let extent = ExtentSize::new(Bytes(1 << shape.extent_log2)).expect("a valid size");
    let superblock = |(device, &data_extents): (u8, &u32)| {
        let member = device == META.0;
        let (journal_pages, meta_pages) =
            if member { (shape.journal_pages, shape.meta_pages) } else { (0, 0) };
        let metadata = JOURNAL_AT.0 + (journal_pages + meta_pages) * PAGE as u64;
        let data_at = metadata.next_multiple_of(extent.bytes().0);
        Superblock {
            pool: POOL,
            generation: 1,
            size: Bytes(data_at + u64::from(data_extents) * extent.bytes().0 + PAGE as u64),
            device: DeviceId(device),
            devices: devices.len() as u8,
            extent,
            class: DeviceClass::Ssd,
            incarnation: 0,
            journal_pages,
            meta_pages,
            data_at: DeviceOffset(data_at),
            data_extents,
            pool_name: "histories".into(),
            device_name: format!("device {device}"),
            members: DeviceSet::default(),
            missing: DeviceSet::default(),
            abandoned: DeviceSet::default(),
            damaged: DeviceSet::default(),
            damaged_since: 0,
            join_generations: Vec::new(),
        }
    };
    (0..).zip(devices).map(superblock).collect()
}

/// Creates a pool like `create`, but with metadata areas as small as a test wants.
pub fn create(store: &mut MemStore, superblocks: &[Superblock]) -> Result<(), MapError> {
    for sequence in 1..=2 {
        let root = Root::empty(sequence, 1);
        let page = ROOT_AT[root.slot()].0 / PAGE as u64;
        store.set_page(META, page, *root.encode(POOL));
    }
    superblocks.iter().try_for_each(|sb| weir_map::create::write_superblock(store, sb))
}

pub fn open(store: &mut MemStore, sizes: &[Superblock]) -> Result<(Map, bool), MapError> {
    open_without(store, sizes, &[])
}

/// Like [`open`], with these devices absent, which is accepted.
pub fn open_without(
    store: &mut MemStore,
    sizes: &[Superblock],
    away: &[DeviceId],
) -> Result<(Map, bool), MapError> {
    let mut found = Vec::new();
    for sb in sizes.iter().filter(|sb| !away.contains(&sb.device)) {
        let read = weir_map::create::read_superblock(store, sb.device, sb.size)?;
        found.push(read.expect("a pool was created"));
    }
    let without = away.iter().copied().collect();
    let options = OpenOptions { without, planted: Planted::for_tests(), ..OpenOptions::default() };
    let (map, recovery) = weir_map::open(store, &found, &options)?;
    Ok((map, recovery.older_root))
}
