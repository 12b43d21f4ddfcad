//! Simulated sockets: the server's environment, an implementation of [`weir_session::Port`].
//!
//! Both ends of every connection are here. The server uses the port's calls; its reports come from
//! [`Sockets::advance`]. Clients [put](Sockets::put) and [take](Sockets::take) bytes at their end.
//!
//! Bytes move between a buffer of the server and a [`Pipe`] at the time they travel, in parts of random
//! sizes, not at the time of the server's call: reuse of a buffer too early is detected.

use super::pipe::Pipe;
use crate::{Rng, Seed, WorldMemory};
use std::collections::VecDeque;
use weir_model::{Buffer, ConnId, Errno, Io, IoError, Memory, Nanos, Peer, ReceiveMode};
use weir_session::Port;

/// Characteristics of a connection's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketProfile {
    /// Maximum number of bytes in flight to the server.
    pub to_server: usize,
    /// Maximum number of bytes in flight to the client.
    pub to_client: usize,
    /// Delay of each byte.
    pub delay: Nanos,
    /// Maximum number of bytes that move at once; more in four rounds of five.
    pub transfer_max: usize,
}

/// A report to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Accepted { conn: ConnId, peer: Peer, control: bool },
    Received { conn: ConnId, result: Result<usize, IoError> },
    Sent { conn: ConnId, result: Result<(), IoError> },
    Closed { conn: ConnId },
}

/// A client's result of a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReceiveResult {
    /// These bytes, at least one.
    Bytes(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// The server has closed its end, and all its bytes were taken.
    End,
}

/// A receive or send of the server.
#[derive(Debug)]
struct Transfer {
    parts: Vec<Buffer>,
    len: usize,
    moved: usize,
    fill: ReceiveMode,
    due: Nanos,
    is_cancelled: bool,
}

impl Transfer {
    fn new(parts: &[Buffer], fill: ReceiveMode, due: Nanos) -> Self {
        let len = parts.iter().map(|part| part.len as usize).sum();
        Self { parts: parts.to_vec(), len, moved: 0, fill, due, is_cancelled: false }
    }

    /// Returns the rest of the first incomplete part, at most `most` bytes.
    fn rest(&self, most: usize) -> Option<Buffer> {
        let mut before = self.moved;
        for part in &self.parts {
            let len = part.len as usize;
            if before < len {
                return Some(part.part(before as u32, (len - before).min(most) as u32));
            }
            before -= len;
        }
        None
    }
}

#[derive(Debug)]
struct Socket {
    id: ConnId,
    peer: Peer,
    is_control: bool,
    transfer_max: usize,
    to_server: Pipe,
    to_client: Pipe,
    recv: Option<Transfer>,
    send: Option<Transfer>,
    stage: Stage,
    /// True if the client has closed its end, or its sending side.
    hung_up: bool,
    /// True if the client has closed its end.
    client_closed: bool,
    /// True if the client closed its end before it had received everything: the server's next receive fails.
    is_reset: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The server has not accepted it.
    Queued,
    Open,
    /// The server closes it; until this time it may still use its buffers.
    Closing(Nanos),
    Closed,
}

/// All connections of a server, with both their ends.
#[derive(Debug)]
pub struct Sockets {
    now: Nanos,
    rng: Rng,
    slots: Vec<Option<Socket>>,
    generations: Vec<u32>,
    accepts: bool,
    listens: bool,
    ios: VecDeque<Io>,
}

impl Sockets {
    /// Creates the sockets of a server that begins to listen.
    pub(super) fn new(seed: Seed, now: Nanos) -> Self {
        let (slots, generations, ios) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { now, rng: Rng::new(seed), slots, generations, accepts: true, listens: true, ios }
    }

    /// Takes the next device command that the server starts.
    pub(super) fn next_io(&mut self) -> Option<Io> {
        self.ios.pop_front()
    }

