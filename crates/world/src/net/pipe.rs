//! One direction of a simulated connection: bytes that were sent and not yet received.

use std::collections::VecDeque;
use weir_model::Nanos;

/// A byte queue with a capacity and a delay, like a socket's buffer.
#[derive(Debug)]
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    /// Number of bytes that the receiver can take.
    arrived: usize,
    /// The other bytes: arrival times and counts.
    in_flight: VecDeque<(Nanos, usize)>,
    capacity: usize,
    delay: Nanos,
    has_ended: bool,
}

impl Pipe {
    /// Creates an empty pipe with this capacity and delay.
    pub(super) const fn new(capacity: usize, delay: Nanos) -> Self {
        let bytes = VecDeque::new();
        Self { bytes, arrived: 0, in_flight: VecDeque::new(), capacity, delay, has_ended: false }
    }

    /// Returns how many bytes it accepts now.
    pub(super) fn space(&self) -> usize {
        if self.has_ended { 0 } else { self.capacity.saturating_sub(self.bytes.len()) }
    }

    /// Sends as many of the bytes as fit; returns how many.
    pub(super) fn put(&mut self, now: Nanos, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.space());
        if len > 0 {
            self.bytes.extend(&bytes[..len]);
            self.in_flight.push_back((now + self.delay, len));
            self.arrive(now);
        }
        len
    }

    /// Ends the stream; bytes already sent still arrive.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Delivers the bytes that are due by now.
    pub(super) fn arrive(&mut self, now: Nanos) {
        while let Some(&(_, len)) = self.in_flight.front().filter(|(due, _)| *due <= now) {
            self.arrived += len;
            self.in_flight.pop_front();
        }
    }

    /// Returns when more bytes arrive.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.in_flight.front().map(|(due, _)| *due)
    }

    /// Returns how many bytes can be taken.
    pub(super) const fn available(&self) -> usize {
        self.arrived
    }

    /// Reports whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reports whether nothing more will arrive.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended && self.bytes.is_empty()
    }

    /// Takes the first bytes that have arrived; returns how many.
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let len = into.len().min(self.arrived);
        let (front, back) = self.bytes.as_slices();
        let of_front = len.min(front.len());
        into[..of_front].copy_from_slice(&front[..of_front]);
        into[of_front..len].copy_from_slice(&back[..len - of_front]);
        self.bytes.drain(..len);
        self.arrived -= len;
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_after_delay() {
        let mut pipe = Pipe::new(4, Nanos(10));
        assert_eq!((pipe.put(Nanos(0), b"abcdef"), pipe.space()), (4, 0));
        assert_eq!((pipe.available(), pipe.next()), (0, Some(Nanos(10))));
        pipe.arrive(Nanos(10));
        let mut bytes = [0; 3];
        assert_eq!((pipe.take(&mut bytes), &bytes, pipe.space()), (3, b"abc", 3));
        assert_eq!(pipe.put(Nanos(11), b"ef"), 2);
        pipe.end();
        assert_eq!((pipe.space(), pipe.put(Nanos(12), b"g")), (0, 0));
        assert_eq!((pipe.take(&mut bytes), bytes[0]), (1, b'd'));
        assert!(!pipe.is_over());
        pipe.arrive(Nanos(21));
        assert_eq!((pipe.take(&mut bytes), &bytes[..2]), (2, &b"ef"[..]));
        assert!(pipe.is_over());
    }
}
