//! Clients' requests in flight: from the step that submits them to the reply that the oracle judges.

use super::{Driver, Failure, Health, InFlightRequest, RequestSpec};
use crate::{Answer, Change, DamagedSectors, Place};
use weir_engine::Activity;
use weir_model::{
    BLOCK, Buffer, Bytes, Hint, Memory, Nanos, Op, ReadShape, Reply, Request, RequestId, SECTOR, VolumeOffset,
};

/// Maximum length of a read or write: the longest buffer.
const PAYLOAD_MAX: Bytes = Bytes::mib(4);

/// Maximum number of events without any step, request or operator command completing.
const IDLE_EVENTS_MAX: u32 = 1_000_000;
/// Number of events after which a policy that moves at random is assumed to stay busy.
const BUSY_EVENTS_MAX: u32 = 100_000;

impl Driver {
    /// Submits a request as soon as the engine and the buffer memory accept it.
    pub(super) fn submit_request(&mut self, ask: RequestSpec) -> Result<(), Failure> {
        let Some(ask) = self.fit(ask) else { return Ok(()) };
        while !self.engine.can_accept() || self.in_flight.len() >= self.setup.depth {
            self.wait(1)?;
        }
        if ask.op == (Op::WriteZeroes { no_hole: true }) {
            self.keep_space(&ask);
        }
        let buffer = if ask.op.has_payload() { Some(self.take_buffer(&ask)?) } else { None };
        let place = Place { volume: ask.volume, offset: ask.offset, len: ask.len };
        let ticket = match ask.op {
            Op::Read => self.oracle.read(place),
            Op::Write => self.oracle.change(place, Change::Write, ask.fua),
            Op::WriteZeroes { .. } => self.oracle.change(place, Change::Zero, ask.fua),
            Op::Trim => self.oracle.change(place, Change::Trim, ask.fua),
            Op::Flush => self.oracle.flush(ask.volume),
        };
        self.register_reservation(&ask, ticket);
        if let Some(buffer) = buffer {
            let bytes = self.world.memory.bytes_mut(buffer);
            let payload = payload_range(&ask);
            if ask.op == Op::Write {
                // Foreign bytes around the written range.
                bytes[..payload.start].fill(0xee);
                bytes[payload.end..].fill(0xee);
                self.oracle.fill(ticket, place, &mut bytes[payload]);
            } else {
                // Bytes that no command delivers must not be mistaken for an earlier request's contents of
                // the buffer.
                bytes[payload].chunks_mut(SECTOR as usize).for_each(|sector| sector[..32].fill(0xee));
            }
        }
        self.requests += 1;
        let id = RequestId(self.requests);
        let (since, holders) = (self.world.now(), self.holders(&ask));
        self.forget_holders(&ask);
        self.in_flight.insert(id, InFlightRequest { ask, ticket, buffer, since, holders });
        let request = Request {
            id,
            volume: self.volumes[ask.volume].id,
            op: ask.op,
            offset: ask.offset,
            len: ask.len,
            fua: ask.fua,
            hint: Hint::None,
            buffer,
        };
        self.engine.submit(self.world.now(), request, &mut self.world.memory);
        self.pump()
    }

    /// Limits the request to its volume and to the longest buffer; returns `None` if nothing is left.
    pub(super) fn fit(&self, ask: RequestSpec) -> Option<RequestSpec> {
        let volume = ask.volume % self.volumes.len();
        if ask.op == Op::Flush {
            return Some(RequestSpec { volume, offset: VolumeOffset(0), len: Bytes(0), fua: false, ..ask });
        }
        let size = self.volumes[volume].spec.size;
        let mut len = ask.len.0.min(size.0.saturating_sub(ask.offset.0));
        if ask.op.has_payload() {
            len = len.min(PAYLOAD_MAX.0 - BLOCK);
        }
        let fua = ask.fua && ask.op.changes();
        (len > 0).then_some(RequestSpec { volume, len: Bytes(len), fua, ..ask })
    }

    pub(super) fn keep_space(&mut self, ask: &RequestSpec) {
        let extent = self.setup.extent.bytes().0;
        let first = ask.offset.0 / extent * extent;
        let starts = (first..ask.offset.0 + ask.len.0).step_by(extent as usize);
        self.reserved_extents.extend(starts.map(|start| (ask.volume, start)));
    }

    pub(super) fn take_buffer(&mut self, ask: &RequestSpec) -> Result<Buffer, Failure> {
        let len = Request::buffer_len(ask.offset, ask.len);
        loop {
            if let Some(buffer) = self.world.memory.take(len) {
                return Ok(buffer);
            }
            // Buffers that given-up devices may still fill never return.
            if self.in_flight.is_empty() {
                return Err(self.stuck_failure());
            }
            self.wait(1)?;
        }
    }

    /// Runs everything that can happen at this instant.
    pub(super) fn pump(&mut self) -> Result<(), Failure> {
        self.engine.pump(&mut self.world);
        self.record_faults();
        while let Some(reply) = self.engine.next_reply() {
            self.handle_reply(reply)?;
        }
        Ok(())
    }

