//! The estimate of whether a policy's moves make clients' requests faster or slower.
//!
//! Source: ours.
//!
//! Rule: for a sample of extents the *first place* is remembered, the device each was on when it was first
//! seen. Their commands are priced twice, by the same [curves](Curves) of the devices: where they went, and
//! where they would have gone without moves. The queues would then differ, too. A device that was busy for
//! the fraction `u` of the time would have been busy for `v`: less the mover's time and the time of sampled
//! commands that would have gone elsewhere, plus the time of those that would have come, scaled up to all
//! commands. Its queue would have been `(1-u)/(1-v)` times as long, but no longer than all commands in
//! flight; and if some device would have had to be busy for more than all of the time, no request would have
//! been answered sooner than that factor permits.
//!
//! An access of an extent in several places takes several commands instead of one. Its price is the mean of
//! their prices, weighted by bytes, plus the overhead of each further command, for the processor and for the
//! client that waits for all of them. Their device time counts fully, so where clients ask again as soon as
//! they are answered, shorter queues count.
//!
//! Each [window](Rules::window) with enough of a sample is judged by itself. If commands took longer than
//! without moves by more than a [margin](Rules::margin), the policy's moves stop, and begin again after a
//! pause, with the present places as the first places. The pause doubles each time, and halves after a window
//! without harm.
//!
//! Constants: see [`Rules::default`]; ours.
//!
//! When it errs: a read that waits for two devices is priced by the mean of the two, not the slower one; a
//! write is charged at least half a read's device time, whatever its cache does; a sample without the hottest
//! extents misses part of their gain or loss; each of several policies is judged as if all load were its own.

mod curve;
mod estimate;

pub use curve::Curves;
pub use estimate::{DeviceUse, Estimate};

use crate::Lru;
use crate::placement::MeasuredCommand;
use estimate::Tally;
use weir_model::{Bytes, DeviceId, ExtentKey, Nanos};

/// The number of extents whose first places are remembered; they take about 3 MiB.
const FIRST_DEVICES_MAX: usize = 1 << 16;
/// The minimum number of extents in the sample, if the pool has that many: a handful proves nothing about the
/// rest.
pub const SAMPLE_MIN: u64 = 1024;

/// The rules for judging a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// One in this many extents is in the sample: a power of two. A pool with fewer than [`SAMPLE_MIN`] times
    /// as many extents samples a larger fraction.
    pub sample: u64,
    /// The minimum length of a window.
    pub window: Nanos,
    /// The minimum number of sampled commands in a window.
    pub commands: u32,
    /// The relative increase of the commands' time above which moves do harm: 0.1 is a tenth.
    pub margin: f64,
    /// The length of the first pause.
    pub pause: Nanos,
    /// The maximum length of a pause.
    pub longest_pause: Nanos,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            sample: 256,
            window: Nanos::secs(120),
            commands: 64,
            margin: 0.1,
            pause: Nanos::secs(600),
            longest_pause: Nanos::secs(24 * 3600),
        }
    }
}

/// The treatment of a policy's moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MoveControl {
    /// They stop while they do harm.
    Judged(Rules),
    /// They are judged, and never stop.
    NeverPaused(Rules),
    /// There are none.
    Disabled,
}

impl Default for MoveControl {
    fn default() -> Self {
        Self::Judged(Rules::default())
    }
}

impl MoveControl {
    /// Returns the rules by which they are judged, if they are.
    pub const fn rules(&self) -> Option<&Rules> {
        match self {
            Self::Judged(rules) | Self::NeverPaused(rules) => Some(rules),
            Self::Disabled => None,
        }
    }

    /// Returns the treatment for a pool of this many extents, with a sample that is large enough.
    #[must_use]
    pub fn for_pool_of(self, extents: u64) -> Self {
        let few = |rules: Rules| Rules {
            sample: rules.sample.min((extents / SAMPLE_MIN).max(1).next_power_of_two()),
            ..rules
        };
        match self {
            Self::Judged(rules) => Self::Judged(few(rules)),
            Self::NeverPaused(rules) => Self::NeverPaused(few(rules)),
            Self::Disabled => Self::Disabled,
        }
    }

    /// Whether the extent is in the sample. Cost: a multiplication and a comparison.
    #[inline]
    pub fn samples(&self, key: ExtentKey) -> bool {
        let one_in = match self {
            Self::Judged(rules) | Self::NeverPaused(rules) => rules.sample,
            Self::Disabled => return false,
        };
        let hash = (key.index.0 ^ u64::from(key.volume.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 40) & one_in.wrapping_sub(1) == 0
    }
}

/// The change at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The moves did harm, and are paused.
    Stopped {
        /// The estimate.
        estimate: Estimate,
        /// The length of the pause.
        pause: Nanos,
    },
    /// The moves may begin again.
    Resumed,
}

