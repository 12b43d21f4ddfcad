//! Requests: checked, cut into pieces, answered.

pub(crate) mod active;
pub(crate) mod block_locks;
pub(crate) mod mirror;
pub(crate) mod piece;
mod pieces;
pub(crate) mod ranges;
pub(crate) mod ready;

use crate::Base;
use crate::effect::Effect;
use crate::ids::{ActiveId, Waiter};
use crate::request::active::{Active, Answer};
use crate::request::block_locks::Locks;
use crate::request::piece::Piece;
use crate::request::ranges::Ranges;
use crate::request::ready::Ready;
use slab::Slab;
use std::collections::VecDeque;
use weir_model::{BLOCK, Buffer, Op, Planted, ReadShape, Reply, Request, RequestError, VolumeId};

/// The state of clients' requests in flight.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) active: Slab<Active>,
    pub(crate) pieces: Slab<Piece>,
    pub(crate) locks: Locks,
    pub(crate) ranges: Ranges,
    pub(crate) ready: Ready,
    pub(crate) replies: VecDeque<Reply>,
    /// Requests to answer once everything they have read is in one buffer.
    pub(crate) scattered: Vec<ActiveId>,
    /// Volumes that are being removed; they take no more requests.
    pub(crate) removing: Vec<VolumeId>,
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
            scattered: Vec::new(),
            removing: Vec::new(),
        }
    }

    /// Whether the volume is being removed.
    #[inline]
    pub(crate) fn is_being_removed(&self, volume: VolumeId) -> bool {
        !self.removing.is_empty() && self.removing.contains(&volume)
    }
}

impl Base {
    #[inline(always)]
    pub(crate) fn activate(&mut self, request: Request, answer: Answer) -> ActiveId {
        let next = request.offset;
        let continues = self.host.note_request(&request);
        ActiveId(self.requests.active.insert(Active {
            request,
            submitted: self.core.now,
            pieces_left: 0,
            error: None,
            found: (false, false),
            needs_commit: answer == Answer::None,
            next_offset: next,
            run_length: continues,
            answer,
        }))
    }

    #[inline(always)]
    pub(crate) fn check(&self, request: &Request) -> Result<(), RequestError> {
        let &Request { offset, len, op, .. } = request;
        let volume = self.core.map.volume(request.volume).ok_or(RequestError::NoVolume)?;
        if self.requests.is_being_removed(request.volume) {
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

    /// Notes that no more pieces of the request will be made.
    pub(crate) fn pieces_complete(&mut self, id: ActiveId) {
        self.requests.active[id.0].pieces_left -= 1;
        if self.requests.active[id.0].pieces_left == 0 {
            self.request_ended(id);
        }
    }

    /// Ends a request whose pieces have all ended: it replies, or waits for a commit, or, with FUA, until the
    /// devices are verified.
    #[inline(always)]
    pub(crate) fn request_ended(&mut self, id: ActiveId) {
        let active = &self.requests.active[id.0];
        if active.error.is_none() && active.needs_commit {
            self.durability.wait_for_commit(Waiter::Request(id));
        } else if active.error.is_none() && active.request.fua {
            let round = self.verification.verify_devices(&mut self.core);
            self.acknowledge(Waiter::Request(id), round);
        } else {
            self.reply(id);
        }
    }

    /// Answers the request and removes it.
    #[inline(always)]
    pub(crate) fn reply(&mut self, id: ActiveId) {
        // Only the fields needed are copied out of the table, because an entry is large.
        let Active { request, submitted, error, found, answer, .. } = self.requests.active[id.0];
        if answer == Answer::Gathered {
            return self.requests.scattered.push(id);
        }
        self.requests.active.remove(id.0);
        if answer == Answer::None {
            return self.effects.push(Effect::Cleared(request.volume, error));
        }
        let shape = match found {
            (true, false) => ReadShape::Data,
            (true, true) => ReadShape::Mixed,
            (false, _) if request.op == Op::Read => ReadShape::Zeros,
            (false, _) => ReadShape::Data,
        };
        let mut buffer = request.buffer;
        if let Some(kept) = buffer.filter(|b| self.core.abandoned.uses(*b)) {
            self.core.abandoned.defer_release(kept);
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
