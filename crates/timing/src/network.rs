//! Model of a device behind a network: a random delay and a shared bandwidth in each direction.
//!
//! - A **command** travels to the device, a write with its data. There it takes the device's time. The reply
//!   travels back, a read's with its data.
//! - **Order** is kept in each direction, as on one connection.
//! - The **delay** of each message is drawn from a table of quantiles by the model's own random generator, so
//!   that it is the same in every run.
//!
//! Not modelled: packet loss (it appears as a long tail in the table), other traffic, segmentation of
//! messages into packets.

use crate::Timing;
use crate::completions::Completions;
use crate::pipe::{Pipe, duration};
use std::collections::{BTreeMap, VecDeque};
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

/// Parameters of a network.
#[derive(Clone, Debug)]
pub struct NetworkParams {
    /// One-way delay as quantiles: this many of a thousand messages take no longer than this. Ascending in
    /// both; linear between two entries, constant beyond the last.
    pub delay: Vec<(u32, Nanos)>,
    /// Bandwidth in each direction, in bytes per second.
    pub rate: Bytes,
    /// Bytes of a message in addition to its data.
    pub header: Bytes,
}

/// Timing of a device behind a network. Cost per command, in addition to the device's: one heap operation and
/// two of a tree.
pub struct Network {
    params: NetworkParams,
    device: Box<dyn Timing>,
    outbound: Direction,
    inbound: Direction,
    /// Commands in flight to the device, in order of arrival.
    arriving: VecDeque<ArrivingCommand>,
    /// Data bytes of the replies to commands at the device.
    reply_bytes: BTreeMap<IoId, Bytes>,
    completions: Completions,
    delays: Delays,
}

/// Draws the delays of messages from a table of quantiles.
#[derive(Clone, Debug)]
struct Delays {
    table: Vec<(u32, Nanos)>,
    random: u64,
}

/// Round trips of messages without data over a network, one after the other. They take no part in the
/// traffic of a [`Network`].
#[derive(Clone, Debug)]
pub struct RoundTrips {
    delays: Delays,
    /// Time of a message on the wire.
    wire_time: Nanos,
}

impl RoundTrips {
    /// Creates the sequence of round trips that `seed` determines.
    pub fn new(params: &NetworkParams, seed: u64) -> Self {
        let delays = Delays { table: params.delay.clone(), random: seed };
        Self { delays, wire_time: duration(params.header, params.rate) }
    }
}

impl Iterator for RoundTrips {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        Some(self.delays.next() + self.delays.next() + self.wire_time + self.wire_time)
    }
}

/// One direction of the connection.
#[derive(Debug, Default)]
struct Direction {
    pipe: Pipe,
    /// Arrival of the last message.
    last: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct ArrivingCommand {
    arrives: Nanos,
    id: IoId,
    kind: IoKind,
    at: DeviceOffset,
    len: Bytes,
}

impl Direction {
    /// Sends a message now and returns its arrival time.
    fn send(&mut self, now: Nanos, wire_time: Nanos, delay: Nanos) -> Nanos {
        self.last = self.last.max(self.pipe.pass(now, wire_time) + delay);
        self.last
    }
}

impl Delays {
    /// Draws the delay of the next message.
    fn next(&mut self) -> Nanos {
        const ALL: u64 = 1_000_000;
        let drawn = self.next_random() % ALL;
        let share = |entry: &(u32, Nanos)| u64::from(entry.0) * (ALL / 1000);
        let table = &self.table;
        let next = table.partition_point(|entry| share(entry) <= drawn);
        let (Some(before), Some(after)) = (next.checked_sub(1).map(|i| table[i]), table.get(next)) else {
            return table.get(next).or(table.last()).map_or(Nanos(0), |entry| entry.1);
        };
        let (from, to) = (share(&before), share(after));
        let grown = (after.1 - before.1).0 * (drawn - from) / (to - from).max(1);
        before.1 + Nanos(grown)
    }

    /// Returns the next random word (SplitMix64).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Network {
    /// Creates an idle network in front of this device.
    pub fn new(params: &NetworkParams, device: Box<dyn Timing>) -> Self {
        Self {
            params: params.clone(),
            device,
            outbound: Direction::default(),
            inbound: Direction::default(),
            arriving: VecDeque::new(),
            reply_bytes: BTreeMap::new(),
            completions: Completions::default(),
            delays: Delays { table: params.delay.clone(), random: 0 },
        }
    }

    fn wire_time(&self, data: Bytes) -> Nanos {
        duration(data + self.params.header, self.params.rate)
    }

    /// Processes arrivals at the device and its completions up to `to`, in order.
    fn advance(&mut self, to: Nanos) {
        loop {
            let arrival = self.arriving.front().map(|command| command.arrives);
            let device = self.device.next();
            match (arrival, device) {
                (Some(at), due) if at <= to && due.is_none_or(|due| at < due) => self.arrive(),
                (_, Some(due)) if due <= to => self.answer(due),
                _ => return,
            }
        }
    }

