//! Each opening begins a new journal, so that no older frame is mistaken for one of it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::pool::{self, META, POOL, Shape};
use support::store::MemStore;
use weir_map::PAGE;
use weir_map::root::Root;
use weir_map::superblock::ROOT_AT;
use weir_model::{DeviceId, DeviceOffset, Store};

/// Returns the newest root.
fn newest(store: &mut MemStore) -> Root {
    let mut read = |at: DeviceOffset| {
        let mut page = vec![0; PAGE];
        store.read(META, at, &mut page).unwrap();
        Root::decode(&page, POOL)
    };
    ROOT_AT.into_iter().filter_map(&mut read).max_by_key(|root| root.sequence).unwrap()
}

#[test]
fn each_opening_begins_new_journal() {
    let sizes =
        pool::superblocks_of(Shape { extent_log2: 16, journal_pages: 64, meta_pages: 200 }, &[50, 50]);
    let mut store = MemStore::new(sizes.len());
    pool::create(&mut store, &sizes).unwrap();
    let mut before = newest(&mut store).journal;
    for away in [&[][..], &[], &[DeviceId(1)], &[]] {
        let (map, _) = pool::open_without(&mut store, &sizes, away).unwrap();
        let generation = map.devices()[META.index()].generation;
        let now = newest(&mut store).journal;
        assert!(now.journal > before.journal, "{now:?} after {before:?}");
        assert_eq!(
            u64::from(now.incarnation),
            generation,
            "{now:?}: frames of a history given up say nothing"
        );
        before = now;
    }
}
