//! `sequential`: one device after the other, in the order of the pool file.
//!
//! Source: the allocation "local until full" of user-optimal migration and of virtual allocation (the
//! dissertation behind both, chapters III and II). It is their baseline.
//!
//! When not: whenever more than one device should be busy.

use super::{Access, Placement, PolicyContext};
use weir_model::DeviceId;

/// The policy; it has no state.
#[derive(Clone, Copy, Debug)]
pub struct Sequential;

impl Placement for Sequential {
    fn name(&self) -> &'static str {
        "sequential"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        context.devices.iter().find(|d| d.free > 0).map(|d| d.id)
    }
}
