//! What a power cut or a kill leaves of the pool, and of what was expected of it.

use super::{Driver, Health};
use crate::Stop;
use weir_model::DeviceSet;

impl Driver {
    /// Everything stops. A power cut mends the devices.
    pub(super) fn stop(&mut self, how: Stop) {
        // Which flushes have failed only a server knows, until it has made durable what is in doubt: what
        // it takes along with it (decision 10) is not what is looked for here.
        let takes_along = how == Stop::Kill && !(self.is_serving && self.engine.is_settled());
        self.is_serving = false;
        self.world.stop(how);
        if takes_along {
            self.world.recall_unflushed();
        }
        if how == Stop::PowerCut {
            // Whoever comes to see why it is dark replaces cables, too.
            self.world.mend_devices();
            (self.health, self.failing, self.astray) = (Health::Whole, DeviceSet::default(), false);
            self.unreadable = DeviceSet::default();
            self.note_absence();
        }
        self.oracle.crash(how);
        self.under_way.clear();
        self.gone.clear();
        self.kept_space.crash();
        self.jump = None;
        self.copies.disarm();
        self.statistics.crashes += 1;
        *self.statistics.gaps.entry(self.answered_since_crash).or_default() += 1;
        self.answered_since_crash = 0;
    }
}
