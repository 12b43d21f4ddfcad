//! Counts a device's commands and its busy time.

use weir_model::{Bytes, IoKind, Nanos};

/// Cumulative counts of one device; differences give those of a period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    pub(crate) reads: Direction,
    pub(crate) writes: Direction,
    /// The metadata part of both.
    pub(crate) metadata_reads: Direction,
    pub(crate) metadata_writes: Direction,
    /// Time with at least one command in flight.
    pub(crate) busy: Nanos,
    /// Commands in flight, integrated over time: nanoseconds.
    pub(crate) queued: u64,
    in_flight: u64,
    /// Time up to which `busy` and `queued` are counted.
    counted_until: Nanos,
}

/// Commands in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Direction {
    pub(crate) count: u64,
    pub(crate) bytes: Bytes,
    /// Sum of their response times.
    pub(crate) response: Nanos,
}

impl Direction {
    fn add(&mut self, len: Bytes, response: Nanos) {
        self.count += 1;
        self.bytes += len;
        self.response += response;
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count - earlier.count,
            bytes: self.bytes - earlier.bytes,
            response: self.response - earlier.response,
        }
    }

    /// Returns the mean response time; zero without commands.
    pub(crate) fn mean(self) -> Nanos {
        Nanos(self.response.0.checked_div(self.count).unwrap_or(0))
    }
}

impl Meter {
    /// Accounts for the time that has passed.
    #[inline]
    pub(crate) fn advance(&mut self, now: Nanos) {
        let time = now.since(self.counted_until);
        if self.in_flight > 0 {
            self.busy += time;
            self.queued += time.0 * self.in_flight;
        }
        self.counted_until = self.counted_until.max(now);
    }

    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos) {
        self.advance(now);
        self.in_flight += 1;
    }

    #[inline]
    pub(crate) fn end(&mut self, now: Nanos, kind: IoKind, len: Bytes, response: Nanos, metadata: bool) {
        self.advance(now);
        self.in_flight -= 1;
        let (direction, of_metadata) = match kind {
            IoKind::Read => (&mut self.reads, &mut self.metadata_reads),
            IoKind::Write { .. } => (&mut self.writes, &mut self.metadata_writes),
            IoKind::Flush => return,
        };
        direction.add(len, response);
        if metadata {
            of_metadata.add(len, response);
        }
    }

    /// Returns the bytes of metadata read or written.
    pub(crate) fn metadata(&self) -> Bytes {
        self.metadata_reads.bytes + self.metadata_writes.bytes
    }

    /// Returns the difference to an earlier state.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.since(earlier.reads),
            writes: self.writes.since(earlier.writes),
            metadata_reads: self.metadata_reads.since(earlier.metadata_reads),
            metadata_writes: self.metadata_writes.since(earlier.metadata_writes),
            busy: self.busy - earlier.busy,
            queued: self.queued - earlier.queued,
            ..*self
        }
    }
}
