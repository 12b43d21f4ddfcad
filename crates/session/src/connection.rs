//! One client connection without its socket, from the first byte to the last: bytes in, requests out, results
//! in, bytes out. The driver receives, sends, and passes requests to the engine.
//!
//! ```text
//! receive -> received -> step ... step -> (engine) -> reply ... reply -> gather -> (send) -> sent
//! ```
//!
//! - Bytes arrive in the [`Inbox`], or directly in the buffer of the write they belong to.
//! - A request becomes *pieces* of at most [`PIECE_MAX`] bytes, each with its own buffer and its own turn in
//!   the engine. So a long write is stored while the rest of it still arrives, and a long read is sent while
//!   the rest of it is still being read.
//! - Replies queue until the socket is free; then one [`gather`](Connection::gather) lays out as many as fit,
//!   and they leave in one system call.
//! - The data of a simple reply must leave in order, because the reply has no inner framing. Such a reply
//!   begins once the whole read has completed, or, if the read is longer than [`BUFFERED_READ_MAX`], once all
//!   its pieces are in the engine: from then on it needs nothing from the client, and other replies can wait
//!   until it is complete. If memory for all pieces is lacking, the reply begins when it is the only request.
//!
//! Nothing is allocated per request. All lengths that a client can influence are bounded: by
//! [`REQUESTS_MAX`], by the [`Credit`] of the pool's memory, and by the limits in [`nbd`](crate::nbd).

mod input;
mod losses;
mod outbox;
mod output;
mod reply_queue;
mod request;

use crate::nbd::handshake::{Handshake, NegotiatedExport, greeting};
use crate::nbd::transmission::SINGLE_CHUNK_MAX;
use crate::slab::Slab;
use losses::LossesSeen;
pub use losses::PastLosses;
use outbox::Outbox;
use reply_queue::ReplyQueue;
use request::{ActiveRequest, Piece};
use weir_model::{Buffer, Bytes, Memory, Mutant, Op, Planted, Request, VolumeId, VolumeOffset};

pub use input::{Inbox, ReceiveBuffers};

/// Maximum length of a piece, in bytes. Pieces end at multiples of it, and therefore at the boundaries of
/// extents that are not longer.
pub const PIECE_MAX: u32 = 256 << 10;
/// Maximum number of requests in flight per client; further ones wait in the socket.
pub const REQUESTS_MAX: u16 = 128;
/// Maximum number of pieces in flight; [`Credit`] limits the memory they use.
const PIECES_MAX: u16 = 256;
/// Bytes read but not sent above which a client's next reads wait: enough to keep a socket busy, and few
/// enough to stay in the processor's cache where devices are fast.
const UNSENT_MAX: u64 = 512 << 10;
/// Longest in-order read whose pieces are submitted at once, so that a failure can still be reported. With
/// its edges it uses no more than [`PIECE_MAX`] bytes of memory.
const EAGER_READ_MAX: u32 = SINGLE_CHUNK_MAX;
const _: () = assert!(EAGER_READ_MAX <= PIECE_MAX / 2);
/// Longest in-order read whose reply waits until all of it has been read, so that a failure can still be
/// reported. (The exception is a client that may not use that much memory.)
pub const BUFFERED_READ_MAX: u32 = 1 << 20;

/// Memory that every client is entitled to, whatever others use: one piece at a time.
const ENTITLED: u64 = PIECE_MAX as u64;

/// Limits on the pool's memory that clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Credit {
    /// Memory that no client may use.
    pub reserve: Bytes,
    /// Memory reserved for clients below their entitlement: the sum of all clients' entitlements.
    pub spare: Bytes,
    /// The most memory that one client may use for payloads.
    pub memory_per_client: Bytes,
}

impl Credit {
    /// Computes the limits for at most `clients` clients that may each use `each` bytes.
    pub const fn new(clients: u16, each: Bytes, reserve: Bytes) -> Self {
        Self { reserve, spare: Bytes(clients as u64 * Connection::ENTITLED.0), memory_per_client: each }
    }

    /// Reports whether `run` more bytes would exceed the client's own limit, whatever others use.
    const fn is_at_limit(&self, memory_used: u64, run: u64) -> bool {
        let most = if self.memory_per_client.0 > ENTITLED { self.memory_per_client.0 } else { ENTITLED };
        memory_used + run > most
    }

