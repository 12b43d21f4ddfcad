//! Every policy compared with its naive twin.

mod naive;
mod reference;

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const BLOCKS: u32 = 24;

/// A step for a block.
#[derive(Clone, Copy, Debug)]
enum What {
    /// The block is used, and inserted if it is not there.
    Asked(Use),
    /// The block is used, but no block may leave for it.
    AskedInVain,
    Removed,
}

fn steps() -> impl Strategy<Value = Vec<(What, Block)>> {
    let what = prop_oneof![
        8 => Just(What::Asked(Use::Read)),
        4 => Just(What::Asked(Use::Write)),
        1 => Just(What::AskedInVain),
        1 => Just(What::Removed),
    ];
    // Some blocks are used more often than others.
    let block = (0..BLOCKS, 0..BLOCKS).prop_map(|(a, b)| Block(a.min(b)));
    prop::collection::vec((what, block), 0..400)
}

fn accesses(steps: &[(What, Block)]) -> Vec<Block> {
    steps.iter().filter(|(what, _)| !matches!(what, What::Removed)).map(|(_, block)| *block).collect()
}

/// Plays the steps to a policy and its twin: they must answer alike.
fn agree(
    mut policy: impl Eviction,
    mut twin: impl Eviction,
    steps: &[(What, Block)],
) -> Result<(), TestCaseError> {
    let mut access = 0;
    for &(what, block) in steps {
        let (used, may) = match what {
            What::Asked(used) => (used, true),
            What::AskedInVain => (Use::Read, false),
            What::Removed => {
                prop_assert_eq!(policy.remove(block), twin.remove(block));
                continue;
            }
        };
        policy.reach(access);
        twin.reach(access);
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
                fn agrees_with_its_twin(capacity in 1u32..20, steps in steps()) {
                    let room = Room { blocks: BLOCKS, capacity };
                    agree($policy::new(room), naive::$policy::new(room), &steps)?;
                }
            }
        })*
    };
}
crate::every_eviction_policy!(beside_twins);

proptest! {
    #[test]
    fn belady_agrees_with_its_twin(capacity in 1u32..20, steps in steps()) {
        let room = Room { blocks: BLOCKS, capacity };
        let accesses = accesses(&steps);
        let future = Future::new(&accesses, BLOCKS);
        agree(Belady::new(room, &accesses, &future), naive::Belady::new(room, &accesses), &steps)?;
    }

    /// Belady is a bound: no policy that admits every miss has fewer.
    #[test]
    fn nobody_misses_less_than_belady(capacity in 1u32..20, blocks in prop::collection::vec(0..BLOCKS, 0..600)) {
        let room = Room { blocks: BLOCKS, capacity };
        let accesses: Vec<_> = blocks.into_iter().map(Block).collect();
        let future = Future::new(&accesses, BLOCKS);
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
        policy.reach(at as u32);
        if !policy.hit(*block, Use::Read) {
            policy.insert(*block, |_| true);
            misses += 1;
        }
    }
    misses
}
