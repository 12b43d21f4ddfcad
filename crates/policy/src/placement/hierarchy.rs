//! `hierarchy`: the fastest device with free space, as in classic caching and tiering.
//!
//! Rule: allocate on the device whose idle 4 KiB read response is lowest, measured when the pool starts; when
//! it is full, on the next.
//!
//! When not: under a load that saturates the fast device, all requests wait there while the others are idle
//! (the situation that Wardrop balancing addresses).

use super::{Access, Moment, Placement, Question, Reasons};
use weir_model::DeviceId;

/// The policy; it has no state.
#[derive(Clone, Copy, Debug)]
pub struct Hierarchy;

impl Placement for Hierarchy {
    fn name(&self) -> &'static str {
        "hierarchy"
    }

    fn allocate(&mut self, moment: &mut Moment<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().filter(|d| d.free > 0).min_by_key(|d| (d.idle, d.id)).map(|d| d.id)
    }

    fn explain(&self, moment: &Moment<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        reasons.idle_reads(moment.devices, about);
        reasons.free_space(moment.devices, about);
        reasons
    }
}