    fn arrive(&mut self) {
        let Some(ArrivingCommand { arrives, id, kind, at, len }) = self.arriving.pop_front() else { return };
        let carried = if kind == IoKind::Read { len } else { Bytes(0) };
        self.reply_bytes.insert(id, carried);
        self.device.submit(arrives, id, kind, at, len);
    }

    fn answer(&mut self, due: Nanos) {
        while let Some(id) = self.device.pop(due) {
            let carried = self.reply_bytes.remove(&id).unwrap_or_default();
            let (wire_time, delay) = (self.wire_time(carried), self.delays.next());
            self.completions.push(self.inbound.send(due, wire_time, delay), id);
        }
    }
}

impl Timing for Network {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes) {
        self.advance(now);
        let carries = if matches!(kind, IoKind::Write { .. }) { len } else { Bytes(0) };
        let (wire_time, delay) = (self.wire_time(carries), self.delays.next());
        let arrives = self.outbound.send(now, wire_time, delay);
        self.arriving.push_back(ArrivingCommand { arrives, id, kind, at, len });
    }

    fn next(&self) -> Option<Nanos> {
        let arrival = self.arriving.front().map(|command| command.arrives);
        [arrival, self.device.next(), self.completions.next()].into_iter().flatten().min()
    }

    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        self.advance(now);
        self.completions.pop(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::tests::{Load, drive};

    fn remote(delay: Vec<(u32, Nanos)>, rate: Bytes) -> Network {
        let params = NetworkParams { delay, rate, header: Bytes(64) };
        Network::new(&params, model("nvm", Bytes::gib(1), crate::ssd::without_collection).expect("a model"))
    }

    #[test]
    fn round_trip_adds_to_service_time() {
        let mut network = remote(vec![(0, Nanos::millis(2))], Bytes::gib(10));
        let load = Load { count: 100, ..Load::reads(Bytes::gib(1)) };
        let mean = 1.0 / drive(&mut network, &load).per_second();
        assert!((0.004..0.004_01).contains(&mean), "{mean}");
    }

    #[test]
    fn delays_follow_quantile_table() {
        let table = vec![(0, Nanos::micros(100)), (500, Nanos::micros(200)), (1000, Nanos::millis(1))];
        let mut network = remote(table, Bytes::gib(10));
        let mut drawn: Vec<_> = (0..100_000).map(|_| network.delays.next()).collect();
        drawn.sort_unstable();
        let at = |share: usize| drawn[share * 1000].0 as f64 / 1e3;
        for (share, wanted) in [(0, 100.0), (25, 150.0), (50, 200.0), (75, 600.0), (99, 984.0)] {
            assert!((at(share) / wanted - 1.0).abs() < 0.03, "{share} %: {} us", at(share));
        }
    }

    /// Least, mean and greatest round trip, and the standard deviation, in milliseconds: table VI of the
    /// experiments on user-optimal migration.
    #[test]
    fn round_trips_are_as_published() {
        let published = [
            ("remote-10k-9ms", [4.3, 9.0, 18.5, 2.3]),
            ("remote-10k-17ms", [12.4, 17.0, 24.3, 2.2]),
            ("remote-10k-25ms", [20.5, 25.0, 32.2, 2.2]),
        ];
        for (name, [least, mean, most, deviation]) in published {
            let known = crate::drives::drive(name).map(|drive| &drive.kind);
            let Some(crate::drives::DriveKind::Remote(params, _)) = known else {
                panic!("{name} is not remote")
            };
            let trips: Vec<_> =
                RoundTrips::new(params, 7).take(100_000).map(|trip| trip.as_secs_f64() * 1e3).collect();
            let average = trips.iter().sum::<f64>() / trips.len() as f64;
            let squares = trips.iter().map(|trip| (trip - average).powi(2)).sum::<f64>();
            assert!((average - mean).abs() < 0.05, "{name}: {average}");
            assert!(((squares / trips.len() as f64).sqrt() - deviation).abs() < 0.05, "{name}");
            assert!(trips.iter().all(|trip| (least..most + 0.05).contains(trip)), "{name}");
            let again = RoundTrips::new(params, 7).next().map(|trip| trip.as_secs_f64() * 1e3);
            assert_eq!(again, trips.first().copied(), "the seed determines it");
        }
    }

    #[test]
    fn all_commands_share_the_bandwidth_of_a_direction() {
        let mut network = remote(vec![(0, Nanos::millis(1))], Bytes(100_000_000));
        let load = Load { depth: 64, count: 5_000, len: Bytes::kib(64), ..Load::reads(Bytes::gib(1)) };
        let rate = drive(&mut network, &load).per_second() * 65_536.0;
        assert!((97e6..100e6).contains(&rate), "{rate} bytes a second");
        // Both directions at the same time.
        let mut network = remote(vec![(0, Nanos::millis(1))], Bytes(100_000_000));
        let both = drive(&mut network, &Load { random_writes: 50, ..load }).per_second() * 65_536.0;
        assert!((170e6..200e6).contains(&both), "{both} bytes a second");
    }
}