    /// Connects a client, to the control socket or the NBD socket; returns `None` if the server does not
    /// listen.
    pub(super) fn connect(&mut self, wire: &SocketProfile, peer: Peer, is_control: bool) -> Option<ConnId> {
        if !self.listens {
            return None;
        }
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(None);
            self.generations.push(0);
        }
        self.generations[index] += 1;
        let id = ConnId::new(index as u32, self.generations[index]);
        self.slots[index] = Some(Socket {
            id,
            peer,
            is_control,
            transfer_max: wire.transfer_max.max(1),
            to_server: Pipe::new(wire.to_server, wire.delay),
            to_client: Pipe::new(wire.to_client, wire.delay),
            recv: None,
            send: None,
            stage: Stage::Queued,
            hung_up: false,
            client_closed: false,
            is_reset: false,
        });
        Some(id)
    }

    /// Sends as many of these bytes for the client as the socket takes; returns `None` once the server has
    /// closed its end.
    pub(super) fn put(&mut self, conn: ConnId, bytes: &[u8]) -> Option<usize> {
        let now = self.now;
        let socket = self.get(conn).filter(|socket| socket.stage != Stage::Closed)?;
        Some(socket.to_server.put(now, bytes))
    }

    /// Reports whether the client can send, or learns that it cannot.
    pub(super) fn is_writable(&self, conn: ConnId) -> bool {
        self.peek(conn).is_none_or(|socket| socket.stage == Stage::Closed || socket.to_server.space() > 0)
    }

    /// Receives at most `most` bytes for the client.
    pub(super) fn take(&mut self, conn: ConnId, most: usize) -> ReceiveResult {
        let now = self.now;
        let Some(socket) = self.get(conn) else { return ReceiveResult::End };
        socket.to_client.arrive(now);
        let mut bytes = vec![0; most.min(socket.to_client.available())];
        match socket.to_client.take(&mut bytes) {
            0 if socket.to_client.is_over() => ReceiveResult::End,
            0 => ReceiveResult::Nothing,
            _ => ReceiveResult::Bytes(bytes),
        }
    }

    /// Returns when the client can receive something, if nothing else happens.
    pub(super) fn readable(&self, conn: ConnId) -> Option<Nanos> {
        let Some(socket) = self.peek(conn) else { return Some(self.now) };
        let pipe = &socket.to_client;
        if pipe.available() > 0 || pipe.is_over() { Some(self.now) } else { pipe.next() }
    }

    /// Closes the client's sending side; it continues to receive.
    pub(super) fn shut(&mut self, conn: ConnId) {
        if let Some(socket) = self.get(conn) {
            socket.to_server.end();
            socket.hung_up = true;
        }
    }

    /// Closes the client's end. The server can still receive its data, unless the client left something
    /// unreceived: then the connection may be reset.
    pub(super) fn close_client(&mut self, conn: ConnId) {
        let reset = self.rng.chance(0.5);
        let Some(socket) = self.get(conn) else { return };
        socket.to_server.end();
        (socket.hung_up, socket.client_closed) = (true, true);
        socket.is_reset = reset && !socket.to_client.is_empty();
        self.remove_if_closed(conn.index());
    }

    fn get(&mut self, conn: ConnId) -> Option<&mut Socket> {
        self.slots.get_mut(conn.index())?.as_mut().filter(|socket| socket.id == conn)
    }

    fn peek(&self, conn: ConnId) -> Option<&Socket> {
        self.slots.get(conn.index())?.as_ref().filter(|socket| socket.id == conn)
    }

    fn open(&mut self, conn: ConnId) -> Option<&mut Socket> {
        self.get(conn).filter(|socket| socket.stage == Stage::Open)
    }

    fn remove_if_closed(&mut self, index: usize) {
        let is_over =
            |s: &mut Socket| s.client_closed && (s.stage == Stage::Closed || s.stage == Stage::Queued);
        if let Some(slot) = self.slots.get_mut(index) {
            slot.take_if(is_over);
        }
    }

    /// Returns the number of connections, open at either end.
    pub(super) fn count(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Returns the number of connections that the server has accepted and not closed: of clients, and to the
    /// control socket.
    pub(super) fn accepted(&self) -> [usize; 2] {
        let is_there = |socket: &&Socket| matches!(socket.stage, Stage::Open | Stage::Closing(_));
        let all = || self.slots.iter().flatten().filter(is_there);
        let control = all().filter(|socket| socket.is_control).count();
        [all().count() - control, control]
    }

    /// Reports whether the server has accepted the connection and has not begun to close it.
    pub(super) fn is_open(&self, conn: ConnId) -> bool {
        self.peek(conn).is_some_and(|socket| socket.stage == Stage::Open)
    }

    /// Describes the connections.
    pub(super) fn describe_connections(&self) -> String {
        format!("{:?}", self.slots.iter().flatten().collect::<Vec<_>>())
    }

    /// Draws how long the kernel takes for an action that it could do at once.
    fn pause(&mut self) -> Nanos {
        match self.rng.below(8) {
            0 => Nanos(self.rng.below(200_000)),
            1 | 2 => Nanos(self.rng.below(5_000)),
            _ => Nanos(0),
        }
    }

    /// Returns the time of the next event that causes a report, or makes room.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let queued = |socket: &Socket| socket.stage == Stage::Queued && self.accepts;
        let all = self.slots.iter().flatten();
        all.filter_map(|socket| if queued(socket) { Some(self.now) } else { socket.next() }).min()
    }

    /// Processes events due by `now`, and collects their reports to the server.
    pub(super) fn advance(&mut self, now: Nanos, memory: &mut WorldMemory, reports: &mut Vec<Report>) {
        self.now = self.now.max(now);
        // In a different order each time.
        let (len, first) = (self.slots.len(), self.rng.below(self.slots.len() as u64) as usize);
        for index in (0..len).map(|number| (first + number) % len) {
            let pauses = [self.pause(), self.pause()];
            let accepts = self.accepts;
            let Some(socket) = &mut self.slots[index] else { continue };
            socket.advance(now, pauses, &mut self.rng, memory, reports);
            if socket.stage == Stage::Queued && accepts {
                socket.stage = Stage::Open;
                let Socket { id, peer, is_control, .. } = *socket;
                reports.push(Report::Accepted { conn: id, peer, control: is_control });
            }
            self.remove_if_closed(index);
        }
    }
}

