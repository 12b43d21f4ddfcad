//! Noise: a modelled drive whose responses vary as those of real drives do.
//!
//! A model always responds to the same command in the same time. A real device does not: each response takes
//! somewhat longer, a few take much longer, and for seconds at a time one device is slower than an identical
//! one. Policies that compare devices must not mistake this for a difference between the devices.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos, Rng, Seed};
use weir_timing::Timing;

/// Parameters of the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Maximum share of the response added to each response, uniformly distributed.
    pub jitter: f64,
    /// One response in this many is a burst.
    pub burst_every: u64,
    /// Factor by which the response of a burst is longer.
    pub burst: f64,
    /// Length of a slow phase. A third of the phases of this length, drawn from the seed, are slow.
    pub phase: Nanos,
    /// Share of the response added to each response in a slow phase.
    pub slowdown: f64,
    /// Random seed.
    pub seed: u64,
}

impl Noise {
    /// Noise observed with files in memory on a busy machine: responses vary by half, one in 200 takes ten
    /// times as long, and a device is a fifth slower for a second and a half at a time.
    pub const fn busy_machine(seed: u64) -> Self {
        Self { jitter: 0.5, burst_every: 200, burst: 10.0, phase: Nanos::millis(1500), slowdown: 0.2, seed }
    }

    /// Reports whether the device is in a slow phase at this time.
    fn is_slow(&self, now: Nanos) -> bool {
        let stretch = now.0 / self.phase.0.max(1);
        Rng::new(Seed(self.seed ^ stretch.wrapping_mul(0x9e37_79b9_7f4a_7c15))).below(3) == 0
    }
}

/// A drive with noise.
pub(crate) struct NoisyDrive {
    drive: Box<dyn Timing>,
    noise: Noise,
    random: Rng,
    start_times: FxHashMap<IoId, Nanos>,
    /// Completed commands whose completion is still held back.
    delayed: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl NoisyDrive {
    pub(crate) fn new(drive: Box<dyn Timing>, noise: Noise) -> Self {
        let random = Rng::new(Seed(noise.seed));
        Self { drive, noise, random, start_times: FxHashMap::default(), delayed: BinaryHeap::new() }
    }

    /// Returns the time added to a response that ended at this time.
    fn added_delay(&mut self, ended: Nanos, response: Nanos) -> Nanos {
        let mut part = self.noise.jitter * self.random.below(1000) as f64 / 1000.0;
        if self.noise.burst_every > 0 && self.random.below(self.noise.burst_every) == 0 {
            part += self.noise.burst - 1.0;
        }
        if self.noise.is_slow(ended) {
            part += self.noise.slowdown;
        }
        Nanos((response.0 as f64 * part) as u64)
    }
}

impl Timing for NoisyDrive {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes) {
        self.start_times.insert(id, now);
        self.drive.submit(now, id, kind, at, len);
    }

    fn next(&self) -> Option<Nanos> {
        self.drive.next().into_iter().chain(self.delayed.peek().map(|Reverse((at, _))| *at)).min()
    }

    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        while let Some(due) = self.drive.next().filter(|due| *due <= now) {
            if let Some(id) = self.drive.pop(due) {
                let begun = self.start_times.remove(&id).unwrap_or(due);
                let more = self.added_delay(due, due.since(begun));
                self.delayed.push(Reverse((due + more, id.0)));
            }
        }
        let is_due = self.delayed.peek().is_some_and(|Reverse((at, _))| *at <= now);
        if is_due { self.delayed.pop().map(|Reverse((_, id))| IoId(id)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command completes exactly once, never earlier than on the drive.
    #[test]
    fn responses_are_longer_and_none_is_lost() {
        let drive =
            || weir_timing::model("ssd-sata", Bytes::mib(64), weir_world::flash_log).expect("a drive");
        let answers = |mut drive: Box<dyn Timing>| {
            (0..200).for_each(|i| {
                drive.submit(Nanos(i * 1000), IoId(i), IoKind::Read, DeviceOffset(i << 12), Bytes(4096));
            });
            let mut answers = FxHashMap::default();
            while let Some(due) = drive.next() {
                if let Some(id) = drive.pop(due) {
                    assert!(answers.insert(id, due).is_none(), "answered twice");
                }
            }
            answers
        };
        let plain = answers(drive());
        let noisy = answers(Box::new(NoisyDrive::new(drive(), Noise::busy_machine(3))));
        assert_eq!((plain.len(), noisy.len()), (200, 200));
        assert!(plain.iter().all(|(id, at)| noisy[id] >= *at));
        assert!(plain.iter().filter(|(id, at)| noisy[id].0 > at.0 + at.0 / 8).count() > 50);
    }
}
