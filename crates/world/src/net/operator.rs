//! A simulated operator at the control socket: one JSON document a line, each answered by one.

use super::sockets::{ReceiveResult, SocketProfile, Sockets};
use serde_json::Value;
use std::collections::VecDeque;
use weir_map::Hardening;
use weir_model::{ConnId, Nanos, Peer, VolumeOffset};

/// An order of the operator. Volumes are given by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorRequest {
    /// Query the status.
    Status,
    /// Explain a block's location.
    Explain(usize, VolumeOffset),
    /// Set when a volume's map changes are durable.
    Harden(usize, Hardening),
    /// Switch the pool's policy.
    Policy(&'static str),
    /// Give a volume a policy of its own, or the pool's.
    VolumePolicy(usize, Option<&'static str>),
    /// Replace a volume by another one, after its clients have disconnected.
    Replace(usize),
    /// Remove a volume that clients use.
    RemoveUsed(usize),
    /// Begin or end a recording of client requests.
    Record,
    /// Let another operator create a volume beside the others, or remove one.
    Churn(usize),
    /// Stop the server gracefully.
    Stop,
    /// Send a line that is not a request.
    Garbage,
}

/// A request that was sent, which determines the check of its answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SentRequest {
    Status,
    Explain {
        volume: String,
        volume_may_vanish: bool,
    },
    Harden(usize, Hardening),
    Policy,
    Remove(usize),
    Create(usize),
    RemoveUsed(usize),
    /// Creation (true) or removal of a volume beside the others.
    SideVolume(String, bool),
    Stop,
    Garbage,
}

impl SentRequest {
    /// Reports whether it changes the pool durably.
    pub(super) const fn is_change(&self) -> bool {
        matches!(self, Self::Harden(..) | Self::Remove(_) | Self::RemoveUsed(_) | Self::Create(_))
    }
}

/// The operator; it has a connection while there is something to request.
#[derive(Debug, Default)]
pub(super) struct Operator {
    pub(super) orders: VecDeque<OperatorRequest>,
    conn: Option<ConnId>,
    out: Vec<u8>,
    line: Vec<u8>,
    sent: Option<SentRequest>,
    pub(super) last_progress: Nanos,
    /// It sends nothing before this time.
    pub(super) pauses_until: Nanos,
    /// True if the clock jumped since it connected: the server may consider it silent.
    clock_jumped: bool,
}

impl Operator {
    /// Reports whether it waits for an answer.
    pub(super) const fn is_waiting(&self) -> bool {
        self.sent.is_some()
    }

    /// Reports whether it has waited longer than this for an answer.
    pub(super) fn is_late(&self, now: Nanos, than: Nanos) -> bool {
        self.is_waiting() && now.since(self.last_progress) > than
    }

    /// Handles a jump of the clock to `now`.
    pub(super) fn note_clock_jump(&mut self, now: Nanos) {
        self.last_progress = now;
        self.clock_jumped |= self.conn.is_some();
    }

    /// Notes that there are so many control sessions that the server may evict this one.
    pub(super) const fn note_crowd(&mut self) {
        self.clock_jumped |= self.conn.is_some();
    }

    /// Reports whether the server may have closed its connection before it was answered.
    pub(super) const fn may_be_disconnected(&self) -> bool {
        self.clock_jumped
    }

    pub(super) const fn sent(&self) -> Option<&SentRequest> {
        self.sent.as_ref()
    }

    /// Sends a line; returns false if the server does not listen.
    pub(super) fn send_request(
        &mut self,
        line: &str,
        asked: SentRequest,
        now: Nanos,
        sockets: &mut Sockets,
    ) -> bool {
        if self.conn.is_none() {
            let wire =
                SocketProfile { to_server: 4096, to_client: 700, delay: Nanos::micros(3), transfer_max: 100 };
            self.conn = sockets.connect(&wire, Peer::Process(1), true);
        }
        self.out = [line.as_bytes(), b"\n"].concat();
        self.sent = self.conn.map(|_| asked);
        self.last_progress = now;
        self.conn.is_some()
    }

    /// Returns the time of its next action, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = self.conn.filter(|conn| !self.out.is_empty() && sockets.is_writable(*conn)).map(|_| now);
        let receives = self.conn.and_then(|conn| sockets.readable(conn));
        let begins = (self.sent.is_none() && !self.orders.is_empty()).then_some(self.pauses_until.max(now));
        [sends, receives, begins].into_iter().flatten().min()
    }

    /// Sends and receives; returns an answer that has arrived, with its request.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        sockets: &mut Sockets,
    ) -> Result<Option<(SentRequest, Value)>, String> {
        let Some(conn) = self.conn else { return Ok(None) };
        if let Some(sent) = sockets.put(conn, &self.out).filter(|sent| *sent > 0) {
            self.out.drain(..sent);
            self.last_progress = now;
        }
        match sockets.take(conn, 512) {
            ReceiveResult::Bytes(bytes) => {
                self.line.extend(bytes);
                self.last_progress = now;
            }
            ReceiveResult::Nothing => {}
            ReceiveResult::End if self.sent.is_none() => self.disconnect(sockets),
            ReceiveResult::End => return Err(format!("{:?} is not answered", self.sent)),
        }
        let Some(end) = self.line.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.line.drain(..=end).collect();
        let text = String::from_utf8_lossy(&line);
        let Some(asked) = self.sent.take() else { return Err(format!("{text:?} answers nothing")) };
        let answer =
            serde_json::from_slice(&line).map_err(|error| format!("{text:?} is no answer: {error}"))?;
        if self.orders.is_empty() {
            self.disconnect(sockets);
        }
        Ok(Some((asked, answer)))
    }

    /// Closes its connection.
    pub(super) fn disconnect(&mut self, sockets: &mut Sockets) {
        self.conn.take().into_iter().for_each(|conn| sockets.close_client(conn));
        self.out.clear();
        self.line.clear();
        self.clock_jumped = false;
    }
}
