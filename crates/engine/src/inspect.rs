//! What people can ask of an engine: status, where a block is, what it is doing, and notices.

pub(crate) mod activity;
pub(crate) mod explain;
pub(crate) mod status;

use crate::durability::doubt::Loss;
use crate::policy::which::Which;
use crate::{Engine, MoverStatus, SpaceStatus};
use weir_model::{DeviceId, VolumeId};
use weir_policy::harm::Estimate;
use weir_policy::placement::DeviceView;

impl Engine {
    /// What the mover has done.
    pub fn mover_status(&self) -> MoverStatus {
        self.data.mover_status()
    }

    /// How full the pool is.
    pub fn space_status(&self) -> SpaceStatus {
        self.data.base.space_status()
    }

    /// Clients' commands each device has completed, the mover's and the map's left out.
    pub fn served(&self) -> impl Iterator<Item = u64> {
        self.data.base.core.views.all().iter().map(DeviceView::completed)
    }

    /// What all windows of the pool's policy came to.
    pub fn judged(&self) -> Estimate {
        self.data.base.host.moves_status(&self.data.base.core, Which(0)).all
    }

    /// The device because of which data of some volume, or the metadata, that was durable is gone, or will
    /// be once the device is closed. `None` if no device is damaged, or all that was on it is durable
    /// elsewhere.
    pub fn damaged_device(&self) -> Option<DeviceId> {
        self.data.base.damaged_device()
    }

    /// Superblocks are being written because a member was left behind.
    pub fn is_recording(&self) -> bool {
        self.data.base.durability.members.are_recording()
    }

    /// The last time that acknowledged writes of the volume were lost, if they ever were since the start.
    pub fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        self.data.base.durability.doubt.last_loss(volume)
    }
}
