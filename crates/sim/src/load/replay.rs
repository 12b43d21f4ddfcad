//! A trace as a load; a short trace is repeated.

use crate::{Arrival, Load, VolumeData};
use std::ops::Range;
use weir_model::{Bytes, ExtentIndex, ExtentSize, Nanos, SECTOR, VolumeOffset};
use weir_trace::{Record, Trace};

/// Repeats a trace's requests; each of its disks is a volume. Ranges are rounded outwards to sectors.
#[derive(Clone, Debug)]
pub struct Replay {
    trace: Trace,
    /// Factor for all times.
    stretch: f64,
    /// Time between the starts of two repetitions.
    period: Nanos,
    next: usize,
    round: u64,
}

impl Replay {
    /// Creates the load from the trace's first request on, `stretch` times as slow as recorded. A repetition
    /// begins one mean gap after the last request of the one before.
    pub fn new(trace: Trace, stretch: f64) -> Self {
        let gaps = (trace.records.len() as u64 - 1).max(1);
        let duration = trace.duration();
        let period = scaled(duration + Nanos(duration.0 / gaps), stretch) + Nanos(1);
        Self { trace, stretch, period, next: 0, round: 0 }
    }
}

fn scaled(time: Nanos, by: f64) -> Nanos {
    Nanos((time.0 as f64 * by) as u64)
}

/// Returns the whole sectors that a record touches.
fn sectors(record: &Record) -> Range<u64> {
    let end = (record.offset.0 + record.len.0).next_multiple_of(SECTOR);
    record.offset.0 / SECTOR * SECTOR..end
}

impl Load for Replay {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        let mut spaces = vec![VolumeData::default(); self.trace.disks.len()];
        let mut touched: Vec<Vec<u64>> = vec![Vec::new(); spaces.len()];
        for record in &self.trace.records {
            let bytes = sectors(record);
            let disk = record.disk.0 as usize;
            spaces[disk].size = spaces[disk].size.max(Bytes(bytes.end));
            let (first, last) = (VolumeOffset(bytes.start), VolumeOffset(bytes.end - 1));
            touched[disk].extend(extent.index(first).0..=extent.index(last).0);
        }
        for (space, mut touched) in spaces.iter_mut().zip(touched) {
            touched.sort_unstable();
            touched.dedup();
            space.size = Bytes(space.size.0.next_multiple_of(extent.bytes().0));
            for index in touched {
                match space.extents.last_mut() {
                    Some(run) if run.end.0 == index => run.end.0 += 1,
                    _ => space.extents.push(ExtentIndex(index)..ExtentIndex(index + 1)),
                }
            }
        }
        spaces
    }

    fn duration(&self) -> Nanos {
        self.period
    }

    fn next_arrival(&mut self, _: Nanos) -> Arrival {
        let record = &self.trace.records[self.next];
        let bytes = sectors(record);
        let arrival = Arrival {
            at: Nanos(self.round * self.period.0) + scaled(record.at, self.stretch),
            volume: record.disk.0 as usize,
            op: record.op,
            offset: VolumeOffset(bytes.start),
            len: Bytes(bytes.end - bytes.start),
            hint: record.hint,
        };
        self.next += 1;
        if self.next == self.trace.records.len() {
            (self.next, self.round) = (0, self.round + 1);
        }
        arrival
    }
}
