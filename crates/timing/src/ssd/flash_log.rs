//! The flash as a log: which pages are copied and which blocks are erased because a page is written.
//!
//! The log itself is `weir-flash`'s. This crate knows only how long its work takes, so whoever creates a
//! model hands the log in.

use std::fmt::Debug;

/// Side effects of a page's write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionCost {
    /// Pages copied, each a read and a program.
    pub copied: u64,
    /// Pages of metadata programmed.
    pub metadata: u64,
}

/// The state of an SSD's flash.
pub trait FlashLog: Debug + Send {
    /// Writes a page of the drive, numbered from 0.
    fn write(&mut self, page: u64) -> CollectionCost;
}

impl FlashLog for Box<dyn FlashLog> {
    fn write(&mut self, page: u64) -> CollectionCost {
        (**self).write(page)
    }
}

/// Size of an SSD's flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashSize {
    /// Pages of the drive.
    pub pages: u64,
    /// Pages per block.
    pub block: u32,
    /// Over-provisioned share of all flash but reserve and open blocks, 0 to 1.
    pub spare: f64,
}

/// Creates the log of an empty drive.
pub type NewFlashLog = fn(FlashSize) -> Box<dyn FlashLog>;

/// Creates a log that never copies a page: flash that is overwritten in place. For drives without such a log,
/// and for tests in which it does not matter.
pub fn without_collection(_: FlashSize) -> Box<dyn FlashLog> {
    Box::new(InPlace)
}

/// Flash that is overwritten in place.
#[derive(Debug)]
struct InPlace;

impl FlashLog for InPlace {
    fn write(&mut self, _: u64) -> CollectionCost {
        CollectionCost::default()
    }
}
