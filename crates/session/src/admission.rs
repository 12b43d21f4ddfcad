//! Admission of clients: limits on clients, a budget for handshakes, and the log lines about refused clients.
//!
//! The module is pure: time is an argument, and the caller acts on the result.

use crate::throttle::ThrottledEvents;
use core::net::IpAddr;
use std::collections::BTreeMap;
use weir_model::{Bytes, Nanos, Peer};

/// Maximum number of concurrent handshakes; above it, a handshake is dropped for each new one.
pub const HANDSHAKES_MAX: u16 = 256;

/// Limits on clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of NBD clients past the handshake; further ones are refused. At most
    /// [`Limits::CLIENTS_MAX`].
    pub clients: u16,
    /// Maximum number of clients from one IP address.
    pub clients_per_address: u16,
    /// The most memory that one client may use for payloads.
    pub memory_per_client: Bytes,
    /// Memory that no client may use.
    pub reserve: Bytes,
    /// Time limit of a handshake.
    pub handshake_timeout: Nanos,
    /// Timeout of a control session that sends nothing, or does not take an answer.
    pub control_timeout: Nanos,
    /// Idle time after which a client's buffers are released; the client stays connected.
    pub idle_timeout: Nanos,
}

impl Limits {
    /// Upper bound on [`clients`](Self::clients): client numbers are part of request ids.
    pub const CLIENTS_MAX: u16 = 16_384;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 1024,
            clients_per_address: 256,
            memory_per_client: Bytes::mib(16),
            reserve: Bytes::mib(2),
            handshake_timeout: Nanos::secs(30),
            control_timeout: Nanos::secs(60),
            idle_timeout: Nanos::secs(2),
        }
    }
}

/// Numbers of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Clients past the handshake, now.
    pub clients: u64,
    /// Maximum number of clients.
    pub limit: u64,
    /// Clients in the handshake, now.
    pub handshakes: u64,
    /// Clients past the handshake whose buffers were released because they were idle.
    pub idle: u64,
    /// Clients refused since the start because of a limit.
    pub refused: u64,
    /// Handshakes dropped since the start: they exceeded their time limit or were evicted.
    pub handshakes_dropped: u64,
    /// Control sessions, now.
    pub sessions: u64,
}

/// Reason for refusing a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The maximum number of clients is reached.
    Clients(u16),
    /// The maximum number of clients from this address is reached.
    Address(IpAddr, u16),
    /// There is no memory for its buffers.
    Memory,
    /// The maximum number of control sessions is reached, and all are busy.
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

/// The admitted clients.
#[derive(Debug)]
pub struct Admission {
    clients: u16,
    per_address: u16,
    admitted: u16,
    by_address: BTreeMap<IpAddr, u16>,
}

impl Admission {
    /// Creates the state without clients.
    pub fn new(limits: &Limits) -> Self {
        let (clients, per_address) = (limits.clients, limits.clients_per_address);
        Self { clients, per_address, admitted: 0, by_address: BTreeMap::new() }
    }

    /// Returns the number of admitted clients.
    pub const fn count(&self) -> u16 {
        self.admitted
    }

