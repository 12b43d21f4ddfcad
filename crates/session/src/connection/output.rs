//! The output side of a connection: results become replies.

use super::input::allocation_size;
use super::outbox::Outbox;
use super::request::{ActiveRequest, NONE, State};
use super::{BUFFERED_READ_MAX, Connection, Input, Phase, QueuedReply};
use crate::nbd::transmission as wire;
use crate::nbd::wire::command;
use crate::volumes::RunQuery;
use weir_engine::BlockStatus;
use weir_model::{BLOCK, Buffer, Bytes, Memory, Mutant, Op, ReadShape, Reply, RequestError, VolumeOffset};

/// Block statuses answered in one send. Each walks the map while other clients wait.
const STATUSES_AT_ONCE: u32 = 4;
/// Maximum number of descriptors in a block status reply.
const STATUS_MAX: usize = 500;
const _: () = assert!(24 + 8 * STATUS_MAX <= Outbox::STEP as usize);

impl Connection {
    /// Handles the engine's reply to a piece.
    pub fn reply<M: Memory>(&mut self, reply: Reply, memory: &mut M) {
        let index = reply.id.0 as u16;
        self.submitted -= 1;
        let Some(piece) = self.pieces.get_mut(index) else { return };
        if let (Some(kept), None) = (std::mem::replace(&mut piece.buffer, reply.buffer), reply.buffer) {
            // A device that does not answer still uses the buffer; the engine returns it to the memory later.
            self.memory_used -= allocation_size(kept.len.into());
        }
        let number = piece.request;
        let Some(request) = self.requests.get_mut(number) else { return };
        if let Err(error) = reply.result {
            tracing::debug!("{error}");
            request.fault.get_or_insert(error.into());
        }
        request.partly_executed |= reply.result.is_ok();
        request.submitted -= 1;
        if self.phase == Phase::Aborted {
            self.drop_piece(index, memory);
        } else if request.op != Some(Op::Read) {
            self.drop_piece(index, memory);
            self.complete(number);
        } else {
            self.complete_read_piece(index, reply.result.ok(), memory);
        }
    }

    /// Handles writes of the volume that a device has lost. A change whose reply is still pending may be
    /// among them: a FLUSH that reports the loss now precedes the reply, and a later FLUSH would promise that
    /// the change is durable. So the change fails (rule 1 of docs/internals/invariants.md). The engine itself
    /// decides about pieces it still has.
    pub fn note_lost_writes(&mut self, error: RequestError) {
        if self.planted.is(Mutant::LossOfPiecesHidden) {
            return;
        }
        let is_change = |request: &ActiveRequest| request.op.is_some_and(Op::changes);
        let requests = self.requests.iter_mut().map(|(_, request)| request);
        for request in requests.filter(|request| is_change(request) && request.partly_executed) {
            request.fault.get_or_insert(error.into());
        }
    }

    /// Handles a completed piece of a read.
    fn complete_read_piece<M: Memory>(&mut self, index: u16, shape: Option<ReadShape>, memory: &mut M) {
        let Some(piece) = self.pieces.get_mut(index) else { return };
        let number = piece.request;
        let Some(request) = self.requests.get_mut(number) else { return };
        let Some(shape) = shape else {
            piece.state = State::Failed;
            // The pieces that have not been submitted need not be.
            request.consumed = request.len;
            if request.ordered {
                self.advance(number, memory);
            } else {
                self.enqueue(index);
            }
            return;
        };
        if request.ordered {
            if let (ReadShape::Zeros, Some(payload)) = (shape, piece.payload()) {
                memory.bytes_mut(payload).fill(0);
            }
            piece.state = State::Read { zeros: 0 };
            return self.advance(number, memory);
        }
        let zeros = match shape {
            ReadShape::Data => 0,
            ReadShape::Zeros => u64::MAX,
            ReadShape::Mixed => piece.payload().map_or(0, |payload| {
                let bytes = memory.bytes(payload);
                let is_zero = |block| {
                    let (from, to) = piece.blocks(block, block + 1);
                    all_zeros(&bytes[from as usize..to as usize])
                };
                (0..piece.block_count()).fold(0, |bits, block| bits | u64::from(is_zero(block)) << block)
            }),
        };
        piece.state = State::Read { zeros };
        self.enqueue(index);
    }

