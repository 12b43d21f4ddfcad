//! Connections: their state, shared by both rings. How they come to be is in `listen`.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use weir_model::{Buffer, ConnId, Errno, Fill, IoError};

use super::Event;
use super::listen::Listener;
use super::transfer::{Progress, Transfer};
use crate::DeviceError;
use crate::arena::{Lent, Region};

pub use super::listen::{Listen, SocketAccess};

/// A place the reactor listens at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(super) u32);

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
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
}

impl Conn {
    pub(super) fn transfer(&mut self, way: Way) -> &mut Transfer {
        match way {
            Way::In => &mut self.recv,
            Way::Out => &mut self.send,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    /// Boxed: the kernel holds pointers into the transfers.
    conn: Option<Box<Conn>>,
}

/// All connections and listeners.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    listeners: Vec<Option<Listener>>,
}

impl Sockets {
    pub(super) fn listen(&mut self, at: &Listen) -> Result<ListenerId, DeviceError> {
        self.listeners.push(Some(Listener::bind(at)?));
        Ok(ListenerId(self.listeners.len() as u32 - 1))
    }

    pub(super) fn address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.listeners.get(listener.0 as usize)?.as_ref()?.address()
    }

    /// The open listeners and their sockets.
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

    /// A client came.
    pub(super) fn accepted(&mut self, listener: ListenerId, socket: OwnedFd) -> Option<Event> {
        let at = self.listener(listener)?;
        at.tune(&socket);
        let peer = at.peer(&socket);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let new = Conn { socket, recv: Transfer::default(), send: Transfer::default(), closing: false };
        slot.conn = Some(Box::new(new));
        let conn = ConnId::new(index, slot.generation);
        Some(Event::Accepted { listener, conn, peer })
    }

    /// A connection that has not been closed.
    fn open(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(id.index())?;
        let conn = slot.conn.as_deref_mut()?;
        (slot.generation == id.generation() && !conn.closing).then_some(conn)
    }

    /// The connection a backend's command was for: there is one as long as a command is in flight.
    pub(super) fn at(&mut self, index: u32) -> Option<&mut Conn> {
        self.slots.get_mut(index as usize)?.conn.as_deref_mut()
    }

    /// Every connection with the number a backend knows it by.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Conn)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.conn.as_deref()?)))
    }

    /// Every connection, by its full name.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        let named = |index: u32| ConnId::new(index, self.slots[index as usize].generation);
        self.all().map(|(index, _)| named(index)).collect()
    }

    /// Prepares a receive; false if there is nobody to receive from.
    pub(super) fn begin_recv(&mut self, id: ConnId, into: &[Buffer], fill: Fill, region: &Region) -> bool {
        let Some(conn) = self.open(id) else { return false };
        conn.recv.begin(into, fill == Fill::Whole, region, Lent::Changed);
        true
    }

    /// Prepares a send; false if there is nobody to send to.
    pub(super) fn begin_send(&mut self, id: ConnId, parts: &[Buffer], region: &Region) -> bool {
        let Some(conn) = self.open(id) else { return false };
        conn.send.begin(parts, true, region, Lent::Read);
        true
    }

    /// Sends what the socket takes at once; true if the rest is the backend's.
    pub(super) fn send_now(&mut self, id: ConnId, region: &Region, ready: &mut Vec<Event>) -> bool {
        let Some(conn) = self.open(id) else { return false };
        let answer = conn.send.try_send(conn.socket.as_fd());
        self.moved(id.index() as u32, Way::Out, answer, region, ready)
    }

    /// Notes what a transfer's system call answered (bytes, or a negated error number), and
    /// reports its end; true if it has to go on.
    pub(super) fn moved(
        &mut self,
        index: u32,
        way: Way,
        answer: i32,
        region: &Region,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(index as usize) else { return false };
        let Some(conn) = slot.conn.as_deref_mut() else { return false };
        let id = ConnId::new(index, slot.generation);
        let result = match conn.transfer(way).moved(answer) {
            Progress::Again if !conn.closing => return true,
            Progress::Again => Err(IoError::Os(Errno::ECANCELED)),
            Progress::Over(result) => result,
        };
        conn.transfer(way).end(region);
        if !conn.closing {
            events.push(match way {
                Way::In => Event::Received { conn: id, result },
                Way::Out => Event::Sent { conn: id, result: result.map(drop) },
            });
        } else if conn.is_idle() {
            self.remove(index, events);
        }
        false
    }

    /// Those whose peer has closed its end.
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
        // Errors (none is to be expected) leave every connection as it is: it will be told at its next receive.
        if rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok() {
            let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            let ids = ids.into_iter().zip(&polled);
            gone.extend(ids.filter(|(_, fd)| fd.revents().intersects(ended)).map(|(id, _)| id));
        }
    }

    /// Whether a receive is in flight on an open connection.
    pub(super) fn is_receiving(&mut self, id: ConnId) -> bool {
        self.open(id).is_some_and(|conn| conn.recv.is_active())
    }

    /// Starts the end of a connection; true if commands in flight must be cancelled first.
    pub(super) fn begin_close(&mut self, id: ConnId, ready: &mut Vec<Event>) -> bool {
        let Some(conn) = self.open(id) else { return false };
        conn.closing = true;
        if conn.is_idle() {
            self.remove(id.index() as u32, ready);
            return false;
        }
        // Ends a receive or send in flight by itself; fails only if the peer was faster.
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

    /// Whether no connection has a command in flight.
    pub(super) fn are_idle(&self) -> bool {
        self.all().all(|(_, conn)| conn.is_idle())
    }
}

impl Conn {
    fn is_idle(&self) -> bool {
        !self.recv.is_active() && !self.send.is_active()
    }
}
