//! Hostile clients: they must not keep others from being answered.

use super::nbd;
use super::sockets::{ReceiveResult, SocketProfile, Sockets};
use crate::Rng;
use std::collections::VecDeque;
use weir_model::{ConnId, Nanos, Peer};

/// A kind of hostile client. The number says how many connect at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostileClient {
    /// Sends nothing.
    Silent(u16),
    /// Begins a handshake and stops.
    HalfOpen(u16),
    /// Sends garbage.
    Garbage(u16),
    /// Requests the list of volumes again and again without receiving the answers.
    Lists(u16),
    /// Uses a volume, and flushes again and again without receiving replies.
    Flushes(u16),
    /// Uses a volume, reads as much as it may at once, and receives nothing.
    Reads(u16),
    /// Uses a volume, and begins a long write beyond its end that it never completes.
    Stuck(u16),
    /// Sends half a line to the control socket.
    Control(u16),
}

/// A connection of a hostile client.
#[derive(Debug)]
pub(super) struct HostileConnection {
    conn: ConnId,
    out: VecDeque<u8>,
    receives: bool,
    closes_at: Nanos,
    is_closed: bool,
}

fn hello(volume: &str) -> Vec<u8> {
    let name = volume.as_bytes();
    [&[0, 0, 0, 3], &b"IHAVEOPT\0\0\0\x01"[..], &(name.len() as u32).to_be_bytes(), name].concat()
}

impl HostileClient {
    /// Reports whether it uses a volume.
    pub(super) const fn uses_volume(self) -> bool {
        matches!(self, Self::Flushes(_) | Self::Reads(_) | Self::Stuck(_) | Self::Garbage(_))
    }

    /// Reports whether it flushes a volume.
    pub(super) const fn flushes(self) -> bool {
        matches!(self, Self::Flushes(_))
    }

    pub(super) fn connect(
        self,
        volumes: &[String],
        now: Nanos,
        mut rng: Rng,
        sockets: &mut Sockets,
        visitors: &mut Vec<HostileConnection>,
    ) {
        let (Self::Silent(count)
        | Self::HalfOpen(count)
        | Self::Garbage(count)
        | Self::Lists(count)
        | Self::Flushes(count)
        | Self::Reads(count)
        | Self::Stuck(count)
        | Self::Control(count)) = self;
        for number in 0..count {
            let to_client = 1 << rng.below(17);
            let wire = SocketProfile {
                to_server: 256 << rng.below(10),
                to_client,
                delay: Nanos(0),
                transfer_max: 1000,
            };
            let peer = Peer::Process(500 + u32::from(number % 3));
            let is_control = matches!(self, Self::Control(_));
            let Some(conn) = sockets.connect(&wire, peer, is_control) else { return };
            let volume = &volumes[rng.below(volumes.len() as u64) as usize];
            let out = self.initial_bytes(volume, &mut rng).into();
            let leaves_at = now + Nanos::micros(rng.below(2_000_000));
            let receives = matches!(self, Self::Garbage(_)) && rng.chance(0.5);
            visitors.push(HostileConnection { conn, out, receives, closes_at: leaves_at, is_closed: false });
        }
    }

    fn initial_bytes(self, volume: &str, rng: &mut Rng) -> Vec<u8> {
        let mut out = match self {
            Self::Silent(_) => return vec![],
            Self::Control(_) => return b"{\"do\":\"status\"}\n{\"do\":".to_vec(),
            Self::HalfOpen(_) => return b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\x04\0half".to_vec(),
            Self::Lists(_) => {
                return [&[0, 0, 0, 3], &b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(200)[..]].concat();
            }
            Self::Garbage(_) if rng.chance(0.5) => vec![],
            _ => hello(volume),
        };
        for number in 0..300 {
            match self {
                Self::Flushes(_) => out.extend(nbd::request(0, nbd::FLUSH, number, 0, 0)),
                Self::Reads(_) => out.extend(nbd::request(0, nbd::READ, number, 0, 256 << 10)),
                Self::Garbage(_) => out.extend(rng.word().to_be_bytes()),
                _ => {}
            }
        }
        if let Self::Stuck(_) = self {
            out.extend(nbd::request(0, nbd::WRITE, 1, u64::MAX / 4, 1 << 20));
            out.extend([0; 5000]);
        }
        out
    }
}

impl HostileConnection {
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the time of its next action, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = (!self.out.is_empty() && sockets.is_writable(self.conn)).then_some(now);
        let receives = if self.receives { sockets.readable(self.conn) } else { None };
        [sends, receives, Some(self.closes_at)].into_iter().flatten().min()
    }

    pub(super) fn turn(&mut self, now: Nanos, sockets: &mut Sockets) {
        let (bytes, _) = self.out.as_slices();
        match sockets.put(self.conn, bytes) {
            Some(sent) => drop(self.out.drain(..sent)),
            None => self.out.clear(),
        }
        let is_over = self.receives && sockets.take(self.conn, 4096) == ReceiveResult::End;
        if is_over || self.closes_at <= now {
            sockets.close_client(self.conn);
            self.is_closed = true;
        }
    }

    pub(super) fn disconnect(&self, sockets: &mut Sockets) {
        sockets.close_client(self.conn);
    }
}
