//! Detection of bursts: clients temporarily request more than the other devices can serve.
//!
//! Rule: a burst begins when each of the other devices has more than [`MOVER_COMMANDS_MAX`] commands in
//! flight, and is over when one of them has at most one left. During a burst, write-backs take time that a
//! queue of requests waits for: an extent written to a disk between its reads costs as much as several of
//! them, and a device that just keeps up no longer does. Blocks that must leave the fast devices in a burst
//! leave later, or as writes need their space. A burst longer than [`BURST_MAX`] is normal load: waiting is
//! no better then.
//!
//! Constants: fitted to the release server's trace, its addresses turned by 0.2 and 0.6. Half and twice the
//! queue, a quarter and four times the time give the same result within 3 % in the mean. Without a time
//! limit, a load whose queue is always long would never have space freed for it.

use super::super::DeviceView;
use super::fast::FastDevices;
use weir_model::Nanos;

/// A device with more commands in flight than this has some of clients: the mover has fewer there. A burst
/// begins when each of the other devices has more.
pub(super) const MOVER_COMMANDS_MAX: u32 = 8;
/// The commands in flight at one of the other devices at which a burst is over.
const QUEUE_END: u32 = 1;
/// The maximum length of a burst.
const BURST_MAX: Nanos = Nanos::secs(60);

/// The state of the detection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    /// The beginning of the burst, and whether it is still a burst instead of normal load.
    began: Option<Nanos>,
    is_active: bool,
}

impl Burst {
    /// Updates the state; called each round.
    pub(super) fn round(&mut self, now: Nanos, devices: &[DeviceView], fast: FastDevices) {
        let others = fast.other_devices(devices).filter(|d| d.is_usable);
        let least = others.map(|d| d.in_flight).min().unwrap_or(0);
        if least > MOVER_COMMANDS_MAX {
            self.began.get_or_insert(now);
        } else if least <= QUEUE_END {
            self.began = None;
        }
        self.is_active = self.began.is_some_and(|began| now.since(began) < BURST_MAX);
    }

    /// Whether a burst is in progress.
    pub(super) fn is_active(self) -> bool {
        self.is_active
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::device;
    use super::*;

    /// Returns whether there is a burst after each of these seconds, given the commands in flight at two
    /// disks beside an SSD.
    fn bursts(seconds: &[[u32; 2]]) -> Vec<bool> {
        let mut devices = [device(0, 64, 100), device(1, 1024, 8000), device(2, 1024, 8000)];
        let (fast, mut burst) = (FastDevices::select(&devices), Burst::default());
        // The fast device's queue does not matter.
        devices[0].in_flight = 64;
        let second = |(second, queues): (u64, &[u32; 2])| {
            (devices[1].in_flight, devices[2].in_flight) = (queues[0], queues[1]);
            burst.round(Nanos::secs(second), &devices, fast);
            burst.is_active()
        };
        (0..).zip(seconds).map(second).collect()
    }

    #[test]
    fn burst_begins_and_ends_with_queues() {
        let queues = [[0, 0], [8, 9], [50, 2], [9, 9], [9, 2], [2, 30], [30, 1], [8, 8]];
        assert_eq!(bursts(&queues), [false, false, false, true, true, true, false, false]);
    }

    #[test]
    fn long_burst_is_normal_load() {
        let mut queues = [[20, 20]; 200];
        queues[120] = [0, 20];
        let bursts = bursts(&queues);
        assert!(bursts[..60].iter().all(|burst| *burst));
        assert!(bursts[60..=120].iter().all(|burst| !burst));
        assert!(bursts[121..180].iter().all(|burst| *burst), "another one");
    }

    #[test]
    fn lost_device_is_ignored() {
        let mut devices = [device(0, 64, 100), device(1, 1024, 8000), device(2, 1024, 8000)];
        let (fast, mut burst) = (FastDevices::select(&devices), Burst::default());
        (devices[1].in_flight, devices[2].is_usable) = (20, false);
        burst.round(Nanos(0), &devices, fast);
        assert!(burst.is_active());
        devices[1].is_usable = false;
        burst.round(Nanos(1), &devices, fast);
        assert!(!burst.is_active());
    }
}
