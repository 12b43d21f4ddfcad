//! The device commands under way: a table of what each is for, and those that wait to be handed out.

use crate::flight::{Flight, Purpose};
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use weir_model::{Buffer, DeviceId, DeviceOffset, Io, IoId, IoKind, Planted};

/// The parts of a joined command behind its first.
pub(super) type Parts = SmallVec<[IoId; 4]>;

/// All device commands that have begun and not ended.
#[derive(Debug)]
pub(crate) struct Commands {
    flights: Slab<Flight>,
    /// Those that wait to be handed out, in order.
    pub(super) queue: VecDeque<Io>,
    /// Joined commands that have not ended, by the id of their first part.
    pub(super) joined: FxHashMap<IoId, Parts>,
    /// Among the commands that wait may be several of one request: without, none is joined.
    hopeful: bool,
    pub(super) planted: Planted,
}

impl Commands {
    /// None.
    pub(crate) fn new(planted: Planted) -> Self {
        let (flights, queue, joined) = (Slab::new(), VecDeque::new(), FxHashMap::default());
        Self { flights, queue, joined, hopeful: false, planted }
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

    /// A request over several extents is about to begin.
    pub(crate) fn expect_parts(&mut self) {
        self.hopeful = true;
    }

    /// The next command for a device, joined with those waiting that continue it.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Io> {
        let io = self.queue.pop_front()?;
        if !self.hopeful {
            return Some(io);
        }
        if self.queue.is_empty() {
            self.hopeful = false;
            return Some(io);
        }
        Some(self.join(io))
    }

    /// The other parts of the command, if it was joined. From now on each is one for itself.
    #[inline]
    pub(crate) fn take_parts(&mut self, id: IoId) -> Option<Parts> {
        if self.joined.is_empty() { None } else { self.joined.remove(&id) }
    }

    /// What the command is for, if there is one of this id.
    #[inline]
    pub(crate) fn get(&self, id: IoId) -> Option<&Flight> {
        self.flights.get(id.0 as usize)
    }

    /// The command has ended.
    ///
    /// # Panics
    /// If there is none of this id.
    #[inline]
    pub(crate) fn remove(&mut self, id: IoId) -> Flight {
        self.flights.remove(id.0 as usize)
    }

    /// What the commands under way are for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().map(|(_, flight)| flight)
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether some wait to be handed out.
    pub(crate) fn any_wait(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The commands of a device; and those among them that had not been handed out, and never will be.
    pub(crate) fn give_up(&mut self, device: DeviceId) -> (Vec<IoId>, Vec<IoId>) {
        let unsent = self.queue.iter().filter(|io| io.device == device).map(|io| io.id).collect();
        self.queue.retain(|io| io.device != device);
        let of_device = self.flights.iter().filter(|(_, flight)| flight.device == device);
        (of_device.map(|(id, _)| IoId(id as u64)).collect(), unsent)
    }

    /// Nobody waits for the command any more; what it was.
    pub(crate) fn abandon(&mut self, id: IoId) -> Flight {
        let flight = &mut self.flights[id.0 as usize];
        let purpose = std::mem::replace(&mut flight.purpose, Purpose::Abandoned);
        Flight { purpose, ..*flight }
    }

    /// Nobody waits any more for those that are for this.
    pub(crate) fn abandon_all(&mut self, is_for: impl Fn(&Purpose) -> bool) {
        let flights = self.flights.iter_mut().map(|(_, flight)| flight);
        flights
            .filter(|flight| is_for(&flight.purpose))
            .for_each(|flight| flight.purpose = Purpose::Abandoned);
    }
}
