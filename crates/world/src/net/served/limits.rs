//! Limits on clients: the server admits no more than allowed, and refuses none without a reason.

use super::ServedPool;
use crate::driver::Failure;
use core::net::IpAddr;
use weir_model::Peer;

/// Number of control sessions from which on an idle one is evicted for another.
const SESSIONS: usize = 16;

impl ServedPool {
    /// Returns the peer as which the server sees a client.
    pub(super) fn peer(&self, number: usize) -> Peer {
        let is_one_address = self.front.limits.clients_per_address < 64;
        match number {
            _ if number.is_multiple_of(3) || is_one_address => {
                let last = if is_one_address { 0 } else { number as u8 };
                Peer::Address(IpAddr::from([192, 0, 2, last]))
            }
            _ => Peer::Process(number as u32 / 2),
        }
    }

    /// Notes that clients in the handshake may be refused, if there may be too many clients.
    pub(super) fn note_crowd(&mut self) {
        let [clients, sessions] = self.sockets.accepted();
        let limit = self.front.limits.clients.min(self.front.limits.clients_per_address);
        if clients > usize::from(limit) {
            let shaking = self.clients.iter_mut().flatten().filter(|client| !client.was_admitted());
            shaking.for_each(super::Connection::note_crowd);
        }
        if sessions >= SESSIONS {
            self.operator.note_crowd();
            self.side_operators.iter_mut().for_each(super::Operator::note_crowd);
            self.recording.iter_mut().for_each(|recording| recording.note_crowd());
        }
    }

    /// Checks that no more clients than allowed are admitted.
    pub(super) fn check_limits(&self) -> Result<(), Failure> {
        let limits = &self.front.limits;
        let clients = |number: &usize| self.clients[*number].as_ref();
        let is_in = |number: &usize| clients(number).is_some_and(|client| client.is_steady(&self.sockets));
        let all: Vec<usize> = (0..self.clients.len()).filter(is_in).collect();
        let of = |peer| all.iter().filter(|number| self.peer(**number) == peer).count();
        let addresses = all.iter().map(|number| self.peer(*number)).filter(|p| matches!(p, Peer::Address(_)));
        let most = addresses.map(of).max().unwrap_or_default();
        if all.len() > usize::from(limits.clients) || most > usize::from(limits.clients_per_address) {
            let what =
                format!("clients {all:?} are let in, {most} of them from one address, against {limits:?}");
            return Err(Failure::Server(what));
        }
        Ok(())
    }
}