    /// Advances to the next event, at most to `limit`; returns false if there is none by then.
    pub(super) fn advance(&mut self, limit: Nanos) -> Result<bool, Failure> {
        let next = [self.world.next_event(), self.engine.deadline()].into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= limit) else { return Ok(false) };
        self.idle_events += 1;
        if self.idle_events > IDLE_EVENTS_MAX {
            let doing = || Activity::ALL.into_iter().filter(|activity| self.engine.is_doing(*activity));
            let due = self.engine.deadline();
            let what =
                || format!("{:?} at {}, due at {due:?}", doing().collect::<Vec<_>>(), self.world.now());
            return Err(if self.in_flight.is_empty() { Failure::Idle(what()) } else { self.stuck_failure() });
        }
        let mut done = std::mem::take(&mut self.done);
        // After a jump of the clock, all overdue completions come at once.
        self.world.advance(next.max(self.world.now()), &mut done);
        self.record_faults();
        for answer in done.drain(..) {
            self.engine.complete(self.world.now(), answer, &mut self.world.memory);
        }
        self.done = done;
        self.pump()?;
        self.count_event()?;
        Ok(true)
    }

    /// Advances until no command is in flight. Returns false if that may never happen: a policy that moves at
    /// random may request more than slow devices can do.
    pub(super) fn wait_for_commands(&mut self) -> Result<bool, Failure> {
        let own = self.engine.volumes().filter_map(|volume| volume.policy);
        let moves_at_random = own.chain([self.setup.policy.as_str()]).any(|policy| policy == "chaos");
        let mut left = if moves_at_random { BUSY_EVENTS_MAX } else { u32::MAX };
        while self.world.next_event().is_some() && self.advance(Nanos::MAX)? {
            left -= 1;
            if left == 0 {
                self.idle_events = 0;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Advances until `answers` more requests are answered, or none is in flight.
    pub(super) fn wait(&mut self, answers: usize) -> Result<(), Failure> {
        let left = self.in_flight.len().saturating_sub(answers);
        while self.in_flight.len() > left {
            if !self.advance(Nanos::MAX)? {
                return Err(self.stuck_failure());
            }
        }
        Ok(())
    }

    pub(super) fn advance_by(&mut self, time: Nanos) -> Result<(), Failure> {
        let until = self.world.now() + time;
        while self.advance(until)? {}
        self.world.advance(until, &mut self.done);
        self.pump()
    }

    pub(super) fn stuck_failure(&self) -> Failure {
        let oldest = self.in_flight.iter().min_by_key(|(id, _)| **id).map(|(_, request)| request);
        Failure::Stuck {
            left: self.in_flight.len(),
            oldest: oldest.map(|request| request.ask),
            since: oldest.map_or(self.world.now(), |request| request.since),
        }
    }

    pub(super) fn drain(&mut self) -> Result<(), Failure> {
        self.wait(usize::MAX)
    }

    /// Checks a reply against the oracle.
    pub(super) fn handle_reply(&mut self, reply: Reply) -> Result<(), Failure> {
        self.world
            .add_to_digest(reply.id.0 ^ reply.response.0.rotate_left(32) ^ u64::from(reply.result.is_err()));
        let request = self.in_flight.remove(&reply.id).ok_or(Failure::StrayReply(reply.id))?;
        if !self.returns_buffer(&request, &reply) || reply.response != self.world.now() - request.since {
            return Err(Failure::StrayReply(reply.id));
        }
        self.statistics.requests += 1;
        self.answered_since_crash += 1;
        self.idle_events = 0;
        self.check_removal(request.ask, request.ticket, reply.result.err())?;
        match reply.result {
            Ok(shape) => self.succeeded(&request, shape, reply.buffer)?,
            Err(error) => self.check_failure(&request, error)?,
        }
        if let Some(buffer) = reply.buffer {
            self.world.memory.give(buffer);
        }
        Ok(())
    }

    /// Reports whether the reply returns the request's buffer. A hung device may keep it: a failed request,
    /// or a write that another device has executed, then returns none, and a read returns another one of the
    /// same length.
    pub(super) fn returns_buffer(&self, request: &InFlightRequest, reply: &Reply) -> bool {
        let may_be_kept = self.health == Health::Broken;
        match (request.buffer, reply.buffer) {
            (own, given) if own == given => true,
            (Some(own), Some(given)) => may_be_kept && request.ask.op == Op::Read && own.len == given.len,
            (_, None) => may_be_kept && (reply.result.is_err() || request.ask.op == Op::Write),
            (None, Some(_)) => false,
        }
    }

    pub(super) fn succeeded(
        &mut self,
        request: &InFlightRequest,
        shape: ReadShape,
        buffer: Option<Buffer>,
    ) -> Result<(), Failure> {
        let InFlightRequest { ask, ticket, .. } = *request;
        self.check_truncated(request)?;
        match (ask.op, buffer) {
            (Op::Read, Some(buffer)) => {
                let payload = buffer.part(payload_range(&ask).start as u32, ask.len.0 as u32);
                // Without checksums, only the devices know of the damaged sectors.
                let spoilt = match shape {
                    ReadShape::Zeros => DamagedSectors::default(),
                    _ => self.world.memory.damaged_sectors(payload),
                };
                let bytes = self.world.memory.bytes(payload);
                let answer = if shape == ReadShape::Zeros { Answer::Zeros } else { Answer::Bytes(bytes) };
                self.statistics.compared += ask.len - Bytes(spoilt.len() as u64 * SECTOR);
                self.statistics.damaged_data += spoilt.len() as u64;
                let same = self.oracle.read_done_except(ticket, answer, &spoilt);
                same.map_err(|difference| Failure::Difference { ask, difference })?;
            }
            (Op::Flush, _) => self.oracle.flushed(ticket),
            _ => self.oracle.changed(ticket),
        }
        if ask.claims_durable() {
            self.copies.note_durable();
        }
        self.register_request_end(request, true);
        Ok(())
    }
}

/// Returns the range of a request's payload in its buffer.
fn payload_range(ask: &RequestSpec) -> std::ops::Range<usize> {
    let start = (ask.offset.0 % BLOCK) as usize;
    start..start + ask.len.0 as usize
}
