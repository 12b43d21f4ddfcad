//! A client: it connects, shakes hands, asks, and holds every answer against the oracle.
//!
//! The oracle is told of a request when the first byte of it is on the socket, and of its end when the whole reply is
//! understood. A request whose connection ends before that was carried out, or will be, or not.

use super::hello::{Came, Hello, Wanted, options};
use super::nbd::{self, Transmission};
use super::sockets::{Got, Sockets, Wire};
use crate::driver::{Ask, Failure};
use crate::{Answer, Change, Oracle, Place, Rng, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use weir_model::{BLOCK, Bytes, ConnId, Nanos, Op, SECTOR, VolumeOffset};

/// Bytes a client receives at once, at most.
const RECEIVE: usize = 256 << 10;

/// What a client of a pool is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Character {
    /// The volume it uses, by its position.
    pub volume: usize,
    /// Its sockets.
    pub wire: Wire,
    /// Whether it wants structured replies.
    pub is_structured: bool,
    /// Whether it wants to know which blocks hold data.
    pub has_context: bool,
    /// Its longest read or write.
    pub longest: Bytes,
    /// Requests it has in flight, at most.
    pub depth: usize,
    /// It receives again after up to so long,
    pub pause: Nanos,
    /// and then at most so many bytes.
    pub sip: usize,
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq)]
pub enum Wish {
    /// A request; its volume is the client's.
    Ask(Ask),
    /// A read whose data is to come in one piece, where replies are structured.
    Whole(Ask),
    /// A read of all but so many bytes at its start and its end, fewer than a sector of each.
    Askew(Ask, u16, u16),
    /// Where data is, where that was agreed on; one run of it, or all.
    Status(VolumeOffset, Bytes, bool),
    /// What must be refused, and leave everything else as it was.
    Wrong(Wrong),
}

/// Requests that must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A read of more than there is.
    ReadBehindEnd,
    /// A write of so many bytes to where the volume has ended.
    WriteBehindEnd(u32),
    /// A command that nobody knows.
    Unknown,
    /// A command that was not offered.
    Cache,
    /// Flags that nobody knows.
    Flags,
    /// A block status, though none was agreed on, or of no bytes.
    Status,
}

impl fmt::Debug for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(ask) => ask.fmt(f),
            Self::Askew(ask, head, tail) => write!(f, "{ask:?}, but {head} bytes before and {tail} behind"),
            Self::Whole(ask) => write!(f, "{ask:?}, in one piece"),
            Self::Status(at, len, one) => {
                write!(
                    f,
                    "{} of {} KiB at {at}",
                    if *one { "the status" } else { "all statuses" },
                    len.0 as f64 / 1024.0
                )
            }
            Self::Wrong(wrong) => wrong.fmt(f),
        }
    }
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Open {
    ask: Ask,
    what: What,
    /// Bytes before what the oracle knows of.
    head: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Told(Ticket),
    Status(Ticket),
    /// To be refused with this error.
    Refused(u32),
}

/// How a connection stands.
#[derive(Debug)]
enum Stage {
    Hello(Box<Hello>),
    Open(Transmission),
    /// The client has broken the handshake off, and will be let go.
    Aborted,
    /// The server has closed it.
    Over,
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) conn: ConnId,
    number: usize,
    character: Character,
    /// The size of its volume.
    size: Bytes,
    stage: Stage,
    rng: Rng,
    /// Bytes that are to be sent.
    out: VecDeque<u8>,
    wishes: VecDeque<Wish>,
    open: BTreeMap<u64, Open>,
    receives_at: Nanos,
    /// It has sent all it sends, and still receives.
    is_silent: bool,
    /// Its sockets know that.
    is_half_closed: bool,
    /// It says that it leaves once everything else is said.
    says_goodbye: bool,
    /// When anything moved last, or had no need to.
    pub(super) moved: Nanos,
    /// The moment before which connections ended that the server must have ended once this one is through.
    pub(super) asked_in: Option<u64>,
}

/// What came of a client's turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// It is through the handshake.
    pub(super) is_through: bool,
    /// A byte came or went.
    pub(super) moves: bool,
    /// The server has closed the connection.
    pub(super) is_over: bool,
    /// … as the client had asked it to in the handshake.
    pub(super) is_aborted: bool,
    pub(super) answered: u64,
    pub(super) no_space: u64,
    pub(super) compared: Bytes,
    /// For the digest.
    pub(super) word: u64,
}

