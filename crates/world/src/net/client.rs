//! A simulated client: it connects, negotiates, sends requests, and checks every reply against the oracle.
//!
//! The oracle registers a request when its first byte is on the socket, and its end when the whole reply has
//! been parsed. A request whose connection ends before that may have been executed, may still be, or may
//! never be.
//!
//! - `request`: requests and their encoding.

mod request;

use super::handshake::{ExpectedVolume, Handshake, Progress, options};
use super::judge::Judge;
use super::nbd::{self, Transmission};
use super::recording::RequestKey;
use super::sockets::{ReceiveResult, SocketProfile, Sockets};
use crate::driver::{Failure, RequestSpec};
use crate::{Answer, DAMAGE_MARK, DamagedSectors, Oracle, Rng, Ticket};
use request::{EncodedRequest, Expectation, PendingRequest, encode_request};
use std::collections::{BTreeMap, VecDeque};
use weir_model::{Bytes, ConnId, Nanos, Op, SECTOR};

pub use request::{ClientRequest, InvalidRequest};

/// Maximum number of bytes that a client receives at once.
const RECEIVE: usize = 256 << 10;

/// Characteristics of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientProfile {
    /// Index of its volume.
    pub volume: usize,
    /// Its sockets.
    pub wire: SocketProfile,
    /// Whether it negotiates structured replies.
    pub is_structured: bool,
    /// Whether it negotiates block status.
    pub has_context: bool,
    /// Its longest read or write.
    pub len_max: Bytes,
    /// Maximum number of its requests in flight.
    pub depth: usize,
    /// Maximum pause before its next receive.
    pub pause: Nanos,
    /// Maximum number of bytes per receive.
    pub receive_max: usize,
}

/// Stage of a connection.
#[derive(Debug)]
enum Stage {
    Handshake(Box<Handshake>),
    Open(Transmission),
    /// The client has aborted the handshake, and the server will close the connection.
    Aborted,
    /// The server has closed it.
    Over,
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) conn: ConnId,
    number: usize,
    character: ClientProfile,
    /// Size of its volume.
    size: Bytes,
    stage: Stage,
    rng: Rng,
    /// Bytes to send.
    out: VecDeque<u8>,
    unsent: VecDeque<ClientRequest>,
    in_flight: BTreeMap<u64, PendingRequest>,
    receives_at: Nanos,
    /// True if it sends nothing more, and still receives.
    is_silent: bool,
    /// True if its end of the connection is half-closed in the simulated sockets.
    is_half_closed: bool,
    /// True if it sends DISC once everything else is sent.
    sends_disc: bool,
    /// Last time that anything was transferred, or nothing had to be.
    pub(super) last_progress: Nanos,
    /// Time of its request to be admitted: the server must have ended connections closed before it once the
    /// handshake is complete.
    pub(super) admission_requested: Option<u64>,
    /// True if the clock jumped during its handshake: the server may apply the time limit.
    clock_jumped: bool,
    /// True if it was admitted.
    admitted: bool,
    /// True if there were so many clients during its handshake that it may be refused.
    is_crowded: bool,
    /// True if its volume may be removed before it is admitted.
    volume_may_vanish: bool,
}

/// Results of a client's turn.
#[derive(Debug, Default)]
pub(super) struct TurnResult {
    /// The handshake is complete.
    pub(super) handshake_done: bool,
    /// A byte was sent or received.
    pub(super) made_progress: bool,
    /// The server has closed the connection.
    pub(super) is_over: bool,
    /// The server has closed it because of the client's ABORT.
    pub(super) is_aborted: bool,
    pub(super) answered: u64,
    pub(super) no_space: u64,
    /// Number of requests that failed because of a device.
    pub(super) errors: u64,
    pub(super) compared: Bytes,
    /// Number of sectors read with wrong contents.
    pub(super) damaged: u64,
    /// Its volume does not exist any more.
    pub(super) volume_missing: bool,
    /// Requests begun, and requests answered, in the form of recordings.
    pub(super) begun: Vec<(Ticket, RequestKey)>,
    pub(super) ended: Vec<(Ticket, RequestKey)>,
    /// Input of the digest.
    pub(super) digest_word: u64,
}

