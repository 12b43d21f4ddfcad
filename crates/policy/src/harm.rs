//! Do no harm: whether what a policy moves makes clients' requests faster or slower.
//!
//! Source: ours.
//!
//! Rule: of a sample of extents the *first place* is remembered, the device each was on when it was first seen.
//! Their commands are priced twice, by the same [curves](Curves) of the devices: where they went, and where they
//! would have gone had nothing moved. Queues would then be others, too. A device that was busy for part `u` of the
//! time would have been busy for `v`: less what the mover took of it, and less what the sampled commands took that
//! would have gone elsewhere, more what those would have taken that would have come, scaled up to all commands. Its
//! queue would have been `(1-u)/(1-v)` times as long, but no longer than all commands under way; and where some device
//! would have had to be busy for more than all of the time, no request would have been answered sooner than that
//! factor allows.
//!
//! An access of an extent in pieces is several commands, and would have been one: its price is the mean of theirs by bytes, and
//! each command more takes of the processor, and of whoever waits for all of them, what a command takes besides. What they all
//! take of the devices' time counts wholly, so where clients ask again as soon as they are answered, shorter queues count.
//!
//! Each [window](Rules::window) with enough of a sample is judged by itself. If commands took more than a
//! [margin](Rules::margin) longer than they would have, the policy's moves stop, and begin again after a pause, with
//! what is where then as the first places. The pause is twice as long each time, and half as long after a window
//! without harm.
//!
//! Constants: see [`Rules::default`]; ours.
//!
//! When it errs: a read that waits for two devices is priced by the mean of the two, not the slower one; a write takes half a read of
//! its device's time at least, whatever its cache makes of it; a sample without the hottest extents sees less
//! of what they gain or lose; of several policies each is judged as if all load were its own.

mod curve;
mod estimate;

pub use curve::Curves;
pub use estimate::{Estimate, Use};

use crate::Lru;
use crate::placement::MeasuredCommand;
use estimate::Tally;
use weir_model::{Bytes, DeviceId, ExtentKey, Nanos};

/// Extents whose first places are remembered: in some 3 MiB.
const FIRSTS: usize = 1 << 16;
/// The least extents in the sample, of a pool that has so many: of a handful nothing follows for the rest.
pub const SAMPLED: u64 = 1024;

/// How a policy is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// One extent in so many is in the sample: a power of two. Of a pool with less than [`SAMPLED`] times as many
    /// extents, one in fewer.
    pub sample: u64,
    /// The least time that is judged as one.
    pub window: Nanos,
    /// … and the least number of sampled commands in it.
    pub commands: u32,
    /// By how much longer commands must have taken for that to be harm: 0.1 is a tenth.
    pub margin: f64,
    /// How long moves stop the first time.
    pub pause: Nanos,
    /// … and at most.
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

/// What becomes of a policy's moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moves {
    /// They stop while they do harm.
    Judged(Rules),
    /// They are judged, and never stop.
    Free(Rules),
    /// There are none.
    Never,
}

impl Default for Moves {
    fn default() -> Self {
        Self::Judged(Rules::default())
    }
}

impl Moves {
    /// The rules they are judged by, if they are.
    pub const fn rules(&self) -> Option<&Rules> {
        match self {
            Self::Judged(rules) | Self::Free(rules) => Some(rules),
            Self::Never => None,
        }
    }

    /// The same for a pool of so many extents, so that its sample is large enough.
    #[must_use]
    pub fn in_pool_of(self, extents: u64) -> Self {
        let few = |rules: Rules| Rules {
            sample: rules.sample.min((extents / SAMPLED).max(1).next_power_of_two()),
            ..rules
        };
        match self {
            Self::Judged(rules) => Self::Judged(few(rules)),
            Self::Free(rules) => Self::Free(few(rules)),
            Self::Never => Self::Never,
        }
    }

    /// Whether the extent is in the sample. Cost: a multiplication and a comparison.
    #[inline]
    pub fn samples(&self, key: ExtentKey) -> bool {
        let one_in = match self {
            Self::Judged(rules) | Self::Free(rules) => rules.sample,
            Self::Never => return false,
        };
        let hash = (key.index.0 ^ u64::from(key.volume.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 40) & one_in.wrapping_sub(1) == 0
    }
}

/// What has changed at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The moves did harm, and stop for so long.
    Stopped {
        /// What they did.
        estimate: Estimate,
        /// For how long.
        pause: Nanos,
    },
    /// They may begin again.
    Again,
}