    /// Queues the data (or the failure) of a piece that does not depend on other pieces.
    fn enqueue(&mut self, index: u16) {
        self.count_unsent(index);
        self.ready.push(QueuedReply::Piece(index));
    }

    fn count_unsent(&mut self, index: u16) {
        let buffer = self.pieces.get(index).and_then(|piece| piece.buffer);
        self.unsent += buffer.map_or(0, |buffer| allocation_size(buffer.len.into()));
    }

    /// Sends as much as possible of a read whose data leaves in order.
    pub(super) fn advance<M: Memory>(&mut self, number: u16, memory: &mut M) {
        let Some(request) = self.requests.get(number).filter(|request| request.ordered) else { return };
        let has_begun = self.ready.open_request() == Some(number);
        if request.fault.is_some() {
            if has_begun {
                // The reply has promised data that does not exist; closing is the only way left to report it.
                tracing::warn!(
                    client = self.number,
                    "closing the connection: a read failed after its reply had begun"
                );
                return self.abort();
            }
            return self.fail_read(number, memory);
        }
        if has_begun {
            self.continue_open_reply(number);
        } else if request.is_executed() {
            self.enqueue_complete_read(number);
        } else if request.len > BUFFERED_READ_MAX && (request.is_submitted() || self.requests.len() == 1) {
            self.begin_open_reply(number);
        }
    }

    /// Begins the reply of an ordered read for which memory is lacking and no send will release any. If it is
    /// the only request, no other request releases memory either, so the data already read has to leave.
    pub(super) fn begin_partial_reply(&mut self, number: u16) {
        let ordered = self.requests.get(number).is_some_and(|request| request.ordered);
        if ordered && self.requests.len() == 1 && self.ready.open_request().is_none() {
            self.begin_open_reply(number);
        }
    }

    /// Queues the reply of a read that is complete.
    fn enqueue_complete_read(&mut self, number: u16) {
        while let Some(index) = self.next_read(number) {
            self.enqueue(index);
        }
    }

    /// Begins the reply of an incomplete read, if its first bytes have been read and no other reply is open.
    fn begin_open_reply(&mut self, number: u16) {
        let is_read = |piece: &super::Piece| piece.state != State::Submitted;
        let head = self.requests.get(number).and_then(|request| self.pieces.get(request.head));
        if self.ready.open_request().is_none() && head.is_some_and(is_read) {
            self.ready.open(number);
            self.continue_open_reply(number);
        }
    }

    /// Queues the completed pieces of the open reply, up to the first incomplete one.
    fn continue_open_reply(&mut self, number: u16) {
        while let Some(index) = self.next_read(number) {
            self.count_unsent(index);
            self.ready.push_open(QueuedReply::Piece(index));
        }
        if self.requests.get(number).is_none_or(ActiveRequest::is_executed) {
            self.ready.close();
        }
    }

    /// Takes the next piece of an ordered read to send, if it is complete.
    fn next_read(&mut self, number: u16) -> Option<u16> {
        let request = self.requests.get_mut(number)?;
        let piece = self.pieces.get(request.head).filter(|piece| piece.state != State::Submitted)?;
        Some(std::mem::replace(&mut request.head, piece.next))
    }

    /// Discards the data of a failed read, and answers it once the engine has completed its pieces.
    fn fail_read<M: Memory>(&mut self, number: u16, memory: &mut M) {
        if let Some(request) = self.requests.get_mut(number) {
            request.head = NONE;
        }
        let waits = |p: &super::Piece| p.request == number && p.state != State::Submitted;
        let waiting: Vec<u16> = self.pieces.iter().filter(|(_, p)| waits(p)).map(|(i, _)| i).collect();
        waiting.into_iter().for_each(|index| self.drop_piece(index, memory));
        self.complete(number);
    }

    /// Discards a piece whose data is not needed.
    fn drop_piece<M: Memory>(&mut self, index: u16, memory: &mut M) {
        let Some(piece) = self.pieces.remove(index) else { return };
        if let Some(buffer) = piece.buffer {
            if !self.planted.is(Mutant::CreditNotReturned) {
                self.memory_used -= allocation_size(buffer.len.into());
            }
            memory.give(buffer);
        }
        if let Some(request) = self.requests.get_mut(piece.request) {
            request.incomplete_pieces -= 1;
        }
    }