impl Connection {
    pub(super) fn new(
        number: usize,
        character: ClientProfile,
        wanted: ExpectedVolume,
        conn: ConnId,
        now: Nanos,
        mut rng: Rng,
    ) -> Self {
        let size = Bytes(wanted.size);
        let may_lack = wanted.volume_may_vanish;
        let all = options(&mut rng, character.is_structured, character.has_context);
        Self {
            conn,
            number,
            character,
            size,
            stage: Stage::Handshake(Box::new(Handshake::new(wanted, all, &mut rng))),
            rng,
            out: VecDeque::new(),
            unsent: VecDeque::new(),
            in_flight: BTreeMap::new(),
            receives_at: now,
            is_silent: false,
            is_half_closed: false,
            sends_disc: false,
            last_progress: now,
            admission_requested: None,
            clock_jumped: false,
            admitted: false,
            is_crowded: false,
            volume_may_vanish: may_lack,
        }
    }

    /// Queues a request, which is sent after the earlier ones.
    pub(super) fn queue_request(&mut self, request: ClientRequest) {
        self.unsent.push_back(request);
    }

    /// Takes the requests that have not been begun.
    pub(super) fn take_unsent(&mut self) -> VecDeque<ClientRequest> {
        std::mem::take(&mut self.unsent)
    }

    /// Reports whether it can take another request at once.
    pub(super) fn has_space(&self) -> bool {
        self.unsent.len() + self.in_flight.len() < self.character.depth
    }

    /// Returns the number of unanswered requests, including those not sent yet.
    pub(super) fn unanswered(&self) -> usize {
        self.unsent.len() + self.in_flight.len()
    }

    /// Reports whether it is in the middle of sending something.
    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    pub(super) const fn volume(&self) -> usize {
        self.character.volume
    }

    /// Reports whether it uses its volume and will continue to. The server may have closed the connection
    /// because of a failed device without the client having noticed.
    pub(super) fn is_steady(&self, sockets: &Sockets) -> bool {
        self.is_handshake_done() && !self.is_leaving() && sockets.is_open(self.conn)
    }

    pub(super) const fn is_handshake_done(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Handles a jump of the clock to `now`.
    pub(super) fn note_clock_jump(&mut self, now: Nanos) {
        self.last_progress = now;
        self.clock_jumped |= matches!(self.stage, Stage::Handshake(_) | Stage::Aborted);
    }

    /// Reports whether the server may have closed it because of the time limit of the handshake.
    pub(super) const fn may_have_timed_out(&self) -> bool {
        self.clock_jumped
    }

    /// Reports whether a failing device may have ended its connection: once the start of a long read was sent
    /// as a simple reply, an error in the rest cannot be reported.
    pub(super) fn may_be_disconnected(&self, judge: &Judge<'_>) -> bool {
        let reads = |open: &&PendingRequest| open.ask.op == Op::Read;
        !self.character.is_structured
            && self.in_flight.values().filter(reads).any(|open| match open.expectation {
                Expectation::Request(ticket) => {
                    judge.may_fail_to_read(&open.touched(), ticket, open.holders.as_ref())
                }
                Expectation::Status(_) | Expectation::Refused(_) => false,
            })
    }

    /// Notes that there are so many clients that it may be refused.
    pub(super) const fn note_crowd(&mut self) {
        self.is_crowded = true;
    }

    /// Notes that its volume may be removed before it is admitted.
    pub(super) fn note_volume_may_vanish(&mut self) {
        self.volume_may_vanish = true;
        if let Stage::Handshake(hello) = &mut self.stage {
            hello.note_volume_may_vanish();
        }
    }

    pub(super) const fn was_admitted(&self) -> bool {
        self.admitted
    }

    /// Reports whether the server may have closed it before it was admitted: there were too many clients, or
    /// its volume was removed.
    pub(super) const fn may_be_refused(&self) -> bool {
        !self.admitted && (self.is_crowded || self.volume_may_vanish)
    }

    /// Stops receiving until then.
    pub(super) fn stall(&mut self, until: Nanos) {
        self.receives_at = self.receives_at.max(until);
    }

    /// Closes its sending side after the request it is sending.
    pub(super) fn close_half(&mut self, sockets: &mut Sockets) {
        self.unsent.clear();
        (self.is_silent, self.is_half_closed) = (true, true);
        if self.out.is_empty() {
            sockets.shut(self.conn);
        }
    }

    /// Makes it disconnect politely, with DISC, after its requests.
    pub(super) fn queue_disc(&mut self) {
        self.sends_disc = true;
    }

    /// Reports whether it has announced, or will announce, that it disconnects.
    pub(super) const fn is_leaving(&self) -> bool {
        self.sends_disc || self.is_silent
    }

    /// Returns the unanswered requests that may have changed the volume, or may still.
    pub(super) fn unanswered_changes(&self) -> impl Iterator<Item = Ticket> {
        self.in_flight.values().filter(|open| open.ask.op.changes()).filter_map(|open| {
            match open.expectation {
                Expectation::Request(ticket) => Some(ticket),
                Expectation::Status(_) | Expectation::Refused(_) => None,
            }
        })
    }

    /// Reports whether a flush is in flight.
    pub(super) fn is_flushing(&self) -> bool {
        self.in_flight
            .values()
            .any(|open| matches!((open.ask.op, open.expectation), (Op::Flush, Expectation::Request(_))))
    }

    /// Forgets reads and flushes that will not be answered.
    pub(super) fn forget_reads(&self, oracle: &mut Oracle) {
        for open in self.in_flight.values() {
            match (open.ask.op, open.expectation) {
                (Op::Read, Expectation::Request(ticket)) | (_, Expectation::Status(ticket)) => {
                    oracle.read_failed(ticket);
                }
                (Op::Flush, Expectation::Request(ticket)) => oracle.flush_unseen(ticket),
                _ => {}
            }
        }
    }

    /// Returns the time of its next action, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = self.wants_to_send() && sockets.is_writable(self.conn);
        let receives = sockets.readable(self.conn).map(|at| at.max(self.receives_at));
        [sends.then_some(now), receives].into_iter().flatten().min()
    }

