//! The table of device commands in flight, and the queue of those that wait to be handed out.

use crate::flight::{Flight, Purpose};
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use weir_model::{Buffer, DeviceId, DeviceOffset, Io, IoId, IoKind, Planted};

/// The parts of a joined command after the first.
pub(super) type Parts = SmallVec<[IoId; 4]>;

/// All device commands that have begun and not ended.
#[derive(Debug)]
pub(crate) struct Commands {
    flights: Slab<Flight>,
    /// Commands that wait to be handed out, in order.
    pub(super) queue: VecDeque<Io>,
    /// Joined commands in flight, by the id of their first part.
    pub(super) joined: FxHashMap<IoId, Parts>,
    /// Whether several queued commands may belong to one request; otherwise joining is not attempted.
    joinable: bool,
    pub(super) planted: Planted,
}

impl Commands {
    /// Creates an empty table.
    pub(crate) fn new(planted: Planted) -> Self {
        let (flights, queue, joined) = (Slab::new(), VecDeque::new(), FxHashMap::default());
        Self { flights, queue, joined, joinable: false, planted }
    }

    /// Queues a command.
    #[inline]
    pub(crate) fn send(&mut self, flight: Flight) {
        let Flight { device, at, buffer, .. } = flight;
        let kind = flight.command();
        let (at, buffer) =
            if kind == IoKind::Flush { (DeviceOffset(0), Buffer::EMPTY) } else { (at, buffer) };
        let id = IoId(self.flights.insert(flight) as u64);
        self.queue.push_back(Io { id, device, kind, at, buffer });
    }

    /// Enables joining: a request over several extents is about to begin.
    pub(crate) fn expect_parts(&mut self) {
        self.joinable = true;
    }

    /// Returns the next command for a device, joined with the waiting ones that continue it.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Io> {
        let io = self.queue.pop_front()?;
        if !self.joinable {
            return Some(io);
        }
        if self.queue.is_empty() {
            self.joinable = false;
            return Some(io);
        }
        Some(self.join(io))
    }

    /// Returns the other parts of the command, if it was joined. From then on each part stands alone.
    #[inline]
    pub(crate) fn take_parts(&mut self, id: IoId) -> Option<Parts> {
        if self.joined.is_empty() { None } else { self.joined.remove(&id) }
    }

    /// Returns the command with this id, if there is one.
    #[inline]
    pub(crate) fn get(&self, id: IoId) -> Option<&Flight> {
        self.flights.get(id.0 as usize)
    }

    /// Removes a command that has ended.
    ///
    /// # Panics
    /// Panics if no command has this id.
    #[inline]
    pub(crate) fn remove(&mut self, id: IoId) -> Flight {
        self.flights.remove(id.0 as usize)
    }

    /// Iterates over the commands in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().map(|(_, flight)| flight)
    }

    /// Returns the number of commands in flight.
    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether some commands wait to be handed out.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns all commands of a device, and those among them that were not handed out and never will be.
    pub(crate) fn drop_queued(&mut self, device: DeviceId) -> (Vec<IoId>, Vec<IoId>) {
        let unsent = self.queue.iter().filter(|io| io.device == device).map(|io| io.id).collect();
        self.queue.retain(|io| io.device != device);
        let of_device = self.flights.iter().filter(|(_, flight)| flight.device == device);
        (of_device.map(|(id, _)| IoId(id as u64)).collect(), unsent)
    }

    /// Marks the command as abandoned, and returns it with its purpose.
    pub(crate) fn abandon(&mut self, id: IoId) -> Flight {
        let flight = &mut self.flights[id.0 as usize];
        let purpose = std::mem::replace(&mut flight.purpose, Purpose::Abandoned);
        Flight { purpose, ..*flight }
    }

    /// Abandons all commands with a matching purpose.
    pub(crate) fn abandon_all(&mut self, is_for: impl Fn(&Purpose) -> bool) {
        let flights = self.flights.iter_mut().map(|(_, flight)| flight);
        flights
            .filter(|flight| is_for(&flight.purpose))
            .for_each(|flight| flight.purpose = Purpose::Abandoned);
    }
}
