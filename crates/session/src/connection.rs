//! One client, from its first byte to its last, without a socket: bytes in, requests out,
//! results in, bytes out. Whoever drives it does the receiving, the sending and the engine's part.
//!
//! ```text
//! receive -> received -> step ... step -> (engine) -> reply ... reply -> gather -> (send) -> sent
//! ```
//!
//! - Bytes arrive in the [`Inbox`], or straight in the buffer of the write they belong to.
//! - A request becomes *pieces* of at most [`PIECE`] bytes, each with its own buffer and its own
//!   turn in the engine, so that neither a long write has to arrive before its first bytes are
//!   stored, nor a long read be complete before its first bytes are sent.
//! - What is done waits in line until the socket is free; then one [`gather`](Connection::gather)
//!   lays out as many replies as fit, and they leave in one system call.
//! - A read whose data goes out in order (simple replies have no frames within) begins to leave once
//!   all of it is read, or, longer than [`BUFFERED`], once all its pieces are with the engine: from
//!   then on it needs nothing of the client, and other replies can wait until it is whole. Where
//!   memory for all pieces is lacking, it begins when it is the only request.
//!
//! Nothing is allocated per request. All lengths that a client can influence are bounded: by
//! [`REQUESTS`], by the [`Credit`] of the pool's memory, by the limits in [`nbd`](crate::nbd).

mod input;
mod losses;
mod outbox;
mod output;
mod reply_queue;
mod request;

use crate::nbd::handshake::{Agreed, Handshake, greeting};
use crate::nbd::transmission::WHOLE_MAX;
use crate::slab::Slab;
use losses::Heard;
use outbox::Outbox;
use reply_queue::ReplyQueue;
use request::{Active, Piece};
use weir_model::{Buffer, Bytes, Memory, Mutant, Op, Planted, Request, VolumeId, VolumeOffset};

pub use input::{Inbox, Room};

/// The most bytes of a request that travel together. Pieces end at multiples of it, hence at
/// borders of the extents that are not longer.
pub const PIECE: u32 = 256 << 10;
/// Requests a client may have in flight; more wait in the socket.
pub const REQUESTS: u16 = 128;
/// Pieces in flight; the memory they hold is limited by [`Credit`].
const PIECES: u16 = 256;
/// Bytes read and not sent beyond which a client's next reads wait: enough to keep a socket busy,
/// few enough to stay in the processor's cache where devices are fast.
const UNSENT: u64 = 512 << 10;
/// The longest read that, if it goes out in order, is read as a whole first, so that a failure
/// can still be told. With its edges it takes no more than [`PIECE`] bytes of memory.
const WHOLE: u32 = WHOLE_MAX;
const _: () = assert!(WHOLE <= PIECE / 2);
/// The longest read that, if it goes out in order, leaves only when all of it is read, so that a
/// failure can still be told. (Unless its client may not hold that much memory.)
pub const BUFFERED: u32 = 1 << 20;

/// Memory every client is entitled to, whatever others hold: a piece at a time.
const ENTITLED: u64 = PIECE as u64;

/// How much of the pool's memory clients may hold.
#[derive(Clone, Copy, Debug)]
pub struct Credit {
    /// What no client may touch.
    pub reserve: Bytes,
    /// What only clients may touch that hold less than they are entitled to: as much as all
    /// clients together are.
    pub spare: Bytes,
    /// The most one client may hold in payloads.
    pub each: Bytes,
}

impl Credit {
    /// For so many clients at most. `each` is the most one of them may hold.
    pub const fn new(clients: u16, each: Bytes, reserve: Bytes) -> Self {
        Self { reserve, spare: Bytes(clients as u64 * Connection::ENTITLED.0), each }
    }

    /// Whether a client holds too much to have so much more, whatever others hold.
    const fn is_at_limit(&self, held: u64, run: u64) -> bool {
        let most = if self.each.0 > ENTITLED { self.each.0 } else { ENTITLED };
        held + run > most
    }

