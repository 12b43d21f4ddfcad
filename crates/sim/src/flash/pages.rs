//! Packs the data of a load on a device.

use crate::{Arrival, Load};
use weir_model::{Bytes, DeviceOffset, ExtentSize};

/// Granularity at which space that the load does not touch is left out.
const GRANULE: Bytes = Bytes::kib(64);

/// A run of touched space.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Its offset on the volume, and on the device.
    from: u64,
    to: u64,
}

/// The device offsets of a load's data: its runs one after another, in the order of volumes and offsets.
#[derive(Debug)]
pub(crate) struct PackedData {
    volumes: Vec<Vec<Run>>,
    size: Bytes,
}

impl PackedData {
    pub(crate) fn new(load: &dyn Load) -> Self {
        let extent = ExtentSize::new(GRANULE).unwrap_or(ExtentSize::DEFAULT);
        let granule = extent.bytes().0;
        let mut size = 0;
        let mut pack = |run: &std::ops::Range<weir_model::ExtentIndex>| {
            let packed = Run { from: run.start.0 * granule, to: size };
            size += (run.end.0 - run.start.0) * granule;
            packed
        };
        let volumes = load.volumes(extent);
        let volumes = volumes.iter().map(|volume| volume.extents.iter().map(&mut pack).collect()).collect();
        Self { volumes, size: Bytes(size) }
    }

    /// Returns the size of all data.
    pub(crate) const fn size(&self) -> Bytes {
        self.size
    }

    /// Returns the offset of a request's data; `None` if it is not the load's.
    pub(crate) fn offset(&self, arrival: &Arrival) -> Option<DeviceOffset> {
        let runs = self.volumes.get(arrival.volume)?;
        let at = arrival.offset.0;
        let run = runs[..runs.partition_point(|run| run.from <= at)].last()?;
        Some(DeviceOffset(run.to + (at - run.from)))
    }
}
