//! `always`: every item that is accessed returns, as to a cache that admits every miss.
//!
//! Source: folklore; the baseline of the others. Rule: each access promotes. Constants: none.
//!
//! When not: with scans, which replace what is hot, and cost an eviction for each item read.

use super::Promotion;
use crate::eviction::items::{Item, ItemEviction};
use weir_model::Bytes;

#[derive(Debug)]
struct Always;

impl Promotion for Always {
    fn accessed(&mut self, _: Item, _: Bytes, _: &mut ItemEviction) -> bool {
        true
    }
}

pub(super) fn promotion() -> Box<dyn Promotion> {
    Box::new(Always)
}
