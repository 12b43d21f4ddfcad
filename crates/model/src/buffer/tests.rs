//! The buddy allocator compared with a naive twin: one flag per block.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn runs_never_overlap_and_merge_when_freed(
        blocks in 1u32..3000,
        steps in prop::collection::vec((0..20, 1u32..200, any::<prop::sample::Index>()), 1..300),
    ) {
        let mut buddy = Buddy::new(blocks);
        let mut taken_blocks = vec![false; blocks as usize];
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (what, len, pick) in steps {
            if what == 0 {
                buddy.grow(Bytes(u64::from(len) * BLOCK), blocks);
                let all = (taken_blocks.len() + len as usize).min(blocks as usize * GROWTH_MAX as usize);
                taken_blocks.resize(all, false);
            } else if what < 10 || runs.is_empty() {
                let Some(at) = buddy.take(len) else { continue };
                for block in at..at + len.next_power_of_two() {
                    prop_assert!(!std::mem::replace(&mut taken_blocks[block as usize], true));
                }
                runs.push((at, len));
            } else {
                let (at, len) = runs.swap_remove(pick.index(runs.len()));
                taken_blocks[at as usize..(at + len.next_power_of_two()) as usize].fill(false);
                buddy.give(at, len);
            }
            prop_assert_eq!(buddy.free_blocks() as usize, taken_blocks.iter().filter(|t| !**t).count());
        }
        for (at, len) in runs {
            buddy.give(at, len);
        }
        prop_assert_eq!(buddy.free_blocks() as usize, taken_blocks.len());
        // After all merges, the largest run possible in the initial region is available.
        let largest = 1 << blocks.ilog2().min(Buddy::LEVELS as u32 - 1);
        prop_assert!(buddy.take(largest).is_some());
    }
}

#[test]
#[should_panic(expected = "given back twice")]
fn double_free_is_detected() {
    let mut buddy = Buddy::new(16);
    let at = buddy.take(16).unwrap();
    buddy.give(at, 16);
    buddy.give(at, 16);
}

#[test]
fn last_freed_run_is_allocated_first() {
    let mut memory = HeapMemory::new(Bytes::kib(64));
    let a = memory.take(Bytes(4096)).unwrap();
    let _keep_apart = memory.take(Bytes(4096)).unwrap();
    memory.give(a);
    assert_eq!(memory.take(Bytes(4096)), Some(a));
}
