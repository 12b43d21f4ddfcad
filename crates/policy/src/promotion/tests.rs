//! The rules of promotion.

use super::*;
use crate::eviction::Trident;
use crate::eviction::items::{FileKey, Part};
use proptest::prelude::*;

fn data(file: u64) -> Item {
    Item { file: FileKey(file), part: Part::Data }
}

/// A tier with one item of this size, accessed once, after `evictions` evictions.
fn resident(size: u64, evictions: u64) -> ItemEviction {
    let mut items = ItemEviction::new(Box::new(Trident { omega: 1000.0 }));
    for nth in 0..evictions {
        items.access(data(1000 + nth), Bytes(1));
        items.evict();
    }
    items.access(data(0), Bytes(size));
    items
}

#[test]
fn an_item_is_promoted_at_its_second_access_if_it_is_hotter_than_the_next_to_leave() {
    let mut hot = PromotionPolicy::by_name("hot").expect("known").start();
    let mut large = resident(4000, 3);
    assert!(!hot.accessed(data(7), Bytes(4000), &mut large), "a first access");
    assert!(hot.accessed(data(7), Bytes(4000), &mut large), "two accesses against one");
    assert!(!hot.accessed(data(7), Bytes(4000), &mut large), "promoted: the count begins again");
    let mut small = resident(100, 3);
    assert!(
        !hot.accessed(data(8), Bytes(4000), &mut small) && !hot.accessed(data(8), Bytes(4000), &mut small)
    );
    hot.removed(data(8));
    assert!(!hot.accessed(data(8), Bytes(10), &mut small), "a new file of that number");
    assert!(hot.accessed(data(8), Bytes(10), &mut small));
    let mut empty = ItemEviction::new(Box::new(Trident { omega: 1000.0 }));
    hot.accessed(data(9), Bytes(10), &mut empty);
    assert!(hot.accessed(data(9), Bytes(10), &mut empty), "nothing would leave");
}

proptest! {
    /// A naive twin: counts in a vector, and equation (1) written out.
    #[test]
    fn hot_matches_its_naive_twin(
        size in 1u64..5000, evictions in 0u64..20,
        accesses in prop::collection::vec((1u64..6, 1u64..9000), 0..60),
    ) {
        let mut hot = hot::promotion();
        let mut items = resident(size, evictions);
        let mut counts = [0u64; 6];
        let lowest = evictions as f64 + 1000.0 / size as f64;
        for (file, len) in accesses {
            let count = &mut counts[file as usize];
            *count += 1;
            let score = evictions as f64 + 1000.0 * *count as f64 / len as f64;
            let expected = *count >= 2 && score > lowest;
            if expected {
                *count = 0;
            }
            prop_assert_eq!(hot.accessed(data(file), Bytes(len), &mut items), expected);
        }
    }
}
