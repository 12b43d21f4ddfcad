//! Requests in flight: what is kept of them.

use weir_model::{Bytes, Nanos, Request, RequestError, VolumeOffset};

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
    pub(crate) answer: Answer,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// By a reply.
    Reply,
    /// By a reply, after what was read into several buffers has been gathered in one.
    Gathered,
    /// By none: it is the engine's own, and clears a volume that is being removed.
    None,
}
