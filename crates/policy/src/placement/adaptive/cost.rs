//! What an access costs on a device, as measured.

use super::super::{DeviceView, SizeClass, Traffic};
use weir_model::{Bytes, Nanos};

/// What a write costs a device at least, in idle reads of it: a write that is answered from a cache
/// takes the device's time later.
const LATER: f64 = 0.5;

/// What is known of the devices besides what they show.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// Commands each device has under way on average.
    depth: Vec<f64>,
}

/// The mean response to commands of about this size, or of the nearest size there is one of.
fn by_size(traffic: &Traffic, len: Bytes) -> Option<f64> {
    let class = SizeClass::of(len).index();
    let known = traffic.by_size.iter().enumerate().filter_map(|(i, mean)| Some((i, mean.seconds()?)));
    known.min_by_key(|(i, _)| i.abs_diff(class)).map(|(_, mean)| mean)
}

impl Costs {
    /// An access comes: commands under way are averaged over these.
    pub(super) fn note(&mut self, devices: &[DeviceView]) {
        self.depth.resize(devices.len(), 0.0);
        for (depth, device) in self.depth.iter_mut().zip(devices) {
            *depth += 0.01 * (f64::from(device.in_flight) - *depth);
        }
    }

    /// The expected response in seconds, as it usually is.
    pub(super) fn response(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        let idle = if device.idle == Nanos::MAX { 0.01 } else { device.idle.as_secs_f64() };
        let traffic = if write { &device.writes } else { &device.reads };
        let measured = by_size(traffic, len).unwrap_or(idle);
        if write { measured.max(LATER * idle) } else { measured }
    }

    /// … with what is under way at this moment.
    pub(super) fn now(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        let usual = self.depth.get(device.id.index()).copied().unwrap_or(0.0);
        self.response(device, write, len) * (f64::from(device.in_flight) + 1.0) / (usual + 1.0)
    }

    /// Whether some other device would answer within this part of what the fast one takes.
    pub(super) fn is_sooner_elsewhere(
        &self,
        devices: &[DeviceView],
        fast: &DeviceView,
        write: bool,
        len: Bytes,
        part: f64,
    ) -> bool {
        let limit = part * self.response(fast, write, len);
        devices.iter().any(|d| d.id != fast.id && d.has_room() && self.response(d, write, len) < limit)
    }

    /// What the fast device saves over the best of the others, in idle reads of that one. Below zero if it
    /// costs more.
    pub(super) fn saving(&self, devices: &[DeviceView], fast: &DeviceView, write: bool, len: Bytes) -> f64 {
        let others = devices.iter().filter(|d| d.usable && d.id != fast.id);
        let slow =
            others.min_by(|a, b| self.response(a, write, len).total_cmp(&self.response(b, write, len)));
        let Some(slow) = slow else { return 0.0 };
        let idle = if slow.idle == Nanos::MAX { 0.01 } else { slow.idle.as_secs_f64() };
        (self.response(slow, write, len) - self.response(fast, write, len)) / idle.max(1e-9)
    }
}
