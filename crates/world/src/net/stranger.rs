//! Hostile clients: they must not keep others from being answered.

use super::nbd;
use super::sockets::{Got, Sockets, Wire};
use crate::Rng;
use std::collections::VecDeque;
use weir_model::{ConnId, Nanos, Peer};

/// A kind of hostile client. The number says how many connect at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
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
pub(super) struct Visitor {
    conn: ConnId,
    out: VecDeque<u8>,
    receives: bool,
    leaves_at: Nanos,
    is_gone: bool,
}

fn hello(volume: &str) -> Vec<u8> {
    let name = volume.as_bytes();
    [&[0, 0, 0, 3], &b"IHAVEOPT\0\0\0\x01"[..], &(name.len() as u32).to_be_bytes(), name].concat()
}

impl Stranger {
    /// Reports whether it uses a volume.
    pub(super) const fn enters(self) -> bool {
        matches!(self, Self::Flushes(_) | Self::Reads(_) | Self::Stuck(_) | Self::Garbage(_))
    }

    pub(super) fn come(
        self,
        volumes: &[String],
        now: Nanos,
        mut rng: Rng,
        sockets: &mut Sockets,
        visitors: &mut Vec<Visitor>,
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
            let wire = Wire { to_server: 256 << rng.below(10), to_client, delay: Nanos(0), part: 1000 };
            let peer = Peer::Process(500 + u32::from(number % 3));
            let is_control = matches!(self, Self::Control(_));
            let Some(conn) = sockets.connect(&wire, peer, is_control) else { return };
            let volume = &volumes[rng.below(volumes.len() as u64) as usize];
            let out = self.says(volume, &mut rng).into();
            let leaves_at = now + Nanos::micros(rng.below(2_000_000));
            let receives = matches!(self, Self::Garbage(_)) && rng.chance(0.5);
            visitors.push(Visitor { conn, out, receives, leaves_at, is_gone: false });
        }
    }

    fn says(self, volume: &str, rng: &mut Rng) -> Vec<u8> {
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

impl Visitor {
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Returns the time of its next action, if nothing else happens.
    pub(super) fn next(&self, now: Nanos, sockets: &Sockets) -> Option<Nanos> {
        let sends = (!self.out.is_empty() && sockets.has_room(self.conn)).then_some(now);
        let receives = if self.receives { sockets.readable(self.conn) } else { None };
        [sends, receives, Some(self.leaves_at)].into_iter().flatten().min()
    }

    pub(super) fn turn(&mut self, now: Nanos, sockets: &mut Sockets) {
        let (bytes, _) = self.out.as_slices();
        match sockets.put(self.conn, bytes) {
            Some(sent) => drop(self.out.drain(..sent)),
            None => self.out.clear(),
        }
        let is_over = self.receives && sockets.take(self.conn, 4096) == Got::End;
        if is_over || self.leaves_at <= now {
            sockets.leave(self.conn);
            self.is_gone = true;
        }
    }

    pub(super) fn leave(&self, sockets: &mut Sockets) {
        sockets.leave(self.conn);
    }
}
