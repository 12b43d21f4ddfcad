//! What things in flight are known by, and who may wait for a commit.

use weir_model::VolumeId;

/// A request in flight: its place in the table of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ActiveId(pub(crate) usize);

/// A piece in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PieceId(pub(crate) u32);

/// A move under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MoveId(pub(crate) usize);

/// One that is cached, or being fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CachedId(pub(crate) usize);

/// Names a command among those under way; chosen by whoever gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdminId(pub u64);

/// What a command waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AdminStep {
    Created(AdminId, VolumeId),
    Changed(AdminId, VolumeId),
    /// The intent to remove it.
    RemovalBegun(VolumeId),
    Removed(VolumeId),
}

/// Who waits for a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiter {
    Request(ActiveId),
    Admin(AdminStep),
    /// Copies made anew, which count once they are durable.
    Resync,
}
