//! `hierarchy`: the fastest device with free space, as in classic caching and tiering.
//!
//! Rule: allocate on the device whose idle 4 KiB read response is lowest, measured when the pool starts; when
//! it is full, on the next.
//!
//! When not: under a load that saturates the fast device, all requests wait there while the others are idle
//! (the situation that Wardrop balancing addresses).

use super::{Access, Placement, PolicyContext, Question, Reasons};
use weir_model::DeviceId;

/// The policy; it has no state.
#[derive(Clone, Copy, Debug)]
pub struct Hierarchy;

impl Placement for Hierarchy {
    fn name(&self) -> &'static str {
        "hierarchy"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        context.devices.iter().filter(|d| d.free > 0).min_by_key(|d| (d.idle_response, d.id)).map(|d| d.id)
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        reasons.idle_reads(context.devices, about);
        reasons.free_space(context.devices, about);
        reasons
    }
}
