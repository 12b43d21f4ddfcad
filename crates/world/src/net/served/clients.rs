//! The connected clients, and the state of disconnected ones.

use super::{Leave, Lost, Served};
use crate::driver::Failure;
use crate::net::client::Connection;
use crate::net::hello::Wanted;
use crate::net::{ClientRequest, Stranger};
use weir_model::{Memory, Nanos};

impl Served {
    /// Returns the number of requests that clients wait for.
    pub(super) fn unanswered(&self) -> usize {
        self.clients.iter().flatten().map(Connection::unanswered).sum()
    }

    /// Lets a client send a request, once it has room for it.
    pub(super) fn ask(&mut self, number: usize, request: ClientRequest) -> Result<(), Failure> {
        loop {
            self.connect(number);
            match &mut self.clients[number] {
                Some(client) if client.has_room() && !client.is_leaving() => {
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
        let wanted = Wanted { name: volume.name.clone(), size: volume.spec.size.0, may_lack };
        if is_replaced && !number.is_multiple_of(2) {
            return;
        }
        let Some(conn) = self.sockets.connect(&character.wire, self.peer(number), false) else { return };
        let (now, rng) = (self.world.now(), self.world.fork_rng());
        self.clients[number] = Some(Connection::new(number, character, wanted, conn, now, rng));
    }

    /// Handles the completion of a client's handshake: requests of connections to its volume that had been
    /// closed before it began must not be executed after requests from now on.
    pub(super) fn came_back(&mut self, number: usize) -> Result<(), Failure> {
        self.moment += 1;
        let entered = &mut self.entered[self.front.clients[number].volume];
        *entered = (*entered).max(self.moment);
        let Some(asked) = self.clients[number].as_ref().and_then(|client| client.asked_in) else {
            return Ok(());
        };
        let volume = self.front.clients[number].volume;
        let is_over = |lost: &Lost| lost.volume == volume && lost.closed < asked;
        for lost in self.lost.extract_if(.., |lost| is_over(lost)) {
            self.oracle.given_up(lost.ticket);
            self.kept.ended(lost.ticket, self.oracle.latest());
        }
        self.unheard.retain(|(of, closed)| *of != volume || *closed >= asked);
        if !self.unheard.iter().any(|(of, _)| *of == volume) {
            self.oracle.flushes_are_heard(volume);
        }
        self.check_limits()
    }

    /// Checks that the server was allowed to close a connection.
    pub(super) fn ended(&mut self, number: usize, is_whole: bool) -> Result<(), Failure> {
        let Some(client) = &self.clients[number] else { return Ok(()) };
        let volume = self.front.clients[number].volume;
        let half_closed = self.half_closed[number];
        // The server may close a half-closed connection in favour of another client of the volume.
        let mut others = self.clients.iter().flatten().filter(|client| client.volume() == volume);
        let is_entering = others.any(|client| !client.is_through() && client.asked_in.is_some());
        let is_cut_off = half_closed > 0 && (is_entering || self.entered[volume] > half_closed);
        let is_answered = is_whole && client.unanswered() == 0;
        let is_in_order = self.is_stopping || is_cut_off || (client.is_leaving() && is_answered);
        if client.may_be_turned_away() {
            self.forget(number);
            return Ok(());
        }
        if client.may_have_taken_too_long() {
            self.begin_again(number);
            return Ok(());
        }
        let (judge, client, ..) = self.judge(number);
        let is_cut_short = client.is_some_and(|client| client.may_be_cut_short(&judge));
        if !is_in_order && !is_cut_short {
            let client = &self.clients[number];
            let what = format!("the server closed the connection: {client:?}");
            return Err(Failure::Client { client: number, what });
        }
        self.forget(number);
        Ok(())
    }

    /// Reconnects a client that aborted its handshake, to send its requests.
    pub(super) fn begin_again(&mut self, number: usize) {
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
                client.say_goodbye();
            }
        }
    }

    /// Closes a client's connection, in any state.
    pub(super) fn forget(&mut self, number: usize) {
        let Some(client) = self.clients[number].take() else { return };
        self.sockets.leave(client.conn);
        self.half_closed[number] = 0;
        self.moment += 1;
        if !client.is_through() {
            // It may still be admitted, at any time.
            self.entered[client.volume()] = u64::MAX;
        }
        client.forget_reads(&mut self.oracle);
        let (volume, closed) = (self.front.clients[number].volume, self.moment);
        if client.is_flushing() {
            self.unheard.push((volume, closed));
        }
        self.lost.extend(client.given_up().map(|ticket| Lost { volume, ticket, closed }));
    }

    pub(super) fn leave(&mut self, number: usize, how: Leave) -> Result<(), Failure> {
        let Some(client) = &mut self.clients[number] else { return Ok(()) };
        match how {
            Leave::Politely => client.say_goodbye(),
            Leave::HalfClosed if client.is_through() => {
                self.moment += 1;
                self.half_closed[number] = self.moment;
                client.close_half(&mut self.sockets);
            }
            Leave::HalfClosed | Leave::AtOnce => self.forget(number),
            Leave::Midway => {
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
    pub(super) fn empty(&mut self) -> Result<(), Failure> {
        for number in 0..self.clients.len() {
            let how = if self.world.fork_rng().chance(0.5) { Leave::Politely } else { Leave::AtOnce };
            self.leave(number, how)?;
        }
        self.visitors.drain(..).for_each(|visitor| visitor.leave(&mut self.sockets));
        self.end_control()?;
        // Hung devices are eventually given up.
        let until = self.world.now() + Nanos::secs(if self.faults.is_broken { 3600 } else { 120 });
        while !self.is_empty() {
            if !self.advance(until)? {
                let counts = self.server.as_ref().map(weir_session::Server::counts);
                let (free, sockets) = (self.world.memory.free(), self.sockets.left());
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
    pub(super) fn invite(&mut self, stranger: Stranger) {
        if stranger.enters() {
            // It is admitted at some time.
            self.entered.fill(u64::MAX);
        }
        let (rng, now) = (self.world.fork_rng(), self.world.now());
        let names = self.volumes.iter().map(|volume| &volume.name).chain(self.sides.keys());
        let names: Vec<String> = names.cloned().collect();
        stranger.come(&names, now, rng, &mut self.sockets, &mut self.visitors);
    }
}
