//! Headroom: the space of the fast devices that is kept free for future writes. It is the observed demand of
//! writes, as far as the other devices' idle time permits freeing it.

use super::super::DeviceView;
use super::fast::Fast;
use super::heat::Cut;

/// The fraction of the device's space above which nothing is added.
pub(super) const BRIM: f64 = 0.98;
/// The headroom below that which is always kept, half of it for writes alone; and the hysteresis between the
/// fill at which parts begin to leave and the one at which they stop.
const LEAST: f64 = 0.04;
/// The additional headroom while the other devices are idle: the demand of writes in this many windows,
/// because many writes at a time last longer than one window, but at most this fraction.
const WINDOWS: f64 = 4.0;
const MOST: f64 = 0.25;
/// The fill up to which new extents go there.
const ALLOCATED: f64 = 0.92;
/// The length of the window over which the demand of writes is counted, in rounds; and the decay of the
/// recent maximum per window.
const WINDOW: u32 = 100;
const STILL: f64 = 0.99;
/// The weight of a round in the utilization of the other devices, and the utilization that counts as fully
/// busy.
const STEP: f64 = 0.01;
const BUSY: f64 = 0.5;

/// The state of the headroom.
#[derive(Clone, Debug)]
pub(super) struct Headroom {
    /// The recent maximum demand of writes in one window, as a fraction of the space.
    taken: f64,
    /// The parts that writes have requested in this window.
    asked: u32,
    /// Whether anything has wanted space since the start.
    wanted: bool,
    rounds: u32,
    /// The fraction of rounds in which the other devices worked for clients.
    busy: f64,
    /// The number of clients' commands completed at the last round.
    completed: u64,
}

impl Default for Headroom {
    fn default() -> Self {
        Self { taken: 0.0, asked: 0, wanted: false, rounds: 0, busy: 1.0, completed: 0 }
    }
}

impl Headroom {
    /// Whether parts may be added up to this fill.
    pub(super) fn is_below(device: &DeviceView, cut: Cut, most: f64) -> bool {
        device.has_slots() && cut.fill([device]) < most
    }

    /// Whether new extents may go there.
    pub(super) fn takes_extents(device: &DeviceView, cut: Cut) -> bool {
        device.free > 0 && cut.fill([device]) < ALLOCATED
    }

    /// Returns the utilization of the other devices, 0 to 1.
    pub(super) fn busy(&self) -> f64 {
        (self.busy / BUSY).min(1.0)
    }

    /// Returns the fill up to which copies may be added: somewhat above the one at which parts leave, so that
    /// parts leave before copies have to wait for them.
    pub(super) fn for_copies(&self) -> f64 {
        self.full() + LEAST / 2.0
    }

    /// Returns the fill above which parts leave.
    pub(super) fn full(&self) -> f64 {
        BRIM - LEAST - (1.0 - self.busy()) * (WINDOWS * self.taken).min(MOST)
    }

    /// Returns the fill at which parts stop leaving.
    pub(super) fn filled(&self) -> f64 {
        self.full() - LEAST
    }

    /// Returns the fill above which parts leave, and the one at which they stop. In a burst both equal the
    /// fill of copies: then only writes make parts leave, and no more than they need.
    pub(super) fn leaving(&self, is_burst: bool) -> (f64, f64) {
        if is_burst { (self.for_copies(), self.for_copies()) } else { (self.full(), self.filled()) }
    }

    /// Notes that a write needs space for this many parts.
    pub(super) fn ask(&mut self, parts: u32) {
        self.asked += parts;
        self.want();
    }

    /// Notes that something needs space.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Whether anything has wanted space since the start: before that none is freed, so that nothing moves
    /// merely because a pool has switched to this policy.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Updates the state; called each round.
    pub(super) fn round(&mut self, devices: &[DeviceView], fast: Fast, cut: Cut) {
        let others = || fast.others(devices);
        let completed = others().map(DeviceView::completed).sum();
        let is_busy = completed != self.completed || others().any(|d| d.in_flight > 1);
        self.completed = completed;
        self.busy += STEP * (f64::from(u8::from(is_busy)) - self.busy);
        self.rounds += 1;
        if self.rounds == WINDOW {
            let all = fast.extents(devices) as f64 * f64::from(cut.count());
            self.taken = (STILL * self.taken).max(f64::from(self.asked) / all.max(1.0));
            (self.rounds, self.asked) = (0, 0);
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
    fn room_is_made_while_others_are_idle_as_much_as_writes_were_seen_to_take() {
        let (mut headroom, cut) = (Headroom::default(), Cut::new(32));
        let mut devices = [device(0, 100, 100), device(1, 1000, 8000)];
        assert!((headroom.full() - 0.94).abs() < 1e-9, "nothing is known, so the others count as busy");
        let fast = Fast::of(&devices);
        (0..2000).for_each(|_| headroom.round(&devices, fast, cut));
        assert!((headroom.full() - 0.94).abs() < 1e-6, "writes have taken nothing");
        headroom.ask(160);
        (0..WINDOW).for_each(|_| headroom.round(&devices, fast, cut));
        assert!((headroom.full() - 0.74).abs() < 1e-6, "a twentieth of the space was asked for at once");
        for _ in 0..2000 {
            devices[1].note(&MeasuredCommand::new(false, Bytes::kib(4), 1, Nanos::millis(8), Nanos(0)));
            headroom.round(&devices, fast, cut);
        }
        assert!((headroom.full() - 0.94).abs() < 1e-9, "nothing leaves while the others are in use");
    }

    #[test]
    fn what_writes_took_once_counts_less_and_less() {
        let (mut headroom, cut) = (Headroom::default(), Cut::new(32));
        let devices = [device(0, 100, 100), device(1, 1000, 8000)];
        let fast = Fast::of(&devices);
        (0..2000).for_each(|_| headroom.round(&devices, fast, cut));
        headroom.ask(160);
        (0..WINDOW).for_each(|_| headroom.round(&devices, fast, cut));
        assert!((headroom.full() - 0.74).abs() < 1e-6);
        (0..300 * WINDOW).for_each(|_| headroom.round(&devices, fast, cut));
        assert!(headroom.full() > 0.92, "{}: nothing has been asked for since", headroom.full());
    }
}