    /// Beyond what it is entitled to, a client may not hold more than is left for others to
    /// take: however many are greedy, the next one finds some.
    #[inline]
    fn grants<M: Memory>(&self, held: u64, run: u64, memory: &M) -> bool {
        let holds = held + run;
        let used = self.reserve.0 + run;
        let needed = if holds <= ENTITLED { used } else { used + self.spare.0 + holds };
        !self.is_at_limit(held, run) && memory.free().0 >= needed
    }
}

/// What a client's bytes led to.
#[derive(Debug)]
pub enum Step {
    /// This is for the engine.
    Request(Request),
    /// The handshake is over: the client has chosen a volume. Whoever drives the connection may end it,
    /// or go on.
    Negotiated,
    /// Nothing until something in flight is done: a reply, a send, or other clients' memory.
    Wait,
    /// Nothing until more bytes have arrived.
    Receive,
    /// Nothing more will come.
    Over,
}

/// What a client asked for, however many [requests](Step::Request) became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Of which volume.
    pub volume: VolumeId,
    /// What is to be done.
    pub op: Op,
    /// From where.
    pub offset: VolumeOffset,
    /// How far.
    pub len: Bytes,
}

/// A client.
#[derive(Debug)]
pub struct Connection {
    /// In the upper part of its requests' ids.
    number: u32,
    phase: Phase,
    input: Input,
    inbox: Inbox,
    /// Set by the handshake.
    agreed: Agreed,
    /// Answers of the handshake, to be sent before anything else.
    greeting: Vec<u8>,
    requests: Slab<Active>,
    pieces: Slab<Piece>,
    /// What is to be sent, in this order.
    ready: ReplyQueue,
    outbox: Outbox,
    receiving: bool,
    /// The last payload was long.
    had_long: bool,
    /// Pieces the engine has.
    submitted: u32,
    /// Bytes that were read and have not left.
    unsent: u64,
    /// Bytes of memory its payloads hold.
    held: u64,
    /// Block statuses asked for since [`Self::take_statuses`].
    statuses: u64,
    /// It has asked something since it [rested](Self::rest) last.
    has_asked: bool,
    /// Losses of writes of its volume.
    losses: Heard,
    /// Others hold the memory it waits for.
    lacks_memory: bool,
    planted: Planted,
}

/// Whether a connection gave its buffers back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It keeps a block to receive into, and nothing else.
    Resting,
    /// It would, but a receive into a large buffer is in flight: cancel that, and ask again.
    Receiving,
    /// It has something to do.
    Busy,
}

/// How long a connection has to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Takes no more requests, answers those it has.
    Finishing,
    /// Neither receives nor sends.
    Dead,
}

/// What the next bytes are.
#[derive(Debug)]
enum Input {
    Handshake(Handshake),
    /// A request.
    Header,
    /// Not looked at until the rest of this read is with the engine.
    Reading(u16),
    /// The payload of a write.
    Payload {
        request: u16,
        piece: Option<Arriving>,
    },
    /// The payload of a write that failed already.
    Drain {
        request: u16,
    },
}

/// A piece of a write that is not complete.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    buffer: Buffer,
    /// Where the payload begins in the buffer.
    start: u32,
    len: u32,
    filled: u32,
}

/// Something to be sent.
#[derive(Clone, Copy, Debug)]
enum Ready {
    /// Data of a read.
    Piece(u16),
    /// The reply to a request without data, or its failure.
    Request(u16),
}

impl Connection {
    /// All memory that a client can count on.
    pub const ENTITLED: Bytes = Bytes(ENTITLED + (Inbox::LEN + Outbox::LEN) as u64);

