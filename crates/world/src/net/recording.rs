//! A recording of what clients ask for, held against what they asked.

use super::sockets::{Got, Sockets, Wire};
use crate::Ticket;
use weir_model::{ConnId, Nanos, Op, Peer};
use weir_session::recording::{Frames, Heard, Recorded};

/// A request as a recording has it: the volume by its position.
pub(super) type Key = (usize, Op, u64, u64);

/// What a recording makes of an operation.
pub(super) const fn recorded_as(op: Op) -> Op {
    match op {
        Op::WriteZeroes { no_hole: true } => Op::Write,
        Op::WriteZeroes { no_hole: false } => Op::Trim,
        other => other,
    }
}

/// What the server says where another recording is under way.
const NOT_OVER: &str = "are being recorded already";

/// A recording under way.
#[derive(Debug)]
pub(super) struct Recording {
    conn: ConnId,
    out: Vec<u8>,
    line: Vec<u8>,
    /// The volumes by their positions, in the order in which they were named.
    volumes: Vec<usize>,
    /// Those that made way for others since: what is asked of these is not recorded.
    gone: Vec<usize>,
    has_begun: bool,
    /// There was another one before, whose connection the server may not have seen closed.
    is_next: bool,
    /// Its end was asked for.
    is_ending: bool,
    frames: Frames,
    recorded: Vec<Key>,
    /// Asked since it began, and not answered.
    open: Vec<(Ticket, Key)>,
    /// Asked since it began, and answered before its end was asked for.
    due: Vec<Key>,
    /// The server may take it for silent, or have others give way to it.
    pub(super) may_fail: bool,
}

/// How a recording stands.
#[derive(Debug)]
pub(super) enum Turn {
    /// It goes on.
    On(Box<Recording>),
    /// It has ended as a whole.
    Whole(Box<Recording>),
    /// It never began, or the server may have given it up.
    Refused,
}

impl Recording {
    /// Asks for one of these volumes; `None` if nobody listens.
    pub(super) fn begin(
        volumes: Vec<usize>,
        names: &[String],
        is_next: bool,
        sockets: &mut Sockets,
    ) -> Option<Box<Self>> {
        let wire = Wire { to_server: 4096, to_client: 3000, delay: Nanos::micros(5), part: 700 };
        let conn = sockets.connect(&wire, Peer::Process(2), true)?;
        let out = format!("{}\n", serde_json::json!({"do": "record", "volumes": names})).into_bytes();
        Some(Box::new(Self {
            conn,
            out,
            line: Vec::new(),
            volumes,
            gone: Vec::new(),
            has_begun: false,
            is_next,
            is_ending: false,
            frames: Frames::default(),
            recorded: Vec::new(),
            open: Vec::new(),
            due: Vec::new(),
            may_fail: false,
        }))
    }

    /// The server stops, or there are so many at the control socket that it may have this one give way:
    /// before it has begun.
    pub(super) const fn note_crowd(&mut self) {
        self.may_fail |= !self.has_begun;
    }

    /// Sends no more: the server sends what is left.
    pub(super) fn end(&mut self, sockets: &mut Sockets) {
        if self.can_end() {
            self.is_ending = true;
            sockets.shut(self.conn);
        }
    }

    /// Whether its end can be asked for.
    pub(super) const fn can_end(&self) -> bool {
        self.has_begun && !self.is_ending
    }

    /// A volume makes way for another one.
    pub(super) fn forget(&mut self, volume: usize) {
        self.gone.push(volume);
        self.open.retain(|(_, key)| key.0 != volume);
    }

    /// A client begins to ask for this.
    pub(super) fn asked(&mut self, ticket: Ticket, key: Key) {
        if self.can_end() && self.volumes.contains(&key.0) && !self.gone.contains(&key.0) {
            self.open.push((ticket, key));
        }
    }

