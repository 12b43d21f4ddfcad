//! Every policy compared with its naive twin.

mod naive;
mod reference;

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const BLOCKS: u32 = 24;

/// A step for a block.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The block is used, and inserted if it is not there.
    Access(AccessKind),
    /// The block is used, but no block may leave for it.
    RefusedAccess,
    Remove,
}

fn steps() -> impl Strategy<Value = Vec<(Step, Block)>> {
    let what = prop_oneof![
        8 => Just(Step::Access(AccessKind::Read)),
        4 => Just(Step::Access(AccessKind::Write)),
        1 => Just(Step::RefusedAccess),
        1 => Just(Step::Remove),
    ];
    // Some blocks are used more often than others.
    let block = (0..BLOCKS, 0..BLOCKS).prop_map(|(a, b)| Block(a.min(b)));
    prop::collection::vec((what, block), 0..400)
}

fn accesses(steps: &[(Step, Block)]) -> Vec<Block> {
    steps.iter().filter(|(what, _)| !matches!(what, Step::Remove)).map(|(_, block)| *block).collect()
}

/// Plays the steps to a policy and its twin: they must answer alike.
fn assert_same_behavior(
    mut policy: impl Eviction,
    mut twin: impl Eviction,
    steps: &[(Step, Block)],
) -> Result<(), TestCaseError> {
    let mut access = 0;
    for &(what, block) in steps {
        let (used, may) = match what {
            Step::Access(used) => (used, true),
            Step::RefusedAccess => (AccessKind::Read, false),
            Step::Remove => {
                prop_assert_eq!(policy.remove(block), twin.remove(block));
                continue;
            }
        };
        policy.advance_to(access);
        twin.advance_to(access);
        access += 1;
        let hit = policy.hit(block, used);
        prop_assert_eq!(hit, twin.hit(block, used));
        if !hit {
            let asked = std::cell::Cell::new(None);
            let ours = policy.insert(block, |leaving| {
                asked.set(Some(leaving));
                may
            });
            prop_assert_eq!(ours, twin.insert(block, |leaving| asked.get() == Some(leaving) && may));
        }
    }
    for block in (0..BLOCKS).map(Block) {
        prop_assert_eq!(policy.remove(block), twin.remove(block), "{:?} at the end", block);
    }
    Ok(())
}

macro_rules! beside_twins {
    ($($name:literal: $module:ident::$policy:ident;)*) => {
        $(mod $module {
            use super::*;

            proptest! {
                #[test]
                fn matches_reference_model(capacity in 1u32..20, steps in steps()) {
                    let size = CacheSize { blocks: BLOCKS, capacity };
                    assert_same_behavior($policy::new(size), naive::$policy::new(size), &steps)?;
                }
            }
        })*
    };
}
crate::every_eviction_policy!(beside_twins);

proptest! {
    #[test]
    fn belady_matches_reference_model(capacity in 1u32..20, steps in steps()) {
        let size = CacheSize { blocks: BLOCKS, capacity };
        let accesses = accesses(&steps);
        let future = NextUses::new(&accesses, BLOCKS);
        let naive = naive::Belady::new(size, &accesses);
        assert_same_behavior(Belady::new(size, &accesses, &future), naive, &steps)?;
    }

    /// Belady is a bound: no policy that admits every miss has fewer.
    #[test]
    fn belady_is_a_lower_bound(capacity in 1u32..20, blocks in prop::collection::vec(0..BLOCKS, 0..600)) {
        let room = CacheSize { blocks: BLOCKS, capacity };
        let accesses: Vec<_> = blocks.into_iter().map(Block).collect();
        let future = NextUses::new(&accesses, BLOCKS);
        let bound = misses(Belady::new(room, &accesses, &future), &accesses);
        macro_rules! misses_of {
            ($($name:literal: $module:ident::$policy:ident;)*) => {
                [$(($name, misses($policy::new(room), &accesses))),*]
            };
        }
        let all = crate::every_eviction_policy!(misses_of);
        prop_assert!(all.iter().all(|(_, misses)| *misses >= bound), "{all:?} < {bound}");
    }
}

fn misses(mut policy: impl Eviction, accesses: &[Block]) -> usize {
    let mut misses = 0;
    for (at, block) in accesses.iter().enumerate() {
        policy.advance_to(at as u32);
        if !policy.hit(*block, AccessKind::Read) {
            policy.insert(*block, |_| true);
            misses += 1;
        }
    }
    misses
}