    fn wants_to_send(&self) -> bool {
        !self.out.is_empty()
            || match &self.stage {
                Stage::Handshake(_) | Stage::Aborted | Stage::Over => false,
                Stage::Open(_) => {
                    (!self.unsent.is_empty() && self.in_flight.len() < self.character.depth)
                        || (self.sends_disc && self.unsent.is_empty() && !self.is_silent)
                }
            }
    }

    /// Reports whether the server owes it anything.
    pub(super) fn is_waiting(&self) -> bool {
        let is_in_hello = matches!(self.stage, Stage::Handshake(_) | Stage::Aborted);
        is_in_hello || !self.in_flight.is_empty() || !self.out.is_empty() || self.is_leaving()
    }

    /// Sends and receives as much as possible.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        moment: &mut u64,
        sockets: &mut Sockets,
        judge: &mut Judge<'_>,
    ) -> Result<TurnResult, Failure> {
        let mut turn = TurnResult::default();
        if self.receives_at <= now {
            self.receive(now, moment, sockets, judge, &mut turn)?;
        }
        while self.send(now, sockets, judge, &mut turn) {
            turn.made_progress = true;
        }
        if !self.is_waiting() {
            self.last_progress = now;
        }
        Ok(turn)
    }

    fn failure(&self, what: impl Into<String>) -> Failure {
        Failure::Client { client: self.number, what: what.into() }
    }

    /// Sends some bytes; returns whether there may be more to send.
    fn send(
        &mut self,
        now: Nanos,
        sockets: &mut Sockets,
        judge: &mut Judge<'_>,
        turn: &mut TurnResult,
    ) -> bool {
        if !sockets.is_writable(self.conn) {
            return false;
        }
        if self.out.is_empty() {
            self.begin_next(judge, turn);
        }
        let (bytes, _) = self.out.as_slices();
        if bytes.is_empty() {
            return false;
        }
        let part = self.character.wire.transfer_max as u64;
        let most = if self.rng.below(5) == 0 { 1 + self.rng.below(part) as usize } else { bytes.len() };
        let Some(sent) = sockets.put(self.conn, &bytes[..most.min(bytes.len())]) else {
            // The server has closed its end; data that it sent before is still to be received.
            self.out.clear();
            self.unsent.clear();
            return false;
        };
        self.out.drain(..sent);
        self.last_progress = now;
        if self.out.is_empty() && self.is_half_closed {
            sockets.shut(self.conn);
        }
        sent > 0
    }

    /// Encodes the next request.
    fn begin_next(&mut self, judge: &mut Judge<'_>, turn: &mut TurnResult) {
        let Stage::Open(transmission) = &mut self.stage else { return };
        if self.is_silent || (!self.unsent.is_empty() && self.in_flight.len() >= self.character.depth) {
            return;
        }
        let Some(request) = self.unsent.pop_front() else {
            if self.sends_disc {
                self.out.extend(nbd::request(0, nbd::DISC, 0, 0, 0));
                self.is_silent = true;
            }
            return;
        };
        let cookie = self.rng.word();
        let EncodedRequest { flags, kind, offset, len, pending: mut open, payload } =
            encode_request(request, &self.character, self.size, judge.oracle);
        turn.begun.extend(open.key(offset, len));
        (open.offset, open.len) = (offset, len);
        open.holders = judge.holders(&open.touched());
        if let Expectation::Request(ticket) = open.expectation {
            judge.register_request(&open.ask, ticket);
        }
        transmission.expect(flags, kind, cookie, offset, len);
        self.out.extend(nbd::request(flags, kind, cookie, offset, len));
        self.out.extend(payload);
        self.in_flight.insert(cookie, open);
    }

    fn receive(
        &mut self,
        now: Nanos,
        moment: &mut u64,
        sockets: &mut Sockets,
        judge: &mut Judge<'_>,
        turn: &mut TurnResult,
    ) -> Result<(), Failure> {
        let bytes = match sockets.take(self.conn, self.character.receive_max.clamp(1, RECEIVE)) {
            ReceiveResult::Nothing => return Ok(()),
            ReceiveResult::End => {
                turn.is_over = true;
                let is_whole = match &self.stage {
                    Stage::Open(transmission) => transmission.is_between_messages(),
                    Stage::Handshake(_) | Stage::Aborted | Stage::Over => true,
                };
                turn.digest_word = u64::from(is_whole);
                turn.is_aborted = matches!(self.stage, Stage::Aborted);
                self.stage = Stage::Over;
                return Ok(());
            }
            ReceiveResult::Bytes(bytes) => bytes,
        };
        (self.last_progress, turn.made_progress) = (now, true);
        self.receives_at = now + Nanos(self.rng.below(self.character.pause.0 + 1));
        self.handle_bytes(&bytes, moment, judge, turn)
    }

    fn handle_bytes(
        &mut self,
        bytes: &[u8],
        moment: &mut u64,
        judge: &mut Judge<'_>,
        turn: &mut TurnResult,
    ) -> Result<(), Failure> {
        match &mut self.stage {
            Stage::Aborted | Stage::Over => return Ok(()),
            Stage::Open(transmission) => transmission.push_bytes(bytes),
            Stage::Handshake(hello) => {
                let heard = hello.handle_bytes(bytes);
                let client = self.number;
                let failure = |why| Failure::Client { client, what: format!("in the handshake: {why}") };
                let (first, came) = heard.map_err(failure)?;
                self.out.extend(first);
                match came {
                    Progress::Incomplete => {}
                    Progress::Aborted => self.stage = Stage::Aborted,
                    Progress::NoVolume => {
                        self.stage = Stage::Aborted;
                        turn.volume_missing = true;
                    }
                    Progress::Complete(rest) => {
                        let agreed = (hello.is_structured, hello.has_context);
                        (self.character.is_structured, self.character.has_context) = agreed;
                        self.stage = Stage::Open(Transmission::new(agreed.0, rest));
                        (turn.handshake_done, self.admitted) = (true, true);
                        self.clock_jumped = false;
                    }
                }
                if let Stage::Handshake(hello) = &mut self.stage {
                    let (more, is_last) = hello.next_bytes(&mut self.rng);
                    self.out.extend(more);
                    if is_last {
                        *moment += 1;
                        self.admission_requested = Some(*moment);
                    }
                }
            }
        }
        self.handle_replies(judge, turn)
    }

    fn handle_replies(&mut self, judge: &mut Judge<'_>, turn: &mut TurnResult) -> Result<(), Failure> {
        loop {
            let Stage::Open(transmission) = &mut self.stage else { return Ok(()) };
            match transmission.next() {
                Err(why) => return Err(self.failure(format!("the stream is lost: {why}"))),
                Ok(None) => return Ok(()),
                Ok(Some(reply)) => {
                    let Some(open) = self.in_flight.remove(&reply.cookie) else {
                        return Err(self.failure(format!("a second reply to {:#x}", reply.cookie)));
                    };
                    turn.digest_word =
                        turn.digest_word.rotate_left(1) ^ reply.cookie ^ u64::from(reply.error.is_some());
                    turn.answered += 1;
                    turn.ended.extend(open.key(open.offset, open.len));
                    self.check_reply(&open, &reply, judge, turn)?;
                }
            }
        }
    }

    /// Checks a reply against the oracle.
    fn check_reply(
        &self,
        open: &PendingRequest,
        reply: &nbd::Reply,
        judge: &mut Judge<'_>,
        turn: &mut TurnResult,
    ) -> Result<(), Failure> {
        let PendingRequest { ask, expectation: what, head, .. } = *open;
        let ticket = match (what, reply.error) {
            (Expectation::Refused(number), error) if error == Some(number) => return Ok(()),
            (Expectation::Refused(0), None) => return Ok(()),
            (Expectation::Refused(number), error) => {
                return Err(self.failure(format!("told {error:?} instead of error {number} for {ask:?}")));
            }
            (Expectation::Status(ticket), None) => {
                return self.check_status(&ask, ticket, &reply.runs, judge.oracle);
            }
            (Expectation::Request(ticket), None) => ticket,
            (Expectation::Request(ticket), Some(error))
                if judge.admits(&open.touched(), ticket, open.holders.as_ref(), error) =>
            {
                let own: Vec<Ticket> = self.unanswered_changes().collect();
                register_failure(&ask, ticket, error, &own, judge.oracle, turn);
                judge.register_reply(&ask, ticket, false);
                return Ok(());
            }
            (_, Some(error)) => return Err(self.failure(format!("told error {error} for {ask:?}"))),
        };
        match ask.op {
            Op::Read => {
                let data = &reply.data[head..head + ask.len.0 as usize];
                let spoilt = if judge.faults.had_silent_failure {
                    DamagedSectors::marked(data, DAMAGE_MARK)
                } else {
                    DamagedSectors::default()
                };
                turn.compared += ask.len - Bytes(spoilt.len() as u64 * SECTOR);
                turn.damaged += spoilt.len() as u64;
                let same = judge.oracle.read_done_except(ticket, Answer::Bytes(data), &spoilt);
                same.map_err(|difference| Failure::Difference { ask, difference })?;
            }
            // The server may have reported the loss of the data to another client, which has not received the
            // reply yet, or never reads it.
            Op::Flush if judge.faults.is_broken && judge.oracle.has_concurrent_flush(ticket) => {
                judge.oracle.abandon_flush(ticket);
            }
            Op::Flush => judge.oracle.flushed(ticket),
            _ => judge.oracle.changed(ticket),
        }
        judge.register_reply(&ask, ticket, true);
        Ok(())
    }

    /// Checks a block status: the runs are adjacent, begin at the request's start and end at most at its end,
    /// and holes can be read as zeros.
    fn check_status(
        &self,
        ask: &RequestSpec,
        ticket: Ticket,
        runs: &[(u32, u32)],
        oracle: &mut Oracle,
    ) -> Result<(), Failure> {
        let total: u64 = runs.iter().map(|(len, _)| u64::from(*len)).sum();
        let known = runs.iter().all(|(len, flags)| *len > 0 && matches!(flags, 0 | 2 | 3));
        let odd = |len: &u32| u64::from(*len) % SECTOR != 0;
        if !known || total > ask.len.0 || runs.iter().any(|(len, _)| odd(len)) {
            return Err(self.failure(format!("the status {runs:?} of {ask:?}")));
        }
        let mut zeros = Vec::new();
        let mut at = 0;
        for (len, flags) in runs {
            let sectors = at / SECTOR..(at + u64::from(*len)) / SECTOR;
            if *flags & 2 != 0 {
                zeros.push(sectors);
            }
            at += u64::from(*len);
        }
        let same = oracle.zeros_reported(ticket, &zeros);
        same.map_err(|difference| Failure::Difference { ask: *ask, difference })
    }
}

/// Reports to the oracle that a request failed, as is allowed.
fn register_failure(
    ask: &RequestSpec,
    ticket: Ticket,
    error: u32,
    own: &[Ticket],
    oracle: &mut Oracle,
    turn: &mut TurnResult,
) {
    let no_space = error == nbd::ENOSPC;
    turn.no_space += u64::from(no_space);
    turn.errors += u64::from(!no_space);
    match ask.op {
        Op::Read => oracle.read_failed(ticket),
        Op::Flush => oracle.flush_failed_concurrently(ticket, own),
        _ => oracle.change_failed(ticket),
    }
}
