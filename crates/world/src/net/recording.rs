//! A recording of client requests, checked against the actual requests.

use super::sockets::{ReceiveResult, SocketProfile, Sockets};
use crate::Ticket;
use weir_model::{ConnId, Nanos, Op, Peer};
use weir_session::recording::{Frames, RecordedRequest, RecordingState};

/// A request in the form of a recording; the volume is given by its index.
pub(super) type RequestKey = (usize, Op, u64, u64);

/// Returns how a recording represents an operation.
pub(super) const fn recorded_as(op: Op) -> Op {
    match op {
        Op::WriteZeroes { no_hole: true } => Op::Write,
        Op::WriteZeroes { no_hole: false } => Op::Trim,
        other => other,
    }
}

/// Part of the server's message while another recording is active.
const ALREADY_RECORDING: &str = "are being recorded already";

/// An active recording.
#[derive(Debug)]
pub(super) struct Recording {
    conn: ConnId,
    out: Vec<u8>,
    line: Vec<u8>,
    /// Indices of the volumes, in the order in which they were named.
    volumes: Vec<usize>,
    /// Volumes that have been replaced since: requests to them are not recorded.
    replaced: Vec<usize>,
    has_begun: bool,
    /// True if it follows another recording whose connection the server may not have seen closed.
    is_next: bool,
    /// True if its end was requested, or the server stops: what is answered later need not be recorded.
    is_ending: bool,
    /// True if its client has closed its sending side.
    is_shut: bool,
    frames: Frames,
    recorded: Vec<RequestKey>,
    /// Requests since it began that are not answered.
    unanswered: Vec<(Ticket, RequestKey)>,
    /// Requests since it began that were answered before its end was requested.
    expected: Vec<RequestKey>,
    /// True if the server may consider it silent, or evict it in favour of others.
    pub(super) may_fail: bool,
}

/// State of a recording.
#[derive(Debug)]
pub(super) enum RecordingProgress {
    /// It continues.
    Active(Box<Recording>),
    /// It has ended completely.
    Complete(Box<Recording>),
    /// It never began, or the server may have ended it.
    Refused,
}

impl Recording {
    /// Requests a recording of these volumes; returns `None` if the server does not listen.
    pub(super) fn begin(
        volumes: Vec<usize>,
        names: &[String],
        is_next: bool,
        sockets: &mut Sockets,
    ) -> Option<Box<Self>> {
        let wire =
            SocketProfile { to_server: 4096, to_client: 3000, delay: Nanos::micros(5), transfer_max: 700 };
        let conn = sockets.connect(&wire, Peer::Process(2), true)?;
        let out = format!("{}\n", serde_json::json!({"do": "record", "volumes": names})).into_bytes();
        Some(Box::new(Self {
            conn,
            out,
            line: Vec::new(),
            volumes,
            replaced: Vec::new(),
            has_begun: false,
            is_next,
            is_ending: false,
            is_shut: false,
            frames: Frames::default(),
            recorded: Vec::new(),
            unanswered: Vec::new(),
            expected: Vec::new(),
            may_fail: false,
        }))
    }

    /// Notes that the server stops: the recording ends with requests that have not been passed to the engine
    /// yet, because they wait for memory or for a limit.
    pub(super) const fn note_stop(&mut self) {
        self.note_crowd();
        self.is_ending = true;
    }

    /// Notes that there are so many control sessions that the server may evict this one before it has begun.
    pub(super) const fn note_crowd(&mut self) {
        self.may_fail |= !self.has_begun;
    }

    /// Closes its sending side: the server sends the remaining requests.
    pub(super) fn end(&mut self, sockets: &mut Sockets) {
        if self.can_end() {
            (self.is_ending, self.is_shut) = (true, true);
            sockets.shut(self.conn);
        }
    }

    /// Reports whether its end can be requested.
    pub(super) const fn can_end(&self) -> bool {
        self.has_begun && !self.is_shut
    }

    /// Notes that a volume is replaced by another one.
    pub(super) fn forget(&mut self, volume: usize) {
        self.replaced.push(volume);
        self.unanswered.retain(|(_, key)| key.0 != volume);
    }

    /// Notes a request that a client begins.
    pub(super) fn note_request(&mut self, ticket: Ticket, key: RequestKey) {
        if self.has_begun
            && !self.is_ending
            && self.volumes.contains(&key.0)
            && !self.replaced.contains(&key.0)
        {
            self.unanswered.push((ticket, key));
        }
    }

