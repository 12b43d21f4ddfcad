//! A simulated operator at the control socket: one JSON document a line, each answered by one.

use super::sockets::{Got, Sockets, Wire};
use serde_json::Value;
use std::collections::VecDeque;
use weir_map::Hardening;
use weir_model::{ConnId, Nanos, Peer, VolumeOffset};

/// An order of the operator. Volumes are given by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Query the status.
    Status,
    /// Explain a block's location.
    Explain(usize, VolumeOffset),
    /// Set when a volume's map changes are durable.
    Harden(usize, Hardening),
    /// Switch the pool's policy.
    Policy(&'static str),
    /// Give a volume a policy of its own, or the pool's.
    OwnPolicy(usize, Option<&'static str>),
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
pub(super) enum Asked {
    Status,
    Explain {
        volume: String,
        may_lack: bool,
    },
    Harden(usize, Hardening),
    Policy,
    Remove(usize),
    Create(usize),
    RemoveUsed(usize),
    /// Creation (true) or removal of a volume beside the others.
    Side(String, bool),
    Stop,
    Garbage,
}

impl Asked {
    /// Reports whether it changes the pool durably.
    pub(super) const fn is_change(&self) -> bool {
        matches!(self, Self::Harden(..) | Self::Remove(_) | Self::RemoveUsed(_) | Self::Create(_))
    }
}

/// The operator; it has a connection while there is something to request.
#[derive(Debug, Default)]
pub(super) struct Operator {
    pub(super) orders: VecDeque<Order>,
    conn: Option<ConnId>,
    out: Vec<u8>,
    line: Vec<u8>,
    asked: Option<Asked>,
    pub(super) moved: Nanos,
    /// It sends nothing before this time.
    pub(super) rests_until: Nanos,
    /// True if the clock jumped since it connected: the server may consider it silent.
    slept: bool,
}

impl Operator {
    /// Reports whether it waits for an answer.
    pub(super) const fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Reports whether it has waited longer than this for an answer.
    pub(super) fn is_late(&self, now: Nanos, than: Nanos) -> bool {
        self.is_asking() && now.since(self.moved) > than
    }

    /// Handles a jump of the clock to `now`.
    pub(super) fn wakes_up(&mut self, now: Nanos) {
        self.moved = now;
        self.slept |= self.conn.is_some();
    }

    /// Notes that there are so many control sessions that the server may evict this one.
    pub(super) const fn note_crowd(&mut self) {
        self.slept |= self.conn.is_some();
    }

    /// Reports whether the server may have closed its connection before it was answered.
    pub(super) const fn may_be_cut_off(&self) -> bool {
        self.slept
    }

    pub(super) const fn asked(&self) -> Option<&Asked> {
        self.asked.as_ref()
    }

    /// Sends a line; returns false if the server does not listen.
    pub(super) fn ask(&mut self, line: &str, asked: Asked, now: Nanos, sockets: &mut Sockets) -> bool {
        if self.conn.is_none() {
            let wire = Wire { to_server: 4096, to_client: 700, delay: Nanos::micros(3), part: 100 };
            self.conn = sockets.connect(&wire, Peer::Process(1), true);
        }
        self.out = [line.as_bytes(), b"\n"].concat();
        self.asked = self.conn.map(|_| asked);
        self.moved = now;
        self.conn.is_some()
    }

    /// Returns the time of its next action, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = self.conn.filter(|conn| !self.out.is_empty() && sockets.has_room(*conn)).map(|_| now);
        let receives = self.conn.and_then(|conn| sockets.readable(conn));
        let begins = (self.asked.is_none() && !self.orders.is_empty()).then_some(self.rests_until.max(now));
        [sends, receives, begins].into_iter().flatten().min()
    }

    /// Sends and receives; returns an answer that has arrived, with its request.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        sockets: &mut Sockets,
    ) -> Result<Option<(Asked, Value)>, String> {
        let Some(conn) = self.conn else { return Ok(None) };
        if let Some(sent) = sockets.put(conn, &self.out).filter(|sent| *sent > 0) {
            self.out.drain(..sent);
            self.moved = now;
        }
        match sockets.take(conn, 512) {
            Got::Bytes(bytes) => {
                self.line.extend(bytes);
                self.moved = now;
            }
            Got::Nothing => {}
            Got::End if self.asked.is_none() => self.leave(sockets),
            Got::End => return Err(format!("{:?} is not answered", self.asked)),
        }
        let Some(end) = self.line.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.line.drain(..=end).collect();
        let text = String::from_utf8_lossy(&line);
        let Some(asked) = self.asked.take() else { return Err(format!("{text:?} answers nothing")) };
        let answer =
            serde_json::from_slice(&line).map_err(|error| format!("{text:?} is no answer: {error}"))?;
        if self.orders.is_empty() {
            self.leave(sockets);
        }
        Ok(Some((asked, answer)))
    }

    /// Closes its connection.
    pub(super) fn leave(&mut self, sockets: &mut Sockets) {
        self.conn.take().into_iter().for_each(|conn| sockets.leave(conn));
        self.out.clear();
        self.line.clear();
        self.slept = false;
    }
}
