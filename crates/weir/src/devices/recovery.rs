//! Reports of the recovery that ran when a pool was opened.

use super::PoolDescription;
use weir_map::{Map, Recovery};

impl PoolDescription {
    /// Logs the findings of the opening that concern the user, and gives absent devices in the map their
    /// names from the pool file.
    pub fn report_recovery(&self, map: &mut Map, recovery: &Recovery) {
        for device in recovery.absent.iter() {
            map.set_absent_name(device, self.name(device));
        }
        for device in recovery.absent.iter() {
            tracing::warn!(
                "device {} is absent: data that it alone holds reads as EIO; if it is gone for good, a blank one can take \
                 its place: weir pool replace {}",
                self.name_and_path(device),
                self.name(device)
            );
        }
        for device in recovery.left_behind.iter() {
            tracing::warn!(
                "the pool's metadata is not mirrored: the copy on device {} is outdated",
                self.name_and_path(device)
            );
        }
        for device in recovery.synchronized.iter() {
            tracing::info!("the pool's metadata is mirrored on device {} again", self.name_and_path(device));
        }
        for device in recovery.blank.iter() {
            tracing::info!(
                "device {} has taken the place of one that is gone; second copies are made on it (weir volume \
                 list says what lacks one)",
                self.name_and_path(device)
            );
        }
        for device in recovery.outdated.without(recovery.blank).iter() {
            tracing::warn!(
                "the file of device {} is older than what the pool has used: it was truncated, \
                 removed or replaced; data of other devices is used, and second copies \
                 are made again",
                self.name_and_path(device)
            );
        }
        if recovery.repaired > 0 {
            tracing::warn!(pages = recovery.repaired, "damaged metadata was repaired from the other copy");
        }
        if recovery.older_root {
            tracing::warn!("the newest root was damaged; the one before it and its journal were used");
        }
    }
}
