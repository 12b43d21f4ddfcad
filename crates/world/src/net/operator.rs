//! Whoever is at the control socket: one JSON document a line, each answered by one.

use super::sockets::{Got, Sockets, Wire};
use serde_json::Value;
use std::collections::VecDeque;
use weir_map::Hardening;
use weir_model::{ConnId, Nanos, Peer, VolumeOffset};

/// What the operator wants. Volumes are named by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What the pool is doing.
    Status,
    /// Where a block is.
    Explain(usize, VolumeOffset),
    /// When a volume's map changes are durable.
    Harden(usize, Hardening),
    /// Another policy for the pool.
    Policy(&'static str),
    /// A policy of its own for a volume, or none.
    OwnPolicy(usize, Option<&'static str>),
    /// A volume makes way for another one; its clients have gone.
    Replace(usize),
    /// A volume is removed though clients use it.
    RemoveUsed(usize),
    /// What clients ask for is recorded from now on, or no longer.
    Record,
    /// Another operator makes a volume beside the others, or removes one.
    Churn(usize),
    /// The server stops in good order.
    Stop,
    /// A line that is no request.
    Garbage,
}

/// A line that is sent, and what its answer means.
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
    /// A volume beside the others is made, or removed.
    Side(String, bool),
    Stop,
    Garbage,
}

impl Asked {
    /// Whether it changes the pool durably.
    pub(super) const fn is_change(&self) -> bool {
        matches!(self, Self::Harden(..) | Self::Remove(_) | Self::RemoveUsed(_) | Self::Create(_))
    }
}

/// The operator, with a connection while there is something to ask.
#[derive(Debug, Default)]
pub(super) struct Operator {
    pub(super) orders: VecDeque<Order>,
    conn: Option<ConnId>,
    out: Vec<u8>,
    line: Vec<u8>,
    asked: Option<Asked>,
    pub(super) moved: Nanos,
    /// Asks nothing before.
    pub(super) rests_until: Nanos,
    /// The clock jumped since it connected: the server may take it for silent.
    slept: bool,
}

impl Operator {
    /// Whether it waits for an answer.
    pub(super) const fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether it has waited for an answer longer than that.
    pub(super) fn is_late(&self, now: Nanos, than: Nanos) -> bool {
        self.is_asking() && now.since(self.moved) > than
    }

    /// The clock has jumped to `now`.
    pub(super) fn wakes_up(&mut self, now: Nanos) {
        self.moved = now;
        self.slept |= self.conn.is_some();
    }

    /// There are so many at the control socket that the server may have one give way.
    pub(super) const fn note_crowd(&mut self) {
        self.slept |= self.conn.is_some();
    }

    /// Whether the server may have closed its connection before it was answered.
    pub(super) const fn may_be_cut_off(&self) -> bool {
        self.slept
    }

    pub(super) const fn asked(&self) -> Option<&Asked> {
        self.asked.as_ref()
    }

    /// Sends a line; false if nobody listens.
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

    /// When it does something, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = self.conn.filter(|conn| !self.out.is_empty() && sockets.has_room(*conn)).map(|_| now);
        let receives = self.conn.and_then(|conn| sockets.readable(conn));
        let begins = (self.asked.is_none() && !self.orders.is_empty()).then_some(self.rests_until.max(now));
        [sends, receives, begins].into_iter().flatten().min()
    }

    /// Sends and receives; an answer that has come, and what it answers.
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
