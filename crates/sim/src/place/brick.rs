//! A brick: a drive that several hosts share, each in a partition of its own. All commands wait in the same
//! queue.

use slab::Slab;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::Timing;

/// A drive with a queue of completions for each port.
struct Brick {
    drive: Box<dyn Timing>,
    ports: Vec<PortQueue>,
    /// Commands in flight: their ports, and their ids there.
    in_flight: Slab<(usize, IoId)>,
}

/// The commands of a port.
#[derive(Default)]
struct PortQueue {
    /// Number of commands that the drive has not completed.
    in_flight: usize,
    /// Completed commands, and when.
    done: VecDeque<(Nanos, IoId)>,
}

impl Brick {
    /// Sorts the completions up to `now` by port.
    fn advance(&mut self, now: Nanos) {
        while let Some(next) = self.drive.next().filter(|next| *next <= now) {
            while let Some(id) = self.drive.pop(next) {
                let (port, own) = self.in_flight.remove(id.0 as usize);
                self.ports[port].in_flight -= 1;
                self.ports[port].done.push_back((next, own));
            }
        }
    }
}

/// A host's access to its partition of a brick. All hosts of a brick must be advanced to the same times.
pub(super) struct Port {
    brick: Arc<Mutex<Brick>>,
    number: usize,
    /// Start of the partition.
    start: Bytes,
}

impl Port {
    /// Makes a brick of an idle drive, with partitions of these sizes, one after the other.
    pub(super) fn share(drive: Box<dyn Timing>, partitions: &[Bytes]) -> Vec<Self> {
        let ports = partitions.iter().map(|_| PortQueue::default()).collect();
        let brick = Arc::new(Mutex::new(Brick { drive, ports, in_flight: Slab::new() }));
        let mut end = Bytes(0);
        let port = |(number, size): (usize, &Bytes)| {
            let start = end;
            end += *size;
            Self { brick: Arc::clone(&brick), number, start }
        };
        partitions.iter().enumerate().map(port).collect()
    }

    fn brick(&self) -> MutexGuard<'_, Brick> {
        self.brick.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timing for Port {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes) {
        let mut brick = self.brick();
        brick.advance(now);
        let number = brick.in_flight.insert((self.number, id));
        brick.ports[self.number].in_flight += 1;
        brick.drive.submit(now, IoId(number as u64), kind, at + self.start, len);
    }

    fn next(&self) -> Option<Nanos> {
        let brick = self.brick();
        let queue = &brick.ports[self.number];
        match queue.done.front() {
            Some((at, _)) => Some(*at),
            None => brick.drive.next().filter(|_| queue.in_flight > 0),
        }
    }

    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        let mut brick = self.brick();
        brick.advance(now);
        let done = &mut brick.ports[self.number].done;
        done.front().filter(|(at, _)| *at <= now)?;
        done.pop_front().map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(name: &str) -> Vec<Port> {
        let size = Bytes::gib(1);
        let drive = weir_timing::model(name, Bytes(2 * size.0), weir_world::flash_log).expect("a model");
        Port::share(drive, &[size, size])
    }

    /// Submits so many reads on each port and returns when the last one of each is done.
    fn last(ports: &mut [Port], reads: [u64; 2]) -> [Nanos; 2] {
        for (port, count) in ports.iter_mut().zip(reads) {
            for i in 0..count {
                let at = DeviceOffset((i * 7919 % 200_000) * 4096);
                port.submit(Nanos(0), IoId(i), IoKind::Read, at, Bytes::kib(4));
            }
        }
        let (mut last, mut seen) = ([Nanos(0); 2], [0; 2]);
        while let Some(now) = ports.iter().filter_map(Timing::next).min() {
            for (i, port) in ports.iter_mut().enumerate() {
                while port.pop(now).is_some() {
                    last[i] = now;
                    seen[i] += 1;
                }
            }
        }
        assert_eq!(seen, reads, "each command completes once, at its own port");
        last
    }

    #[test]
    fn hosts_wait_in_the_same_queue() {
        let alone = last(&mut ports("hdd-15k"), [40, 0]);
        let both = last(&mut ports("hdd-15k"), [40, 40]);
        assert_eq!(alone[1], Nanos(0));
        assert!(both[0].0 > alone[0].0 * 3 / 2 && both[1] > alone[0], "{alone:?} {both:?}");
    }

    #[test]
    fn partitions_are_apart() {
        let mut ports = ports("hdd-15k");
        // The same offset in both partitions: the second read is a seek away, and no cache hit.
        for port in &mut ports {
            port.submit(Nanos(0), IoId(0), IoKind::Read, DeviceOffset(0), Bytes::kib(4));
        }
        let mut times = Vec::new();
        while let Some(now) = ports.iter().filter_map(Timing::next).min() {
            times.extend(ports.iter_mut().filter_map(|port| port.pop(now)).map(|_| now));
        }
        assert!(times[1] - times[0] > Nanos::millis(1), "{times:?}");
    }
}
