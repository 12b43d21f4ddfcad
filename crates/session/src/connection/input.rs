//! The input side of a connection: bytes become requests.

use super::request::{ActiveRequest, NONE, Piece, State};
use super::{
    BUFFERED_READ_MAX, Connection, Credit, EAGER_READ_MAX, Input, PIECE_MAX, PartialPiece, Phase,
    QueuedReply, Step, UNSENT_MAX,
};
use crate::nbd::handshake::{self, NegotiatedExport};
use crate::nbd::transmission::{Command, Fault, HEADER_LEN, Header};
use crate::nbd::{Export, OPTION_MAX, PAYLOAD_MAX};
use weir_model::{BLOCK, Buffer, Bytes, Hint, Memory, Mutant, Op, Request, RequestId, VolumeOffset};

/// Payload rests of at least this length are received on their own. Shorter ones are received into the inbox
/// together with the bytes that follow, and are copied from there.
const DIRECT_RECEIVE_MIN: u32 = 32 << 10;

/// Buffers for the next receive.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveBuffers {
    parts: [Buffer; 2],
    /// Whether to wait until all of it is full; otherwise any number of bytes will do.
    pub fill_all: bool,
}

impl ReceiveBuffers {
    /// Returns the buffers, to be filled in order.
    pub fn parts(&self) -> &[Buffer] {
        if self.parts[0].len == 0 { &self.parts[1..] } else { &self.parts }
    }
}

/// Bytes that have arrived and have not been parsed.
#[derive(Debug)]
pub struct Inbox {
    buffer: Buffer,
    start: u32,
    end: u32,
}

impl Inbox {
    /// Room for the longest option, or for many small requests.
    pub const LEN: u32 = 64 << 10;
    /// Room for the bytes that wake an idle client.
    const SMALL: u32 = BLOCK as u32;

    /// Creates a small inbox.
    pub(super) fn new<M: Memory>(memory: &mut M) -> Option<Self> {
        let buffer = memory.take(Bytes(Self::SMALL.into()))?;
        Some(Self { buffer, start: 0, end: 0 })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) const fn is_large(&self) -> bool {
        self.buffer.len > Self::SMALL
    }

    const fn is_full(&self) -> bool {
        self.len() == self.buffer.len
    }

    /// Grows the inbox, if there is memory.
    fn grow<M: Memory>(&mut self, memory: &mut M) {
        if let Some(large) = memory.take(Bytes(Self::LEN.into())) {
            let len = self.len();
            memory.copy(self.buffer.part(self.start, len), large.part(0, len));
            memory.give(self.buffer);
            *self = Self { buffer: large, start: 0, end: len };
        }
    }

    /// Shrinks an empty inbox, if there is memory for the small one.
    pub(super) fn shrink<M: Memory>(&mut self, memory: &mut M) {
        if self.is_large()
            && let Some(small) = memory.take(Bytes(Self::SMALL.into()))
        {
            memory.give(self.buffer);
            *self = Self { buffer: small, start: 0, end: 0 };
        }
    }

    pub(super) fn release<M: Memory>(self, memory: &mut M) {
        memory.give(self.buffer);
    }

    const fn len(&self) -> u32 {
        self.end - self.start
    }

    fn bytes<'a, M: Memory>(&self, memory: &'a M) -> &'a [u8] {
        memory.bytes(self.buffer.part(self.start, self.len()))
    }

    fn consume(&mut self, len: u32) {
        self.start += len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Returns the free part after the received bytes.
    fn free_part<M: Memory>(&mut self, memory: &mut M) -> Buffer {
        if self.start > 0 {
            let (start, end) = (self.start as usize, self.end as usize);
            memory.bytes_mut(self.buffer.part(0, self.end)).copy_within(start..end, 0);
            (self.start, self.end) = (0, self.len());
        }
        self.buffer.part(self.end, self.buffer.len - self.end)
    }
}

/// Returns the amount of memory allocated for a buffer of `len` bytes.
#[inline]
pub(super) fn allocation_size(len: u64) -> u64 {
    len.next_power_of_two().max(BLOCK)
}

// The inbox holds the longest unit that is parsed as a whole.
const _: () = assert!(Inbox::LEN > OPTION_MAX + 16);

