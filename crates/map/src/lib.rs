//! The map of a pool: the place of every extent, thin volumes, free space, journal, checkpoints, recovery.
//!
//! [`Map`] contains the *durable* map (the state that recovery would find: volumes, map pages, records) and,
//! over it, the changes that are not yet durable ([`state::overlay`]). A change goes through four steps:
//!
//! 1. it becomes visible: [`Map::mark_written`], [`Map::clear_blocks`] and the like; [`Map::find`] sees it at
//!    once;
//! 2. it enters a commit, once the data it refers to is durable: [`Map::next_frame`];
//! 3. it enters the durable map, once the frame is durable: [`Map::finish_commit`], by the same function
//!    that replays frames after a power loss;
//! 4. it reaches map pages on the disk, by a checkpoint.
//!
//! `docs/reference/format.md` specifies the format on disk. The crate is pure: bytes pass through
//! [`weir_model::Store`] (creating, opening) or are handed to the engine to be written.
#![forbid(unsafe_code)]

mod change;
pub mod check;
mod error;
mod format;
mod log;
mod map;
pub mod open;
mod state;

pub use change::commit;
pub use format::{page, root, superblock, table};
pub use log::{delta, journal};
pub use open::{create, outdated};

pub use change::places::{CopyOutcome, WHOLE_PLACES_MAX};
pub use check::check;
pub use error::MapError;
pub use format::blocks::BlockSet;
pub use format::checksum::crc32c;
pub use format::superblock::{PoolId, Reading, Superblock};
pub use format::value::{
    Chunk, Location, PLACES_MAX, PageId, Place, Record, RecordId, Slot, Value, Whole, Word,
};
pub use map::{Map, MapMemory, MapSpace, SpaceReservation};
pub use open::create::{NewDevice, NewPool, create};
pub use open::expected::ExpectedRecovery;
pub use open::members::OpenOptions;
pub use open::replace::{replace, replace_with_layout};
pub use open::{Recovery, open};
pub use state::catalogue::{Catalogue, Hardening, Intent, IntentKind, NAME_MAX, Volume};
pub use state::extent_state::ExtentState;
pub use state::overlay::{Epoch, Needs};
pub use state::space::Space;
pub use state::usage::Usage;

/// The size of a metadata page in bytes.
pub const PAGE: usize = 4096;