    /// Answers a request without data, if it is complete.
    fn complete(&mut self, number: u16) {
        if self.requests.get(number).is_some_and(ActiveRequest::is_complete) {
            self.ready.push(QueuedReply::Request(number));
        }
    }

    /// Lays out the next send. The result is empty if there is nothing to send, or a send is in flight.
    /// Otherwise a send is now in flight, and [`sent`](Self::sent) ends it.
    ///
    /// `runs_of` queries the engine for runs of data.
    pub fn gather<M: Memory>(
        &mut self,
        memory: &mut M,
        mut runs_of: impl FnMut(RunQuery, &mut Vec<BlockStatus>),
    ) -> &[Buffer] {
        if self.outbox.sending || self.phase == Phase::Aborted || !self.outbox.ensure_header_buffer(memory) {
            return &[];
        }
        self.outbox.clear();
        if !self.handshake_output.is_empty() {
            let now = self.handshake_output.len().min(Outbox::LEN as usize);
            self.outbox.header(&self.handshake_output[..now], memory);
            self.handshake_output.drain(..now);
        }
        let mut statuses = 0;
        while self.outbox.has_space() && statuses < STATUSES_AT_ONCE {
            match self.ready.pop() {
                Some(QueuedReply::Piece(index)) => self.lay_out_piece(index, memory),
                Some(QueuedReply::Request(number)) => {
                    let request = self.requests.get(number);
                    statuses += u32::from(request.is_some_and(|r| r.kind == command::BLOCK_STATUS));
                    self.lay_out_request(number, memory, &mut runs_of);
                }
                None => break,
            }
        }
        self.outbox.sending = !self.outbox.parts().is_empty();
        self.outbox.parts()
    }

    /// Handles the end of the send that [`gather`](Self::gather) laid out.
    pub fn sent<M: Memory>(&mut self, memory: &mut M) {
        self.outbox.sending = false;
        let given = self.outbox.release_pinned(memory);
        self.memory_used -= given;
        self.unsent -= given;
    }

    /// Reports whether there is anything to [`gather`](Self::gather).
    pub fn wants_to_send(&self) -> bool {
        self.phase != Phase::Aborted
            && !self.outbox.sending
            && !(self.ready.is_waiting() && self.handshake_output.is_empty())
    }

    fn lay_out_piece<M: Memory>(&mut self, index: u16, memory: &mut M) {
        let Some(piece) = self.pieces.remove(index) else { return };
        let number = piece.request;
        let Some(request) = self.requests.get_mut(number) else { return };
        request.incomplete_pieces -= 1;
        let done = request.is_complete();
        let mut lent = false;
        match (piece.state, piece.payload()) {
            (State::Read { .. }, Some(payload)) if request.ordered => {
                if self.negotiated.structured {
                    let head = wire::data_chunk(request.cookie, done, piece.offset, piece.len);
                    self.outbox.header(&head, memory);
                } else if piece.offset == request.offset {
                    self.outbox.header(&wire::simple_reply(request.cookie, 0), memory);
                }
                self.outbox.payload(payload);
                lent = true;
            }
            (State::Read { zeros }, Some(payload)) => {
                lent = lay_out_runs(&mut self.outbox, request.cookie, done, &piece, zeros, payload, memory);
            }
            _ => match &request.fault {
                Some(fault) => {
                    let chunk =
                        wire::error_chunk(request.cookie, done, request.kind, fault, Some(piece.offset));
                    self.outbox.header(&chunk, memory);
                }
                None => {
                    // Without the data, the client would take the next reply for it.
                    tracing::error!(
                        client = self.number,
                        "closing the connection: the data of a read is missing"
                    );
                    self.phase = Phase::Aborted;
                }
            },
        }
        match piece.buffer {
            Some(buffer) if lent && self.planted.is(Mutant::BufferGivenBackEarly) => {
                self.memory_used -= allocation_size(buffer.len.into());
                self.unsent -= allocation_size(buffer.len.into());
                memory.give(buffer);
            }
            Some(buffer) if lent => self.outbox.pin_buffer(buffer),
            Some(buffer) => {
                self.memory_used -= allocation_size(buffer.len.into());
                self.unsent -= allocation_size(buffer.len.into());
                memory.give(buffer);
            }
            None => {}
        }
        if done {
            self.remove_request(number);
        }
    }

