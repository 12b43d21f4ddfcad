//! Contents of a disk's read buffer: segments, and the one that the head is still filling by read-ahead.

use super::geometry::{Geometry, Place, Sector};
use std::collections::VecDeque;
use weir_model::Nanos;

/// Read-ahead in progress, described by an anchor: a value of the sequential clock and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// First sector kept.
    begin: Sector,
    anchor_clock: Nanos,
    anchor_time: Nanos,
    /// One past the last sector for which there is room.
    limit: Sector,
    limit_clock: Nanos,
}

impl Stream {
    /// Returns when the head passes a value of the sequential clock; this is in the past for buffered
    /// sectors.
    fn time_at(&self, clock: Nanos) -> Nanos {
        self.anchor_time + clock.since(self.anchor_clock)
    }
    /// Returns the sequential clock reached at `now`.
    pub(super) fn reached(&self, now: Nanos) -> Nanos {
        (self.anchor_clock + now.since(self.anchor_time)).min(self.limit_clock)
    }
    /// Returns when the room is used up and read-ahead stops.
    pub(super) fn end_time(&self) -> Nanos {
        self.time_at(self.limit_clock)
    }
}

/// The read buffer: the read-ahead in progress, and older segments.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    /// Sectors read ahead of the last request; also the sectors kept per segment.
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

    /// Starts read-ahead: a media read of `place` ended at `now`, having filled the buffer from `from`.
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

    /// Reports whether all of `place` is buffered at `now`. If the read-ahead in progress contains it,
    /// everything before it is dropped and read-ahead continues further.
    pub(super) fn hit(&mut self, geometry: &Geometry, now: Nanos, place: &Place) -> bool {
        let Some(stream) = self.stream.filter(|s| s.begin <= place.first && place.ends <= s.reached(now))
        else {
            return self.segments.iter().any(|&(begin, end)| begin <= place.first && place.end <= end);
        };
        let limit = stream.limit.max((place.end + self.ahead).min(geometry.sectors()));
        let limit_clock = geometry.place_sectors(limit - 1, limit).ends;
        let mut next = Stream { begin: place.first, limit, limit_clock, ..stream };
        if stream.end_time() <= now && limit > stream.limit {
            // Read-ahead had stopped: the next sector has to come around again.
            let resume = geometry.place_sectors(stream.limit, stream.limit + 1);
            next.anchor_clock = resume.begins;
            next.anchor_time = now + geometry.rotational_delay(now, resume.angle);
        }
        self.stream = Some(next);
        true
    }

    /// Returns when read-ahead will have read `place`, if by `from` the head has passed its beginning or will
    /// soon, and has not stopped.
    pub(super) fn continues(&self, geometry: &Geometry, from: Nanos, place: &Place) -> Option<Nanos> {
        let stream = self.stream.as_ref()?;
        let soon = from + Nanos(geometry.turn().0 / 2);
        let begun = stream.begin <= place.first && stream.time_at(place.begins) <= soon;
        (begun && from <= stream.end_time()).then(|| stream.time_at(place.ends).max(from))
    }

    /// Ends read-ahead at `now`, because the head moves: the sectors read become a segment.
    pub(super) fn stop(&mut self, geometry: &Geometry, now: Nanos) {
        let Some(stream) = self.stream.take() else { return };
        let end = geometry.sector_at(stream.reached(now)).min(stream.limit);
        self.add_segment(stream.begin, end);
    }

    /// Adds a segment with these sectors.
    pub(super) fn add_segment(&mut self, first: Sector, end: Sector) {
        self.segments.push_back((first, end));
        if self.segments.len() > self.segments_max {
            self.segments.pop_front();
        }
    }
}
