//! Clients that leave: closed by the server or evicted in favour of others; and clients that are idle.

use super::{Client, Clients, POLLED_PER_STEP, Socket, Stage};
use crate::connection::ReleaseOutcome;
use crate::port::Port;
use crate::server::Environment;
use std::collections::BTreeMap;
use weir_model::{ConnId, Memory, Mutant, Peer};

impl Clients {
    /// Returns the handshake to evict for a new one: of the peer with the most handshakes, preferably one
    /// that has sent nothing, and the oldest of these.
    pub(super) fn handshake_to_evict(&self) -> Option<u16> {
        let all =
            || self.handshakes.iter().filter_map(|(_, n)| self.slots.get(*n).map(|client| (*n, client)));
        let mut counts: BTreeMap<Peer, u32> = BTreeMap::new();
        all().for_each(|(_, client)| *counts.entry(client.peer).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
        let of_peer = || all().filter(|(_, client)| client.peer == most);
        let silent = of_peer().find(|(_, client)| client.last_received == client.since);
        silent.or_else(|| of_peer().next()).map(|(number, _)| number)
    }

    /// Closes a handshake that has been given up.
    pub(super) fn drop_handshake(&mut self, number: u16) {
        self.handshakes_dropped += 1;
        tracing::debug!(client = number, "closing the connection: the handshake took too long");
        self.abort(number);
        self.remove_from_queues(number);
    }

    pub(super) fn abort(&mut self, number: u16) {
        if let Some(client) = self.slots.get_mut(number) {
            client.connection.abort();
            self.touch(number);
        }
    }

    /// Removes a client from the queues it is in. A client that is over gets no more turns.
    pub(super) fn remove_from_queues(&mut self, number: u16) {
        let Some(client) = self.slots.get_mut(number) else { return };
        let before = std::mem::replace(&mut client.stage, Stage::Finished);
        self.note_unseen_losses(number);
        let Some(client) = self.slots.get_mut(number) else { return };
        match before {
            Stage::Handshake => {
                self.handshakes.remove(&(client.since, number));
                self.ready_handshakes.retain(|other| *other != number);
            }
            Stage::Admitted => {
                if std::mem::take(&mut client.is_idle) {
                    self.idle_count -= 1;
                }
                if !self.planted.is(Mutant::GoneClientCounted) {
                    self.admission.remove(client.peer);
                }
                self.turns.leave(number);
            }
            Stage::Finished => {}
        }
    }

    /// Records that a client disconnected without having seen a loss of its writes. After it reconnects, it
    /// would repeat the failed FLUSH, which must not succeed then.
    pub(super) fn note_unseen_losses(&mut self, number: u16) {
        let Some(client) = self.slots.get_mut(number).filter(|client| client.stage == Stage::Finished) else {
            return;
        };
        let known = client.connection.losses_known();
        if let (Some(known), Some(volume)) = (known, client.connection.volume())
            && !self.planted.is(Mutant::UnheardLossForgotten)
        {
            self.unseen_losses.note(volume, known);
        }
    }

    /// Ends the volume's clients whose peer has disconnected; nothing more of their requests is executed. If
    /// such a client has reconnected, writes that it gave up must not overwrite its new ones.
    pub(super) fn end_disconnected<P: Port, M: Memory>(
        &mut self,
        newcomer: u16,
        environment: &mut Environment<'_, P, M>,
    ) {
        let volume = self.slots.get(newcomer).and_then(|client| client.connection.volume());
        let others = self.slots.iter().filter(|(number, client)| {
            *number != newcomer && client.stage == Stage::Admitted && client.connection.volume() == volume
        });
        let conns: Vec<ConnId> = others.map(|(_, client)| client.conn).collect();
        if conns.is_empty() || self.planted.is(Mutant::LostConnectionGoesOn) {
            return;
        }
        self.budget.spend(1 + conns.len() as u64 / POLLED_PER_STEP);
        let mut gone = Vec::new();
        environment.port.poll_hung_up(&conns, &mut gone);
        for number in gone.into_iter().filter_map(|conn| self.number_of(conn)).collect::<Vec<_>>() {
            tracing::debug!(
                client = number,
                "closing the connection: its peer is gone, and a new client uses the volume"
            );
            self.abort(number);
            self.remove_from_queues(number);
        }
    }

    /// Closes the sockets of touched clients that are done.
    pub(super) fn close_touched<P: Port, M: Memory>(&mut self, environment: &mut Environment<'_, P, M>) {
        for number in std::mem::take(&mut self.touched) {
            let Some(client) = self.slots.get_mut(number) else { continue };
            client.is_touched = false;
            if client.socket == Socket::Open && client.connection.is_finished() {
                client.socket = Socket::Closing;
                let conn = client.conn;
                self.remove_from_queues(number);
                environment.port.close(conn);
            }
        }
    }

    /// Drops handshakes that exceed their time limit, and releases the buffers of clients that have been idle
    /// long enough.
    pub(super) fn expire<P: Port, M: Memory>(&mut self, environment: &mut Environment<'_, P, M>) {
        while let Some(&(since, number)) = self.handshakes.first()
            && since + self.handshake_timeout <= environment.now
        {
            self.handshakes.pop_first();
            self.drop_handshake(number);
        }
        if self.next_idle_check.is_none_or(|at| at > environment.now) {
            return;
        }
        let awake = |client: &Client| client.stage == Stage::Admitted && !client.is_idle;
        let (idle, others): (Vec<_>, Vec<_>) = (self.slots.iter())
            .filter(|(_, client)| awake(client))
            .map(|(number, client)| (number, client.last_received + self.idle_timeout))
            .partition(|(_, due)| *due <= environment.now);
        for (number, _) in &idle {
            self.release_idle_client(*number, environment);
        }
        // Clients that could not release their buffers are checked again later.
        let again = idle.iter().any(|(number, _)| self.slots.get(*number).is_some_and(awake));
        let again = again.then(|| environment.now + self.idle_timeout);
        self.next_idle_check = others.into_iter().map(|(_, due)| due).chain(again).min();
    }

    pub(super) fn release_idle_client<P: Port, M: Memory>(
        &mut self,
        number: u16,
        environment: &mut Environment<'_, P, M>,
    ) {
        let Some(client) = self.slots.get_mut(number).filter(|client| client.stage == Stage::Admitted) else {
            return;
        };
        match client.connection.release_buffers(environment.memory) {
            ReleaseOutcome::Released if !client.is_idle => {
                client.is_idle = true;
                self.idle_count += 1;
            }
            ReleaseOutcome::Receiving if !client.cancelling => {
                client.cancelling = true;
                environment.port.cancel_recv(client.conn);
            }
            ReleaseOutcome::Released | ReleaseOutcome::Receiving | ReleaseOutcome::Busy => {}
        }
    }

    /// Lets no client submit more requests.
    pub(in crate::server) fn finish(&mut self) {
        self.finishing = true;
        let all: Vec<u16> = self.slots.iter_mut().map(finish).collect();
        all.into_iter().for_each(|number| self.touch(number));
    }

    /// Disconnects all clients; none gets another reply.
    pub(in crate::server) fn abort_all<P: Port, M: Memory>(
        &mut self,
        environment: &mut Environment<'_, P, M>,
    ) {
        let all: Vec<u16> = self.slots.iter().map(|(number, _)| number).collect();
        all.into_iter().for_each(|number| self.abort(number));
        self.close_touched(environment);
    }
}

fn finish((number, client): (u16, &mut Client)) -> u16 {
    client.connection.finish();
    number
}
