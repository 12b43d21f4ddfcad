//! Who is let in: limits on clients, a budget for handshakes, and what the log says of those refused.
//!
//! Pure: time is an argument, and nobody is turned away here but by the answer.

use crate::repeated::Repeated;
use core::net::IpAddr;
use std::collections::BTreeMap;
use weir_model::{Bytes, Nanos, Peer};

/// Handshakes at a time; with more, the oldest one gives way.
pub const HANDSHAKES: u16 = 256;

/// How much of everything clients may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// NBD clients at a time, past the handshake; more are turned away. At most [`Limits::CLIENTS_MAX`].
    pub clients: u16,
    /// Of these, how many from one IP address.
    pub clients_per_address: u16,
    /// The most memory one client may hold in payloads.
    pub each: Bytes,
    /// Memory no client may touch.
    pub reserve: Bytes,
    /// How long a client may take to say what it wants.
    pub handshake: Nanos,
    /// How long a control session may be silent, or take no answer.
    pub control: Nanos,
    /// A client that asks nothing for so long gives back its buffers, and is a client still.
    pub rest: Nanos,
}

impl Limits {
    /// The most clients there can be: their numbers are in requests' ids.
    pub const CLIENTS_MAX: u16 = 16_384;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 1024,
            clients_per_address: 256,
            each: Bytes::mib(16),
            reserve: Bytes::mib(2),
            handshake: Nanos::secs(30),
            control: Nanos::secs(60),
            rest: Nanos::secs(2),
        }
    }
}

/// Clients in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Past the handshake, now.
    pub clients: u64,
    /// How many there may be.
    pub limit: u64,
    /// Still in the handshake, now.
    pub handshakes: u64,
    /// Of all clients, how many have given back their buffers because they asked nothing for a while.
    pub idle: u64,
    /// Turned away since the start: clients beyond a limit.
    pub refused: u64,
    /// Handshakes that were given up since the start: they took too long, or gave way to others.
    pub handshakes_dropped: u64,
    /// Control sessions, now.
    pub sessions: u64,
}

/// Why a client is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are as many clients as there may be.
    Clients(u16),
    /// There are as many clients from this address as there may be.
    Address(IpAddr, u16),
    /// There is no memory for its buffers.
    Memory,
    /// There are as many control sessions as there may be, all of them busy.
    Sessions(usize),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clients(limit) => {
                write!(f, "{limit} clients are connected, the limit; raise `clients` under [serve]")
            }
            Self::Address(address, limit) => write!(
                f,
                "{limit} clients are connected from {address}, the limit for one address; raise \
                 `clients_per_address` under [serve]"
            ),
            Self::Memory => f.write_str("no buffer memory is free for it"),
            Self::Sessions(limit) => write!(f, "{limit} control sessions are busy, the limit"),
        }
    }
}

/// Who is in.
#[derive(Debug)]
pub struct Admission {
    clients: u16,
    per_address: u16,
    in_now: u16,
    by_address: BTreeMap<IpAddr, u16>,
}

impl Admission {
    /// Nobody yet.
    pub fn new(limits: &Limits) -> Self {
        let (clients, per_address) = (limits.clients, limits.clients_per_address);
        Self { clients, per_address, in_now: 0, by_address: BTreeMap::new() }
    }

    /// Clients that are in.
    pub const fn count(&self) -> u16 {
        self.in_now
    }

    /// Whether one more client of this peer would be let in now.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, peer: Peer) -> Result<(), Refusal> {
        if self.in_now >= self.clients {
            return Err(Refusal::Clients(self.clients));
        }
        match peer {
            Peer::Address(address)
                if self.by_address.get(&address).is_some_and(|count| *count >= self.per_address) =>
            {
                Err(Refusal::Address(address, self.per_address))
            }
            _ => Ok(()),
        }
    }

    /// A client has said what it wants, and is let in.
    ///
    /// # Errors
    /// Why it is not.
    pub fn enter(&mut self, peer: Peer) -> Result<(), Refusal> {
        self.check(peer)?;
        self.enter_unchecked(peer);
        Ok(())
    }

    /// A client is let in, whatever the limits.
    pub(crate) fn enter_unchecked(&mut self, peer: Peer) {
        self.in_now += 1;
        if let Peer::Address(address) = peer {
            *self.by_address.entry(address).or_default() += 1;
        }
    }

    /// A client that was let in is gone.
    pub fn leave(&mut self, peer: Peer) {
        self.in_now -= 1;
        if let Peer::Address(address) = peer
            && let Some(count) = self.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

/// What handshakes may take: a bucket of steps that fills with time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Steps there are, in billionths; less than none while a long answer is being paid for.
    filled: i64,
    at: Nanos,
}

/// Steps of handshakes a second: accepting a client is one, so is an option, and each 4 KiB of an answer.
/// With some ten microseconds each, floods of them take two fifths of the thread. (Fewer would leave listeners'
/// queues full, and a unix socket then refuses whoever does not wait.)
const STEPS_A_SECOND: i64 = 40_000;
/// Steps that may be taken at once after a pause.
const STEPS_MAX: i64 = 256;
/// Steps that are left to those who are in, when no more are accepted.
const STEPS_KEPT: i64 = 16;
const BILLION: i64 = 1_000_000_000;

