//! `never`: what was evicted stays where it is until it is deleted.
//!
//! Source: TridentFS as its authors built it (section 5.3). Rule: nothing is promoted. Constants: none.
//!
//! When not: where the hot files change while the fast tier is full of files written earlier.

use super::Promotion;
use crate::eviction::items::{Item, ItemEviction};
use weir_model::Bytes;

#[derive(Debug)]
struct Never;

impl Promotion for Never {
    fn accessed(&mut self, _: Item, _: Bytes, _: &mut ItemEviction) -> bool {
        false
    }
}

pub(super) fn promotion() -> Box<dyn Promotion> {
    Box::new(Never)
}
