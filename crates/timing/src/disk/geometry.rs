//! Where sectors are on a disk, and when they pass the head.
//!
//! The trick that keeps everything short is the *sequential clock*: the time at which a head
//! that reads the whole disk from sector 0 on reaches a sector. Every track takes one turn plus
//! the skew to the next one, so
//!
//! - a transfer takes the difference of two clock values, however many tracks it crosses, and
//! - a sector's angle is its clock value modulo the turn, skew included.
//!
//! Tracks are numbered in the order of addresses. They run along one surface for some cylinders,
//! then back along the next (serpentine), zone by zone from the outer edge inwards.

use super::DiskParams;
use weir_model::{Bytes, DeviceOffset, Nanos, SECTOR};

/// A sector number, counted from the start of the disk.
pub(super) type Sector = u64;

/// A run of sectors, located.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) first: Sector,
    /// One past the last sector.
    pub(super) end: Sector,
    /// The sequential clock when the first sector comes under the head.
    pub(super) begins: Nanos,
    /// The sequential clock when the last sector has passed.
    pub(super) ends: Nanos,
    /// The angle of the first sector, as a part of the turn.
    pub(super) angle: Nanos,
    pub(super) from: Track,
    pub(super) to: Track,
}

/// Where the arm stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// In the order of addresses.
    pub(super) number: u64,
    /// In cylinders of the real drive, whatever the capacity.
    pub(super) cylinder: u64,
}

#[derive(Debug)]
struct Zone {
    first_sector: Sector,
    first_track: u64,
    tracks: u64,
    sectors_per_track: u64,
    first_cylinder: u64,
    /// Cylinders of the real drive the zone spans.
    span: u64,
    /// Cylinders it has at this capacity.
    cylinders: u64,
}

/// The layout of a disk of some capacity.
#[derive(Debug)]
pub(super) struct Geometry {
    turn: u64,
    /// A turn and a skew: the sequential clock's advance from track to track.
    step: u64,
    surfaces: u64,
    /// Cylinders of a serpentine's leg.
    leg: u64,
    zones: Vec<Zone>,
    sectors: Sector,
}

impl Geometry {
    /// The drive's zones with the number of tracks changed so that they hold `capacity`.
    pub(super) fn new(params: &DiskParams, capacity: Bytes) -> Self {
        let surfaces = u64::from(params.surfaces.max(1));
        let ends = params.zones.iter().skip(1).map(|zone| zone.0).chain([params.cylinders]);
        let spans = params.zones.iter().zip(ends).map(|(&(first, spt), end)| (first, end - first, spt));
        let native: u64 = spans.clone().map(|(_, span, spt)| span * surfaces * spt).sum();
        let wanted = capacity.0.div_ceil(SECTOR).max(1);
        let scale = |count: u64| (u128::from(count) * u128::from(wanted) / u128::from(native.max(1))) as u64;

        let mut geometry = Self {
            turn: params.turn.0.max(1),
            step: params.turn.0.max(1) + params.skew.0,
            surfaces,
            leg: (u128::from(params.leg) * u128::from(wanted) / u128::from(native.max(1)))
                .clamp(1, u128::from(params.leg.max(1))) as u64,
            zones: Vec::with_capacity(params.zones.len()),
            sectors: 0,
        };
        let mut tracks = 0;
        for (first_cylinder, span, sectors_per_track) in spans {
            // Scaled at the zone's end, so that rounding does not add up.
            let end = scale((first_cylinder + span) * surfaces);
            if end > tracks {
                geometry.push_zone(first_cylinder, span, sectors_per_track, end - tracks);
                tracks = end;
            }
        }
        geometry.fill_up(params, wanted);
        geometry
    }

    fn push_zone(&mut self, first_cylinder: u64, span: u64, sectors_per_track: u64, tracks: u64) {
        let legs = tracks.div_ceil(self.leg * self.surfaces);
        let first_track = self.zones.last().map_or(0, |zone| zone.first_track + zone.tracks);
        self.zones.push(Zone {
            first_sector: self.sectors,
            first_track,
            tracks,
            sectors_per_track,
            first_cylinder,
            span,
            cylinders: legs * self.leg,
        });
        self.sectors += tracks * sectors_per_track;
    }

