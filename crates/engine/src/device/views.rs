//! The devices as policies see them: measurements and free space.

use crate::device::Device;
use crate::flight::Origin;
use weir_map::{Map, Superblock};
use weir_model::{DeviceId, Nanos};
use weir_policy::placement::{DeviceView, MeasuredCommand};

/// The view of each device.
#[derive(Debug)]
pub(crate) struct Views {
    /// The views. Measurements are current; the other fields are filled in on demand, if they have changed.
    views: Vec<DeviceView>,
    /// The map's [`Map::space_changes`] at the last filling; `None` if a device has changed since.
    filled_at_change: Option<u64>,
    /// The number of measurements so far.
    measurement_count: u64,
}

impl Views {
    pub(crate) fn new(map: &Map) -> Self {
        let view = |sb: &Superblock| DeviceView::new(sb.device, map.space(sb.device).extents());
        let views = map.devices().iter().map(view).collect();
        Self { views, filled_at_change: None, measurement_count: 0 }
    }

    /// Notes a command that succeeded, for the policies' view of the device.
    #[inline]
    pub(crate) fn measure(&mut self, device: DeviceId, origin: Origin, command: &MeasuredCommand) {
        self.measurement_count += 1;
        let view = &mut self.views[device.index()];
        match origin {
            Origin::Client => view.note(command),
            Origin::Mover => view.note_move(command),
            Origin::Other => {}
        }
    }

    /// Sets the number of commands in flight at a device.
    #[inline]
    pub(crate) fn set_in_flight(&mut self, device: DeviceId, commands: u32) {
        self.views[device.index()].in_flight = commands;
    }

    /// Notes that a device is lost, or that its idle response time was measured.
    pub(crate) fn device_changed(&mut self) {
        self.filled_at_change = None;
    }

    /// See [`PolicyContext::measured`](weir_policy::placement::PolicyContext::measured).
    #[inline]
    pub(crate) fn measured(&self) -> u64 {
        self.measurement_count
    }

    /// Notes a flush of data that succeeded.
    pub(crate) fn measure_flush(&mut self, device: DeviceId, response: Nanos) {
        self.measurement_count += 1;
        self.views[device.index()].note_flush(response);
    }

    /// Notes a round trip over the network in front of a device.
    pub(crate) fn measure_round_trip(&mut self, device: DeviceId, time: Nanos) {
        self.measurement_count += 1;
        self.views[device.index()].note_round_trip(time);
    }

    /// Returns the view of a device. Only its measurements are current; the other fields are as of the last
    /// filling.
    #[inline]
    pub(crate) fn device(&self, device: DeviceId) -> &DeviceView {
        &self.views[device.index()]
    }

    /// Returns the views of all devices. Only their measurements are current.
    #[inline]
    pub(crate) fn all(&self) -> &[DeviceView] {
        &self.views
    }

    /// Fills in free space and availability, if they have changed.
    #[inline]
    pub(crate) fn fill_in(&mut self, map: &Map, devices: &[Device]) {
        if self.filled_at_change != Some(map.space_changes()) {
            self.fill_in_all(map, devices);
        }
        debug_assert!(self.is_filled_in(map, devices), "something of a device has changed unnoticed");
    }

    #[inline(never)]
    fn fill_in_all(&mut self, map: &Map, devices: &[Device]) {
        self.filled_at_change = Some(map.space_changes());
        for (view, device) in self.views.iter_mut().zip(devices) {
            if fill_in(view, device, map) {
                self.measurement_count += 1;
            }
        }
    }

    /// Whether filling in would change nothing.
    fn is_filled_in(&self, map: &Map, devices: &[Device]) -> bool {
        let mut all = self.views.iter().zip(devices);
        all.all(|(view, device)| {
            let mut now = *view;
            fill_in(&mut now, device, map);
            now == *view
        })
    }

    /// Returns a filled-in copy of the views, leaving them unchanged.
    pub(crate) fn filled_in(&self, map: &Map, devices: &[Device]) -> Vec<DeviceView> {
        let mut views = self.views.clone();
        for (view, device) in views.iter_mut().zip(devices) {
            fill_in(view, device, map);
        }
        views
    }
}

/// Fills in the fields that are not measured. Returns whether a field changed that policies cache by
/// [`Views::measured`].
fn fill_in(view: &mut DeviceView, device: &Device, map: &Map) -> bool {
    let (usable, idle) = (!device.is_lost(), device.idle.response.unwrap_or(Nanos::MAX));
    let changes = view.is_usable != usable || view.idle_response != idle;
    (view.is_usable, view.idle_response, view.idle_quartiles) = (usable, idle, device.idle.quartiles);
    let space = map.space(view.id);
    view.free = if usable { space.free() } else { 0 };
    view.slots = if usable { space.free_slots() } else { 0 };
    view.in_flight = device.in_flight();
    changes
}
