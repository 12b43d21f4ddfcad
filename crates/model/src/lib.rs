//! The common vocabulary: units, addresses, ids, requests, device commands, buffers.
//!
//! This crate has no behaviour beyond arithmetic on its own types. Read [`request`] first: it defines what a
//! client may request; then [`io`]: the commands that the engine sends to devices.
//!
//! The crate is pure: no I/O, no clock, no threads, no `unsafe`, no randomness except from a [`Seed`].
#![forbid(unsafe_code)]

pub mod buffer;
pub mod device;
pub mod device_set;
pub mod errno;
pub mod error;
pub mod extent;
pub mod io;
pub mod mutant;
pub mod request;
pub mod rng;
pub mod socket;
pub mod store;
pub mod units;

pub use buffer::{Buddy, Buffer, GROWTH_MAX, HeapMemory, Memory};
pub use device::{DeviceClass, DeviceId};
pub use device_set::DeviceSet;
pub use errno::Errno;
pub use error::{ErrorKind, IoError, RequestError};
pub use extent::{BlockRange, DeviceExtent, ExtentIndex, ExtentKey, ExtentSize, PlaceId, PlaceKind, Span};
pub use io::{Io, IoCompletion, IoId, IoKind};
pub use mutant::{Mutant, Net, Planted};
pub use request::{Hint, Op, ReadShape, Reply, Request, RequestId, VolumeId};
pub use rng::{Rng, Seed};
pub use socket::{ConnId, Peer, ReceiveMode};
pub use store::Store;
pub use units::{BLOCK, Bytes, DeviceOffset, Nanos, SECTOR, VolumeOffset};