    /// Rounding left a few tracks too few: the innermost zone gets them.
    fn fill_up(&mut self, params: &DiskParams, wanted: u64) {
        let missing = wanted.saturating_sub(self.sectors);
        if missing == 0 {
            return;
        }
        if let Some(last) = self.zones.pop() {
            self.sectors = last.first_sector;
            let tracks = last.tracks + missing.div_ceil(last.sectors_per_track);
            self.push_zone(last.first_cylinder, last.span, last.sectors_per_track, tracks);
        } else {
            let spt = params.zones.first().map_or(1000, |zone| zone.1).max(1);
            self.push_zone(0, params.cylinders, spt, missing.div_ceil(spt));
        }
    }

    /// Locates a byte range, widened to sectors and cut at the disk's end.
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

    /// A sector's track, and the sequential clock at its start and end.
    fn locate(&self, sector: Sector) -> (Track, Nanos, Nanos) {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first_sector <= sector) - 1];
        let within = sector - zone.first_sector;
        let (track, angle) = (within / zone.sectors_per_track, within % zone.sectors_per_track);
        let clock = |angle| {
            Nanos((zone.first_track + track) * self.step + angle * self.turn / zone.sectors_per_track)
        };
        (self.track(zone, track), clock(angle), clock(angle + 1))
    }

    fn track(&self, zone: &Zone, within: u64) -> Track {
        let round = self.leg * self.surfaces;
        let (leg, step) = (within % round / self.leg, within % self.leg);
        let step = if leg % 2 == 0 { step } else { self.leg - 1 - step };
        let cylinder = within / round * self.leg + step;
        Track {
            number: zone.first_track + within,
            cylinder: zone.first_cylinder + cylinder * zone.span / zone.cylinders,
        }
    }

    /// The track a sector is on; for the disk's end, the last one.
    pub(super) fn track_of(&self, sector: Sector) -> Track {
        self.locate(sector.min(self.sectors - 1)).0
    }

    /// The first sector that has not wholly passed at a value of the sequential clock.
    pub(super) fn sector_at(&self, clock: Nanos) -> Sector {
        let (track, angle) = (clock.0 / self.step, (clock.0 % self.step).min(self.turn));
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first_track <= track) - 1];
        let within = (track - zone.first_track).min(zone.tracks);
        let angle = angle * zone.sectors_per_track / self.turn;
        (zone.first_sector + within * zone.sectors_per_track + angle).min(self.sectors)
    }

    /// The angle under the head at a time, or of a value of the sequential clock.
    #[inline]
    pub(super) fn angle(&self, at: Nanos) -> Nanos {
        Nanos(at.0 % self.turn)
    }

    /// How long after `now` an angle comes under the head.
    #[inline]
    pub(super) fn rotation(&self, now: Nanos, angle: Nanos) -> Nanos {
        let here = self.angle(now);
        if angle >= here { angle - here } else { Nanos(angle.0 + self.turn - here.0) }
    }

    /// The time of one turn.
    pub(super) fn turn(&self) -> Nanos {
        Nanos(self.turn)
    }

    #[cfg(test)]
    pub(super) fn first_sector_of_zone(&self, zone: usize) -> Sector {
        self.zones[zone].first_sector
    }

    /// Sectors on the disk: at least the capacity asked for.
    pub(super) fn sectors(&self) -> Sector {
        self.sectors
    }
}

/// Seek time by distance: points of a measured curve, straight lines between them.
#[derive(Debug)]
pub(super) struct SeekCurve(&'static [(u64, Nanos)]);

impl SeekCurve {
    pub(super) fn new(points: &'static [(u64, Nanos)]) -> Self {
        Self(points)
    }

    /// Moving the arm over `cylinders` of the real drive.
    pub(super) fn time(&self, cylinders: u64) -> Nanos {
        if cylinders == 0 {
            return Nanos(0);
        }
        let above = self.0.partition_point(|point| point.0 < cylinders);
        match (above.checked_sub(1).map(|below| self.0[below]), self.0.get(above)) {
            (Some((d0, t0)), Some(&(d1, t1))) => Nanos(t0.0 + (t1.0 - t0.0) * (cylinders - d0) / (d1 - d0)),
            (None, Some(&(_, t))) | (Some((_, t)), None) => t,
            (None, None) => Nanos(0),
        }
    }
}

#[cfg(test)]
mod tests;
