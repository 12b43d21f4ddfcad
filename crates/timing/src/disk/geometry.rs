//! Geometry of a disk: positions of sectors, and the times at which they pass the head.
//!
//! The *sequential clock* of a sector is the time at which a head that reads the whole disk from sector 0 on
//! reaches it. Every track takes one rotation plus the skew to the next one, including defective sectors, so
//!
//! - a transfer takes the difference of two clock values, however many tracks it crosses, and
//! - a sector's angle is its clock value modulo the rotation time, including skew.
//!
//! Tracks are numbered in address order. They run along one surface for some cylinders, then back along the
//! next (serpentine; with one cylinder per leg: surface by surface), zone by zone from the outer edge
//! inwards. A *group* is the number of tracks after which all surfaces have been used.

use super::{DiskParams, Zone};
use weir_model::{Bytes, DeviceOffset, Nanos, SECTOR};

/// A sector number, counted from the start of the disk.
pub(super) type Sector = u64;

/// A run of sectors with its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) first: Sector,
    /// One past the last sector.
    pub(super) end: Sector,
    /// Sequential clock when the first sector reaches the head.
    pub(super) begins: Nanos,
    /// Sequential clock when the last sector has passed.
    pub(super) ends: Nanos,
    /// Angle of the first sector, as a part of the rotation time.
    pub(super) angle: Nanos,
    pub(super) from: Track,
    pub(super) to: Track,
}

/// Position of the arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// Track number in address order.
    pub(super) number: u64,
    /// Cylinder of the real drive, whatever the capacity.
    pub(super) cylinder: u64,
}

#[derive(Debug)]
struct ZoneLayout {
    first_sector: Sector,
    /// One past the last sector.
    end: Sector,
    first_track: u64,
    tracks: u64,
    sectors_per_track: u64,
    first_cylinder: u64,
    /// Number of cylinders of the real drive in the zone.
    stroke: u64,
    /// Number of cylinders at this capacity.
    cylinders: u64,
    /// Sequential clock at its first track.
    begins: u64,
    /// Advance of the sequential clock from track to track: a rotation and a skew.
    step: u64,
    /// Additional advance at the end of a group of tracks.
    group_step: u64,
    /// Addresses at which sectors are skipped, counted from the zone's beginning, and the total skipped up to
    /// there, ascending.
    skipped: Vec<(u64, u64)>,
}

impl ZoneLayout {
    /// Returns the physical position of an address in the zone, in sectors, including defective ones.
    fn physical(&self, within: u64) -> u64 {
        let passed = self.skipped.partition_point(|slip| slip.0 <= within);
        within + passed.checked_sub(1).map_or(0, |last| self.skipped[last].1)
    }

