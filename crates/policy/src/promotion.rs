//! Promotion: which evicted item returns to the fast tier when it is accessed.
//!
//! The publication of TridentFS leaves this for later work (section 5.3): keep the counts of evicted items,
//! compute their score by its equation (1), and bring back what exceeds a threshold. There is one file per
//! policy; [`PROMOTION`] lists them.

mod always;
mod hot;
mod never;
#[cfg(test)]
mod tests;

pub use hot::{ACCESSES_MIN, Hot};

use crate::eviction::items::{Item, ItemEviction};
use std::fmt;
use weir_model::Bytes;

/// Selects items to promote.
pub trait Promotion: fmt::Debug + Send {
    /// Reports an access to an item outside the fast tier, and returns whether the item is to be promoted.
    /// `resident` are the items of the fast tier.
    fn accessed(&mut self, item: Item, size: Bytes, resident: &mut ItemEviction) -> bool;

    /// Reports that an item was deleted.
    fn removed(&mut self, item: Item) {
        let _ = item;
    }
}

/// A promotion policy.
#[derive(Clone, Copy, Debug)]
pub struct PromotionPolicy {
    /// Its name.
    pub name: &'static str,
    /// Its rule in a line.
    pub about: &'static str,
    make: fn() -> Box<dyn Promotion>,
}

/// All promotion policies, the default first.
pub const PROMOTION: &[PromotionPolicy] = &[
    PromotionPolicy { name: "hot", about: "an item hotter than the next to leave", make: hot::promotion },
    PromotionPolicy { name: "never", about: "nothing, as published", make: never::promotion },
    PromotionPolicy { name: "always", about: "every accessed item", make: always::promotion },
];

impl PromotionPolicy {
    /// Returns the policy of this name; `None` if there is none.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROMOTION.iter().find(|policy| policy.name == name)
    }

    /// Creates the policy, without history.
    pub fn start(&self) -> Box<dyn Promotion> {
        (self.make)()
    }
}
