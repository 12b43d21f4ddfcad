//! The rule `locality`: every accessed block on a device without a network in front of it, and data that is
//! not accessed elsewhere.

use super::super::{Action, DeviceView, PolicyContext};
use crate::Lru;
use weir_model::{BlockRange, DeviceId, ExtentKey, PlaceId, PlaceKind};

/// The maximum number of extents whose last accesses are remembered.
const RECENT_MAX: usize = 262_144;
/// The number of extents examined to find one that was not accessed.
const LOOKS: usize = 64;

/// The state of the rule.
#[derive(Clone, Debug)]
pub(super) struct Locality {
    /// The extents accessed recently.
    recent: Lru<ExtentKey, ()>,
    /// The position of the search for extents that were not.
    search: ExtentKey,
}

impl Default for Locality {
    fn default() -> Self {
        Self { recent: Lru::new(RECENT_MAX), search: ExtentKey::default() }
    }
}

impl Locality {
    /// Notes an access.
    pub(super) fn note(&mut self, key: ExtentKey) {
        if self.recent.touch(key).is_none() {
            self.recent.insert(key, ());
        }
    }

    /// Returns the local device to which blocks on `from` should go. If there is no space, lets the extent
    /// that was not accessed for longest make some.
    pub(super) fn target(
        &mut self,
        context: &mut PolicyContext<'_>,
        from: DeviceId,
        second: Option<DeviceId>,
    ) -> Option<DeviceId> {
        if !context.device(from)?.is_remote() {
            return None;
        }
        let devices = context.devices;
        let is_local = |device: &DeviceView| device.is_usable && !device.is_remote();
        if let Some(second) = second.and_then(|second| context.device(second)) {
            return is_local(second).then_some(second.id);
        }
        let local = devices.iter().filter(|device| is_local(device));
        let chosen = local.clone().filter(|device| device.has_space()).min_by_key(|d| d.mean_response());
        if chosen.is_none()
            && let Some(full) = local.min_by_key(|device| device.mean_response())
        {
            self.make_space(context, full.id);
        }
        chosen.map(|device| device.id)
    }

    /// Moves an inactive extent from this device to the remote one with the most free space.
    fn make_space(&mut self, context: &mut PolicyContext<'_>, local: DeviceId) {
        let remote = context.devices.iter().filter(|device| device.is_remote() && device.has_space());
        let Some(device) = remote.max_by_key(|device| device.free).map(|device| device.id) else { return };
        if context.actions.len() >= context.actions_max {
            return;
        }
        let Some(key) = self.inactive(context, local) else { return };
        let blocks = BlockRange { first: 0, count: context.extent.blocks() };
        context.actions.push(Action::Move { key, blocks, to: PlaceId { device, kind: PlaceKind::Whole } });
    }

    /// Returns an extent on this device that was not accessed, or the one not accessed for longest.
    fn inactive(&mut self, context: &PolicyContext<'_>, local: DeviceId) -> Option<ExtentKey> {
        let is_there = |key: ExtentKey| {
            let places = context.map.places(key);
            places.as_slice().len() == 1 && places.is_on(local)
        };
        for _ in 0..LOOKS {
            let Some(key) = context.map.next(self.search) else {
                self.search = ExtentKey::default();
                break;
            };
            self.search = after(key);
            if self.recent.get(&key).is_none() && is_there(key) {
                return Some(key);
            }
        }
        let oldest = self.recent.iter_oldest().take(LOOKS).map(|(key, ())| key).find(|key| is_there(*key))?;
        self.recent.remove(&oldest);
        Some(oldest)
    }
}

/// Returns the smallest key above this one.
pub(super) fn after(key: ExtentKey) -> ExtentKey {
    let mut next = key;
    next.index.0 += 1;
    next
}
