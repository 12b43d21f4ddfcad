//! `hierarchy`: the fastest device with free space, as classic caching and tiering fill one.
//!
//! Rule: allocate on the device whose idle 4 KiB read response is lowest, measured when the pool
//! starts; when it is full, on the next.
//!
//! When not: under a load that saturates the fast device, everything waits there while the others
//! idle (what Wardrop balancing was published against).

use super::{Access, Moment, Placement, Question, Reasons};
use weir_model::DeviceId;

/// See the module.
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
