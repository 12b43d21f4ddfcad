//! Model of a hard disk: one arm over rotating platters, a scheduler, a read buffer and a write cache.
//!
//! - **Positioning** is a seek by cylinder distance (a measured curve), then the rotational delay until the
//!   sector arrives, from its true angle at that time; **transfer** depends on the zone, with the skew at
//!   every track boundary. `geometry.rs` has the arithmetic.
//! - **The arm** does one thing at a time. Whenever it becomes free, it takes, among the oldest commands in
//!   the queue, the one it can begin soonest. Waiting time counts in a command's favour, so that none waits
//!   much more than a second longer than younger ones.
//! - **Reads** are followed by read-ahead until another command needs the arm, so that sequential reads run
//!   at the media rate although each command has an overhead.
//! - **Writes** complete when they are in the cache, at the link's speed, while there is room; then they wait
//!   for room, and so for the arm. The arm writes the cache out when it is otherwise idle, and alternates
//!   with the queue when the cache is half full or a FLUSH waits.
//! - **FLUSH** waits until the cache contents at its submission are on the media; **FUA** writes directly to
//!   the media.

use crate::completions::Completions;
use crate::pipe::{Pipe, duration};
use crate::{Timing, WriteCache};
use geometry::{Geometry, Place, Sector, SeekCurve, Track};
use read_buffer::ReadBuffer;
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos, SECTOR};
use write_cache::{DirtyRuns, Stamp};

mod geometry;
mod params;
mod read_buffer;
mod write_cache;

pub use params::{DiskParams, Overheads, Zone};

/// A command that needs the arm.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: IoId,
    write: bool,
    place: Place,
    len: Bytes,
    arrived: Nanos,
    /// The controller's time for it, if it does not need the arm.
    overhead: Nanos,
    /// Earliest time at which the arm may start moving for it.
    ready: Nanos,
}

/// The current job of the arm.
#[derive(Clone, Copy, Debug)]
struct Job {
    /// Start of the media transfer.
    begins: Nanos,
    ends: Nanos,
    place: Place,
    work: Work,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    /// A read. It also fills the buffer, from a sector at or before its first.
    Read {
        id: IoId,
        len: Bytes,
        from: Sector,
    },
    Write(IoId),
    /// Write-out of a run of the write cache.
    WriteOut,
}

/// Timing of a command's execution.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// When the head is on the track.
    on_track: Nanos,
    /// When the transfer begins.
    begins: Nanos,
    ends: Nanos,
    /// True if the command is served by the head's read-ahead, without positioning.
    is_read_ahead: bool,
}

/// Position of the head.
#[derive(Clone, Copy, Debug)]
struct Head {
    track: Track,
    sector: Sector,
}

/// Weight of waiting time against positioning time: a command that has waited 640 ms longer may take 10 ms
/// longer to reach.
const WAIT_WEIGHT: u64 = 64;

/// Every this many write-outs, the arm writes the oldest run of the cache, wherever it is.
const OLDEST_INTERVAL: u32 = 32;

/// Timing of a disk. Cost: one to three microseconds per command at queue depth 32.
#[derive(Debug)]
pub struct Disk {
    params: DiskParams,
    cache: WriteCache,
    geometry: Geometry,
    seek: SeekCurve,
    /// Latest time passed to the model.
    clock: Nanos,
    /// Position of the head at the end of the arm's last job.
    head: Head,
    job: Option<Job>,
    /// True if the last job was a write-out.
    was_write_out: bool,
    /// Number of write-outs so far.
    write_outs: u32,
    /// Commands that need the arm, oldest first.
    queue: VecDeque<Pending>,
    buffer: ReadBuffer,
    dirty: DirtyRuns,
    /// Writes that do not fit into the cache, oldest first.
    throttled: VecDeque<Pending>,
    flushes: VecDeque<(IoId, Stamp)>,
    /// End of the last write.
    write_end: Sector,
    link: Pipe,
    done: Completions,
}

impl Disk {
    /// Creates an idle disk with the drive's zones, stroke and rates, and this capacity.
    pub fn new(params: &DiskParams, capacity: Bytes, cache: WriteCache) -> Self {
        Self {
            params: params.clone(),
            cache,
            geometry: Geometry::new(params, capacity),
            seek: SeekCurve::new(&params.seek),
            clock: Nanos(0),
            head: Head { track: Track { number: 0, cylinder: 0 }, sector: 0 },
            job: None,
            was_write_out: false,
            write_outs: 0,
            queue: VecDeque::new(),
            buffer: ReadBuffer::new(params.segment.0 / SECTOR, params.segments),
            dirty: DirtyRuns::new(params.write_cache, params.segment, params.write_runs),
            throttled: VecDeque::new(),
            flushes: VecDeque::new(),
            write_end: Sector::MAX,
            link: Pipe::default(),
            done: Completions::default(),
        }
    }