impl Connection {
    /// Returns the buffers for the next receive; call it after [`Step::Receive`]. `None` if a receive is in
    /// flight or none is wanted.
    pub fn receive<M: Memory>(&mut self, memory: &mut M) -> Option<ReceiveBuffers> {
        if self.receiving || self.phase != Phase::Open {
            return None;
        }
        if !self.inbox.is_large() && (self.has_new_requests || self.inbox.is_full()) {
            self.inbox.grow(memory);
            if self.inbox.is_full() {
                tracing::debug!(
                    client = self.number,
                    "closing the connection: no memory is left for its requests"
                );
                self.abort();
                return None;
            }
        }
        self.receiving = true;
        let inbox = self.inbox.free_part(memory);
        let Input::Payload { piece: Some(piece), .. } = self.input else {
            // Another long payload is likely to follow a long one: receiving only its header lets the payload
            // go directly to its own buffer.
            let len = if std::mem::take(&mut self.last_payload_long) { BLOCK as u32 } else { inbox.len };
            let inbox = inbox.part(0, len.min(inbox.len));
            return Some(ReceiveBuffers { parts: [Buffer::EMPTY, inbox], fill_all: false });
        };
        let rest = piece.buffer.part(piece.start + piece.filled, piece.len - piece.filled);
        self.last_payload_long = rest.len >= DIRECT_RECEIVE_MIN;
        let parts = if self.last_payload_long { [Buffer::EMPTY, rest] } else { [rest, inbox] };
        Some(ReceiveBuffers { parts, fill_all: self.last_payload_long })
    }

    /// Handles bytes that arrived where [`receive`](Self::receive) said; 0 means the end of the stream.
    pub fn received(&mut self, bytes: Bytes) {
        self.receiving = false;
        let mut bytes = bytes.0 as u32;
        if bytes == 0 {
            return self.finish();
        }
        if let Input::Payload { piece: Some(piece), .. } = &mut self.input {
            let direct = bytes.min(piece.len - piece.filled);
            piece.filled += direct;
            bytes -= direct;
        }
        self.inbox.end += bytes;
    }