/// The judge of one policy.
#[derive(Clone, Debug)]
pub struct Judge {
    moves: MoveControl,
    tally: Tally,
    first_devices: Lru<ExtentKey, DeviceId>,
    /// The last window judged, and the sum of all.
    last_window: Option<Estimate>,
    total: Estimate,
    /// The end of the pause.
    paused_until: Option<Nanos>,
    /// The number of doublings of the pause.
    doublings: u32,
    /// The number of stops.
    stops: u32,
}

impl Judge {
    /// Creates a judge without measurements.
    pub fn new(moves: MoveControl) -> Self {
        Self {
            moves,
            tally: Tally::default(),
            first_devices: Lru::new(FIRST_DEVICES_MAX),
            last_window: None,
            total: Estimate::default(),
            paused_until: None,
            doublings: 0,
            stops: 0,
        }
    }

    /// Whether moves are stopped.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some() || matches!(self.moves, MoveControl::Disabled)
    }

    /// Returns the end of the pause, if it ends.
    pub fn paused_until(&self) -> Option<Nanos> {
        self.paused_until
    }

    /// Returns the last window judged.
    pub fn last(&self) -> Option<Estimate> {
        self.last_window
    }

    /// Returns the sum of all windows judged.
    pub fn total(&self) -> Estimate {
        self.total
    }

    /// Returns the number of stops.
    pub fn stops(&self) -> u32 {
        self.stops
    }

    /// Notes that a sampled extent without space gets its space on this device.
    pub fn note_first_device(&mut self, key: ExtentKey, device: DeviceId) {
        self.first_devices.insert(key, device);
    }

    /// Notes that a command to a sampled extent has ended. `now_at` returns the device of the extent's first
    /// place if none is remembered; without one the command does not count.
    pub fn note(&mut self, key: ExtentKey, done: &SampledCommand, now_at: impl FnOnce() -> Option<DeviceId>) {
        if self.is_paused() {
            return;
        }
        let first = match self.first_devices.touch(key) {
            Some(first) => *first,
            None => {
                let Some(first) = now_at() else { return };
                self.first_devices.insert(key, first);
                first
            }
        };
        self.tally.note(first, done);
    }

    /// Returns the sizes of reads for which it needs the device's curve.
    pub fn needed_read_sizes(
        &self,
        device: DeviceId,
    ) -> impl Iterator<Item = crate::placement::SizeClass> + '_ {
        self.tally.counterfactual_reads(device)
    }

    /// Judges the window that has ended; without enough of a sample it continues. `began` is its start.
    pub fn review(
        &mut self,
        now: Nanos,
        began: Nanos,
        uses: &[DeviceUse],
        curves: &[Curves],
    ) -> ReviewOutcome {
        let Some(rules) = self.moves.rules().copied() else { return ReviewOutcome::Finished(None) };
        if self.paused_until.is_some_and(|until| until > now) {
            return ReviewOutcome::Finished(None);
        }
        if self.paused_until.take().is_some() {
            self.first_devices = Lru::new(FIRST_DEVICES_MAX);
            self.tally = Tally::default();
            return ReviewOutcome::Finished(Some(Verdict::Resumed));
        }
        if self.tally.commands() < rules.commands {
            return ReviewOutcome::Continue;
        }
        let tally = std::mem::take(&mut self.tally);
        let Some(estimate) = tally.estimate(now.since(began), uses, curves) else {
            return ReviewOutcome::Finished(None);
        };
        self.last_window = Some(estimate);
        self.total.add(estimate);
        if estimate.ratio() <= 1.0 + rules.margin || matches!(self.moves, MoveControl::NeverPaused(_)) {
            self.doublings = self.doublings.saturating_sub(1);
            return ReviewOutcome::Finished(None);
        }
        let pause = rules.pause.0.saturating_mul(1 << self.doublings.min(16)).min(rules.longest_pause.0);
        self.doublings += 1;
        self.stops += 1;
        self.paused_until = Some(now + Nanos(pause));
        ReviewOutcome::Finished(Some(Verdict::Stopped { estimate, pause: Nanos(pause) }))
    }
}

/// A completed command to a sampled extent.
#[derive(Clone, Copy, Debug)]
pub struct SampledCommand {
    /// The device.
    pub device: DeviceId,
    /// The measurements.
    pub command: MeasuredCommand,
    /// The bytes of the access in the extent of which the command is a part. With the extent in one place,
    /// one command would have accessed all of them.
    pub access_bytes: Bytes,
    /// Commands in flight on all devices, itself included.
    pub in_flight: u32,
}

/// The result of a review.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReviewOutcome {
    /// The window continues, because there are too few measurements.
    Continue,
    /// The window is over, with this verdict.
    Finished(Option<Verdict>),
}

#[cfg(test)]
mod tests;