    /// Returns the zone in which a range begins, and the times at which a head that read the whole disk from
    /// its start would reach the range and have passed it.
    pub(crate) fn passes(&self, at: DeviceOffset, len: Bytes) -> (usize, Nanos, Nanos) {
        let place = self.geometry.place(at, len);
        (self.geometry.zone_of(place.first), place.begins, place.ends)
    }

    /// Returns the time of the next internal event: the job ends, or the read-ahead ends and cached writes
    /// can use the arm.
    fn event(&self) -> Option<Nanos> {
        match (&self.job, self.buffer.stream()) {
            (Some(job), _) => Some(job.ends),
            (None, Some(stream)) if !self.dirty.is_empty() => Some(stream.end_time()),
            _ => None,
        }
    }

    /// Advances the arm to `now`.
    fn advance(&mut self, now: Nanos) {
        while let Some(at) = self.event().filter(|at| *at <= now) {
            self.finish(at);
            self.dispatch(at);
        }
        self.clock = self.clock.max(now);
    }

    fn finish(&mut self, now: Nanos) {
        let Some(job) = self.job.take() else { return };
        match job.work {
            Work::Read { id, len, from } => {
                self.buffer.read(&self.geometry, now, &job.place, from);
                // The rest of the data follows at the link's speed.
                self.done.push(now.max(job.begins + duration(len, self.params.link_rate)), id);
            }
            Work::Write(id) => self.done.push(now, id),
            Work::WriteOut => {
                self.dirty.finish_write();
                self.buffer.add_segment(job.place.first, job.place.end);
                self.admit_throttled(now);
                while let Some(&(id, stamp)) = self.flushes.front()
                    && self.dirty.is_on_media(stamp)
                {
                    self.flushes.pop_front();
                    self.done.push(now, id);
                }
            }
        }
    }

    fn admit_throttled(&mut self, now: Nanos) {
        while let Some(&p) = self.throttled.front()
            && self.dirty.admit(p.place.first, p.place.end)
        {
            self.throttled.pop_front();
            self.acknowledge(now, &p);
        }
    }

    /// Completes a command that needs only the controller and the link.
    fn acknowledge(&mut self, now: Nanos, p: &Pending) {
        let at = self.link.pass(now, p.overhead + duration(p.len, self.params.link_rate));
        self.done.push(at, p.id);
    }

    /// Starts the next job of the arm, which is free.
    fn dispatch(&mut self, now: Nanos) {
        let head = self.head(now);
        self.was_write_out = self.may_write_out(now);
        if self.was_write_out {
            self.start_write_out(now, head);
        } else {
            self.start_command(now, head);
        }
    }

    /// Starts the queued command that can begin soonest, weighted by waiting time.
    fn start_command(&mut self, now: Nanos, head: Head) {
        let mut best: Option<(i64, usize, Plan)> = None;
        for (position, p) in self.queue.iter().take(self.params.queue.max(1)).enumerate() {
            let course = self.plan(head, now, p);
            let score = (course.begins - now).0 as i64 - (now.since(p.arrived).0 / WAIT_WEIGHT) as i64;
            if best.as_ref().is_none_or(|(least, ..)| score < *least) {
                best = Some((score, position, course));
            }
        }
        let Some((_, position, course)) = best else { return };
        let Some(p) = self.queue.remove(position) else { return };
        if !course.is_read_ahead {
            self.buffer.stop(&self.geometry, now);
        }
        let work = if p.write {
            Work::Write(p.id)
        } else {
            let early = if self.params.read_before { course.begins - course.on_track } else { Nanos(0) };
            Work::Read { id: p.id, len: p.len, from: self.geometry.passed_before(p.place.first, early) }
        };
        self.start(Job { begins: course.begins, ends: course.ends, place: p.place, work });
    }

    /// Starts the write-out that can begin soonest among cached runs near the head; from time to time, the
    /// oldest.
    fn start_write_out(&mut self, now: Nanos, head: Head) {
        self.write_outs = self.write_outs.wrapping_add(1);
        let oldest = self.dirty.oldest().filter(|_| self.write_outs.is_multiple_of(OLDEST_INTERVAL));
        let window = if oldest.is_some() { 0 } else { self.params.write_window.max(1) };
        let places = oldest
            .into_iter()
            .chain(self.dirty.near(head.sector, window))
            .map(|run| self.geometry.place_sectors(run.start, run.end))
            .map(|place| (self.begin(head.track, now, true, &place).1, place));
        let Some((begins, place)) = places.min_by_key(|(begins, _)| *begins) else { return };
        self.buffer.stop(&self.geometry, now);
        self.dirty.start(place.first);
        let ends = begins + (place.ends - place.begins);
        self.start(Job { begins, ends, place, work: Work::WriteOut });
    }