    /// Notes that a client's request was answered.
    pub(super) fn note_reply(&mut self, ticket: Ticket) {
        if let Some(at) = self.unanswered.iter().position(|(open, _)| *open == ticket) {
            let (_, key) = self.unanswered.swap_remove(at);
            if !self.is_ending {
                self.expected.push(key);
            }
        }
    }

    /// Returns the time of its next action, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = (!self.out.is_empty() && sockets.is_writable(self.conn)).then_some(now);
        [sends, sockets.readable(self.conn)].into_iter().flatten().min()
    }

    /// Sends and receives.
    pub(super) fn turn(mut self: Box<Self>, sockets: &mut Sockets) -> Result<RecordingProgress, String> {
        if let Some(sent) = sockets.put(self.conn, &self.out) {
            self.out.drain(..sent);
        }
        match sockets.take(self.conn, 4096) {
            ReceiveResult::Bytes(bytes) => self.line.extend(&bytes),
            ReceiveResult::Nothing => {}
            ReceiveResult::End if self.may_fail => {
                sockets.close_client(self.conn);
                return Ok(RecordingProgress::Refused);
            }
            ReceiveResult::End => return Err("a recording ends before its last frame".to_owned()),
        }
        if !self.has_begun {
            let Some(end) = self.line.iter().position(|byte| *byte == b'\n') else {
                return Ok(RecordingProgress::Active(self));
            };
            let line: Vec<u8> = self.line.drain(..=end).collect();
            match &*String::from_utf8_lossy(&line) {
                "\"recording\"\n" => self.has_begun = true,
                // The volume was removed, or the server has not noticed yet that the previous recording's
                // client has disconnected.
                refused
                    if refused.contains("\"usage\"")
                        || (self.is_next && refused.contains(ALREADY_RECORDING)) =>
                {
                    sockets.close_client(self.conn);
                    return Ok(RecordingProgress::Refused);
                }
                other => return Err(format!("a recording is answered with {other:?}")),
            }
        }
        self.frames.push(&std::mem::take(&mut self.line));
        let (volumes, recorded) = (&self.volumes, &mut self.recorded);
        let mut take = |request: RecordedRequest| {
            let volume = volumes.get(usize::from(request.volume)).copied().unwrap_or(usize::MAX);
            recorded.push((volume, request.op, request.offset.0, request.len.0));
        };
        match self.frames.take(&mut take).map_err(|bad| bad.to_string())? {
            RecordingState::Complete => {
                sockets.close_client(self.conn);
                Ok(RecordingProgress::Complete(self))
            }
            RecordingState::Active | RecordingState::Truncated => Ok(RecordingProgress::Active(self)),
        }
    }

    /// Checks that the recorded requests are among `asked`, all client requests since the server began, and
    /// that none is missing.
    pub(super) fn check(mut self, asked: &[RequestKey]) -> Result<(), String> {
        let mut asked = asked.to_vec();
        asked.sort_unstable_by_key(sort_key);
        self.recorded.sort_unstable_by_key(sort_key);
        self.expected.sort_unstable_by_key(sort_key);
        // Strangers read as much as they may at once.
        let is_strange = |key: &&RequestKey| key.1 == Op::Read && key.2 == 0 && key.3 == 256 << 10;
        if self.frames.dropped > 0 {
            return Err(format!("{} requests were not recorded", self.frames.dropped));
        }
        let lacking = first_missing(&self.expected, &self.recorded);
        let strange = self.recorded.iter().filter(|key| !is_strange(key)).copied().collect::<Vec<_>>();
        match (lacking, first_missing(&strange, &asked)) {
            (Some(key), _) => Err(format!("{key:?} was asked for, and is not in the recording")),
            (_, Some(key)) => Err(format!("{key:?} is in the recording, and was not asked for")),
            (None, None) => Ok(()),
        }
    }
}

fn sort_key(key: &RequestKey) -> (usize, u8, u64, u64) {
    let op = match key.1 {
        Op::Read => 0,
        Op::Write => 1,
        _ => 2,
    };
    (key.0, op, key.2, key.3)
}

/// Returns the first entry of one list that the other lacks, counting duplicates; both are sorted.
fn first_missing(these: &[RequestKey], those: &[RequestKey]) -> Option<RequestKey> {
    let mut those = those.iter();
    these.iter().find(|key| !those.by_ref().any(|other| other == *key)).copied()
}
