//! `trident`: the smallest items go to flash and the largest to disks, so that loads become equal.
//!
//! Source: T.-C. Huang, D.-W. Chang, "TridentFS: a hybrid file system for non-volatile RAM, flash memory and
//! magnetic disk", Software: Practice and Experience 46, 2016, section 3.5 and figure 6.
//!
//! Rule: sort the items by size. While there are items: if the tier with the lowest load is flash, it gets
//! the smallest item, else it gets the largest; its load grows by the item's size divided by its measured
//! rate. With equal loads flash is first. The paper has one tier of each kind; with several, those without
//! seeks count as flash.
//!
//! Constants: none; the paper measures rates once a second ([`RateMeter`](super::RateMeter)).
//!
//! When not: with few items of very different sizes, a batch ends when the largest is written.

use super::{Distribution, TierLoad, default_rate, least_loaded};
use std::collections::VecDeque;
use weir_model::Bytes;

/// The algorithm of figure 6.
#[derive(Clone, Copy, Debug)]
pub struct Trident;

impl Distribution for Trident {
    fn distribute(&mut self, items: &[Bytes], tiers: &mut [TierLoad]) -> Vec<usize> {
        let default_rate = default_rate(tiers);
        let mut by_size: Vec<usize> = (0..items.len()).collect();
        by_size.sort_by_key(|item| items[*item]);
        let mut by_size = VecDeque::from(by_size);
        let mut targets = vec![0; items.len()];
        loop {
            let target = least_loaded(tiers);
            let next = if tiers[target].seeks { by_size.pop_back() } else { by_size.pop_front() };
            let Some(item) = next else { return targets };
            targets[item] = target;
            tiers[target].add(items[item], default_rate);
        }
    }
}