    fn start(&mut self, job: Job) {
        self.head = Head { track: job.place.to, sector: job.place.end };
        self.job = Some(job);
    }

    /// Returns the position of the head at `now`, while the arm is free: read-ahead may have moved it since
    /// its last job.
    fn head(&self, now: Nanos) -> Head {
        match self.buffer.stream() {
            Some(stream) => {
                let sector = self.geometry.sector_at(stream.reached(now));
                Head { track: self.geometry.track_of(sector), sector }
            }
            None => self.head,
        }
    }

    /// Returns the timing of a command that starts at `now`, while the arm is free.
    fn plan(&self, head: Head, now: Nanos, p: &Pending) -> Plan {
        let from = now.max(p.ready);
        if !p.write
            && let Some(ends) = self.buffer.continues(&self.geometry, from, &p.place)
        {
            return Plan { on_track: from, begins: from, ends, is_read_ahead: true };
        }
        let (there, begins) = self.begin(head.track, from, p.write, &p.place);
        Plan { on_track: there, begins, ends: begins + (p.place.ends - p.place.begins), is_read_ahead: false }
    }

    /// Returns when the head, leaving a track at `from`, is on a place's track, and when the first sector is
    /// under it.
    fn begin(&self, track: Track, from: Nanos, write: bool, place: &Place) -> (Nanos, Nanos) {
        let there = if place.from.number == track.number {
            from
        } else if place.from.number == track.number + 1 {
            from + self.params.switch
        } else {
            let distance = place.from.cylinder.abs_diff(track.cylinder);
            let settle = if write { self.params.write_settle } else { Nanos(0) };
            from + self.seek.time(distance.max(1)) + settle
        };
        (there, there + self.geometry.rotational_delay(there, place.angle))
    }

    /// Reports whether the arm's next job is a write-out: when no command needs the arm, and alternately with
    /// the queue when something waits for the cache.
    fn may_write_out(&self, now: Nanos) -> bool {
        let pressed = !self.throttled.is_empty() || !self.flushes.is_empty() || self.dirty.is_half_full();
        let reading_on = self.buffer.stream().is_some_and(|stream| stream.end_time() > now);
        let turn =
            if self.queue.is_empty() { pressed || !reading_on } else { pressed && !self.was_write_out };
        turn && !self.dirty.is_empty()
    }

    fn read(&mut self, now: Nanos, p: Pending) {
        let (first, end) = (p.place.first, p.place.end);
        if self.dirty.holds(first, end) || self.buffer.hit(&self.geometry, now, &p.place) {
            self.acknowledge(now, &p);
        } else {
            self.queue.push_back(p);
        }
    }

    fn write(&mut self, now: Nanos, p: Pending, fua: bool) {
        let through = match self.cache {
            WriteCache::None => true,
            WriteCache::Volatile => fua,
            WriteCache::Protected => false,
        };
        let (first, end) = (p.place.first, p.place.end);
        if through || !self.dirty.could_hold(first, end) {
            self.queue.push_back(p);
        } else if self.throttled.is_empty() && self.dirty.admit(first, end) {
            self.acknowledge(now, &p);
        } else {
            self.throttled.push_back(p);
        }
    }

    fn flush(&mut self, now: Nanos, id: IoId) {
        let stamp = self.dirty.last();
        if self.cache != WriteCache::Volatile || self.dirty.is_on_media(stamp) {
            self.done.push(now + self.params.overheads.write, id);
        } else {
            self.flushes.push_back((id, stamp));
        }
    }
}

impl Timing for Disk {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes) {
        let now = now.max(self.clock);
        self.advance(now);
        let place = self.geometry.place(at, len);
        let write = kind != IoKind::Read;
        let times = self.params.overheads;
        let (overhead, ready) = match kind {
            IoKind::Read => (times.read_hit, times.read_miss),
            _ if place.first == self.write_end => (times.write_on, times.write),
            _ => (times.write, times.write),
        };
        if write && kind != IoKind::Flush {
            self.write_end = place.end;
        }
        let p = Pending { id, write, place, len, arrived: now, overhead, ready: now + ready };
        match kind {
            IoKind::Read => self.read(now, p),
            IoKind::Write { fua } => self.write(now, p, fua),
            IoKind::Flush => self.flush(now, id),
        }
        if self.job.is_none() {
            self.dispatch(now);
        }
    }

    fn next(&self) -> Option<Nanos> {
        let writing_out = matches!(self.job, None | Some(Job { work: Work::WriteOut, .. }));
        let idle =
            writing_out && self.queue.is_empty() && self.throttled.is_empty() && self.flushes.is_empty();
        let event = if idle { None } else { self.event() };
        event.into_iter().chain(self.done.next()).min()
    }

    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        self.advance(now);
        self.done.pop(now)
    }
}

#[cfg(test)]
mod tests;
