//! Ids of things in flight, and the parties that may wait for a commit.

use weir_model::VolumeId;

/// A request in flight: its index in the table of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ActiveId(pub(crate) usize);

/// A piece in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PieceId(pub(crate) u32);

/// A move in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MoveId(pub(crate) usize);

/// An extent that is cached or being fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CachedId(pub(crate) usize);

/// The id of an administrative command in flight, chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdminId(pub u64);

/// The step that an administrative command waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AdminStep {
    Created(AdminId, VolumeId),
    Changed(AdminId, VolumeId),
    /// The intent to remove the volume.
    RemovalBegun(VolumeId),
    Removed(VolumeId),
}

/// A party that waits for a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Request(ActiveId),
    Admin(AdminStep),
    /// Restored copies, which count once they are durable.
    Resync,
}
