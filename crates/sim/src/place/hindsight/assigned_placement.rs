//! A precomputed placement as a policy.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use weir_model::{DeviceId, ExtentIndex, ExtentKey, VolumeId};
use weir_policy::placement::{Access, Placement, PolicyContext};

/// Places each extent on its assigned device, if there is room, and never moves it.
#[derive(Debug)]
pub(super) struct AssignedPlacement {
    by_extent: FxHashMap<ExtentKey, DeviceId>,
}

impl AssignedPlacement {
    /// Creates the policy from the device of each extent; the key is the load's volume, by order, and the
    /// extent in it.
    pub(super) fn new(by_extent: &BTreeMap<(usize, ExtentIndex), DeviceId>) -> Self {
        let key = |(volume, index): &(usize, ExtentIndex)| ExtentKey {
            volume: VolumeId(*volume as _),
            index: *index,
        };
        Self { by_extent: by_extent.iter().map(|(extent, device)| (key(extent), *device)).collect() }
    }
}

impl Placement for AssignedPlacement {
    fn name(&self) -> &'static str {
        "static"
    }

    fn allocate(&mut self, moment: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        let assigned = self.by_extent.get(&access.key);
        let free = moment.devices.iter().filter(|device| device.free > 0);
        free.clone().find(|device| Some(&device.id) == assigned).or(free.max_by_key(|d| d.free)).map(|d| d.id)
    }
}
