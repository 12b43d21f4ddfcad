//! The map's state in memory: volumes, map pages, records, free space, and changes that are not durable.

pub(crate) mod catalogue;
pub(crate) mod extent_state;
pub(crate) mod overlay;
pub(crate) mod pages;
pub(crate) mod records;
pub(crate) mod space;
pub(crate) mod summary;
pub(crate) mod usage;
