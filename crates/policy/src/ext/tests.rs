use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Returns a superblock of this many blocks of 4 KiB, as mke2fs writes it, in the first 4 KiB of a volume.
fn superblock(blocks: u64, wide: bool) -> Vec<u8> {
    let mut start = vec![0; 4096];
    let mut put =
        |at: usize, bytes: &[u8]| start[SUPERBLOCK_OFFSET + at..][..bytes.len()].copy_from_slice(bytes);
    put(0x04, &(blocks as u32).to_le_bytes());
    put(0x18, &2u32.to_le_bytes());
    put(0x20, &32_768u32.to_le_bytes());
    put(0x28, &8_192u32.to_le_bytes());
    put(0x38, &MAGIC.to_le_bytes());
    put(0x4C, &1u32.to_le_bytes());
    put(0x58, &256u16.to_le_bytes());
    put(0xCE, &15u16.to_le_bytes());
    if wide {
        put(0x60, &WIDE_DESCRIPTORS.to_le_bytes());
        put(0xFE, &64u16.to_le_bytes());
    }
    start
}

#[test]
fn metadata_ranges_match_descriptors() {
    for (wide, size) in [(false, 32), (true, 64)] {
        let blocks = 3 * 32_768;
        let layout = Layout::read(&superblock(blocks, wide), Bytes(blocks * BLOCK)).expect("a file system");
        assert_eq!(layout.descriptors(), (Bytes(4096), Bytes(4096 + 3 * size)));
        let mut found = Ranges::default();
        layout.add_superblock_ranges(&mut found);
        assert!(found.contains(0, 17) && !found.contains(17, 1), "{found:?}");
        let mut table = vec![0; 4096];
        for group in 0..3u32 {
            let one = &mut table[group as usize * size as usize..];
            for (at, block) in [(0, 100 + group), (4, 110 + group), (8, 1000 + 512 * group)] {
                one[at..at + 4].copy_from_slice(&block.to_le_bytes());
            }
        }
        layout.add_group_ranges(Bytes(4096), &table, &mut found);
        assert!(found.contains(100, 3) && found.contains(110, 3) && found.contains(1000, 3 * 512));
        assert_eq!(found.bytes(), Bytes((17 + 3 + 3 + 3 * 512) * BLOCK));
        // The same piece by piece: descriptors do not cross blocks.
        let mut again = Ranges::default();
        layout.add_superblock_ranges(&mut again);
        layout.add_group_ranges(Bytes(0), &[vec![0; 4096], table].concat(), &mut again);
        assert_eq!(again, found);
    }
}

#[test]
fn implausible_superblock_is_ignored() {
    let blocks = 32_768;
    let size = Bytes(blocks * BLOCK);
    let good = superblock(blocks, false);
    assert!(Layout::read(&good, size).is_some());
    assert_eq!(Layout::read(&good, Bytes(size.0 - 1)), None, "larger than the volume");
    assert_eq!(Layout::read(&good[..1100], size), None);
    for (at, byte) in [(0x38, 0), (0x18, 9), (0x18, 200), (0x22, 255), (0x60, META_BG as u8), (0x28 + 3, 9)] {
        let mut bad = good.clone();
        bad[SUPERBLOCK_OFFSET + at] = byte;
        assert_eq!(Layout::read(&bad, size), None, "{at:#x}");
    }
}

proptest! {
    #[test]
    fn arbitrary_volume_never_panics(
        mut start in prop::collection::vec(any::<u8>(), 4096),
        plausible in any::<bool>(),
        table in prop::collection::vec(any::<u8>(), 0..9000),
        at in 0u64..20_000,
        size in any::<u64>(),
    ) {
        if plausible {
            let seed = start.clone();
            start = superblock(32_768 * 9, seed[0] % 2 == 0);
            let at = usize::from(seed[1]) % 0x160;
            start[SUPERBLOCK_OFFSET + at] = seed[2];
        } else {
            start[SUPERBLOCK_OFFSET + 0x38..SUPERBLOCK_OFFSET + 0x3A].copy_from_slice(&MAGIC.to_le_bytes());
        }
        if let Some(layout) = Layout::read(&start, Bytes(size)) {
            let mut found = Ranges::default();
            layout.add_superblock_ranges(&mut found);
            layout.add_group_ranges(Bytes(at), &table, &mut found);
            prop_assert!(found.bytes().0 <= size.next_multiple_of(BLOCK), "{:?} of {size}", found.bytes());
        }
    }

    #[test]
    fn ranges_match_set_model(steps in prop::collection::vec((0u64..200, 1u64..20), 0..60)) {
        let (mut ranges, mut twin) = (Ranges::default(), BTreeSet::new());
        for (first, count) in steps {
            ranges.insert(first, first + count);
            twin.extend(first..first + count);
            prop_assert!(ranges.0.windows(2).all(|w| w[0].1 < w[1].0), "{ranges:?}");
        }
        prop_assert_eq!(ranges.bytes(), Bytes(twin.len() as u64 * BLOCK));
        for first in 0..230 {
            for count in [1, 3] {
                let expected = (first..first + count).all(|b| twin.contains(&b));
                prop_assert_eq!(ranges.contains(first, count), expected);
            }
        }
    }
}
