//! `stripe`: extents over all devices in turn, until the smaller ones are full.
//!
//! Source: the striping against which measurement-driven migration and Wardrop balancing are measured. Every
//! device gets the same share, whatever its speed.
//!
//! When not: with devices of different speed, large requests wait for the slowest.

use super::{Access, DeviceView, Placement, PolicyContext};
use weir_model::DeviceId;

/// The state of the policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stripe {
    /// The index of the next device.
    next: usize,
}

impl Placement for Stripe {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        self.next_of(context.devices, |device| device.free > 0)
    }
}

impl Stripe {
    /// Returns the next of the `wanted` devices, in turn.
    pub(super) fn next_of(
        &mut self,
        devices: &[DeviceView],
        wanted: impl Fn(&DeviceView) -> bool,
    ) -> Option<DeviceId> {
        let turn = |i: usize| (self.next + i) % devices.len();
        let chosen = (0..devices.len()).map(turn).find(|i| wanted(&devices[*i]))?;
        self.next = chosen + 1;
        Some(devices[chosen].id)
    }
}
