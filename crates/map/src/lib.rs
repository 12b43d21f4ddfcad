//! Where every extent is: thin volumes, free space, journal, checkpoints, recovery.
//!
//! [`Map`] holds two things: the *durable* map (what recovery would find: volumes, map pages,
//! records) and over it the changes not yet durable ([`overlay`]). A change goes
//!
//! 1. into effect: [`Map::written`], [`Map::cleared`] and their kin, seen by [`Map::find`] at once;
//! 2. into a commit, once the data it refers to is durable: [`Map::next_frame`];
//! 3. into the durable map, once the frame is: [`Map::commit_durable`], by the very function that
//!    replays frames after a power cut;
//! 4. into map pages on the disk: checkpoints.
//!
//! The format on disk is specified in `docs/format.md`. Pure: bytes come and go through
//! [`weir_model::Store`] (creating, opening) or are handed to the engine to be written.
#![forbid(unsafe_code)]

mod batch;
mod blocks;
mod catalogue;
pub mod check;
mod checkpoint;
mod checksum;
mod codec;
pub mod commit;
pub mod create;
pub mod delta;
mod error;
mod expected;
pub mod journal;
mod level;
mod map;
mod members;
mod narrow;
pub mod open;
pub mod outdated;
mod overlay;
mod owners;
pub mod page;
mod pages;
mod places;
mod reader;
mod records;
pub mod root;
mod settle;
mod space;
pub mod superblock;
pub mod table;
mod usage;
mod value;
mod withdraw;

pub use blocks::BlockSet;
pub use catalogue::{Catalogue, Hardening, Intent, IntentKind, NAME_MAX, Volume};
pub use check::check;
pub use checksum::crc32c;
pub use create::{NewDevice, NewPool, create};
pub use error::MapError;
pub use expected::ExpectedRecovery;
pub use map::{Found, KeepSpace, Map, MapMemory, MapRoom};
pub use members::OpenOptions;
pub use open::{Recovery, open};
pub use overlay::{Epoch, Needs};
pub use places::{Copied, WHOLE_MAX};
pub use space::Space;
pub use superblock::{PoolId, Reading, Superblock};
pub use usage::Usage;
pub use value::{Chunk, Location, PLACES_MAX, PageId, Place, Record, RecordId, Slot, Value, Whole, Word};

/// Bytes of a metadata page.
pub const PAGE: usize = 4096;
