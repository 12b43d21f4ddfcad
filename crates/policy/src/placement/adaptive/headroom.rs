//! Headroom: the space of the fast devices that is kept free for future writes. It is the observed demand of
//! writes, as far as the other devices' idle time permits freeing it.

use super::super::DeviceView;
use super::burst::MOVER_COMMANDS_MAX;
use super::fast::FastDevices;
use super::heat::PartLayout;

/// The fraction of the device's space above which nothing is added.
pub(super) const FILL_LIMIT: f64 = 0.98;
/// The headroom below that which is always kept, half of it for writes alone; and the hysteresis between the
/// fill at which parts begin to leave and the one at which they stop.
const HEADROOM_MIN: f64 = 0.04;
/// The additional headroom while the other devices are idle: the demand of writes in this many windows,
/// because many writes at a time last longer than one window, but at most this fraction.
const DEMAND_WINDOWS: f64 = 4.0;
const HEADROOM_MAX: f64 = 0.25;
/// The fill up to which new extents go there.
const ALLOCATION_FILL_MAX: f64 = 0.92;
/// The length of the window over which the demand of writes is counted, in rounds; and the decay of the
/// recent maximum per window.
const WINDOW: u32 = 100;
const DEMAND_DECAY: f64 = 0.99;
/// The weight of a round in the utilization of the other devices, and the utilization that counts as fully
/// busy.
const ROUND_WEIGHT: f64 = 0.01;
const FULLY_BUSY: f64 = 0.5;

/// The state of the headroom.
#[derive(Clone, Debug)]
pub(super) struct Headroom {
    /// The recent maximum demand of writes in one window, as a fraction of the space.
    peak_demand: f64,
    /// The parts that writes have requested in this window.
    requested_parts: u32,
    /// Whether anything has wanted space since the start.
    is_requested: bool,
    rounds: u32,
    /// The fraction of rounds in which the other devices worked for clients.
    utilization: f64,
    /// The number of clients' commands completed at the last round, and whether there were any.
    completed: u64,
    had_clients: bool,
}

impl Default for Headroom {
    fn default() -> Self {
        Self {
            peak_demand: 0.0,
            requested_parts: 0,
            is_requested: false,
            rounds: 0,
            utilization: 1.0,
            completed: 0,
            had_clients: false,
        }
    }
}

impl Headroom {
    /// Whether parts may be added up to this fill.
    pub(super) fn is_below(device: &DeviceView, layout: PartLayout, most: f64) -> bool {
        device.has_slots() && layout.fill([device]) < most
    }

    /// Whether new extents may go there.
    pub(super) fn accepts_extents(device: &DeviceView, layout: PartLayout) -> bool {
        device.free > 0 && layout.fill([device]) < ALLOCATION_FILL_MAX
    }

    /// Returns the utilization of the other devices, 0 to 1.
    pub(super) fn utilization(&self) -> f64 {
        (self.utilization / FULLY_BUSY).min(1.0)
    }

    /// Whether the other devices had commands of clients in the last round: they completed some, or more are
    /// in flight than the mover has there.
    pub(super) fn had_clients(&self) -> bool {
        self.had_clients
    }

    /// Returns the fill up to which copies may be added: somewhat above the one at which parts leave, so that
    /// parts leave before copies have to wait for them.
    pub(super) fn copy_fill_max(&self) -> f64 {
        self.eviction_start() + HEADROOM_MIN / 2.0
    }

    /// Returns the fill above which parts leave.
    pub(super) fn eviction_start(&self) -> f64 {
        FILL_LIMIT
            - HEADROOM_MIN
            - (1.0 - self.utilization()) * (DEMAND_WINDOWS * self.peak_demand).min(HEADROOM_MAX)
    }

    /// Returns the fill at which parts stop leaving.
    pub(super) fn eviction_stop(&self) -> f64 {
        self.eviction_start() - HEADROOM_MIN
    }

