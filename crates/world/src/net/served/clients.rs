//! The connected clients, and the state of disconnected ones.

use super::{Disconnect, LostChange, ServedPool};
use crate::driver::Failure;
use crate::net::client::Connection;
use crate::net::handshake::ExpectedVolume;
use crate::net::{ClientRequest, HostileClient};
use weir_model::{Memory, Nanos};

impl ServedPool {
    /// Returns the number of requests that clients wait for.
    pub(super) fn unanswered(&self) -> usize {
        self.clients.iter().flatten().map(Connection::unanswered).sum()
    }

    /// Lets a client send a request, once it has room for it.
    pub(super) fn ask(&mut self, number: usize, request: ClientRequest) -> Result<(), Failure> {
        loop {
            self.connect(number);
            match &mut self.clients[number] {
                Some(client) if client.has_space() && !client.is_leaving() => {
                    client.queue_request(request);
                    return Ok(());
                }
                _ => {}
            }
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::Server(format!("client {number} finds no room to ask")));
            }
        }
    }

    /// Connects a client, unless it is connected.
    fn connect(&mut self, number: usize) {
        let character = self.front.clients[number];
        if self.clients[number].is_some() {
            return;
        }
        // Some clients try to connect while their volume is being replaced.
        let is_replaced = self.is_being_replaced(character.volume);
        let may_lack = is_replaced || self.may_be_removed(character.volume);
        let volume = &self.volumes[character.volume];
        let wanted = ExpectedVolume {
            name: volume.name.clone(),
            size: volume.spec.size.0,
            volume_may_vanish: may_lack,
        };
        if is_replaced && !number.is_multiple_of(2) {
            return;
        }
        let Some(conn) = self.sockets.connect(&character.wire, self.peer(number), false) else { return };
        let (now, rng) = (self.world.now(), self.world.fork_rng());
        self.clients[number] = Some(Connection::new(number, character, wanted, conn, now, rng));
    }

    /// Handles the completion of a client's handshake: requests of connections to its volume that had been
    /// closed before it began must not be executed after requests from now on.
    pub(super) fn handshake_completed(&mut self, number: usize) -> Result<(), Failure> {
        self.moment += 1;
        let entered = &mut self.admission_times[self.front.clients[number].volume];
        *entered = (*entered).max(self.moment);
        let Some(asked) = self.clients[number].as_ref().and_then(|client| client.admission_requested) else {
            return Ok(());
        };
        let volume = self.front.clients[number].volume;
        let is_over = |lost: &LostChange| lost.volume == volume && lost.closed < asked;
        for lost in self.lost_changes.extract_if(.., |lost| is_over(lost)) {
            self.oracle.abandon_change(lost.ticket);
            self.space_guarantees.register_end(lost.ticket, self.oracle.latest());
        }
        self.unseen_flushes.retain(|(of, closed)| *of != volume || *closed >= asked);
        if !self.unseen_flushes.iter().any(|(of, _)| *of == volume) {
            self.oracle.flushes_seen(volume);
        }
        self.check_limits()
    }

    /// Checks that the server was allowed to close a connection.
    pub(super) fn connection_closed(&mut self, number: usize, is_whole: bool) -> Result<(), Failure> {
        let Some(client) = &self.clients[number] else { return Ok(()) };
        let volume = self.front.clients[number].volume;
        let half_closed = self.half_closed[number];
        // The server may close a half-closed connection in favour of another client of the volume.
        let mut others = self.clients.iter().flatten().filter(|client| client.volume() == volume);
        let is_entering =
            others.any(|client| !client.is_handshake_done() && client.admission_requested.is_some());
        let is_cut_off = half_closed > 0 && (is_entering || self.admission_times[volume] > half_closed);
        let is_answered = is_whole && client.unanswered() == 0;
        let is_failure_allowed = self.is_stopping || is_cut_off || (client.is_leaving() && is_answered);
        if client.may_be_refused() {
            self.forget(number);
            return Ok(());
        }
        if client.may_have_timed_out() {
            self.reconnect(number);
            return Ok(());
        }
        let (judge, client, ..) = self.judge(number);
        let is_cut_short = client.is_some_and(|client| client.may_be_disconnected(&judge));
        if !is_failure_allowed && !is_cut_short {
            let client = &self.clients[number];
            let what = format!("the server closed the connection: {client:?}");
            return Err(Failure::Client { client: number, what });
        }
        self.forget(number);
        Ok(())
    }

    /// Reconnects a client that aborted its handshake, to send its requests.
    pub(super) fn reconnect(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else { return };
        let (unsent, leaves) = (client.take_unsent(), client.is_leaving());
        self.forget(number);
        if leaves && unsent.is_empty() {
            return;
        }
        self.connect(number);
        if let Some(client) = &mut self.clients[number] {
            unsent.into_iter().for_each(|request| client.queue_request(request));
            if leaves {
                client.queue_disc();
            }
        }
    }

    /// Closes a client's connection, in any state.
    pub(super) fn forget(&mut self, number: usize) {
        let Some(client) = self.clients[number].take() else { return };
        self.sockets.close_client(client.conn);
        self.half_closed[number] = 0;
        self.moment += 1;
        if !client.is_handshake_done() {
            // It may still be admitted, at any time.
            self.admission_times[client.volume()] = u64::MAX;
        }
        client.forget_reads(&mut self.oracle);
        let (volume, closed) = (self.front.clients[number].volume, self.moment);
        if client.is_flushing() {
            self.unseen_flushes.push((volume, closed));
        }
        self.lost_changes.extend(client.unanswered_changes().map(|ticket| LostChange {
            volume,
            ticket,
            closed,
        }));
    }

    pub(super) fn leave(&mut self, number: usize, how: Disconnect) -> Result<(), Failure> {
        let Some(client) = &mut self.clients[number] else { return Ok(()) };
        match how {
            Disconnect::Graceful => client.queue_disc(),
            Disconnect::HalfClosed if client.is_handshake_done() => {
                self.moment += 1;
                self.half_closed[number] = self.moment;
                client.close_half(&mut self.sockets);
            }
            Disconnect::HalfClosed | Disconnect::Immediate => self.forget(number),
            Disconnect::MidMessage => {
                let is_at_it = |client: &Connection| client.unanswered() > 0 && !client.is_sending();
                while self.clients[number].as_ref().is_some_and(is_at_it) {
                    if !self.advance(Nanos::MAX)? {
                        break;
                    }
                }
                self.forget(number);
            }
        }
        Ok(())
    }

    /// Disconnects all clients and checks that nothing of them is left: no connection, and all buffers are
    /// free.
    pub(super) fn disconnect_all(&mut self) -> Result<(), Failure> {
        for number in 0..self.clients.len() {
            let how =
                if self.world.fork_rng().chance(0.5) { Disconnect::Graceful } else { Disconnect::Immediate };
            self.leave(number, how)?;
        }
        self.hostile_clients.drain(..).for_each(|visitor| visitor.disconnect(&mut self.sockets));
        self.end_control()?;
        // Hung devices are eventually given up.
        let until = self.world.now() + Nanos::secs(if self.faults.is_broken { 3600 } else { 120 });
        while !self.is_empty() {
            if !self.advance(until)? {
                let counts = self.server.as_ref().map(weir_session::Server::counts);
                let (free, sockets) = (self.world.memory.free(), self.sockets.describe_connections());
                return Err(Failure::Server(format!(
                    "nobody is there, and left are {counts:?}, sockets {sockets}, clients {:?}, and {free} are free of {}",
                    self.clients.iter().flatten().collect::<Vec<_>>(),
                    self.at_rest
                )));
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        let counts = self.server.as_ref().map(weir_session::Server::counts).unwrap_or_default();
        let gone = counts.clients + counts.handshakes + counts.idle + counts.sessions == 0;
        // The cache of whole extents may keep memory. A restart checks more closely.
        let is_free = self.world.memory.free() + self.setup.extent_cache >= self.at_rest;
        // Hung devices keep some for good.
        let is_free = is_free || self.faults.is_broken;
        gone && self.sockets.count() == 0 && is_free && self.clients.iter().all(Option::is_none)
    }

    /// Lets a hostile client connect.
    pub(super) fn connect_hostile_client(&mut self, stranger: HostileClient) {
        if stranger.uses_volume() {
            // It is admitted at some time.
            self.admission_times.fill(u64::MAX);
        }
        if stranger.flushes() {
            self.oracle.note_unread_flushes();
        }
        let (rng, now) = (self.world.fork_rng(), self.world.now());
        let names = self.volumes.iter().map(|volume| &volume.name).chain(self.side_volumes.keys());
        let names: Vec<String> = names.cloned().collect();
        stranger.connect(&names, now, rng, &mut self.sockets, &mut self.hostile_clients);
    }
}