    /// Reports whether a client may use `run` more bytes. Above its entitlement, a client may not use more
    /// than remains for others, so that the next client finds memory however many are greedy.
    #[inline]
    fn grants<M: Memory>(&self, memory_used: u64, run: u64, memory: &M) -> bool {
        let holds = memory_used + run;
        let used = self.reserve.0 + run;
        let needed = if holds <= ENTITLED { used } else { used + self.spare.0 + holds };
        !self.is_at_limit(memory_used, run) && memory.free().0 >= needed
    }
}

/// Outcome of processing a client's bytes.
#[derive(Debug)]
pub enum Step {
    /// A request for the engine.
    Request(Request),
    /// The handshake is complete: the client has chosen a volume. The driver may end the connection or
    /// continue.
    Negotiated,
    /// Nothing until an event in flight: a reply, a send, or the release of memory by other clients.
    Wait,
    /// Nothing until more bytes arrive.
    Receive,
    /// Nothing more will come.
    Finished,
}

/// A client's request as it arrived, however many [requests](Step::Request) it was split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// The volume.
    pub volume: VolumeId,
    /// The operation.
    pub op: Op,
    /// Offset of its first byte.
    pub offset: VolumeOffset,
    /// Length.
    pub len: Bytes,
}

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    /// Client number, stored in the upper part of its requests' ids.
    number: u32,
    phase: Phase,
    input: Input,
    inbox: Inbox,
    /// Result of the handshake.
    negotiated: NegotiatedExport,
    /// Handshake answers, which are sent before anything else.
    handshake_output: Vec<u8>,
    requests: Slab<ActiveRequest>,
    pieces: Slab<Piece>,
    /// Replies to send, in this order.
    ready: ReplyQueue,
    outbox: Outbox,
    receiving: bool,
    /// True if the last payload was long.
    last_payload_long: bool,
    /// Number of pieces in the engine.
    submitted: u32,
    /// Bytes that were read and have not been sent.
    unsent: u64,
    /// Bytes of memory that its payloads use.
    memory_used: u64,
    /// Block statuses requested since [`Self::take_statuses`].
    statuses: u64,
    /// True if a request has arrived since the connection last [rested](Self::release_buffers).
    has_new_requests: bool,
    /// Losses of writes of its volume that the client has seen.
    losses: LossesSeen,
    /// True if it waits for memory that other clients use.
    lacks_memory: bool,
    planted: Planted,
}

/// Outcome of an attempt to release a connection's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It keeps only one block, to receive into.
    Released,
    /// A receive into a large buffer is in flight: cancel it, and try again.
    Receiving,
    /// It has something to do.
    Busy,
}

/// Phase of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// It accepts no more requests and answers those it has.
    Finishing,
    /// It neither receives nor sends.
    Aborted,
}

/// Meaning of the next bytes.
#[derive(Debug)]
enum Input {
    Handshake(Handshake),
    /// A request header.
    Header,
    /// The next header is not parsed until all pieces of this read are in the engine.
    Reading(u16),
    /// The payload of a write.
    Payload {
        request: u16,
        piece: Option<PartialPiece>,
    },
    /// The payload of a write that has failed already.
    Drain {
        request: u16,
    },
}

/// A piece of a write that has not arrived completely.
#[derive(Clone, Copy, Debug)]
struct PartialPiece {
    buffer: Buffer,
    /// Offset of the payload in the buffer.
    start: u32,
    len: u32,
    filled: u32,
}

/// Something to send.
#[derive(Clone, Copy, Debug)]
enum QueuedReply {
    /// Data of a read.
    Piece(u16),
    /// The reply to a request without data, or an error reply.
    Request(u16),
}

impl Connection {
    /// Total memory that every client is entitled to.
    pub const ENTITLED: Bytes = Bytes(ENTITLED + (Inbox::LEN + Outbox::LEN) as u64);

    /// Creates the connection of a new client. `number` identifies it in the ids of its requests. Returns
    /// `None` if there is no memory for it.
    pub fn new<M: Memory>(number: u32, credit: &Credit, memory: &mut M) -> Option<Self> {
        if memory.free().0 < credit.reserve.0 + Self::ENTITLED.0 {
            return None;
        }
        let (inbox, outbox) = (Inbox::new(memory)?, Outbox::default());
        Some(Self {
            number,
            phase: Phase::Open,
            input: Input::Handshake(Handshake::default()),
            inbox,
            negotiated: NegotiatedExport {
                volume: VolumeId(0),
                size: Bytes(0),
                structured: false,
                allocation: false,
            },
            handshake_output: greeting().to_vec(),
            requests: Slab::new(REQUESTS_MAX),
            pieces: Slab::new(PIECES_MAX),
            ready: ReplyQueue::default(),
            outbox,
            receiving: false,
            last_payload_long: false,
            submitted: 0,
            unsent: 0,
            memory_used: 0,
            statuses: 0,
            has_new_requests: false,
            losses: LossesSeen::default(),
            lacks_memory: false,
            planted: Planted::NONE,
        })
    }