    fn lay_out_request<M: Memory>(
        &mut self,
        number: u16,
        memory: &mut M,
        runs_of: &mut impl FnMut(RunQuery, &mut Vec<BlockStatus>),
    ) {
        let Some(request) = self.remove_request(number) else { return };
        match &request.fault {
            Some(fault) if self.negotiated.structured && request.is_answered_in_chunks() => {
                let chunk = wire::error_chunk(request.cookie, true, request.kind, fault, None);
                self.outbox.header(&chunk, memory);
            }
            Some(fault) => {
                let is_hidden = request.kind == command::FLUSH && self.planted.is(Mutant::FlushErrorHidden);
                let error = if is_hidden { 0 } else { fault.error_code(request.kind) };
                self.outbox.header(&wire::simple_reply(request.cookie, error), memory);
            }
            None if request.kind == command::BLOCK_STATUS => self.lay_out_status(&request, memory, runs_of),
            None if request.kind == command::READ && self.negotiated.structured => {
                self.outbox.header(&wire::empty_chunk(request.cookie), memory);
            }
            None => self.outbox.header(&wire::simple_reply(request.cookie, 0), memory),
        }
    }

    fn lay_out_status<M: Memory>(
        &mut self,
        request: &ActiveRequest,
        memory: &mut M,
        runs_of: &mut impl FnMut(RunQuery, &mut Vec<BlockStatus>),
    ) {
        let mut runs = Vec::new();
        let most = if request.single_reply { 1 } else { STATUS_MAX };
        let (volume, offset, len) = (self.negotiated.volume, request.offset, Bytes(request.len.into()));
        runs_of(RunQuery { volume, offset, len, max_runs: most }, &mut runs);
        runs.truncate(most);
        if runs.is_empty() {
            // The volume has been removed.
            let fault = RequestError::NoVolume.into();
            let chunk = wire::error_chunk(request.cookie, true, request.kind, &fault, None);
            return self.outbox.header(&chunk, memory);
        }
        self.outbox.header(&wire::status_chunk(request.cookie, runs.len() as u32), memory);
        for run in runs {
            self.outbox.header(&wire::descriptor(run.len.0.min(request.len.into()) as u32, run.kind), memory);
        }
    }

    fn remove_request(&mut self, number: u16) -> Option<ActiveRequest> {
        if matches!(self.input, Input::Reading(current) if current == number) {
            self.input = Input::Header;
        }
        self.requests.remove(number)
    }
}

/// Lays out one chunk for every run of data or zeros in a piece; returns whether any of the payload is sent.
fn lay_out_runs<M: Memory>(
    outbox: &mut Outbox,
    cookie: u64,
    done: bool,
    piece: &super::Piece,
    zeros: u64,
    payload: Buffer,
    memory: &mut M,
) -> bool {
    let (mut from, end) = (0, piece.block_count());
    let mut any = false;
    while from < end {
        let rest = zeros >> from;
        let hole = rest & 1 == 1;
        let run = if hole { rest.trailing_ones() } else { rest.trailing_zeros() };
        // The bitmap ends at bit 63: a run that reaches it continues to the end.
        let to = if run + from >= u64::BITS { end } else { (from + run).min(end) };
        let (start, stop) = piece.blocks(from, to);
        let (at, len) = (VolumeOffset(piece.offset.0 + u64::from(start)), stop - start);
        let done = done && to == end;
        if hole {
            outbox.header(&wire::hole_chunk(cookie, done, at, len), memory);
        } else {
            outbox.header(&wire::data_chunk(cookie, done, at, len), memory);
            outbox.payload(payload.part(start, len));
            any = true;
        }
        from = to;
    }
    any
}

#[inline]
fn all_zeros(bytes: &[u8]) -> bool {
    debug_assert!(bytes.len() <= BLOCK as usize);
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |any, &byte| any | byte) == 0)
}