/// Judges one policy.
#[derive(Clone, Debug)]
pub struct Judge {
    moves: Moves,
    tally: Tally,
    firsts: Lru<ExtentKey, DeviceId>,
    /// The last window that was judged, and all of them.
    last: Option<Estimate>,
    all: Estimate,
    /// Until when nothing moves.
    until: Option<Nanos>,
    /// How often the pause is doubled.
    doublings: u32,
    /// How often moves have stopped.
    stops: u32,
}

impl Judge {
    /// Nothing is known yet.
    pub fn new(moves: Moves) -> Self {
        Self {
            moves,
            tally: Tally::default(),
            firsts: Lru::new(FIRSTS),
            last: None,
            all: Estimate::default(),
            until: None,
            doublings: 0,
            stops: 0,
        }
    }

    /// Whether nothing is to move.
    #[inline]
    pub fn has_stopped(&self) -> bool {
        self.until.is_some() || matches!(self.moves, Moves::Never)
    }

    /// Until when nothing moves, if that ends.
    pub fn until(&self) -> Option<Nanos> {
        self.until
    }

    /// The last window judged.
    pub fn last(&self) -> Option<Estimate> {
        self.last
    }

    /// All windows judged together.
    pub fn all(&self) -> Estimate {
        self.all
    }

    /// How often moves have stopped.
    pub fn stops(&self) -> u32 {
        self.stops
    }

    /// An extent of the sample gets its space there, having had none.
    pub fn begins_at(&mut self, key: ExtentKey, device: DeviceId) {
        self.firsts.insert(key, device);
    }

    /// A command of the sample has ended. `now_at` tells the device of the extent's first place if none is remembered;
    /// without one the command does not count.
    pub fn note(&mut self, key: ExtentKey, done: &Done, now_at: impl FnOnce() -> Option<DeviceId>) {
        if self.has_stopped() {
            return;
        }
        let first = match self.firsts.touch(key) {
            Some(first) => *first,
            None => {
                let Some(first) = now_at() else { return };
                self.firsts.insert(key, first);
                first
            }
        };
        self.tally.note(first, done);
    }

    /// Whether it would like to know what the device takes for reads of some size, and which.
    pub fn asks_about(&self, device: DeviceId) -> impl Iterator<Item = crate::placement::SizeClass> + '_ {
        self.tally.reads_there(device)
    }

    /// Looks at the window that is over; without enough of a sample it goes on. `began` is when it began.
    pub fn review(&mut self, now: Nanos, began: Nanos, uses: &[Use], curves: &[Curves]) -> Reviewed {
        let Some(rules) = self.moves.rules().copied() else { return Reviewed::Over(None) };
        if self.until.is_some_and(|until| until > now) {
            return Reviewed::Over(None);
        }
        if self.until.take().is_some() {
            self.firsts = Lru::new(FIRSTS);
            self.tally = Tally::default();
            return Reviewed::Over(Some(Verdict::Again));
        }
        if self.tally.commands() < rules.commands {
            return Reviewed::GoesOn;
        }
        let tally = std::mem::take(&mut self.tally);
        let Some(estimate) = tally.estimate(now.since(began), uses, curves) else {
            return Reviewed::Over(None);
        };
        self.last = Some(estimate);
        self.all.add(estimate);
        if estimate.ratio() <= 1.0 + rules.margin || matches!(self.moves, Moves::Free(_)) {
            self.doublings = self.doublings.saturating_sub(1);
            return Reviewed::Over(None);
        }
        let pause = rules.pause.0.saturating_mul(1 << self.doublings.min(16)).min(rules.longest_pause.0);
        self.doublings += 1;
        self.stops += 1;
        self.until = Some(now + Nanos(pause));
        Reviewed::Over(Some(Verdict::Stopped { estimate, pause: Nanos(pause) }))
    }
}

/// A command of the sample that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Where.
    pub device: DeviceId,
    /// What it was.
    pub command: MeasuredCommand,
    /// The bytes of the access it is a part of, as far as that falls into the extent. An extent in one place would have been
    /// asked for all of them by one command.
    pub of: Bytes,
    /// Commands under way on all devices, itself included.
    pub under_way: u32,
}

/// What came of looking at a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reviewed {
    /// There is too little to judge by.
    GoesOn,
    /// It is over, and this follows.
    Over(Option<Verdict>),
}

#[cfg(test)]
mod tests;
