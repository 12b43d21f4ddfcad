//! What makes one disk different from another.

use weir_model::{Bytes, Nanos, SECTOR};

/// A disk's parameters. Where the values of a real drive are from is said in its file under
/// `drives/`.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskParams {
    /// Time of one turn.
    pub turn: Nanos,
    /// Recording surfaces.
    pub surfaces: u32,
    /// Cylinders of the real drive.
    pub cylinders: u64,
    /// From the outer edge inwards, ascending by first cylinder.
    pub zones: Vec<Zone>,
    /// Seek time by distance in cylinders, ascending in distance.
    pub seek: Vec<(u64, Nanos)>,
    /// Additional time a head needs to settle for a write.
    pub write_settle: Nanos,
    /// To the next track in address order; at most the skews.
    pub switch: Nanos,
    /// Cylinders the addresses stay on one surface; 1 if they use up a cylinder first.
    pub leg: u64,
    /// The controller's times.
    pub overheads: Overheads,
    /// The link to the host, bytes a second.
    pub link_rate: Bytes,
    /// Commands the scheduler looks at; at least 1.
    pub queue: usize,
    /// Read-ahead; also the size up to which cached writes are merged.
    pub segment: Bytes,
    /// Segments of read data kept.
    pub segments: usize,
    /// Whether a read begins to fill its segment as soon as the head is on the track, with what
    /// passes before the sectors asked for.
    pub read_before: bool,
    /// The part of the cache that writes may take; zero for a drive that writes through.
    pub write_cache: Bytes,
    /// Runs of contiguous sectors the cache tells apart, at least 1.
    pub write_runs: usize,
    /// Cached runs the scheduler looks at when it writes out; at least 1.
    pub write_window: usize,
}

/// Cylinders with the same number of sectors a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// The zone's outermost cylinder.
    pub first_cylinder: u64,
    /// Sectors a track.
    pub sectors_per_track: u64,
    /// From a track's end to the beginning of the next one in address order, in sectors.
    pub track_skew: f64,
    /// The same where all surfaces have been used and the arm moves on, in sectors.
    pub cylinder_skew: f64,
    /// The angle at which the zone begins, in sectors. `None`: where the zone before it would
    /// have gone on.
    pub offset: Option<f64>,
    /// Sectors at the zone's end that hold no addresses.
    pub spare: u64,
    /// Sectors left out as defective, counted from the zone's beginning: first and how many,
    /// ascending.
    pub slips: Vec<(u64, u64)>,
}

/// How long the controller takes for a command, without seek, rotation and transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overheads {
    /// A read served from the buffer.
    pub read_hit: Nanos,
    /// A read before the arm sets off.
    pub read_miss: Nanos,
    /// A write; to the media, before the arm sets off.
    pub write: Nanos,
    /// A cached write that goes on where the last one ended.
    pub write_on: Nanos,
}

impl Overheads {
    /// The same for everything.
    pub const fn all(time: Nanos) -> Self {
        Self { read_hit: time, read_miss: time, write: time, write_on: time }
    }
}

impl DiskParams {
    /// What the drive with these zones holds.
    pub fn capacity(&self) -> Bytes {
        let sectors: u64 = self.spans().map(|(zone, cylinders)| self.zone_sectors(zone, cylinders)).sum();
        Bytes(sectors * SECTOR)
    }

    /// The zones and how many cylinders each has.
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
