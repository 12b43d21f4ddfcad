//! Requests and commands in flight: what they are known by, and what is kept of them.

use weir_model::{Bytes, Nanos, Request, RequestError, VolumeId, VolumeOffset};

/// A request in flight: its place in the engine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ActiveId(pub(crate) usize);

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) request: Request,
    pub(crate) submitted: Nanos,
    /// Pieces to end, and one more while pieces are still to be made.
    pub(crate) left: u32,
    pub(crate) error: Option<RequestError>,
    /// Reads: some blocks hold data; some are zeros.
    pub(crate) found: (bool, bool),
    /// Do not reply before a commit.
    pub(crate) commit: bool,
    /// Requests over many extents: where the next piece begins.
    pub(crate) next: VolumeOffset,
    /// What it continues, if the policy wants to know.
    pub(crate) continues: Bytes,
    /// The engine's own: clears a volume that is being removed. No reply.
    pub(crate) internal: bool,
}

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
}