    /// Activates mutants, for mutation testing.
    #[must_use]
    pub fn with_mutants(self, planted: Planted) -> Self {
        Self { planted, ready: ReplyQueue::with_mutants(planted), ..self }
    }

    /// Returns the volume it uses, once the handshake is complete.
    pub fn volume(&self) -> Option<VolumeId> {
        (!self.in_handshake()).then_some(self.negotiated.volume)
    }

    /// Reports whether the handshake is still in progress.
    pub fn in_handshake(&self) -> bool {
        matches!(self.input, Input::Handshake(_))
    }

    /// Returns the client's request, if `request` is the first piece of it.
    #[inline]
    pub fn client_request(&self, request: &Request) -> Option<ClientRequest> {
        let piece = self.pieces.get(request.id.0 as u16)?;
        let active = self.requests.get(piece.request)?;
        let (volume, op, offset, len) = (request.volume, active.op?, active.offset, active.len);
        (piece.offset == offset).then_some(ClientRequest { volume, op, offset, len: Bytes(len.into()) })
    }

    /// Returns the number of requests not answered yet.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Returns the number of bytes of the handshake's answer that wait to be sent.
    pub fn answer_len(&self) -> usize {
        self.handshake_output.len()
    }

    /// Returns the number of block statuses requested since the last call; each walks the map.
    pub fn take_statuses(&mut self) -> u64 {
        std::mem::take(&mut self.statuses)
    }

    /// Reports whether the last [`Step::Wait`] was for memory that other clients use.
    pub fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    /// Releases the buffers and request tables of an idle client. It takes them again when the next bytes
    /// arrive.
    pub fn release_buffers<M: Memory>(&mut self, memory: &mut M) -> ReleaseOutcome {
        let has_nothing_to_do = self.phase == Phase::Open
            && matches!(self.input, Input::Header)
            && self.requests.len() == 0
            && self.pieces.len() == 0
            && self.ready.is_empty()
            && self.handshake_output.is_empty()
            && !self.outbox.sending
            && self.inbox.is_empty();
        if !has_nothing_to_do {
            return ReleaseOutcome::Busy;
        }
        self.has_new_requests = false;
        if self.receiving && self.inbox.is_large() {
            return ReleaseOutcome::Receiving;
        }
        if !self.receiving {
            self.inbox.shrink(memory);
        }
        self.outbox.release_buffers(memory);
        self.requests = Slab::new(REQUESTS_MAX);
        self.pieces = Slab::new(PIECES_MAX);
        self.ready = ReplyQueue::with_mutants(self.planted);
        self.handshake_output = Vec::new();
        ReleaseOutcome::Released
    }

    /// Handles a cancelled receive: nothing arrived.
    pub fn receive_cancelled(&mut self) {
        self.receiving = false;
    }

    /// Accepts no more requests; those in flight are answered.
    pub fn finish(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Finishing;
        }
    }

    /// Stops receiving and sending.
    pub fn abort(&mut self) {
        self.phase = Phase::Aborted;
    }

    /// Reports whether nothing more will be sent, so that the socket may be closed.
    pub fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Aborted => true,
            Phase::Finishing => {
                (self.submitted == 0 || self.planted.is(Mutant::HalfClosedNotAnswered))
                    && self.ready.is_empty()
                    && self.handshake_output.is_empty()
                    && !self.outbox.sending
                    && !matches!(self.input, Input::Reading(_))
            }
        }
    }

    /// Reports whether the engine has completed every request of this client.
    pub fn is_idle(&self) -> bool {
        self.submitted == 0
    }

    /// Releases all memory. The caller must have closed the socket (no receive or send in flight), and the
    /// connection must be [idle](Self::is_idle).
    pub fn release<M: Memory>(mut self, memory: &mut M) {
        if let Input::Payload { piece: Some(piece), .. } = self.input {
            memory.give(piece.buffer);
        }
        for (_, piece) in self.pieces.iter_mut() {
            if let Some(buffer) = piece.buffer.take()
                && !self.planted.is(Mutant::UnsentBuffersLeaked)
            {
                memory.give(buffer);
            }
        }
        self.outbox.release(memory);
        self.inbox.release(memory);
    }
}

#[cfg(test)]
mod tests;