impl Connection {
    pub(super) fn new(
        number: usize,
        character: Character,
        wanted: Wanted,
        conn: ConnId,
        now: Nanos,
        mut rng: Rng,
    ) -> Self {
        let size = Bytes(wanted.size);
        let all = options(&mut rng, character.is_structured, character.has_context);
        Self {
            conn,
            number,
            character,
            size,
            stage: Stage::Hello(Box::new(Hello::new(wanted, all, &mut rng))),
            rng,
            out: VecDeque::new(),
            wishes: VecDeque::new(),
            open: BTreeMap::new(),
            receives_at: now,
            is_silent: false,
            is_half_closed: false,
            says_goodbye: false,
            moved: now,
            asked_in: None,
        }
    }

    /// Asks for something as soon as what was asked before is sent.
    pub(super) fn wish(&mut self, wish: Wish) {
        self.wishes.push_back(wish);
    }

    /// What it has not begun to ask for.
    pub(super) fn take_wishes(&mut self) -> VecDeque<Wish> {
        std::mem::take(&mut self.wishes)
    }

    /// Whether it can take another wish at once.
    pub(super) fn has_room(&self) -> bool {
        self.wishes.len() + self.open.len() < self.character.depth
    }

    /// Requests that are not answered, those not yet sent among them.
    pub(super) fn unanswered(&self) -> usize {
        self.wishes.len() + self.open.len()
    }

    /// Whether it is in the middle of something that it sends.
    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    pub(super) const fn volume(&self) -> usize {
        self.character.volume
    }

    /// Whether it uses its volume, and goes on doing so.
    pub(super) fn is_steady(&self) -> bool {
        self.is_through() && !self.is_leaving()
    }

    pub(super) const fn is_through(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Does not receive for so long.
    pub(super) fn stall(&mut self, until: Nanos) {
        self.receives_at = self.receives_at.max(until);
    }

    /// Sends no more than what it is at.
    pub(super) fn close_half(&mut self, sockets: &mut Sockets) {
        self.wishes.clear();
        (self.is_silent, self.is_half_closed) = (true, true);
        if self.out.is_empty() {
            sockets.shut(self.conn);
        }
    }

    /// Asks for nothing more, and says so.
    pub(super) fn say_goodbye(&mut self) {
        self.says_goodbye = true;
    }

    /// Whether it has said, or will say, that it leaves.
    pub(super) const fn is_leaving(&self) -> bool {
        self.says_goodbye || self.is_silent
    }

    /// What was asked and not answered may have changed this, or may still.
    pub(super) fn given_up(&self) -> impl Iterator<Item = Ticket> {
        self.open.values().filter(|open| open.ask.op.changes()).filter_map(|open| match open.what {
            What::Told(ticket) => Some(ticket),
            What::Status(_) | What::Refused(_) => None,
        })
    }

    /// Reads that will not be answered.
    pub(super) fn forget_reads(&self, oracle: &mut Oracle) {
        for open in self.open.values() {
            match (open.ask.op, open.what) {
                (Op::Read, What::Told(ticket)) | (_, What::Status(ticket)) => oracle.read_failed(ticket),
                (Op::Flush, What::Told(ticket)) => oracle.flush_given_up(ticket),
                _ => {}
            }
        }
    }

    /// When it does something, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = self.wants_to_send() && sockets.has_room(self.conn);
        let receives = sockets.readable(self.conn).map(|at| at.max(self.receives_at));
        [sends.then_some(now), receives].into_iter().flatten().min()
    }

    fn wants_to_send(&self) -> bool {
        !self.out.is_empty()
            || match &self.stage {
                Stage::Hello(_) | Stage::Aborted | Stage::Over => false,
                Stage::Open(_) => {
                    (!self.wishes.is_empty() && self.open.len() < self.character.depth)
                        || (self.says_goodbye && self.wishes.is_empty() && !self.is_silent)
                }
            }
    }

    /// Whether the server owes it anything.
    pub(super) fn is_waiting(&self) -> bool {
        let is_in_hello = matches!(self.stage, Stage::Hello(_) | Stage::Aborted);
        is_in_hello || !self.open.is_empty() || !self.out.is_empty() || self.is_leaving()
    }

