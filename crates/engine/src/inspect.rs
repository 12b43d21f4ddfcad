//! Queries of an engine: status, location of a block, current activity, and notices.

pub(crate) mod activity;
pub(crate) mod explain;
pub(crate) mod status;

use crate::durability::doubt::Loss;
use crate::policy::index::PolicyIndex;
use crate::{Engine, MoverStatus, SpaceStatus};
use weir_model::{Bytes, DeviceId, VolumeId};
use weir_policy::harm::Estimate;
use weir_policy::placement::DeviceView;

impl Engine {
    /// Returns the mover's counters.
    pub fn mover_status(&self) -> MoverStatus {
        self.data.mover_status()
    }

    /// Returns the pool's space use.
    pub fn space_status(&self) -> SpaceStatus {
        self.data.base.space_status()
    }

    /// Returns the number of clients' commands that each device has completed, without those of the mover and
    /// the map.
    pub fn client_commands_completed(&self) -> impl Iterator<Item = u64> {
        self.data.base.core.views.all().iter().map(DeviceView::completed)
    }

    /// Returns the space of each device for user data, and the part of it that no volume owns in the visible
    /// state. Cost: constant for each device.
    pub fn device_space(&self) -> impl Iterator<Item = (Bytes, Bytes)> {
        let core = &self.data.base.core;
        core.map.devices().iter().map(|device| core.device_space(device.device))
    }

    /// Returns the estimate of all windows of the pool's policy.
    pub fn total_estimate(&self) -> Estimate {
        self.data.base.host.moves_status(&self.data.base.core, PolicyIndex(0)).total
    }

    /// Returns a device whose damage makes durable data of some volume, or the metadata, unavailable now or
    /// once it is closed. `None` if no device is damaged, or if all of its data is durable elsewhere.
    pub fn damaged_device(&self) -> Option<DeviceId> {
        self.data.base.damaged_device()
    }

    /// Whether superblocks are being written because a member was left behind.
    pub fn is_recording(&self) -> bool {
        self.data.base.durability.members.is_recording()
    }

    /// Returns the last loss of acknowledged writes of the volume since the start, if there was one.
    pub fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        self.data.base.durability.doubt.last_loss(volume)
    }
}
