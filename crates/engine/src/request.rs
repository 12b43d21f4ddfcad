//! Requests: checked, cut into pieces, answered.

pub(crate) mod active;
pub(crate) mod block_locks;
pub(crate) mod piece;
mod pieces;
pub(crate) mod ranges;
pub(crate) mod ready;

use crate::Engine;
use crate::ids::{ActiveId, Waiter};
use crate::request::active::Active;
use crate::request::block_locks::Locks;
use crate::request::piece::{Piece, WaitsFor, Work};
use crate::request::ranges::Ranges;
use crate::request::ready::Ready;
use slab::Slab;
use std::collections::VecDeque;
use weir_model::{
    BLOCK, Buffer, Bytes, ExtentKey, Memory, Nanos, Op, Planted, ReadShape, Reply, Request, RequestError,
    Span, VolumeOffset,
};

/// What is in flight of clients' requests.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) active: Slab<Active>,
    pub(crate) pieces: Slab<Piece>,
    pub(crate) locks: Locks,
    pub(crate) ranges: Ranges,
    pub(crate) ready: Ready,
    pub(crate) replies: VecDeque<Reply>,
}

impl Requests {
    pub(crate) fn new(planted: Planted) -> Self {
        Self {
            active: Slab::new(),
            pieces: Slab::new(),
            locks: Locks::new(planted),
            ranges: Ranges::default(),
            ready: Ready::default(),
            replies: VecDeque::new(),
        }
    }
}

impl Engine {
    /// Checks a request and begins it: reads and writes by pieces, ranges in batches, FLUSH as a waiter.
    #[inline]
    pub(crate) fn accept<M: Memory>(&mut self, request: Request, memory: &mut M) {
        if let Err(error) = self.check(&request) {
            let result = Err(error);
            let reply = Reply { id: request.id, result, buffer: request.buffer, response: Nanos(0) };
            self.requests.replies.push_back(reply);
            return;
        }
        self.verification.note_use();
        let id = self.activate(request, false);
        match request.op {
            Op::Read | Op::Write => self.cut(id, request, memory),
            Op::Trim | Op::WriteZeroes { .. } => self.advance_range(id),
            Op::Flush => {
                self.requests.active[id.0].commit = true;
                self.requests.active[id.0].error =
                    self.durability.owed(request.volume).or_else(|| self.damage(request.volume));
                self.request_ended(id);
            }
        }
        self.run_ready(memory);
    }

    #[inline(always)]
    pub(crate) fn activate(&mut self, request: Request, internal: bool) -> ActiveId {
        let next = request.offset;
        let continues = self.host.continues(&request);
        ActiveId(self.requests.active.insert(Active {
            request,
            submitted: self.core.now,
            left: 0,
            error: None,
            found: (false, false),
            commit: internal,
            next,
            continues,
            internal,
        }))
    }

    #[inline(always)]
    fn check(&self, request: &Request) -> Result<(), RequestError> {
        let &Request { offset, len, op, .. } = request;
        let volume = self.core.map.volume(request.volume).ok_or(RequestError::NoVolume)?;
        if self.admin.is_being_removed(request.volume) {
            return Err(RequestError::NoVolume);
        }
        if op != Op::Read && self.core.stopped_changes.is_some() {
            return Err(RequestError::ReadOnly);
        }
        if op == Op::Flush {
            return Ok(());
        }
        let fits = |buffer: Buffer| {
            u64::from(buffer.len) == Request::buffer_len(offset, len).0 && buffer.at.is_multiple_of(BLOCK)
        };
        if len.0 == 0 {
            return Err(RequestError::Misaligned { offset, len });
        }
        if offset.0.checked_add(len.0).is_none_or(|end| end > volume.size.0) {
            return Err(RequestError::OutOfRange { offset, len, size: volume.size });
        }
        if op.has_payload() && !request.buffer.is_some_and(fits) {
            return Err(RequestError::Misaligned { offset, len });
        }
        Ok(())
    }

    /// Cuts a read or write into pieces at extent borders.
    fn cut<M: Memory>(&mut self, id: ActiveId, request: Request, memory: &mut M) {
        let Some(buffer) = request.buffer else { return };
        let extent = self.core.map.extent();
        let (mut at, end) = (request.offset, request.offset + request.len);
        let work = if matches!(request.op, Op::Read) { Work::Read } else { Work::Write { zeros: false } };
        let key = |at| ExtentKey { volume: request.volume, index: extent.index(at) };
        if extent.index(at) == extent.index(VolumeOffset(end.0 - 1)) {
            let span = Span { start: extent.within(at), len: request.len.0 as u32 };
            return self.begin_piece(Piece::new(id, key(at), span, work, buffer), memory);
        }
        self.core.commands.expect_parts();
        // One more than the pieces, so that the request does not end while it is being cut.
        self.requests.active[id.0].left = 1;
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
        self.piece_made(id);
    }

    /// Begins a read, or a write once it has its blocks.
    #[inline]
    fn begin_piece<M: Memory>(&mut self, piece: Piece, memory: &mut M) {
        let (key, range, is_read) = (piece.key, piece.range, piece.work == Work::Read);
        let id = self.requests.insert_piece(piece);
        if is_read {
            self.start_read(id, memory);
        } else if self.requests.locks.take(key, range, id) {
            self.start_write(id, memory);
        } else {
            self.requests.wait(id, WaitsFor::Blocks);
        }
    }

    /// No more pieces are coming.
    fn piece_made(&mut self, id: ActiveId) {
        self.requests.active[id.0].left -= 1;
        if self.requests.active[id.0].left == 0 {
            self.request_ended(id);
        }
    }

    /// All pieces have ended: replies, or waits for the commit.
    #[inline(always)]
    pub(crate) fn request_ended(&mut self, id: ActiveId) {
        let active = &self.requests.active[id.0];
        if active.error.is_none() && active.commit {
            self.durability.wait_for_commit(Waiter::Request(id));
        } else if active.error.is_none() && active.request.fua {
            let round = self.verification.verify_devices(&mut self.core);
            self.acknowledge(Waiter::Request(id), round);
        } else {
            self.reply(id);
        }
    }

    /// Answers the request and forgets it.
    #[inline(always)]
    pub(crate) fn reply(&mut self, id: ActiveId) {
        if self.reads.again.defers(id) {
            return;
        }
        // Only what is needed is copied out of the table: an entry is large.
        let Active { request, submitted, error, found, internal, .. } = self.requests.active[id.0];
        self.requests.active.remove(id.0);
        if internal {
            return self.admin.clearing_ended(
                &mut self.core,
                &self.verification,
                &mut self.durability,
                request.volume,
                error,
            );
        }
        let shape = match found {
            (true, false) => ReadShape::Data,
            (true, true) => ReadShape::Mixed,
            (false, _) if request.op == Op::Read => ReadShape::Zeros,
            (false, _) => ReadShape::Data,
        };
        let mut buffer = request.buffer;
        if let Some(kept) = buffer.filter(|b| self.core.abandoned.uses(*b)) {
            self.core.abandoned.keep(kept);
            buffer = None;
        }
        let result = error.map_or(Ok(shape), Err);
        self.requests.replies.push_back(Reply {
            id: request.id,
            result,
            buffer,
            response: self.core.now.since(submitted),
        });
    }
}
