//! How much of the fast devices' space is kept free for writes to come: what writes were seen to take, as far as room can
//! be made while the other devices have nothing to do.

use super::super::DeviceView;
use super::fast::Fast;
use super::heat::Cut;

/// Beyond this nothing is added, of the device's space.
pub(super) const BRIM: f64 = 0.98;
/// Below that is kept free in any case, half of it for writes alone; and as much again between the fill at which parts begin
/// to leave and the one at which no more do.
const LEAST: f64 = 0.04;
/// What is kept free besides while the other devices have nothing to do: as much as writes took in so many windows,
/// since many writes at a time last longer than one, but no more than this.
const WINDOWS: f64 = 4.0;
const MOST: f64 = 0.25;
/// Up to this new extents go there.
const ALLOCATED: f64 = 0.92;
/// Rounds in which what writes take is counted; the most of late counts this much less each time.
const WINDOW: u32 = 100;
const STILL: f64 = 0.99;
/// Weight of a round in how busy the others are, and the part of rounds in which they are so from which on that is
/// wholly so.
const STEP: f64 = 0.01;
const BUSY: f64 = 0.5;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Headroom {
    /// Of the space, what writes took in one window at most, of late.
    taken: f64,
    /// Parts they have asked for in this one.
    asked: u32,
    /// Something has wanted room since the start.
    wanted: bool,
    rounds: u32,
    /// The part of rounds in which the other devices did something for clients.
    busy: f64,
    /// Clients' commands they had completed at the last round.
    completed: u64,
}

impl Default for Headroom {
    fn default() -> Self {
        Self { taken: 0.0, asked: 0, wanted: false, rounds: 0, busy: 1.0, completed: 0 }
    }
}

impl Headroom {
    /// Whether parts may be added as long as no more than this is taken.
    pub(super) fn is_below(device: &DeviceView, cut: Cut, most: f64) -> bool {
        device.has_slots() && cut.fill([device]) < most
    }

    /// Whether new extents may go there.
    pub(super) fn takes_extents(device: &DeviceView, cut: Cut) -> bool {
        device.free > 0 && cut.fill([device]) < ALLOCATED
    }

    /// How busy the other devices are: 0 to 1.
    pub(super) fn busy(&self) -> f64 {
        (self.busy / BUSY).min(1.0)
    }

    /// The part of the space that copies may take: somewhat more than parts leave at, so that they do before copies have
    /// to wait for them.
    pub(super) fn for_copies(&self) -> f64 {
        self.full() + LEAST / 2.0
    }

    /// The part of the space that may be taken before parts leave.
    pub(super) fn full(&self) -> f64 {
        BRIM - LEAST - (1.0 - self.busy()) * (WINDOWS * self.taken).min(MOST)
    }

    /// … and once they do, that at which no more leave.
    pub(super) fn filled(&self) -> f64 {
        self.full() - LEAST
    }

    /// The part of the space from which on parts leave, and the one at which no more do. In a burst both are what copies may
    /// fill: only what is written makes parts leave then, and no more than that.
    pub(super) fn leaving(&self, is_burst: bool) -> (f64, f64) {
        if is_burst { (self.for_copies(), self.for_copies()) } else { (self.full(), self.filled()) }
    }

    /// A write asks for space for so many parts.
    pub(super) fn ask(&mut self, parts: u32) {
        self.asked += parts;
        self.want();
    }

    /// Something is to be there that is not.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Whether anything has wanted room since the start: until then none is made, so that nothing moves in a pool only
    /// because it has this policy now.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// A round.
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