impl Budget {
    /// A full bucket.
    pub const fn new(now: Nanos) -> Self {
        Self { filled: STEPS_MAX * BILLION, at: now }
    }

    fn fill(&mut self, now: Nanos) {
        let more = now.since(self.at).0.min(BILLION.unsigned_abs()) as i64 * STEPS_A_SECOND;
        self.filled = (self.filled + more).min(STEPS_MAX * BILLION);
        self.at = now;
    }

    /// Whether a step may be taken now.
    pub fn has_step(&mut self, now: Nanos) -> bool {
        self.fill(now);
        self.filled >= BILLION
    }

    /// Whether another client may be accepted now.
    pub fn may_accept(&mut self, now: Nanos) -> bool {
        self.fill(now);
        self.filled >= STEPS_KEPT * BILLION
    }

    /// Steps were taken; they may be more than there are.
    pub fn spend(&mut self, steps: u64) {
        let cost = i64::try_from(steps).unwrap_or(i64::MAX).saturating_mul(BILLION);
        self.filled = self.filled.saturating_sub(cost).max(-STEPS_A_SECOND * BILLION);
    }

    /// When a step may be taken, or with `accept` a client accepted.
    pub fn due(&self, accept: bool) -> Nanos {
        let wanted = if accept { STEPS_KEPT } else { 1 } * BILLION;
        let lacking = (wanted - self.filled).max(0).unsigned_abs();
        self.at + Nanos(lacking.div_ceil(STEPS_A_SECOND.unsigned_abs()))
    }
}

/// What the log says of clients turned away.
pub type Refused = Repeated<Refusal>;

impl Refused {
    /// The line to write now, if one is due: how many were turned away since the last one, and why the
    /// latest of them.
    pub fn line(&mut self, now: Nanos) -> Option<String> {
        let (count, why) = self.take_due(now)?;
        let clients = if count == 1 { "client" } else { "clients" };
        Some(format!("{count} {clients} refused: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn(u16, u16) -> Limits =
        |clients, clients_per_address| Limits { clients, clients_per_address, ..Limits::default() };

    #[test]
    fn an_address_has_its_limit_and_processes_have_none() {
        let mut all = Admission::new(&LIMITS(4, 2));
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::Address(ip.parse().expect("an address")));
        let Peer::Address(of_a) = a else { return };
        assert_eq!([all.enter(a), all.enter(a)], [Ok(()), Ok(())]);
        assert_eq!(all.enter(a), Err(Refusal::Address(of_a, 2)));
        assert_eq!([all.enter(b), all.enter(Peer::Process(7))], [Ok(()), Ok(())]);
        assert_eq!(all.enter(Peer::Process(7)), Err(Refusal::Clients(4)));
        all.leave(a);
        assert_eq!((all.enter(a), all.count()), (Ok(()), 4));
        [a, a, b, Peer::Process(7)].into_iter().for_each(|peer| all.leave(peer));
        assert!(all.by_address.is_empty() && all.count() == 0);
    }

    #[test]
    fn handshakes_get_their_steps_a_second_and_no_more() {
        let mut now = Nanos::secs(1);
        let mut budget = Budget::new(now);
        let mut taken = 0i64;
        let end = now + Nanos::secs(10);
        while now < end {
            while budget.has_step(now) {
                budget.spend(1);
                taken += 1;
            }
            let due = budget.due(false);
            assert!(due > now && due <= now + Nanos::micros(26), "{due:?} at {now:?}");
            now = due;
        }
        assert!((taken - STEPS_MAX).abs_diff(10 * STEPS_A_SECOND) <= 1, "{taken}");
        assert!(!budget.may_accept(now));
        assert!(budget.due(true) > now);
        now = budget.due(true);
        assert!(budget.may_accept(now));
        // A long answer is paid for afterwards.
        budget.spend(1000);
        assert!(!budget.has_step(now + Nanos::millis(20)) && budget.has_step(now + Nanos::millis(30)));
    }

    #[test]
    fn a_thousand_refusals_are_two_lines_that_count_them() {
        let mut refused = Refused::default();
        let now = Nanos::secs(100);
        assert_eq!((refused.due(now), refused.line(now)), (None, None));
        refused.note(Refusal::Clients(5));
        let line = refused.line(now).expect("the first at once");
        assert!(line.starts_with("1 client refused: 5 clients are connected"), "{line}");
        for _ in 0..999 {
            refused.note(Refusal::Memory);
            assert_eq!(refused.line(now + Nanos::secs(1)), None);
        }
        let due = refused.due(now).expect("a line");
        assert_eq!(due, now + Refused::PAUSE);
        let line = refused.line(due).expect("a line");
        assert!(line.starts_with("999 clients refused: no buffer memory"), "{line}");
        assert_eq!((refused.due(due), refused.total()), (None, 1000));
    }
}
