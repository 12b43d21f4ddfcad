//! Second copies of dirty blocks, on a second fast device (`buffer_copies = 2`).
//!
//! If both devices have space, a buffered write goes to slots of both. Otherwise it is not buffered: it goes
//! home, and not over a clean copy on the fast device, which would become the only copy. With one fast device
//! there is one copy, and the remark [`NO_SECOND_DEVICE`] reports it.

use super::super::{Action, DeviceView, Places, PolicyContext, WriteTo, allocation};
use super::{Extent, Hystor, fine, whole_range};
use weir_model::{DeviceId, ExtentKey, Nanos, PlaceId, PlaceKind};

/// The remark if there is no second fast device.
pub(super) const NO_SECOND_DEVICE: &str = "buffer_copies = 2 takes two fast devices, and another one for the blocks' homes, and they \
                                are not there: dirty blocks have one copy";

/// Returns the device for second copies: the one with the shortest idle read among those other than the fast
/// one, if it is fast too (see [`super`]) and leaves another one for homes.
fn second_fast(devices: &[DeviceView], fast: DeviceId) -> Option<DeviceId> {
    let others = || devices.iter().filter(|d| d.is_usable && d.id != fast && d.idle_response < Nanos::MAX);
    let (second, slowest) = (
        others().min_by_key(|d| (d.idle_response, d.id))?,
        others().max_by_key(|d| (d.idle_response, d.id))?,
    );
    let idle = |d: &DeviceView| d.idle_response.0 as f64;
    let first = idle(devices.get(fast.index())?);
    let near = (2.0 * first).max((first * idle(slowest)).sqrt());
    (second.id != slowest.id && idle(second) <= near).then_some(second.id)
}

impl Hystor {
    /// Returns the device for second copies, if they are configured and there is one. It stays the same while
    /// it is usable.
    pub(super) fn second(&mut self, devices: &[DeviceView]) -> Option<DeviceId> {
        let fast = self.fast.filter(|_| self.duplexed)?;
        let usable = |id: &DeviceId| *id != fast && devices.get(id.index()).is_some_and(|d| d.is_usable);
        self.second = self.second.filter(usable).or_else(|| second_fast(devices, fast));
        self.second
    }

    /// Whether second copies are configured but there is no device for them.
    pub(super) fn lacks_second(&self) -> bool {
        self.duplexed && self.second_searched && self.second.is_none()
    }

    /// Returns the target of a write if it is buffered, if that is possible, and the target if it is not.
    pub(super) fn write_targets(
        &mut self,
        devices: &[DeviceView],
        fast: DeviceId,
        places: &Places,
    ) -> (Option<WriteTo>, WriteTo) {
        let view = |id: DeviceId| devices.get(id.index());
        let usable = |id: DeviceId| view(id).is_some_and(|d| d.is_usable);
        // If the fast device has changed, homes may be on it.
        let home = places.whole(|id| id != fast && usable(id)).or_else(|| places.whole(usable));
        let elsewhere = home.map_or(WriteTo::InPlace, |home| WriteTo::Whole(home.id.device));
        let Some(second) = self.second(devices) else {
            // Before every device is measured, the second one is unknown: nothing is buffered in one copy
            // meanwhile.
            if self.duplexed && devices.iter().any(|d| d.is_usable && d.idle_response == Nanos::MAX) {
                return (None, elsewhere);
            }
            return (Some(WriteTo::Fine(fast)), WriteTo::InPlace);
        };
        let has_room = view(second).is_some_and(DeviceView::has_space);
        (has_room.then_some(WriteTo::FineDuplexed([fast, second])), elsewhere)
    }

    /// Returns an extent's home, present or future: not on a fast device, unless it is there already or there
    /// is no other place.
    pub(super) fn home(
        &mut self,
        devices: &[DeviceView],
        places: &Places,
        fast: DeviceId,
    ) -> Option<PlaceId> {
        let second = self.second.filter(|_| places.whole(|device| device != fast).is_none());
        let new = second.and_then(|second| {
            self.stripe.next_of(devices, |d| d.id != fast && d.id != second && d.has_space())
        });
        match new {
            Some(device) => Some(PlaceId { device, kind: PlaceKind::Whole }),
            None => allocation::home(&mut self.stripe, devices, places, fast),
        }
    }

    /// Updates the extents requested to be scrubbed: blocks written back need no second copy any more.
    pub(super) fn refresh_requested(&mut self, context: &mut PolicyContext<'_>, fast: DeviceId) {
        let PolicyContext { map, .. } = context;
        let mut home = Vec::new();
        self.areas.refresh_requested(|key| {
            let extent = Extent::of(&map.places(key), fine(fast));
            if extent.dirty == 0 {
                home.push(key);
            }
            extent
        });
        home.into_iter().for_each(|key| self.drop_second(context, key));
    }

    /// Drops the second copies of an extent's blocks that are at home.
    pub(super) fn drop_second(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey) {
        let Some(second) = self.second else { return };
        let from = fine(second);
        if context.map.places(key).place(from).is_some_and(|p| p.of_extent > p.dirty) {
            context.actions.push(Action::Drop { key, blocks: whole_range(context), from });
        }
    }
}
