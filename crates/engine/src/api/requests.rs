//! Accepts requests, cuts them into pieces, and begins the pieces.

use crate::Engine;
use crate::ids::ActiveId;
use crate::request::active::Answer;
use crate::request::piece::{Piece, PieceState, WaitsFor, Work};
use crate::request::ranges::Ranges;
use crate::request::ready::Ready;
use crate::task::Task;
use weir_model::{
    BLOCK, Bytes, DeviceId, ExtentKey, IoError, Memory, Nanos, Op, Reply, Request, Span, VolumeId,
    VolumeOffset,
};
use weir_policy::placement::Action;

impl Task for Ranges {
    type On = Engine;

    fn can_run(engine: &Engine) -> bool {
        !engine.data.base.requests.ranges.is_empty()
    }

    /// Makes the next pieces of requests that span many extents.
    fn run<M: Memory>(engine: &mut Engine, memory: &mut M) {
        for _ in 0..engine.data.base.requests.ranges.len() {
            if let Some(id) = engine.data.base.requests.ranges.next() {
                engine.data.base.requests.active[id.0].pieces_left -= 1;
                engine.data.base.advance_range(id);
                engine.run_ready(memory);
            }
        }
    }

    fn is_idle(engine: &Engine) -> bool {
        engine.data.base.requests.active.is_empty()
    }
}

impl Task for Ready {
    type On = Engine;

    fn can_run(engine: &Engine) -> bool {
        !engine.data.base.requests.ready.is_empty() || engine.data.base.core.abandoned.has_refused()
    }

    fn run<M: Memory>(engine: &mut Engine, memory: &mut M) {
        engine.run_ready(memory);
    }
}

impl Engine {
    /// Checks a request and begins it: reads and writes piece by piece, ranges in batches, FLUSH as a waiter.
    #[inline]
    pub(crate) fn accept<M: Memory>(&mut self, request: Request, memory: &mut M) {
        if let Err(error) = self.data.base.check(&request) {
            let result = Err(error);
            let reply = Reply { id: request.id, result, buffer: request.buffer, response: Nanos(0) };
            self.data.base.requests.replies.push_back(reply);
            return;
        }
        self.data.base.verification.note_use();
        let id = self.data.base.activate(request, Answer::Reply);
        match request.op {
            Op::Read | Op::Write => self.split_request(id, request, memory),
            Op::Trim | Op::WriteZeroes { .. } => self.data.base.advance_range(id),
            Op::Flush => {
                self.data.base.requests.active[id.0].needs_commit = true;
                self.data.base.requests.active[id.0].error = self
                    .data
                    .base
                    .durability
                    .take_pending_error(request.volume)
                    .or_else(|| self.data.base.damage(request.volume));
                self.data.base.request_ended(id);
            }
        }
        self.run_ready(memory);
    }

    /// Cuts a read or write into pieces at extent boundaries.
    fn split_request<M: Memory>(&mut self, id: ActiveId, request: Request, memory: &mut M) {
        let Some(buffer) = request.buffer else { return };
        let extent = self.data.base.core.map.extent();
        let (mut at, end) = (request.offset, request.offset + request.len);
        let work = if matches!(request.op, Op::Read) { Work::Read } else { Work::Write { zeros: false } };
        let key = |at| ExtentKey { volume: request.volume, index: extent.index(at) };
        if extent.index(at) == extent.index(VolumeOffset(end.0 - 1)) {
            let span = Span { start: extent.within(at), len: request.len.0 as u32 };
            return self.begin_piece(Piece::new(id, key(at), span, work, buffer), memory);
        }
        self.data.base.core.commands.expect_parts();
        // The count is one more than the pieces, so that the request does not end while it is being cut.
        self.data.base.requests.active[id.0].pieces_left = 1;
        while at.0 < end.0 {
            let start = extent.within(at);
            let len = (extent.bytes().0 - u64::from(start)).min(end.0 - at.0) as u32;
            let span = Span { start, len };
            let first_block = at.0 / BLOCK - request.offset.0 / BLOCK;
            let blocks = u32::from(span.touched().count);
            let part = buffer.part((first_block * BLOCK) as u32, blocks * BLOCK as u32);
            self.begin_piece(Piece::new(id, key(at), span, work, part), memory);
            at = at + Bytes(len.into());
        }
        self.data.base.pieces_complete(id);
    }

    /// Begins a piece: a read at once, a write once it has locked its blocks.
    #[inline]
    fn begin_piece<M: Memory>(&mut self, piece: Piece, memory: &mut M) {
        let (key, range, is_read) = (piece.key, piece.range, piece.work == Work::Read);
        let id = self.data.base.requests.insert_piece(piece);
        if is_read {
            self.data.base.host.policies.prefetch(key, range, self.data.base.core.map.extent());
            self.data.start_read(id, memory);
        } else if self.data.base.requests.locks.lock(key, range, id) {
            self.data.start_write(id, memory);
        } else {
            self.data.base.requests.wait(id, WaitsFor::Blocks);
        }
    }

    /// Handles effects, and starts the pieces that are ready. It uses a queue instead of recursion, because
    /// any number of pieces may end at once.
    #[inline]
    pub(crate) fn run_ready<M: Memory>(&mut self, memory: &mut M) {
        // Most calls find nothing: a completion rarely makes a piece ready.
        if !self.data.base.effects.is_empty()
            || !self.data.base.requests.ready.is_empty()
            || self.data.base.core.abandoned.has_refused()
            || !self.data.base.requests.scattered.is_empty()
        {
            self.run_all_ready(memory);
        }
    }

    #[inline(never)]
    fn run_all_ready<M: Memory>(&mut self, memory: &mut M) {
        loop {
            if let Some(effect) = self.data.base.effects.next() {
                self.handle(effect);
            } else if let Some(id) = self.data.base.requests.ready.pop() {
                debug_assert!(matches!(
                    self.data.base.requests.pieces[id.0 as usize].state,
                    PieceState::Waiting(WaitsFor::Turn)
                ));
                match self.data.base.requests.pieces[id.0 as usize].work {
                    Work::Read => self.data.start_read(id, memory),
                    Work::Write { .. } => self.data.start_write(id, memory),
                    Work::Clear(clear) => self.data.start_clear(id, clear, memory),
                }
            } else if let Some(flight) = self.data.base.core.abandoned.next_refused() {
                self.end_flight(&flight, Err(IoError::Lost), memory);
            } else if let Some(id) = self.data.base.requests.scattered.pop() {
                self.data.answer_gathered(id, memory);
            } else {
                return;
            }
        }
    }

    /// Makes the volume's next FLUSH fail, because an earlier FLUSH failed on this device and its client may
    /// not have received the error.
    pub fn fail_next_flush(&mut self, volume: VolumeId, device: DeviceId) {
        if self.data.base.core.map.volume(volume).is_some() {
            self.data.base.durability.doubt.fail_next_flush(volume, device);
        }
    }

    /// Queues an action for the mover. The mover runs it when it has a buffer, as far as possible; a full
    /// queue drops it. For drivers and tests: policies request actions in rounds and on accesses.
    pub fn request_action(&mut self, action: Action) {
        self.data.base.host.actions.push(action);
    }
}