    /// A client that just came. `number` names it in the ids of its requests. `None` if there is
    /// no memory for it.
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
            agreed: Agreed { volume: VolumeId(0), size: Bytes(0), structured: false, allocation: false },
            greeting: greeting().to_vec(),
            requests: Slab::new(REQUESTS),
            pieces: Slab::new(PIECES),
            ready: ReplyQueue::default(),
            outbox,
            receiving: false,
            had_long: false,
            submitted: 0,
            unsent: 0,
            held: 0,
            statuses: 0,
            has_asked: false,
            losses: Heard::default(),
            lacks_memory: false,
            planted: Planted::NONE,
        })
    }

    /// With this planted, for mutation testing.
    #[must_use]
    pub fn with(self, planted: Planted) -> Self {
        Self { planted, ready: ReplyQueue::with(planted), ..self }
    }

    /// The volume it uses, once that is settled.
    pub fn volume(&self) -> Option<VolumeId> {
        (!self.in_handshake()).then_some(self.agreed.volume)
    }

    /// Still finding out what the client wants.
    pub fn in_handshake(&self) -> bool {
        matches!(self.input, Input::Handshake(_))
    }

    /// What the client asked for, if this is the first that became of it.
    #[inline]
    pub fn asked(&self, request: &Request) -> Option<Asked> {
        let piece = self.pieces.get(request.id.0 as u16)?;
        let active = self.requests.get(piece.request)?;
        let (volume, op, offset, len) = (request.volume, active.op?, active.offset, active.len);
        (piece.offset == offset).then_some(Asked { volume, op, offset, len: Bytes(len.into()) })
    }

    /// Requests that are not answered yet.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Bytes of a handshake's answer that wait to be sent.
    pub fn answer_len(&self) -> usize {
        self.greeting.len()
    }

    /// Block statuses asked for since this was called last: each is a walk through the map.
    pub fn take_statuses(&mut self) -> u64 {
        std::mem::take(&mut self.statuses)
    }

    /// Whether the last [`Step::Wait`] was for memory that others hold.
    pub fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    /// Gives back what it needs only while it has something to do: buffers, and the tables of requests.
    /// With the next bytes it takes them again. For clients that have been idle for a while.
    pub fn rest<M: Memory>(&mut self, memory: &mut M) -> Rest {
        let has_nothing_to_do = self.phase == Phase::Open
            && matches!(self.input, Input::Header)
            && self.requests.len() == 0
            && self.pieces.len() == 0
            && self.ready.is_empty()
            && self.greeting.is_empty()
            && !self.outbox.sending
            && self.inbox.is_empty();
        if !has_nothing_to_do {
            return Rest::Busy;
        }
        self.has_asked = false;
        if self.receiving && self.inbox.is_large() {
            return Rest::Receiving;
        }
        if !self.receiving {
            self.inbox.shrink(memory);
        }
        self.outbox.rest(memory);
        self.requests = Slab::new(REQUESTS);
        self.pieces = Slab::new(PIECES);
        self.ready = ReplyQueue::with(self.planted);
        self.greeting = Vec::new();
        Rest::Resting
    }

    /// The receive in flight was cancelled: nothing arrived.
    pub fn receive_cancelled(&mut self) {
        self.receiving = false;
    }

    /// Takes no more requests; those in flight are answered.
    pub fn finish(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Finishing;
        }
    }

    /// Neither receives nor sends any more.
    pub fn kill(&mut self) {
        self.phase = Phase::Dead;
    }

    /// Nothing more will be sent: the socket may be closed.
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Dead => true,
            Phase::Finishing => {
                (self.submitted == 0 || self.planted.is(Mutant::HalfClosedNotAnswered))
                    && self.ready.is_empty()
                    && self.greeting.is_empty()
                    && !self.outbox.sending
                    && !matches!(self.input, Input::Reading(_))
            }
        }
    }

    /// Whether the engine is done with everything this client asked.
    pub fn is_idle(&self) -> bool {
        self.submitted == 0
    }

    /// Gives all memory back. Only when the socket is closed (no receive or send in flight) and
    /// the connection [is idle](Self::is_idle).
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