    /// Returns the fill up to which copies in idle time take space without making any: above it bursts of
    /// writes find space, however long ago the last one was.
    pub(super) fn unreserved_fill() -> f64 {
        FILL_LIMIT - 2.0 * HEADROOM_MIN - HEADROOM_MAX
    }

    /// Returns the fill above which parts leave, and the one at which they stop. In a burst both equal the
    /// fill of copies: then only writes make parts leave, and no more than they need.
    pub(super) fn eviction_thresholds(&self, is_burst: bool) -> (f64, f64) {
        if is_burst {
            (self.copy_fill_max(), self.copy_fill_max())
        } else {
            (self.eviction_start(), self.eviction_stop())
        }
    }

    /// Notes that a write needs space for this many parts.
    pub(super) fn request_parts(&mut self, parts: u32) {
        self.requested_parts += parts;
        self.request_space();
    }

    /// Notes that something needs space.
    pub(super) fn request_space(&mut self) {
        self.is_requested = true;
    }

    /// Whether anything has wanted space since the start: before that none is freed, so that nothing moves
    /// merely because a pool has switched to this policy.
    pub(super) fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// Updates the state; called each round.
    pub(super) fn round(&mut self, devices: &[DeviceView], fast: FastDevices, layout: PartLayout) {
        let others = || fast.other_devices(devices);
        let completed = others().map(DeviceView::completed).sum();
        let served_clients = completed != self.completed;
        self.had_clients = served_clients || others().any(|d| d.in_flight > MOVER_COMMANDS_MAX);
        let is_busy = served_clients || others().any(|d| d.in_flight > 1);
        self.completed = completed;
        self.utilization += ROUND_WEIGHT * (f64::from(u8::from(is_busy)) - self.utilization);
        self.rounds += 1;
        if self.rounds == WINDOW {
            let all = fast.extents(devices) as f64 * f64::from(layout.count());
            self.peak_demand =
                (DEMAND_DECAY * self.peak_demand).max(f64::from(self.requested_parts) / all.max(1.0));
            (self.rounds, self.requested_parts) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::MeasuredCommand;
    use super::super::super::testing::device;
    use super::*;
    use weir_model::{Bytes, Nanos};

    #[test]
    fn idle_time_makes_space_for_writes() {
        let (mut headroom, cut) = (Headroom::default(), PartLayout::new(32));
        let mut devices = [device(0, 100, 100), device(1, 1000, 8000)];
        assert!(
            (headroom.eviction_start() - 0.94).abs() < 1e-9,
            "nothing is known, so the others count as busy"
        );
        let fast = FastDevices::select(&devices);
        (0..2000).for_each(|_| headroom.round(&devices, fast, cut));
        assert!((headroom.eviction_start() - 0.94).abs() < 1e-6, "writes have taken nothing");
        headroom.request_parts(160);
        (0..WINDOW).for_each(|_| headroom.round(&devices, fast, cut));
        assert!(
            (headroom.eviction_start() - 0.74).abs() < 1e-6,
            "a twentieth of the space was asked for at once"
        );
        for _ in 0..2000 {
            devices[1].note(&MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::millis(8), Nanos(0)));
            headroom.round(&devices, fast, cut);
        }
        assert!(
            (headroom.eviction_start() - 0.94).abs() < 1e-9,
            "nothing leaves while the others are in use"
        );
    }

    #[test]
    fn write_demand_decays() {
        let (mut headroom, cut) = (Headroom::default(), PartLayout::new(32));
        let devices = [device(0, 100, 100), device(1, 1000, 8000)];
        let fast = FastDevices::select(&devices);
        (0..2000).for_each(|_| headroom.round(&devices, fast, cut));
        headroom.request_parts(160);
        (0..WINDOW).for_each(|_| headroom.round(&devices, fast, cut));
        assert!((headroom.eviction_start() - 0.74).abs() < 1e-6);
        (0..300 * WINDOW).for_each(|_| headroom.round(&devices, fast, cut));
        assert!(
            headroom.eviction_start() > 0.92,
            "{}: nothing has been asked for since",
            headroom.eviction_start()
        );
    }
}
