//! What an access costs on a device, as measured.

use super::super::{DeviceView, SizeClass, Traffic};
use super::fast::Fast;
use weir_model::{Bytes, Nanos};

/// What a write costs a device at least, in idle reads of it: a write that is answered from a cache
/// takes the device's time later.
const LATER: f64 = 0.5;

/// Of the writes and flushes that are counted, what still counts a round later.
const STILL: f64 = 0.98;

/// What is known of the devices besides what they show.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// Commands each device has under way on average.
    depth: Vec<f64>,
    /// Writes of late to all devices, and flushes, those side by side counted once.
    writes: f64,
    flushes: f64,
    /// A write's part of a flush, by these.
    flush_each: f64,
    /// How many there had been by device at the last round.
    seen: Vec<[u64; 2]>,
}

/// The mean response to commands of about this size, or of the nearest size there is one of, and how many
/// commands the device had then.
fn by_size(traffic: &Traffic, len: Bytes) -> Option<(f64, f64)> {
    let class = SizeClass::of(len).index();
    if let Some(mean) = traffic.by_size[class].seconds() {
        return Some((mean, traffic.depth[class]));
    }
    let known = traffic.by_size.iter().enumerate().filter_map(|(i, mean)| Some((i, mean.seconds()?)));
    known.min_by_key(|(i, _)| i.abs_diff(class)).map(|(i, mean)| (mean, traffic.depth[i]))
}

/// What a read takes of a device's time, in seconds.
fn service(device: &DeviceView) -> f64 {
    if device.idle == Nanos::MAX { idle(device) } else { device.service().as_secs_f64() }
}

/// What a read takes of an idle device, in seconds; of one that has not said, as long as a disk.
fn idle(device: &DeviceView) -> f64 {
    if device.idle == Nanos::MAX { 0.01 } else { device.idle.as_secs_f64() }
}

impl Costs {
    /// An access comes: commands under way are averaged over these.
    pub(super) fn note(&mut self, devices: &[DeviceView]) {
        self.depth.resize(devices.len(), 0.0);
        for (depth, device) in self.depth.iter_mut().zip(devices) {
            *depth += 0.01 * (f64::from(device.in_flight) - *depth);
        }
    }

    /// A round: how many writes a flush follows is counted.
    pub(super) fn round(&mut self, devices: &[DeviceView]) {
        self.seen.resize(devices.len(), [0; 2]);
        let (mut writes, mut flushes) = (0, 0);
        for (seen, device) in self.seen.iter_mut().zip(devices) {
            let now = [device.writes.count, device.flushes];
            writes += now[0] - seen[0];
            flushes = flushes.max(now[1] - seen[1]);
            *seen = now;
        }
        self.writes = STILL * self.writes + writes as f64;
        self.flushes = STILL * self.flushes + flushes as f64;
        self.flush_each = self.flushes / self.writes.max(self.flushes).max(1.0);
    }

    /// A write's part of the flush it makes necessary on this device, in seconds.
    fn flush(&self, device: &DeviceView) -> f64 {
        self.flush_each * device.flush.seconds().unwrap_or(0.0)
    }

    /// … of an access: none of a read.
    fn flush_of(&self, device: &DeviceView, write: bool) -> f64 {
        if write { self.flush(device) } else { 0.0 }
    }

    /// The expected response in seconds behind so many commands, flush not counted. One that was measured
    /// with more or fewer scales with them, so that it does not grow old once a device is asked for nothing.
    fn behind(&self, device: &DeviceView, write: bool, len: Bytes, commands: f64) -> f64 {
        let idle = idle(device);
        let traffic = if write { &device.writes } else { &device.reads };
        let measured =
            by_size(traffic, len).map_or(idle, |(mean, depth)| mean * (commands + 1.0) / depth.max(1.0));
        if write { measured.max(LATER * idle) } else { measured }
    }

    /// … behind as many as there usually are.
    fn bare(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        let usual = self.depth.get(device.id.index()).copied().unwrap_or(0.0);
        self.behind(device, write, len, usual)
    }

    /// The expected response in seconds, as it usually is; a write's with its part of a flush.
    pub(super) fn response(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        self.bare(device, write, len) + self.flush_of(device, write)
    }

    /// … with what is under way at this moment.
    pub(super) fn now(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        self.behind(device, write, len, f64::from(device.in_flight)) + self.flush_of(device, write)
    }

    /// Whether a device that is not fast would answer within this part of what this fast one takes.
    pub(super) fn is_sooner_elsewhere(
        &self,
        devices: &[DeviceView],
        fast: Fast,
        holder: &DeviceView,
        write: bool,
        len: Bytes,
        part: f64,
    ) -> bool {
        let limit = part * self.response(holder, write, len);
        fast.others(devices).any(|d| d.has_room() && self.response(d, write, len) < limit)
    }

    /// What the best of the fast devices saves over the best of the others, in idle reads of that one, with an access
    /// whose response counts by this part. Below zero if it costs more.
    pub(super) fn saving(
        &self,
        devices: &[DeviceView],
        fast: Fast,
        write: bool,
        len: Bytes,
        part: f64,
    ) -> f64 {
        // Every write counts wholly for the flush.
        let cost = |d: &DeviceView| part * self.bare(d, write, len) + self.flush_of(d, write);
        let others = fast.others(devices).filter(|d| d.usable);
        let Some(slow) = others.min_by(|a, b| cost(a).total_cmp(&cost(b))) else { return 0.0 };
        let best = fast.these(devices).map(cost).fold(f64::INFINITY, f64::min);
        (cost(slow) - best) / service(slow).max(1e-9)
    }
}
