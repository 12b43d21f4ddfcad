//! What a disk's buffer holds of what it has read: segments, and the one the head is still
//! filling because it reads on after a request.

use super::geometry::{Geometry, Place, Sector};
use std::collections::VecDeque;
use weir_model::Nanos;

/// The head reads on from an anchor: the sequential clock's value at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// First sector kept.
    begin: Sector,
    anchor_clock: Nanos,
    anchor_time: Nanos,
    /// One past the last sector there is room for.
    limit: Sector,
    limit_clock: Nanos,
}

impl Stream {
    /// When the head has passed a value of the sequential clock; past for what is buffered.
    fn time_at(&self, clock: Nanos) -> Nanos {
        self.anchor_time + clock.since(self.anchor_clock)
    }
    /// The sequential clock reached at `now`.
    pub(super) fn reached(&self, now: Nanos) -> Nanos {
        (self.anchor_clock + now.since(self.anchor_time)).min(self.limit_clock)
    }
    /// When the room is used up and the head stands still.
    pub(super) fn stops(&self) -> Nanos {
        self.time_at(self.limit_clock)
    }
}

/// The read buffer: a running stream, and older segments.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    /// Sectors read ahead of the last request, and kept per segment.
    ahead: u64,
    segments_max: usize,
    segments: VecDeque<(Sector, Sector)>,
    stream: Option<Stream>,
}

impl ReadBuffer {
    pub(super) fn new(ahead: u64, segments: usize) -> Self {
        Self { ahead, segments_max: segments, segments: VecDeque::with_capacity(segments + 1), stream: None }
    }

    pub(super) fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// A media read of `place` ended at `now`, having begun to fill the buffer at `from`, and the
    /// head reads on.
    pub(super) fn read(&mut self, geometry: &Geometry, now: Nanos, place: &Place, from: Sector) {
        let limit = (place.end + self.ahead).min(geometry.sectors());
        self.stream = Some(Stream {
            begin: from.min(place.first),
            anchor_clock: place.ends,
            anchor_time: now,
            limit,
            limit_clock: geometry.place_sectors(limit - 1, limit).ends,
        });
    }

    /// Whether all of `place` is buffered at `now`. If the running stream has it, what lies
    /// before it is dropped and the head reads on further.
    pub(super) fn hit(&mut self, geometry: &Geometry, now: Nanos, place: &Place) -> bool {
        let Some(stream) = self.stream.filter(|s| s.begin <= place.first && place.ends <= s.reached(now))
        else {
            return self.segments.iter().any(|&(begin, end)| begin <= place.first && place.end <= end);
        };
        let limit = stream.limit.max((place.end + self.ahead).min(geometry.sectors()));
        let limit_clock = geometry.place_sectors(limit - 1, limit).ends;
        let mut next = Stream { begin: place.first, limit, limit_clock, ..stream };
        if stream.stops() <= now && limit > stream.limit {
            // It stood still: the next sector has to come around again.
            let resume = geometry.place_sectors(stream.limit, stream.limit + 1);
            next.anchor_clock = resume.begins;
            next.anchor_time = now + geometry.rotation(now, resume.angle);
        }
        self.stream = Some(next);
        true
    }

    /// When the stream will have read `place`, if by `from` the head has passed its beginning or
    /// will soon, and has not stopped.
    pub(super) fn continues(&self, geometry: &Geometry, from: Nanos, place: &Place) -> Option<Nanos> {
        let stream = self.stream.as_ref()?;
        let soon = from + Nanos(geometry.turn().0 / 2);
        let begun = stream.begin <= place.first && stream.time_at(place.begins) <= soon;
        (begun && from <= stream.stops()).then(|| stream.time_at(place.ends).max(from))
    }

    /// The head goes elsewhere at `now`: what was read becomes a segment.
    pub(super) fn stop(&mut self, geometry: &Geometry, now: Nanos) {
        let Some(stream) = self.stream.take() else { return };
        let end = geometry.sector_at(stream.reached(now)).min(stream.limit);
        self.keep(stream.begin, end);
    }

    /// These sectors are in the buffer: a segment of their own.
    pub(super) fn keep(&mut self, first: Sector, end: Sector) {
        self.segments.push_back((first, end));
        if self.segments.len() > self.segments_max {
            self.segments.pop_front();
        }
    }
}
