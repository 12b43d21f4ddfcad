//! Parameters of a disk model.

use weir_model::{Bytes, Nanos, SECTOR};

/// Parameters of a disk. The files in `drives/` give the sources of a real drive's values.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskParams {
    /// Rotation time.
    pub turn: Nanos,
    /// Number of recording surfaces.
    pub surfaces: u32,
    /// Number of cylinders of the real drive.
    pub cylinders: u64,
    /// Zones from the outer edge inwards, ascending by first cylinder.
    pub zones: Vec<Zone>,
    /// Seek time by distance in cylinders, ascending by distance.
    pub seek: Vec<(u64, Nanos)>,
    /// Additional settle time for a write.
    pub write_settle: Nanos,
    /// Time to switch to the next track in address order; at most the skews.
    pub switch: Nanos,
    /// Number of cylinders for which addresses stay on one surface; 1 if they use up a cylinder first.
    pub leg: u64,
    /// The controller's times.
    pub overheads: Overheads,
    /// Rate of the link to the host, in bytes per second.
    pub link_rate: Bytes,
    /// Number of queued commands that the scheduler considers; at least 1.
    pub queue: usize,
    /// Read-ahead length; also the size up to which cached writes are merged.
    pub segment: Bytes,
    /// Number of segments of read data kept.
    pub segments: usize,
    /// True if a read begins to fill its segment as soon as the head is on the track, with the sectors that
    /// pass before the requested ones.
    pub read_before: bool,
    /// Part of the cache that writes may use; zero for a write-through drive.
    pub write_cache: Bytes,
    /// Number of runs of contiguous sectors that the cache distinguishes, at least 1.
    pub write_runs: usize,
    /// Number of cached runs that the scheduler considers for a write-out; at least 1.
    pub write_window: usize,
}

/// Cylinders with the same number of sectors per track.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// The zone's outermost cylinder.
    pub first_cylinder: u64,
    /// Sectors per track.
    pub sectors_per_track: u64,
    /// Skew from a track's end to the beginning of the next one in address order, in sectors.
    pub track_skew: f64,
    /// Skew where all surfaces have been used and the arm moves on, in sectors.
    pub cylinder_skew: f64,
    /// Angle at which the zone begins, in sectors. `None`: where the previous zone would have continued.
    pub offset: Option<f64>,
    /// Number of sectors at the zone's end without addresses.
    pub spare: u64,
    /// Defective sectors that are skipped, counted from the zone's beginning: first and count, ascending.
    pub slips: Vec<(u64, u64)>,
}

/// The controller's time for a command, without seek, rotation and transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overheads {
    /// A read served from the buffer.
    pub read_hit: Nanos,
    /// A read, before the arm starts to move.
    pub read_miss: Nanos,
    /// A write; for one to the media, before the arm starts to move.
    pub write: Nanos,
    /// A cached write that continues where the last one ended.
    pub write_on: Nanos,
}

impl Overheads {
    /// Makes all times equal.
    pub const fn all(time: Nanos) -> Self {
        Self { read_hit: time, read_miss: time, write: time, write_on: time }
    }
}

impl DiskParams {
    /// Returns the capacity of the drive with these zones.
    pub fn capacity(&self) -> Bytes {
        let sectors: u64 = self.spans().map(|(zone, cylinders)| self.zone_sectors(zone, cylinders)).sum();
        Bytes(sectors * SECTOR)
    }

    /// Returns the zones with the number of cylinders of each.
    pub(super) fn spans(&self) -> impl Iterator<Item = (&Zone, u64)> {
        let ends = self.zones.iter().skip(1).map(|zone| zone.first_cylinder).chain([self.cylinders]);
        self.zones.iter().zip(ends).map(|(zone, end)| (zone, end.saturating_sub(zone.first_cylinder)))
    }

    fn zone_sectors(&self, zone: &Zone, cylinders: u64) -> u64 {
        let slipped: u64 = zone.slips.iter().map(|slip| slip.1).sum();
        let sectors = cylinders * u64::from(self.surfaces.max(1)) * zone.sectors_per_track;
        sectors.saturating_sub(zone.spare.max(slipped))
    }
}
