//! The format on the devices, encoded and decoded: superblocks, roots, pages, records. See
//! `docs/reference/format.md`.

pub(crate) mod blocks;
pub(crate) mod checksum;
pub(crate) mod codec;
pub mod page;
pub mod root;
pub mod superblock;
pub mod table;
pub(crate) mod value;