impl Socket {
    fn next(&self) -> Option<Nanos> {
        if let Stage::Closing(at) = self.stage {
            return Some(at);
        }
        let recv = self.recv.as_ref().filter(|recv| {
            recv.is_cancelled || self.is_reset || self.to_server.available() > 0 || self.to_server.is_over()
        });
        let send = self.send.as_ref().filter(|_| self.to_client.space() > 0 || self.client_closed);
        let arrives = self.recv.as_ref().and_then(|_| self.to_server.next());
        [recv.map(|recv| recv.due), send.map(|send| send.due), arrives].into_iter().flatten().min()
    }

    fn advance(
        &mut self,
        now: Nanos,
        [again, late]: [Nanos; 2],
        rng: &mut Rng,
        memory: &mut WorldMemory,
        reports: &mut Vec<Report>,
    ) {
        self.to_server.arrive(now);
        self.to_client.arrive(now);
        if let Stage::Closing(at) = self.stage {
            if at <= now {
                self.close(memory, reports);
            }
            return;
        }
        let conn = self.id;
        if self.recv.as_ref().is_some_and(|recv| recv.due <= now)
            && let Some(result) = self.receive(now + again, rng, memory)
        {
            self.recv = None;
            reports.push(Report::Received { conn, result });
        }
        if self.send.as_ref().is_some_and(|send| send.due <= now)
            && let Some(result) = self.transmit(now, late, rng, memory)
        {
            self.send = None;
            reports.push(Report::Sent { conn, result });
        }
    }

    /// Returns how many of `most` bytes move now.
    fn part(&self, most: usize, rng: &mut Rng) -> usize {
        let part = if rng.below(5) == 0 { 1 + rng.below(self.transfer_max as u64) as usize } else { most };
        part.min(most)
    }

