//! Connections: their state, shared by both rings. `listen` accepts them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use weir_model::{Buffer, ConnId, Errno, IoError, ReceiveMode};

use super::Event;
use super::listen::Listener;
use super::transfer::{Progress, Transfer};
use crate::DeviceError;
use crate::arena::{KernelAccess, Region};

pub use super::listen::{Listen, SocketAccess};

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(super) u32);

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) recv: Transfer,
    pub(super) send: Transfer,
    closing: bool,
    /// True for a TCP connection, whose buffers hold megabytes.
    is_tcp: bool,
}

impl Conn {
    pub(super) fn transfer(&mut self, way: Direction) -> &mut Transfer {
        match way {
            Direction::In => &mut self.recv,
            Direction::Out => &mut self.send,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    /// Boxed: the kernel has pointers into the transfers.
    conn: Option<Box<Conn>>,
}

/// All connections and listeners.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    listeners: Vec<Option<Listener>>,
    /// Whether the last connection that bytes arrived on is a TCP connection.
    last_is_tcp: bool,
}

impl Sockets {
    pub(super) fn listen(&mut self, at: &Listen) -> Result<ListenerId, DeviceError> {
        self.listeners.push(Some(Listener::bind(at)?));
        Ok(ListenerId(self.listeners.len() as u32 - 1))
    }

    pub(super) fn address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.listeners.get(listener.0 as usize)?.as_ref()?.address()
    }

    /// Returns the open listeners and their sockets.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (ListenerId, RawFd)> {
        let open = |l: &Option<Listener>| l.as_ref().map(|l| l.socket().as_raw_fd());
        (0..).zip(&self.listeners).filter_map(move |(id, l)| Some((ListenerId(id), open(l)?)))
    }

    pub(super) fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn stop_listening(&mut self) {
        self.listeners.iter_mut().for_each(|l| *l = None);
    }

    /// Adds an accepted client.
    pub(super) fn accepted(&mut self, listener: ListenerId, socket: OwnedFd) -> Option<Event> {
        let at = self.listener(listener)?;
        at.configure_client(&socket);
        let (peer, is_tcp) = (at.peer(&socket), at.address().is_some());
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let (recv, send) = <(Transfer, Transfer)>::default();
        let new = Conn { socket, recv, send, closing: false, is_tcp };
        slot.conn = Some(Box::new(new));
        let conn = ConnId::new(index, slot.generation);
        Some(Event::Accepted { listener, conn, peer })
    }

    /// Reports whether the client that sent last is blocked as long as this thread does not receive. A unix
    /// socket holds some 200 KiB; TCP's buffers hold megabytes, so its client continues to send.
    pub(super) fn sender_blocks(&self) -> bool {
        !self.last_is_tcp
    }

    /// Returns a connection that has not been closed.
    fn open(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(id.index())?;
        let conn = slot.conn.as_deref_mut()?;
        (slot.generation == id.generation() && !conn.closing).then_some(conn)
    }

    /// Returns the connection of a backend's command: it exists as long as the command is in flight.
    pub(super) fn by_index(&mut self, index: u32) -> Option<&mut Conn> {
        self.slots.get_mut(index as usize)?.conn.as_deref_mut()
    }

    /// Returns every connection with its index, by which backends refer to it.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Conn)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.conn.as_deref()?)))
    }

    /// Returns the ids of all connections.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        let named = |index: u32| ConnId::new(index, self.slots[index as usize].generation);
        self.all().map(|(index, _)| named(index)).collect()
    }

    /// Prepares a receive; returns false if the connection is not open.
    pub(super) fn begin_recv(
        &mut self,
        id: ConnId,
        into: &[Buffer],
        fill: ReceiveMode,
        region: &Region,
    ) -> bool {
        let Some(conn) = self.open(id) else { return false };
        conn.recv.begin(into, fill == ReceiveMode::Full, region, KernelAccess::Write);
        true
    }

    /// Prepares a send; returns false if the connection is not open.
    pub(super) fn begin_send(&mut self, id: ConnId, parts: &[Buffer], region: &Region) -> bool {
        let Some(conn) = self.open(id) else { return false };
        conn.send.begin(parts, true, region, KernelAccess::Read);
        true
    }

    /// Sends what the socket takes at once; returns true if the backend must send the rest.
    pub(super) fn send_now(&mut self, id: ConnId, region: &Region, ready: &mut Vec<Event>) -> bool {
        let Some(conn) = self.open(id) else { return false };
        let answer = conn.send.try_send(conn.socket.as_fd());
        self.handle_transfer(id.index() as u32, Direction::Out, answer, region, ready)
    }

    /// Handles the result of a transfer's system call (bytes, or a negated error number) and reports its end;
    /// returns true if the transfer must continue.
    pub(super) fn handle_transfer(
        &mut self,
        index: u32,
        way: Direction,
        answer: i32,
        region: &Region,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(index as usize) else { return false };
        let Some(conn) = slot.conn.as_deref_mut() else { return false };
        let id = ConnId::new(index, slot.generation);
        let result = match conn.transfer(way).handle_result(answer) {
            Progress::Continue if !conn.closing => return true,
            Progress::Continue => Err(IoError::Os(Errno::ECANCELED)),
            Progress::Complete(result) => result,
        };
        conn.transfer(way).end(region);
        if way == Direction::In {
            self.last_is_tcp = conn.is_tcp;
        }
        if !conn.closing {
            events.push(match way {
                Direction::In => Event::Received { conn: id, result },
                Direction::Out => Event::Sent { conn: id, result: result.map(drop) },
            });
        } else if conn.is_idle() {
            self.remove(index, events);
        }
        false
    }

    /// Appends those of `conns` whose peer has closed its end.
    pub(super) fn hung_up(&self, conns: &[ConnId], gone: &mut Vec<ConnId>) {
        let open = |id: ConnId| {
            let slot = self.slots.get(id.index()).filter(|slot| slot.generation == id.generation())?;
            slot.conn.as_deref().filter(|conn| !conn.closing).map(|conn| (id, conn))
        };
        let (ids, mut polled): (Vec<_>, Vec<_>) = conns
            .iter()
            .filter_map(|id| open(*id))
            .map(|(id, conn)| (id, PollFd::new(&conn.socket, PollFlags::RDHUP)))
            .unzip();
        // On an error (none is expected) no connection is reported; each fails at its next receive instead.
        if rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok() {
            let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            let ids = ids.into_iter().zip(&polled);
            gone.extend(ids.filter(|(_, fd)| fd.revents().intersects(ended)).map(|(id, _)| id));
        }
    }

    /// Reports whether a receive is in flight on an open connection.
    pub(super) fn is_receiving(&mut self, id: ConnId) -> bool {
        self.open(id).is_some_and(|conn| conn.recv.is_active())
    }

    /// Begins to close a connection; returns true if commands in flight must be cancelled first.
    pub(super) fn begin_close(&mut self, id: ConnId, ready: &mut Vec<Event>) -> bool {
        let Some(conn) = self.open(id) else { return false };
        conn.closing = true;
        if conn.is_idle() {
            self.remove(id.index() as u32, ready);
            return false;
        }
        // The shutdown ends a receive or send in flight; it fails only if the peer has disconnected first.
        let _ = rustix::net::shutdown(&conn.socket, Shutdown::Both);
        true
    }

    fn remove(&mut self, index: u32, events: &mut Vec<Event>) {
        let slot = &mut self.slots[index as usize];
        events.push(Event::Closed { conn: ConnId::new(index, slot.generation) });
        slot.conn = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Reports whether no connection has a command in flight.
    pub(super) fn are_idle(&self) -> bool {
        self.all().all(|(_, conn)| conn.is_idle())
    }
}

