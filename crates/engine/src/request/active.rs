//! The state of a request in flight.

use weir_model::{Bytes, Nanos, Request, RequestError, VolumeOffset};

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) request: Request,
    pub(crate) submitted: Nanos,
    /// The number of unfinished pieces, plus one while pieces are still to be made.
    pub(crate) pieces_left: u32,
    pub(crate) error: Option<RequestError>,
    /// For reads: whether some blocks have data, and whether some are zeros.
    pub(crate) found: (bool, bool),
    /// Whether the reply must wait for a commit.
    pub(crate) needs_commit: bool,
    /// For requests over many extents: where the next piece begins.
    pub(crate) next_offset: VolumeOffset,
    /// The length of the sequential run that this request continues, if the policy wants to know.
    pub(crate) run_length: Bytes,
    pub(crate) answer: Answer,
}

/// The way a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// By a reply.
    Reply,
    /// By a reply, after the data read into several buffers has been collected in one.
    Gathered,
    /// By an effect instead of a reply: the request is the engine's own, and clears a volume that is being
    /// removed.
    None,
}