    /// Sends and receives what can be.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        moment: &mut u64,
        sockets: &mut Sockets,
        oracle: &mut Oracle,
    ) -> Result<Turn, Failure> {
        let mut turn = Turn::default();
        if self.receives_at <= now {
            self.receive(now, moment, sockets, oracle, &mut turn)?;
        }
        while self.send(now, sockets, oracle) {
            turn.moves = true;
        }
        if !self.is_waiting() {
            self.moved = now;
        }
        Ok(turn)
    }

    fn failure(&self, what: impl Into<String>) -> Failure {
        Failure::Client { client: self.number, what: what.into() }
    }

    /// Sends some; whether there may be more to send.
    fn send(&mut self, now: Nanos, sockets: &mut Sockets, oracle: &mut Oracle) -> bool {
        if !sockets.has_room(self.conn) {
            return false;
        }
        if self.out.is_empty() {
            self.begin_next(oracle);
        }
        let (bytes, _) = self.out.as_slices();
        if bytes.is_empty() {
            return false;
        }
        let part = self.character.wire.part as u64;
        let most = if self.rng.below(5) == 0 { 1 + self.rng.below(part) as usize } else { bytes.len() };
        let Some(sent) = sockets.put(self.conn, &bytes[..most.min(bytes.len())]) else {
            // The server has closed its end: what it said before that is still to be received.
            self.out.clear();
            self.wishes.clear();
            return false;
        };
        self.out.drain(..sent);
        self.moved = now;
        if self.out.is_empty() && self.is_half_closed {
            sockets.shut(self.conn);
        }
        sent > 0
    }

    /// Lays out the next request.
    fn begin_next(&mut self, oracle: &mut Oracle) {
        let Stage::Open(transmission) = &mut self.stage else { return };
        if self.is_silent || (!self.wishes.is_empty() && self.open.len() >= self.character.depth) {
            return;
        }
        let Some(wish) = self.wishes.pop_front() else {
            if self.says_goodbye {
                self.out.extend(nbd::request(0, nbd::DISC, 0, 0, 0));
                self.is_silent = true;
            }
            return;
        };
        let cookie = self.rng.word();
        let Laid { flags, kind, offset, len, open, payload } =
            lay_out(wish, &self.character, self.size, oracle);
        transmission.expect(flags, kind, cookie, offset, len);
        self.out.extend(nbd::request(flags, kind, cookie, offset, len));
        self.out.extend(payload);
        self.open.insert(cookie, open);
    }

    fn receive(
        &mut self,
        now: Nanos,
        moment: &mut u64,
        sockets: &mut Sockets,
        oracle: &mut Oracle,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        let mut bytes = vec![0; self.character.sip.clamp(1, RECEIVE)];
        let len = match sockets.take(self.conn, &mut bytes) {
            Got::Nothing => return Ok(()),
            Got::End => {
                turn.is_over = true;
                let is_whole = match &self.stage {
                    Stage::Open(transmission) => transmission.is_between_messages(),
                    Stage::Hello(_) | Stage::Aborted | Stage::Over => true,
                };
                turn.word = u64::from(is_whole);
                turn.is_aborted = matches!(self.stage, Stage::Aborted);
                self.stage = Stage::Over;
                return Ok(());
            }
            Got::Bytes(len) => len,
        };
        (self.moved, turn.moves) = (now, true);
        self.receives_at = now + Nanos(self.rng.below(self.character.pause.0 + 1));
        self.hear(&bytes[..len], moment, oracle, turn)
    }

    fn hear(
        &mut self,
        bytes: &[u8],
        moment: &mut u64,
        oracle: &mut Oracle,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        match &mut self.stage {
            Stage::Aborted | Stage::Over => return Ok(()),
            Stage::Open(transmission) => transmission.hear(bytes),
            Stage::Hello(hello) => {
                let heard = hello.hear(bytes);
                let client = self.number;
                let failure = |why| Failure::Client { client, what: format!("in the handshake: {why}") };
                let (first, came) = heard.map_err(failure)?;
                self.out.extend(first);
                match came {
                    Came::Along => {}
                    Came::Aborted => self.stage = Stage::Aborted,
                    Came::Through(rest) => {
                        let agreed = (hello.is_structured, hello.has_context);
                        (self.character.is_structured, self.character.has_context) = agreed;
                        self.stage = Stage::Open(Transmission::new(agreed.0, rest));
                        turn.is_through = true;
                    }
                }
                if let Stage::Hello(hello) = &mut self.stage {
                    let (more, is_last) = hello.say(&mut self.rng);
                    self.out.extend(more);
                    if is_last {
                        *moment += 1;
                        self.asked_in = Some(*moment);
                    }
                }
            }
        }
        self.understand(oracle, turn)
    }

    fn understand(&mut self, oracle: &mut Oracle, turn: &mut Turn) -> Result<(), Failure> {
        loop {
            let Stage::Open(transmission) = &mut self.stage else { return Ok(()) };
            match transmission.next() {
                Err(why) => return Err(self.failure(format!("the stream is lost: {why}"))),
                Ok(None) => return Ok(()),
                Ok(Some(reply)) => {
                    let Some(open) = self.open.remove(&reply.cookie) else {
                        return Err(self.failure(format!("a second reply to {:#x}", reply.cookie)));
                    };
                    turn.word = turn.word.rotate_left(1) ^ reply.cookie ^ u64::from(reply.error.is_some());
                    turn.answered += 1;
                    self.answered(&open, &reply, oracle, turn)?;
                }
            }
        }
    }

    /// A reply goes past the oracle.
    fn answered(
        &self,
        open: &Open,
        reply: &nbd::Reply,
        oracle: &mut Oracle,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        let Open { ask, what, head } = *open;
        let ticket = match (what, reply.error) {
            (What::Refused(number), error) if error == Some(number) => return Ok(()),
            (What::Refused(0), None) => return Ok(()),
            (What::Refused(number), error) => {
                return Err(self.failure(format!("told {error:?} instead of error {number} for {ask:?}")));
            }
            (What::Status(ticket), None) => {
                return self.check_status(&ask, ticket, &reply.runs, oracle);
            }
            (What::Told(ticket), None) => ticket,
            // There may be no room for it.
            (What::Told(ticket), Some(28)) if ask.op.changes() => {
                turn.no_space += 1;
                oracle.change_failed(ticket);
                return Ok(());
            }
            (_, Some(error)) => return Err(self.failure(format!("told error {error} for {ask:?}"))),
        };
        match ask.op {
            Op::Read => {
                turn.compared += ask.len;
                let data = &reply.data[head..head + ask.len.0 as usize];
                let same = oracle.read_done(ticket, Answer::Bytes(data));
                same.map_err(|difference| Failure::Difference { ask, difference })
            }
            Op::Flush => {
                oracle.flushed(ticket);
                Ok(())
            }
            _ => {
                oracle.changed(ticket);
                Ok(())
            }
        }
    }

    /// Runs follow one another from the request's start, to its end at most, and where there is said to be nothing zeros
    /// can be read.
    fn check_status(
        &self,
        ask: &Ask,
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
        let same = oracle.zeros_shown(ticket, &zeros);
        same.map_err(|difference| Failure::Difference { ask: *ask, difference })
    }
}