    fn receive(
        &mut self,
        again: Nanos,
        rng: &mut Rng,
        memory: &mut WorldMemory,
    ) -> Option<Result<usize, IoError>> {
        if std::mem::take(&mut self.is_reset) {
            return Some(Err(IoError::Os(Errno::ECONNRESET)));
        }
        let transfer = self.recv.as_ref()?;
        let (mut most, is_cancelled) = (transfer.len - transfer.moved, transfer.is_cancelled);
        most = self.part(most.min(self.to_server.available()), rng);
        if is_cancelled && rng.chance(0.5) {
            most = 0;
        }
        let transfer = self.recv.as_mut()?;
        while most > 0
            && let Some(into) = transfer.rest(most)
        {
            let len = self.to_server.take(memory.bytes_mut(into));
            transfer.moved += len;
            most -= len;
        }
        transfer.due = again;
        let done = match transfer.fill {
            ReceiveMode::Any => transfer.moved > 0,
            ReceiveMode::Full => transfer.moved == transfer.len,
        };
        match transfer.moved {
            moved if done || self.to_server.is_over() => Some(Ok(moved)),
            0 if is_cancelled => Some(Err(IoError::Os(Errno::ECANCELED))),
            moved => is_cancelled.then_some(Ok(moved)),
        }
    }

    fn transmit(
        &mut self,
        now: Nanos,
        late: Nanos,
        rng: &mut Rng,
        memory: &WorldMemory,
    ) -> Option<Result<(), IoError>> {
        if self.client_closed {
            return Some(Err(IoError::Os(Errno::EPIPE)));
        }
        let transfer = self.send.as_ref()?;
        let mut most = self.part((transfer.len - transfer.moved).min(self.to_client.space()), rng);
        let transfer = self.send.as_mut()?;
        while most > 0
            && let Some(from) = transfer.rest(most)
        {
            let len = self.to_client.put(now, &memory.sent(from));
            transfer.moved += len;
            most -= len;
        }
        transfer.due = now + late;
        (transfer.moved == transfer.len).then_some(Ok(()))
    }

    /// Releases the server's buffers. Until now a receive in flight may have stored bytes that are never
    /// reported.
    fn close(&mut self, memory: &mut WorldMemory, reports: &mut Vec<Report>) {
        if let Some(recv) = self.recv.take() {
            while let Some(rest) = recv.rest(usize::MAX).filter(|_| self.to_server.available() > 0) {
                if self.to_server.take(memory.bytes_mut(rest)) < rest.len as usize {
                    break;
                }
            }
        }
        self.send = None;
        self.stage = Stage::Closed;
        self.to_client.end();
        reports.push(Report::Closed { conn: self.id });
    }
}

impl Port for Sockets {
    fn recv(&mut self, conn: ConnId, into: &[Buffer], fill: ReceiveMode) {
        let due = self.now + self.pause();
        if let Some(socket) = self.open(conn) {
            assert!(socket.recv.is_none(), "one receive at a time");
            socket.recv = Some(Transfer::new(into, fill, due));
        }
    }

    fn cancel_recv(&mut self, conn: ConnId) {
        let due = self.now + self.pause();
        if let Some(recv) = self.open(conn).and_then(|socket| socket.recv.as_mut()) {
            (recv.is_cancelled, recv.due) = (true, due);
        }
    }

    fn send(&mut self, conn: ConnId, parts: &[Buffer]) {
        let due = self.now + self.pause();
        if let Some(socket) = self.open(conn) {
            assert!(socket.send.is_none(), "one send at a time");
            socket.send = Some(Transfer::new(parts, ReceiveMode::Full, due));
        }
    }

    fn close(&mut self, conn: ConnId) {
        let due = self.now + self.pause();
        if let Some(socket) = self.open(conn) {
            socket.stage = Stage::Closing(due);
        }
    }

    fn poll_hung_up(&mut self, conns: &[ConnId], gone: &mut Vec<ConnId>) {
        let hung_up = |conn: &&ConnId| self.peek(**conn).is_some_and(|socket| socket.hung_up);
        gone.extend(conns.iter().filter(hung_up));
    }

    fn set_accepting(&mut self, accepting: bool) {
        self.accepts = accepting;
    }

    /// Connections that were not accepted are refused.
    fn stop_listening(&mut self) {
        (self.listens, self.accepts) = (false, false);
        for socket in self.slots.iter_mut().flatten().filter(|socket| socket.stage == Stage::Queued) {
            socket.stage = Stage::Closed;
            socket.to_client.end();
        }
    }

    fn start(&mut self, io: Io) {
        self.ios.push_back(io);
    }
}

#[cfg(test)]
mod tests;