    /// A client's request was answered.
    pub(super) fn answered(&mut self, ticket: Ticket) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == ticket) {
            let (_, key) = self.open.swap_remove(at);
            if !self.is_ending {
                self.due.push(key);
            }
        }
    }

    /// When it does something, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = (!self.out.is_empty() && sockets.has_room(self.conn)).then_some(now);
        [sends, sockets.readable(self.conn)].into_iter().flatten().min()
    }

    /// Sends and receives.
    pub(super) fn turn(mut self: Box<Self>, sockets: &mut Sockets) -> Result<Turn, String> {
        if let Some(sent) = sockets.put(self.conn, &self.out) {
            self.out.drain(..sent);
        }
        match sockets.take(self.conn, 4096) {
            Got::Bytes(bytes) => self.line.extend(&bytes),
            Got::Nothing => {}
            Got::End if self.may_fail => {
                sockets.leave(self.conn);
                return Ok(Turn::Refused);
            }
            Got::End => return Err("a recording ends before its last frame".to_owned()),
        }
        if !self.has_begun {
            let Some(end) = self.line.iter().position(|byte| *byte == b'\n') else {
                return Ok(Turn::On(self));
            };
            let line: Vec<u8> = self.line.drain(..=end).collect();
            match &*String::from_utf8_lossy(&line) {
                "\"recording\"\n" => self.has_begun = true,
                // The volume has gone; or the server has not noticed yet that the recording before was left.
                refused if refused.contains("\"usage\"") || (self.is_next && refused.contains(NOT_OVER)) => {
                    sockets.leave(self.conn);
                    return Ok(Turn::Refused);
                }
                other => return Err(format!("a recording is answered with {other:?}")),
            }
        }
        self.frames.push(&std::mem::take(&mut self.line));
        let (volumes, recorded) = (&self.volumes, &mut self.recorded);
        let mut take = |request: Recorded| {
            let volume = volumes.get(usize::from(request.volume)).copied().unwrap_or(usize::MAX);
            recorded.push((volume, request.op, request.offset.0, request.len.0));
        };
        match self.frames.take(&mut take).map_err(|bad| bad.to_string())? {
            Heard::Whole => {
                sockets.leave(self.conn);
                Ok(Turn::Whole(self))
            }
            Heard::More | Heard::Broken => Ok(Turn::On(self)),
        }
    }

    /// What is recorded is what clients asked for, `asked` being all of that since the server began:
    /// nothing else, and nothing of it is missing.
    pub(super) fn check(mut self, asked: &[Key]) -> Result<(), String> {
        let mut asked = asked.to_vec();
        asked.sort_unstable_by_key(sort_key);
        self.recorded.sort_unstable_by_key(sort_key);
        self.due.sort_unstable_by_key(sort_key);
        // Strangers read as much as they may at once.
        let is_strange = |key: &&Key| key.1 == Op::Read && key.2 == 0 && key.3 == 256 << 10;
        if self.frames.dropped > 0 {
            return Err(format!("{} requests were not recorded", self.frames.dropped));
        }
        let lacking = first_lacking(&self.due, &self.recorded);
        let strange = self.recorded.iter().filter(|key| !is_strange(key)).copied().collect::<Vec<_>>();
        match (lacking, first_lacking(&strange, &asked)) {
            (Some(key), _) => Err(format!("{key:?} was asked for, and is not in the recording")),
            (_, Some(key)) => Err(format!("{key:?} is in the recording, and was not asked for")),
            (None, None) => Ok(()),
        }
    }
}

fn sort_key(key: &Key) -> (usize, u8, u64, u64) {
    let op = match key.1 {
        Op::Read => 0,
        Op::Write => 1,
        _ => 2,
    };
    (key.0, op, key.2, key.3)
}

/// The first of these that is not among those, as often; both in order.
fn first_lacking(these: &[Key], those: &[Key]) -> Option<Key> {
    let mut those = those.iter();
    these.iter().find(|key| !those.by_ref().any(|other| other == *key)).copied()
}
