//! Decodes an arbitrary page as a superblock, at times with corrected checksums so that their contents are
//! reached. An accepted superblock encodes to a page that decodes to the same superblock.
#![no_main]

use weir_map::superblock::{Reading, Superblock};

const PAGE: usize = weir_map::PAGE;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut page = [0; PAGE];
    let len = bytes.len().min(PAGE);
    page[..len].copy_from_slice(&bytes[..len]);
    if bytes.first() == Some(&b'f') {
        page[..8].copy_from_slice(b"weirSB01");
        page[8..12].fill(0);
        let crc = weir_map::crc32c(&page);
        page[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    if let Reading::Good(superblock) = Superblock::decode(&page) {
        assert_eq!(Superblock::decode(&superblock.encode()[..]), Reading::Good(superblock));
    }
});