    /// Returns the first address at or after a physical sector.
    fn address(&self, physical: u64) -> u64 {
        let (mut low, mut high) = (0, self.end - self.first_sector);
        if self.skipped.is_empty() {
            return physical.min(high);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.physical(middle) < physical { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// The layout of a disk of some capacity.
#[derive(Debug)]
pub(super) struct Geometry {
    turn: u64,
    surfaces: u64,
    /// Cylinders per leg of the serpentine.
    leg: u64,
    spans: Vec<ZoneLayout>,
    sectors: Sector,
}

impl Geometry {
    /// Creates the layout of the drive's zones: unchanged for its own capacity; otherwise with the number of
    /// tracks scaled to `capacity`, and without defective sectors.
    pub(super) fn new(params: &DiskParams, capacity: Bytes) -> Self {
        let own = capacity == params.capacity();
        let surfaces = u64::from(params.surfaces.max(1));
        let native: u64 = params.spans().map(|(zone, span)| span * surfaces * zone.sectors_per_track).sum();
        let wanted = capacity.0.div_ceil(SECTOR).max(1);
        let (part, whole) = if own { (1, 1) } else { (u128::from(wanted), u128::from(native.max(1))) };
        let scale = |count: u64| (u128::from(count) * part / whole) as u64;

        let mut geometry = Self {
            turn: params.turn.0.max(1),
            surfaces,
            leg: scale(params.leg).clamp(1, params.leg.max(1)),
            spans: Vec::with_capacity(params.zones.len()),
            sectors: 0,
        };
        let mut tracks = 0;
        for (zone, stroke) in params.spans() {
            // Scaled at the zone's end, so that rounding errors do not accumulate.
            let end = scale((zone.first_cylinder + stroke) * surfaces);
            let first = if own { zone.first_cylinder * surfaces } else { tracks };
            if end > first {
                geometry.push_zone(zone, stroke, end - first, own);
                tracks = end;
            }
        }
        geometry.extend_last_zone(params, wanted);
        geometry
    }

    fn push_zone(&mut self, zone: &Zone, stroke: u64, tracks: u64, own: bool) {
        let group = self.leg * self.surfaces;
        let spt = zone.sectors_per_track.max(1);
        let of_a_turn = |sectors: f64| (sectors / spt as f64 * self.turn as f64).round().max(0.0) as u64;
        let track_skew = of_a_turn(zone.track_skew);
        let (first_track, mut begins) = self.spans.last().map_or((0, 0), |last| {
            // The spare tracks at a zone's end are skipped.
            let used = last.physical(last.end - last.first_sector - 1) / last.sectors_per_track + 1;
            (last.first_track + last.tracks, last.begins + self.advance(last, used))
        });
        if let Some(offset) = zone.offset {
            begins += self.rotational_delay(Nanos(begins), Nanos(of_a_turn(offset) % self.turn)).0;
        }
        let mut slips = Vec::new();
        let mut slipped = 0;
        for &(first, count) in zone.slips.iter().filter(|_| own) {
            slips.push((first - slipped, slipped + count));
            slipped += count;
        }
        let lost = if own { zone.spare.max(slipped).min(tracks * spt - 1) } else { 0 };
        let sectors = tracks * spt - lost;
        self.spans.push(ZoneLayout {
            first_sector: self.sectors,
            end: self.sectors + sectors,
            first_track,
            tracks,
            sectors_per_track: spt,
            first_cylinder: zone.first_cylinder,
            stroke,
            cylinders: tracks.div_ceil(group) * self.leg,
            begins,
            step: self.turn + track_skew,
            group_step: of_a_turn(zone.cylinder_skew).saturating_sub(track_skew),
            skipped: slips,
        });
        self.sectors += sectors;
    }

    /// Extends the innermost zone by the few tracks that rounding has lost.
    fn extend_last_zone(&mut self, params: &DiskParams, wanted: u64) {
        let missing = wanted.saturating_sub(self.sectors);
        let Some(zone) = params.zones.last().filter(|_| missing > 0) else { return };
        let stroke = params.cylinders.saturating_sub(zone.first_cylinder);
        let spt = zone.sectors_per_track.max(1);
        let tracks = match self.spans.pop_if(|last| last.first_cylinder == zone.first_cylinder) {
            Some(last) => {
                self.sectors = last.first_sector;
                last.tracks + missing.div_ceil(spt)
            }
            None => missing.div_ceil(spt),
        };
        self.push_zone(zone, stroke, tracks, false);
    }

    /// Returns the advance of the sequential clock over `tracks` tracks from the zone's beginning.
    fn advance(&self, span: &ZoneLayout, tracks: u64) -> u64 {
        tracks * span.step + tracks / (self.leg * self.surfaces) * span.group_step
    }

    /// Locates a byte range, widened to sectors and clamped to the disk's end.
    pub(super) fn place(&self, at: DeviceOffset, len: Bytes) -> Place {
        let first = (at.0 / SECTOR).min(self.sectors - 1);
        let end = at.0.saturating_add(len.0).div_ceil(SECTOR).clamp(first + 1, self.sectors);
        self.place_sectors(first, end)
    }

    /// Locates `first..end`, which is not empty and within the disk.
    pub(super) fn place_sectors(&self, first: Sector, end: Sector) -> Place {
        let (from, begins, _) = self.locate(first);
        let (to, _, ends) = self.locate(end - 1);
        Place { first, end, begins, ends, angle: self.angle(begins), from, to }
    }

    /// Returns a sector's track, and the sequential clock at its start and end.
    fn locate(&self, sector: Sector) -> (Track, Nanos, Nanos) {
        let span = &self.spans[self.spans.partition_point(|span| span.first_sector <= sector) - 1];
        let within = span.physical(sector - span.first_sector);
        let (track, angle) = (within / span.sectors_per_track, within % span.sectors_per_track);
        let begins = span.begins + self.advance(span, track);
        let clock = |angle| Nanos(begins + angle * self.turn / span.sectors_per_track);
        (self.track(span, track), clock(angle), clock(angle + 1))
    }

    fn track(&self, span: &ZoneLayout, within: u64) -> Track {
        let group = self.leg * self.surfaces;
        let (leg, step) = (within % group / self.leg, within % self.leg);
        let step = if leg % 2 == 0 { step } else { self.leg - 1 - step };
        let cylinder = within / group * self.leg + step;
        Track {
            number: span.first_track + within,
            cylinder: span.first_cylinder + cylinder * span.stroke / span.cylinders,
        }
    }

    /// Returns the track of a sector; for the disk's end, the last one.
    pub(super) fn track_of(&self, sector: Sector) -> Track {
        self.locate(sector.min(self.sectors - 1)).0
    }

    /// Returns the first sector that has not completely passed at a value of the sequential clock.
    pub(super) fn sector_at(&self, clock: Nanos) -> Sector {
        let span = &self.spans[self.spans.partition_point(|span| span.begins <= clock.0).saturating_sub(1)];
        let group = self.leg * self.surfaces;
        let (begun, group_clock) = (clock.0.saturating_sub(span.begins), self.advance(span, group));
        let within = (begun % group_clock / span.step).min(group - 1);
        let track = (begun / group_clock * group + within).min(span.tracks);
        let angle = begun.saturating_sub(self.advance(span, track)).min(self.turn);
        let physical = track * span.sectors_per_track + angle * span.sectors_per_track / self.turn;
        (span.first_sector + span.address(physical)).min(span.end)
    }

    /// Returns the first sector that passes completely if the head is on the track this much before `sector`
    /// arrives.
    pub(super) fn passed_before(&self, sector: Sector, early: Nanos) -> Sector {
        let span = &self.spans[self.zone_of(sector)];
        let physical = span.physical(sector - span.first_sector);
        let passed = early.0 * span.sectors_per_track / self.turn;
        let first = physical - passed.min(physical % span.sectors_per_track);
        (span.first_sector + span.address(first)).min(sector)
    }

    /// Returns the angle under the head at a time, or of a value of the sequential clock.
    #[inline]
    pub(super) fn angle(&self, at: Nanos) -> Nanos {
        Nanos(at.0 % self.turn)
    }

    /// Returns how long after `now` an angle arrives under the head.
    #[inline]
    pub(super) fn rotational_delay(&self, now: Nanos, angle: Nanos) -> Nanos {
        let here = self.angle(now);
        if angle >= here { angle - here } else { Nanos(angle.0 + self.turn - here.0) }
    }

    /// Returns the rotation time.
    pub(super) fn turn(&self) -> Nanos {
        Nanos(self.turn)
    }

    /// Returns the zone of a sector, counted from the outer edge.
    pub(super) fn zone_of(&self, sector: Sector) -> usize {
        self.spans.partition_point(|span| span.first_sector <= sector) - 1
    }

    #[cfg(test)]
    pub(super) fn first_sector_of_zone(&self, zone: usize) -> Sector {
        self.spans[zone].first_sector
    }

    /// Returns the number of sectors: at least the requested capacity.
    pub(super) fn sectors(&self) -> Sector {
        self.sectors
    }
}

/// Seek time by distance: points of a measured curve, with linear interpolation.
#[derive(Debug)]
pub(super) struct SeekCurve(Vec<(u64, Nanos)>);

impl SeekCurve {
    pub(super) fn new(points: &[(u64, Nanos)]) -> Self {
        Self(points.to_vec())
    }

    /// Returns the time to move the arm over `cylinders` of the real drive.
    pub(super) fn time(&self, cylinders: u64) -> Nanos {
        if cylinders == 0 {
            return Nanos(0);
        }
        let above = self.0.partition_point(|point| point.0 < cylinders);
        match (above.checked_sub(1).map(|below| self.0[below]), self.0.get(above)) {
            (Some((d0, t0)), Some(&(d1, t1))) => {
                Nanos(t0.0 + (t1.0.saturating_sub(t0.0)) * (cylinders - d0) / (d1 - d0))
            }
            (None, Some(&(_, t))) | (Some((_, t)), None) => t,
            (None, None) => Nanos(0),
        }
    }
}

#[cfg(test)]
mod tests;
