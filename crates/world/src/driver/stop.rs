//! The effect of a power loss or kill on the pool, and on the expectations about it.

use super::{Driver, Health};
use crate::StopKind;
use weir_model::DeviceSet;

impl Driver {
    /// Stops everything. A power loss repairs the devices.
    pub(super) fn stop(&mut self, how: StopKind) {
        // Only a server knows which flushes have failed, until it has made the doubtful data durable: the
        // loss of that knowledge with the server (decision 10) is not tested here.
        let takes_along = how == StopKind::Kill && !(self.is_serving && self.engine.is_settled());
        self.is_serving = false;
        self.world.stop(how);
        if takes_along {
            self.world.requeue_failed_writes();
        }
        if how == StopKind::PowerLoss {
            // An operator who investigates a power loss also replaces cables.
            self.world.repair_devices();
            (self.health, self.failing, self.may_misdirect) = (Health::Healthy, DeviceSet::default(), false);
            self.unreadable = DeviceSet::default();
            self.mark_missing_as_failing();
        }
        self.oracle.crash(how);
        self.in_flight.clear();
        self.replaced_volumes.clear();
        self.space_guarantees.crash();
        self.jump = None;
        self.copies.disarm();
        self.statistics.crashes += 1;
        *self.statistics.gaps.entry(self.answered_since_crash).or_default() += 1;
        self.answered_since_crash = 0;
    }
}