impl Conn {
    fn is_idle(&self) -> bool {
        !self.recv.is_active() && !self.send.is_active()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arena;
    use weir_model::{Bytes, Memory};

    #[test]
    fn only_clients_of_unix_sockets_are_blocked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let mut arena = Arena::new(Bytes::kib(64)).expect("memory");
        let buffer = arena.take(Bytes::kib(4)).expect("a buffer");
        let mut sockets = Sockets::default();
        let unix = sockets.listen(&Listen::private(path.clone())).expect("a unix socket");
        let tcp = sockets.listen(&Listen::Tcp(([127, 0, 0, 1], 0).into())).expect("a TCP socket");
        let address = sockets.address(tcp).expect("its address");
        for (listener, blocks) in [(unix, true), (tcp, false), (unix, true)] {
            let _client: OwnedFd = match blocks {
                true => std::os::unix::net::UnixStream::connect(&path).expect("a client").into(),
                false => std::net::TcpStream::connect(address).expect("a client").into(),
            };
            let listening = sockets.listener(listener).expect("it listens");
            let socket = rustix::net::accept(listening.socket()).expect("a client");
            let accepted = sockets.accepted(listener, socket);
            let Some(Event::Accepted { conn, .. }) = accepted else { panic!("it is not accepted") };
            assert!(sockets.begin_recv(conn, &[buffer], ReceiveMode::Any, arena.region()));
            let index = conn.index() as u32;
            sockets.handle_transfer(index, Direction::In, 1, arena.region(), &mut Vec::new());
            assert_eq!(sockets.sender_blocks(), blocks);
        }
    }
}