    /// Checks whether one more client of this peer would be admitted now.
    ///
    /// # Errors
    /// Returns the reason for refusing it.
    pub fn check(&self, peer: Peer) -> Result<(), Refusal> {
        if self.admitted >= self.clients {
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

    /// Admits a client that has completed its handshake.
    ///
    /// # Errors
    /// Returns the reason for refusing it.
    pub fn admit(&mut self, peer: Peer) -> Result<(), Refusal> {
        self.check(peer)?;
        self.admit_unchecked(peer);
        Ok(())
    }

    /// Admits a client without checking the limits.
    pub(crate) fn admit_unchecked(&mut self, peer: Peer) {
        self.admitted += 1;
        if let Peer::Address(address) = peer {
            *self.by_address.entry(address).or_default() += 1;
        }
    }

    /// Removes an admitted client that has disconnected.
    pub fn remove(&mut self, peer: Peer) {
        self.admitted -= 1;
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

/// The budget of handshakes: a token bucket of steps.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Available steps, in billionths; negative while a long answer is being paid for.
    available: i64,
    at: Nanos,
}

/// Steps of handshakes per second. Accepting a client is one, an option is one, and so is each 4 KiB of an
/// answer. At about ten microseconds a step, floods of handshakes take two fifths of the thread. (With fewer
/// steps the listeners' queues would stay full, and a unix socket then refuses clients that do not wait.)
const STEPS_PER_SECOND: i64 = 40_000;
/// Maximum number of steps at once after a pause.
const STEPS_MAX: i64 = 256;
/// Steps reserved for clients already accepted: with fewer, no more are accepted.
const STEPS_RESERVED: i64 = 16;
const BILLION: i64 = 1_000_000_000;

impl Budget {
    /// Creates a full bucket.
    pub const fn new(now: Nanos) -> Self {
        Self { available: STEPS_MAX * BILLION, at: now }
    }

    fn fill(&mut self, now: Nanos) {
        let more = now.since(self.at).0.min(BILLION.unsigned_abs()) as i64 * STEPS_PER_SECOND;
        self.available = (self.available + more).min(STEPS_MAX * BILLION);
        self.at = now;
    }

    /// Reports whether a step may be taken now.
    pub fn has_step(&mut self, now: Nanos) -> bool {
        self.fill(now);
        self.available >= BILLION
    }

    /// Reports whether another client may be accepted now.
    pub fn may_accept(&mut self, now: Nanos) -> bool {
        self.fill(now);
        self.available >= STEPS_RESERVED * BILLION
    }

    /// Spends steps; they may be more than are available.
    pub fn spend(&mut self, steps: u64) {
        let cost = i64::try_from(steps).unwrap_or(i64::MAX).saturating_mul(BILLION);
        self.available = self.available.saturating_sub(cost).max(-STEPS_PER_SECOND * BILLION);
    }

    /// Returns the time when a step may be taken, or with `accept` a client accepted.
    pub fn due(&self, accept: bool) -> Nanos {
        let wanted = if accept { STEPS_RESERVED } else { 1 } * BILLION;
        let lacking = (wanted - self.available).max(0).unsigned_abs();
        self.at + Nanos(lacking.div_ceil(STEPS_PER_SECOND.unsigned_abs()))
    }
}

/// Log lines about refused clients.
pub type RefusalLog = ThrottledEvents<Refusal>;

impl RefusalLog {
    /// Returns the line to write now, if one is due: the number of clients refused since the last line, and
    /// the reason for the latest.
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
    fn only_addresses_are_limited() {
        let mut all = Admission::new(&LIMITS(4, 2));
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::Address(ip.parse().expect("an address")));
        let Peer::Address(of_a) = a else { return };
        assert_eq!([all.admit(a), all.admit(a)], [Ok(()), Ok(())]);
        assert_eq!(all.admit(a), Err(Refusal::Address(of_a, 2)));
        assert_eq!([all.admit(b), all.admit(Peer::Process(7))], [Ok(()), Ok(())]);
        assert_eq!(all.admit(Peer::Process(7)), Err(Refusal::Clients(4)));
        all.remove(a);
        assert_eq!((all.admit(a), all.count()), (Ok(()), 4));
        [a, a, b, Peer::Process(7)].into_iter().for_each(|peer| all.remove(peer));
        assert!(all.by_address.is_empty() && all.count() == 0);
    }

    #[test]
    fn handshake_steps_are_rate_limited() {
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
        assert!((taken - STEPS_MAX).abs_diff(10 * STEPS_PER_SECOND) <= 1, "{taken}");
        assert!(!budget.may_accept(now));
        assert!(budget.due(true) > now);
        now = budget.due(true);
        assert!(budget.may_accept(now));
        // A long answer is paid for afterwards.
        budget.spend(1000);
        assert!(!budget.has_step(now + Nanos::millis(20)) && budget.has_step(now + Nanos::millis(30)));
    }

    #[test]
    fn refusals_are_logged_in_two_lines() {
        let mut refused = RefusalLog::default();
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
        assert_eq!(due, now + RefusalLog::REPORT_INTERVAL);
        let line = refused.line(due).expect("a line");
        assert!(line.starts_with("999 clients refused: no buffer memory"), "{line}");
        assert_eq!((refused.due(due), refused.total()), (None, 1000));
    }
}
