//! Damage to pages that the newest root reaches: the older root replaces it if its journal leads to the
//! newest one's position.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::pool::{self, META, Shape};
use support::store::MemStore;
use weir_map::check::Severity;
use weir_map::root::Root;
use weir_map::superblock::ROOT_AT;
use weir_map::{Hardening, Map, MapError, PAGE, Superblock};
use weir_model::{Bytes, DeviceOffset, Store};

/// Makes a durable change. Returns the offset of its frame.
fn commit(map: &mut Map, store: &mut MemStore, name: &str) -> DeviceOffset {
    map.create_volume(name, Bytes::mib(1), Hardening::Flush, 1);
    map.begin_commit();
    let mut bytes = Vec::new();
    let at = map.next_frame(|_| None, &mut bytes).unwrap();
    store.write(META, at, &bytes).unwrap();
    assert!(map.next_frame(|_| None, &mut bytes).is_none());
    map.finish_commit(&mut Vec::new());
    at
}

/// Writes a checkpoint. Returns its pages.
fn checkpoint(map: &mut Map, store: &mut MemStore) -> Vec<u64> {
    map.begin_checkpoint().unwrap();
    let (mut bytes, mut pages) = (Vec::new(), Vec::new());
    while let Some(at) = map.next_pages(8 * PAGE, &mut bytes) {
        store.write(META, at, &bytes).unwrap();
        let first = at.0 / PAGE as u64;
        pages.extend(first..first + (bytes.len() / PAGE) as u64);
    }
    let (root, page, at) = map.finished_root().unwrap();
    store.write(META, at, &page[..]).unwrap();
    map.finish_checkpoint(root);
    pages
}

/// Sets up a pool with a volume in each of two frames and a root after them whose pages are damaged. Returns
/// the offset of the first frame.
fn pool() -> (MemStore, Vec<Superblock>, DeviceOffset) {
    let sizes = pool::superblocks(Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 });
    let mut store = MemStore::new(sizes.len());
    pool::create(&mut store, &sizes).unwrap();
    let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
    let first = commit(&mut map, &mut store, "one");
    commit(&mut map, &mut store, "two");
    for page in checkpoint(&mut map, &mut store) {
        store.set_page(META, page, [0; PAGE]);
    }
    (store, sizes, first)
}

fn worst(store: &mut MemStore, superblocks: &[Superblock]) -> Option<Severity> {
    let sizes: Vec<_> = superblocks.iter().map(|superblock| Some(superblock.size)).collect();
    weir_map::check(store, &sizes).worst_severity()
}

#[test]
fn older_root_recovers_everything() {
    let (mut store, sizes, _) = pool();
    assert_eq!(worst(&mut store, &sizes), Some(Severity::CopyDamaged));
    let (map, older_root) = pool::open(&mut store, &sizes).unwrap();
    assert!(older_root);
    assert_eq!(map.catalogue().volumes.len(), 2);
}

#[test]
fn missing_frame_is_not_the_end() {
    let (mut store, sizes, first) = pool();
    store.set_page(META, first.0 / PAGE as u64, [0; PAGE]);
    assert_eq!(worst(&mut store, &sizes), Some(Severity::Damage));
    assert!(matches!(pool::open(&mut store, &sizes), Err(MapError::Damaged { .. })));
}

#[test]
fn last_seen_frame_is_required() {
    let (mut store, sizes, first) = pool();
    // Only the root proves that the frame was there.
    store.set_page(META, first.0 / PAGE as u64 + 1, [0; PAGE]);
    assert_eq!(worst(&mut store, &sizes), Some(Severity::Damage));
    assert!(matches!(pool::open(&mut store, &sizes), Err(MapError::Damaged { .. })));
}

#[test]
fn newest_root_journal_is_not_forgotten() {
    for frames in [0, 1] {
        let (mut store, sizes, _) = pool();
        drop(pool::open(&mut store, &sizes).unwrap());
        let before: Vec<_> = ROOT_AT.map(|at| store.page(META, at.0 / PAGE as u64)).into();
        let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
        for _ in 0..frames {
            commit(&mut map, &mut store, "three");
        }
        // Opening wrote two roots for its new journal. The second was lost, and a page of the first is
        // damaged; the root of the previous journal is left.
        let roots =
            ROOT_AT.map(|at| Root::decode(&store.page(META, at.0 / PAGE as u64), pool::POOL).unwrap());
        let [first, second] = if roots[0].sequence < roots[1].sequence { [0, 1] } else { [1, 0] };
        store.set_page(META, ROOT_AT[second].0 / PAGE as u64, before[second]);
        let page = sizes[0].pages_at().0 / PAGE as u64 + roots[first].catalogue.number.0;
        store.set_page(META, page, [0; PAGE]);
        let opened = pool::open(&mut store.clone(), &sizes);
        if frames == 0 {
            assert_eq!(worst(&mut store, &sizes), Some(Severity::CopyDamaged));
            assert_eq!(opened.unwrap().0.catalogue().volumes.len(), 2);
        } else {
            assert_eq!(worst(&mut store, &sizes), Some(Severity::Damage));
            assert!(matches!(opened, Err(MapError::Damaged { .. })), "what was durable would be gone");
        }
    }
}

#[test]
fn rootless_journal_is_not_forgotten() {
    for frames in [0, 1] {
        let (mut store, sizes, _) = pool();
        drop(pool::open(&mut store, &sizes).unwrap());
        let before = ROOT_AT.map(|at| store.page(META, at.0 / PAGE as u64));
        let (mut map, _) = pool::open(&mut store, &sizes).unwrap();
        for _ in 0..frames {
            commit(&mut map, &mut store, "three");
        }
        for (at, page) in ROOT_AT.into_iter().zip(before) {
            store.set_page(META, at.0 / PAGE as u64, page);
        }
        let worst = worst(&mut store, &sizes);
        let opened = pool::open(&mut store, &sizes);
        assert_eq!((opened.is_ok(), worst == Some(Severity::Damage)), (frames == 0, frames == 1));
    }
}
