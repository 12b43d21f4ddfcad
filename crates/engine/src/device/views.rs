//! The devices as policies see them: what is measured of them, and what is free on them.

use crate::device::Device;
use crate::flight::Whose;
use weir_map::{Map, Superblock};
use weir_model::{DeviceId, Nanos};
use weir_policy::placement::{DeviceView, MeasuredCommand};

/// A view of each device.
#[derive(Debug)]
pub(crate) struct Views {
    /// As measured; what else changes is filled in when they are shown, if it has changed.
    views: Vec<DeviceView>,
    /// The map's [`Map::space_changes`] when that was; nothing if a device is not what it was then.
    filled: Option<u64>,
    /// Measurements so far.
    measured: u64,
}

impl Views {
    pub(crate) fn new(map: &Map) -> Self {
        let view = |sb: &Superblock| DeviceView::new(sb.device, map.space(sb.device).extents());
        let views = map.devices().iter().map(view).collect();
        Self { views, filled: None, measured: 0 }
    }

    /// Notes a command that ended well, as policies are to see the device.
    #[inline]
    pub(crate) fn measure(&mut self, device: DeviceId, whose: Whose, command: &MeasuredCommand) {
        self.measured += 1;
        let view = &mut self.views[device.index()];
        match whose {
            Whose::Client => view.note(command),
            Whose::Mover => view.note_move(command),
            Whose::Other => {}
        }
    }

    /// So many commands are under way at a device.
    #[inline]
    pub(crate) fn set_in_flight(&mut self, device: DeviceId, commands: u32) {
        self.views[device.index()].in_flight = commands;
    }

    /// A device is lost, or has been measured idle.
    pub(crate) fn device_changed(&mut self) {
        self.filled = None;
    }

    /// See [`Moment::measured`](weir_policy::placement::Moment::measured).
    #[inline]
    pub(crate) fn measured(&self) -> u64 {
        self.measured
    }

    /// Notes a flush of data that ended well.
    pub(crate) fn measure_flush(&mut self, device: DeviceId, response: Nanos) {
        self.measured += 1;
        self.views[device.index()].note_flush(response);
    }

    /// A device as measured; what else changes is as it was when it was shown last.
    #[inline]
    pub(crate) fn of(&self, device: DeviceId) -> &DeviceView {
        &self.views[device.index()]
    }

    /// All devices, as measured.
    #[inline]
    pub(crate) fn all(&self) -> &[DeviceView] {
        &self.views
    }

    /// Has them show what is free, and which devices can be used.
    #[inline]
    pub(crate) fn fill_in(&mut self, map: &Map, devices: &[Device]) {
        if self.filled != Some(map.space_changes()) {
            self.fill_in_all(map, devices);
        }
        debug_assert!(self.are_filled_in(map, devices), "something of a device has changed unnoticed");
    }

    #[inline(never)]
    fn fill_in_all(&mut self, map: &Map, devices: &[Device]) {
        self.filled = Some(map.space_changes());
        for (view, device) in self.views.iter_mut().zip(devices) {
            if fill_in(view, device, map) {
                self.measured += 1;
            }
        }
    }

    /// Whether filling in would change nothing.
    fn are_filled_in(&self, map: &Map, devices: &[Device]) -> bool {
        let mut all = self.views.iter().zip(devices);
        all.all(|(view, device)| {
            let mut now = *view;
            fill_in(&mut now, device, map);
            now == *view
        })
    }

    /// A copy that is filled in, while they themselves stay as they are.
    pub(crate) fn filled_in(&self, map: &Map, devices: &[Device]) -> Vec<DeviceView> {
        let mut views = self.views.clone();
        for (view, device) in views.iter_mut().zip(devices) {
            fill_in(view, device, map);
        }
        views
    }
}

/// What is not measured. Whether that is anything a policy remembers by [`Views::measured`].
fn fill_in(view: &mut DeviceView, device: &Device, map: &Map) -> bool {
    let (usable, idle) = (!device.is_lost(), device.idle.response.unwrap_or(Nanos::MAX));
    let changes = view.usable != usable || view.idle != idle;
    (view.usable, view.idle, view.idle_quartiles) = (usable, idle, device.idle.quartiles);
    let space = map.space(view.id);
    view.free = if usable { space.free() } else { 0 };
    view.slots = if usable { space.free_slots() } else { 0 };
    view.in_flight = device.in_flight();
    changes
}
