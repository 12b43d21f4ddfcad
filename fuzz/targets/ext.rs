//! Reads arbitrary bytes as a superblock with its descriptors. The result is metadata within the volume, or
//! none, never a panic.
#![no_main]

use weir_model::Bytes;
use weir_policy::ext::{Layout, Ranges};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let size = Bytes(1 << 40);
    let (start, table) = bytes.split_at(bytes.len().min(4096));
    if let Some(layout) = Layout::read(start, size) {
        let mut found = Ranges::default();
        layout.add_superblock_ranges(&mut found);
        layout.add_group_ranges(layout.descriptors().0, table, &mut found);
        assert!(found.bytes() <= size);
    }
});