/// A request as it goes over the wire.
struct Laid {
    flags: u16,
    kind: u16,
    offset: u64,
    len: u32,
    open: Open,
    payload: Vec<u8>,
}

fn lay_out(wish: Wish, character: &Character, size: Bytes, oracle: &mut Oracle) -> Laid {
    let fitted = |ask: Ask| fit(ask, character, size);
    match wish {
        Wish::Ask(ask) => lay_out_ask(fitted(ask), 0, oracle),
        Wish::Whole(ask) => {
            let ask = fitted(Ask { op: Op::Read, ..ask });
            let is_offered = character.is_structured && ask.len <= Bytes::kib(128);
            lay_out_ask(ask, if is_offered { nbd::DF } else { 0 }, oracle)
        }
        Wish::Askew(ask, head, tail) => {
            let ask = fitted(Ask { op: Op::Read, ..ask });
            lay_out_askew(ask, u64::from(head) % SECTOR, u64::from(tail) % SECTOR, oracle)
        }
        Wish::Status(offset, len, one) if character.has_context => {
            let ask = fitted(Ask { volume: 0, op: Op::Trim, offset, len, fua: false });
            let ask = Ask { op: Op::Read, ..ask };
            let ticket = oracle.read(place(&ask));
            let flags = if one { nbd::REQ_ONE } else { 0 };
            let open = Open { ask, what: What::Status(ticket), head: 0 };
            let (offset, len) = (ask.offset.0, ask.len.0 as u32);
            Laid { flags, kind: nbd::BLOCK_STATUS, offset, len, open, payload: vec![] }
        }
        Wish::Status(..) => lay_out_wrong(Wrong::Status, character, size),
        Wish::Wrong(wrong) => lay_out_wrong(wrong, character, size),
    }
}