    /// Parses what has arrived until there is an outcome. Call it again after [`Step::Request`]; for the
    /// other outcomes see [`Step`].
    #[inline]
    pub fn step<M: Memory>(&mut self, exports: &[Export], credit: &Credit, memory: &mut M) -> Step {
        self.lacks_memory = false;
        loop {
            if self.phase != Phase::Open && !matches!(self.input, Input::Reading(_))
                || self.phase == Phase::Aborted
            {
                return Step::Finished;
            }
            let step = match self.input {
                Input::Header => self.header(memory),
                Input::Reading(request) => self.next_read_piece(request, credit, memory),
                Input::Payload { request, piece } => self.payload(request, piece, credit, memory),
                Input::Drain { request } => self.drain(request),
                Input::Handshake(_) => self.process_handshake(exports, memory),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Processes at most one option: [`Self::step`] during the handshake.
    fn process_handshake<M: Memory>(&mut self, exports: &[Export], memory: &M) -> Option<Step> {
        if !self.handshake_output.is_empty() {
            return Some(Step::Wait);
        }
        let Input::Handshake(handshake) = &mut self.input else { return None };
        match handshake.step(self.inbox.bytes(memory), exports, &mut self.handshake_output) {
            handshake::Step::NeedMore => return Some(Step::Receive),
            handshake::Step::Next(used) => self.inbox.consume(used as u32),
            handshake::Step::Start(used, agreed) => {
                self.start(used as u32, agreed);
                return Some(Step::Negotiated);
            }
            handshake::Step::End => self.finish(),
        }
        None
    }

    fn start(&mut self, used: u32, negotiated: NegotiatedExport) {
        self.inbox.consume(used);
        self.negotiated = negotiated;
        self.input = Input::Header;
    }

    fn header<M: Memory>(&mut self, memory: &M) -> Option<Step> {
        let Some(bytes) = self.inbox.bytes(memory).first_chunk::<HEADER_LEN>() else {
            return Some(Step::Receive);
        };
        if self.requests.is_full() || self.pieces.is_full() {
            return Some(Step::Wait);
        }
        let Some(header) = Header::parse(bytes) else {
            tracing::debug!(
                client = self.number,
                "closing the connection: the client sent an invalid request"
            );
            self.finish();
            return Some(Step::Finished);
        };
        self.inbox.consume(HEADER_LEN as u32);
        self.has_new_requests = true;
        let command = header.command(&self.negotiated);
        if command == Ok(Command::Disconnect) {
            self.losses.known = None;
            self.finish();
            return Some(Step::Finished);
        }
        self.begin(&header, command)
    }

    /// Begins a request whose header has arrived; its payload, if it has one, has not.
    fn begin(&mut self, header: &Header, command: Result<Command, Fault>) -> Option<Step> {
        let (op, fua, one) = match command {
            Ok(Command::Engine { op, fua, single_chunk: whole }) => (Some(op), fua, whole),
            Ok(Command::BlockStatus { single_descriptor: one }) => {
                self.statuses += 1;
                (None, false, one)
            }
            _ => (None, false, false),
        };
        let in_pieces = op.is_some_and(Op::has_payload) || header.payload() > 0;
        let active = ActiveRequest {
            cookie: header.cookie,
            kind: header.kind,
            op,
            fua,
            ordered: one || !self.negotiated.structured,
            single_reply: one,
            offset: header.offset,
            len: header.len,
            consumed: if in_pieces { 0 } else { header.len },
            incomplete_pieces: 0,
            submitted: 0,
            partly_executed: false,
            fault: command.err(),
            head: NONE,
            tail: NONE,
        };
        let failed = active.fault.is_some();
        let Ok(request) = self.requests.insert(active) else { return Some(Step::Wait) };
        match op {
            Some(Op::Read) => self.input = Input::Reading(request),
            Some(Op::Write) => self.input = Input::Payload { request, piece: None },
            Some(Op::Flush)
                if self.requests.len() == 1 && self.planted.is(Mutant::FlushOfIdleConnectionSkipped) =>
            {
                self.ready.push(QueuedReply::Request(request));
            }
            Some(_) => return Some(self.submit(request, header.offset, header.len, None)),
            None if failed && header.payload() > PAYLOAD_MAX => {
                // The request is answered, but up to 4 GiB of payload are not worth draining.
                self.ready.push(QueuedReply::Request(request));
                self.finish();
            }
            None if failed && header.payload() > 0 => self.input = Input::Drain { request },
            None => self.ready.push(QueuedReply::Request(request)),
        }
        None
    }

    /// Returns the next piece of a read.
    fn next_read_piece<M: Memory>(&mut self, request: u16, credit: &Credit, memory: &mut M) -> Option<Step> {
        let (at, left, whole, long) = match self.requests.get(request) {
            Some(active) if active.consumed < active.len => {
                // This read is submitted at once: a failure could not be reported once its data has begun to
                // leave.
                let whole = active.ordered && active.len <= EAGER_READ_MAX;
                (active.next(), active.len - active.consumed, whole, active.len > BUFFERED_READ_MAX)
            }
            _ => {
                self.input = Input::Header;
                return None;
            }
        };
        let taken = if self.unsent < UNSENT_MAX {
            self.allocate_payload(at, left, whole, credit, memory)
        } else {
            None
        };
        let Some((buffer, len)) = taken else {
            if self.unsent == 0 {
                self.begin_partial_reply(request);
            }
            return Some(Step::Wait);
        };
        if len == left {
            self.input = Input::Header;
        }
        let step = self.submit(request, at, len, Some(buffer));
        if long {
            self.advance(request, memory);
        }
        Some(step)
    }

    fn payload<M: Memory>(
        &mut self,
        request: u16,
        piece: Option<PartialPiece>,
        credit: &Credit,
        memory: &mut M,
    ) -> Option<Step> {
        let Some(active) = self.requests.get(request) else {
            self.input = Input::Header;
            return None;
        };
        let (at, left) = (active.next(), active.len - active.consumed);
        let mut piece = match piece {
            Some(piece) => piece,
            None if active.fault.is_some() => {
                self.input = Input::Drain { request };
                return None;
            }
            None => {
                let Some((buffer, len)) = self.allocate_payload(at, left, false, credit, memory) else {
                    return Some(Step::Wait);
                };
                PartialPiece { buffer, start: (at.0 % BLOCK) as u32, len, filled: 0 }
            }
        };
        let here = self.inbox.len().min(piece.len - piece.filled);
        if here > 0 {
            let from = self.inbox.buffer.part(self.inbox.start, here);
            memory.copy(from, piece.buffer.part(piece.start + piece.filled, here));
            self.inbox.consume(here);
            piece.filled += here;
        }
        if piece.filled < piece.len {
            self.input = Input::Payload { request, piece: Some(piece) };
            return Some(Step::Receive);
        }
        self.input = if piece.len == left { Input::Header } else { Input::Payload { request, piece: None } };
        Some(self.submit(request, at, piece.len, Some(piece.buffer)))
    }

    fn drain(&mut self, request: u16) -> Option<Step> {
        let here = self.inbox.len();
        let Some(active) = self.requests.get_mut(request) else {
            self.input = Input::Header;
            return None;
        };
        let here = here.min(active.len - active.consumed);
        active.consumed += here;
        self.inbox.consume(here);
        if active.consumed < active.len {
            return Some(Step::Receive);
        }
        if active.incomplete_pieces == 0 {
            self.ready.push(QueuedReply::Request(request));
        }
        self.input = Input::Header;
        None
    }

    /// Allocates a buffer for the next bytes of a payload and returns how many it covers: up to the next
    /// multiple of [`PIECE_MAX`], or fewer if memory is fragmented. `None` without credit.
    #[inline]
    fn allocate_payload<M: Memory>(
        &mut self,
        at: VolumeOffset,
        left: u32,
        whole: bool,
        credit: &Credit,
        memory: &mut M,
    ) -> Option<(Buffer, u32)> {
        if self.pieces.is_full() {
            return None;
        }
        let mut unit = PIECE_MAX;
        loop {
            let to_border = unit - (at.0 % u64::from(unit)) as u32;
            let len = if whole { left } else { left.min(to_border) };
            let room = Request::buffer_len(at, Bytes(len.into()));
            if credit.grants(self.memory_used, allocation_size(room.0), memory)
                && let Some(buffer) = memory.take(room)
            {
                self.memory_used += allocation_size(room.0);
                return Some((buffer, len));
            }
            unit /= 4;
            if whole || u64::from(unit) < BLOCK {
                self.lacks_memory = !credit.is_at_limit(self.memory_used, allocation_size(room.0));
                return None;
            }
        }
    }

    #[inline]
    fn submit(&mut self, request: u16, offset: VolumeOffset, len: u32, buffer: Option<Buffer>) -> Step {
        let piece = Piece { request, next: NONE, offset, len, buffer, state: State::Submitted };
        let Ok(index) = self.pieces.insert(piece) else { return Step::Wait };
        let Some(active) = self.requests.get_mut(request) else { return Step::Wait };
        let Some(op) = active.op else { return Step::Wait };
        active.incomplete_pieces += 1;
        active.submitted += 1;
        if buffer.is_some() {
            active.consumed += len;
        }
        if op == Op::Read
            && active.ordered
            && self.planted.is(Mutant::PiecesOutOfOrder)
            && active.head != NONE
        {
            let head = active.head;
            let second = self.pieces.get_mut(head).map(|head| std::mem::replace(&mut head.next, index));
            self.pieces.get_mut(index).into_iter().for_each(|piece| piece.next = second.unwrap_or(NONE));
        } else if op == Op::Read && active.ordered {
            let last = std::mem::replace(&mut active.tail, index);
            match self.pieces.get_mut(last) {
                Some(last) if active.head != NONE => last.next = index,
                _ => active.head = index,
            }
        }
        self.submitted += 1;
        Step::Request(Request {
            id: RequestId(u64::from(self.number) << 16 | u64::from(index)),
            volume: self.negotiated.volume,
            op,
            offset: if op == Op::Flush { VolumeOffset(0) } else { offset },
            len: if op == Op::Flush { Bytes(0) } else { Bytes(len.into()) },
            fua: active.fua && !(offset != active.offset && self.planted.is(Mutant::FuaOfFirstPieceOnly)),
            hint: Hint::None,
            buffer,
        })
    }
}