const fn place(ask: &Ask) -> Place {
    Place { volume: ask.volume, offset: ask.offset, len: ask.len }
}

/// The request cut to what the volume has and the client asks for at most.
fn fit(ask: Ask, character: &Character, size: Bytes) -> Ask {
    let volume = character.volume;
    if ask.op == Op::Flush {
        return Ask { volume, offset: VolumeOffset(0), len: Bytes(0), fua: false, ..ask };
    }
    let offset = VolumeOffset(ask.offset.0 % size.0 / SECTOR * SECTOR);
    let most = if ask.op.has_payload() { character.longest } else { size };
    let len = ask.len.0.clamp(SECTOR, most.0).min(size.0 - offset.0);
    Ask { volume, offset, len: Bytes(len), fua: ask.fua && ask.op.changes(), ..ask }
}

fn lay_out_ask(ask: Ask, flags: u16, oracle: &mut Oracle) -> Laid {
    let fua = if ask.fua { nbd::FUA } else { 0 };
    let (kind, more, ticket) = match ask.op {
        Op::Read => (nbd::READ, flags, oracle.read(place(&ask))),
        Op::Write => (nbd::WRITE, fua, oracle.change(place(&ask), Change::Write, ask.fua)),
        Op::Trim => (nbd::TRIM, fua, oracle.change(place(&ask), Change::Trim, ask.fua)),
        Op::WriteZeroes { no_hole } => {
            let no_hole = if no_hole { nbd::NO_HOLE } else { 0 };
            (nbd::WRITE_ZEROES, fua | no_hole, oracle.change(place(&ask), Change::Zero, ask.fua))
        }
        Op::Flush => (nbd::FLUSH, 0, oracle.flush(ask.volume)),
    };
    let mut payload = Vec::new();
    if ask.op == Op::Write {
        payload = vec![0; ask.len.0 as usize];
        oracle.fill(ticket, place(&ask), &mut payload);
    }
    let open = Open { ask, what: What::Told(ticket), head: 0 };
    Laid { flags: more, kind, offset: ask.offset.0, len: ask.len.0 as u32, open, payload }
}

/// The oracle knows of the whole sectors of it; without any, the read is one of all that was asked for.
fn lay_out_askew(ask: Ask, head: u64, tail: u64, oracle: &mut Oracle) -> Laid {
    let (before, behind) = (head.next_multiple_of(SECTOR), tail.next_multiple_of(SECTOR));
    if ask.len.0 <= before + behind {
        return lay_out_ask(ask, 0, oracle);
    }
    let inner = VolumeOffset(ask.offset.0 + before);
    let mut laid =
        lay_out_ask(Ask { offset: inner, len: Bytes(ask.len.0 - before - behind), ..ask }, 0, oracle);
    laid.open.head = (before - head) as usize;
    (laid.offset, laid.len) = (ask.offset.0 + head, (ask.len.0 - head - tail) as u32);
    laid
}

/// With the errors that the protocol names for them.
fn lay_out_wrong(wrong: Wrong, character: &Character, size: Bytes) -> Laid {
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    let (flags, kind, offset, len, error) = match wrong {
        Wrong::ReadBehindEnd => (0, nbd::READ, size.0 - SECTOR, 2 * SECTOR as u32, EINVAL),
        Wrong::WriteBehindEnd(len) => (0, nbd::WRITE, size.0, len, ENOSPC),
        Wrong::Unknown => (0, 99, 0, BLOCK as u32, EINVAL),
        Wrong::Cache => (0, nbd::CACHE, 0, BLOCK as u32, EINVAL),
        Wrong::Flags => (1 << 9, nbd::TRIM, 0, BLOCK as u32, EINVAL),
        Wrong::Status => (0, nbd::BLOCK_STATUS, 0, 0, EINVAL),
    };
    let (volume, offset_of_ask) = (character.volume, VolumeOffset(offset));
    let ask = Ask { volume, op: Op::Read, offset: offset_of_ask, len: Bytes(len.into()), fua: false };
    let payload = if kind == nbd::WRITE { vec![0x5a; len as usize] } else { vec![] };
    Laid { flags, kind, offset, len, open: Open { ask, what: What::Refused(error), head: 0 }, payload }
}
