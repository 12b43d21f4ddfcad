//! Timing of a simulated device: by a timing model, or random.

use crate::{Rng, flash_log};
use std::collections::BTreeMap;
use thiserror::Error;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::Timing;

/// How much longer than other commands flushes take with [`Pace::SlowFlushes`].
pub const FLUSH_FACTOR: u64 = 20;

/// Speed of a simulated device.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Random times, usually up to this, so that completions come in any order: see [`RandomTiming`].
    Random(Nanos),
    /// As [`Pace::Random`], but flushes take [`FLUSH_FACTOR`] times as long: much is written during each.
    SlowFlushes(Nanos),
    /// The timing model of this name: see [`weir_timing::NAMES`].
    Model(String),
}

/// There is no timing model of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no timing model {0:?}; there are {names}", names = weir_timing::NAMES.join(", "))]
pub struct UnknownModel(pub String);

impl Pace {
    /// Returns the timing of an idle device of this capacity.
    pub fn timing(&self, capacity: Bytes, rng: &mut Rng) -> Result<Box<dyn Timing>, UnknownModel> {
        match self {
            Self::Random(usual) => Ok(Box::new(RandomTiming::new(*usual, rng.fork()))),
            Self::SlowFlushes(usual) => Ok(Box::new(RandomTiming {
                flush_factor: FLUSH_FACTOR,
                ..RandomTiming::new(*usual, rng.fork())
            })),
            Self::Model(name) => {
                weir_timing::model(name, capacity, flash_log).ok_or_else(|| UnknownModel(name.clone()))
            }
        }
    }
}

/// A random time for each command, independent of others: completions come in any order.
#[derive(Debug)]
pub struct RandomTiming {
    rng: Rng,
    usual: Nanos,
    flush_factor: u64,
    due: BTreeMap<(Nanos, u64), IoId>,
    submitted: u64,
}

impl RandomTiming {
    /// Creates the timing. Most commands take up to `usual`, one in eight up to ten times, one in 64 up to a
    /// hundred times that: slow enough for much to happen meanwhile.
    #[must_use]
    pub fn new(usual: Nanos, rng: Rng) -> Self {
        Self { rng, usual, flush_factor: 1, due: BTreeMap::new(), submitted: 0 }
    }
}

impl Timing for RandomTiming {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, _at: DeviceOffset, _len: Bytes) {
        let times = match self.rng.below(64) {
            0 => 100,
            1..9 => 10,
            _ => 1,
        };
        let factor = if kind == IoKind::Flush { self.flush_factor } else { 1 };
        self.submitted += 1;
        let time = Nanos(1 + self.rng.below(self.usual.0 * times * factor));
        self.due.insert((now + time, self.submitted), id);
    }

    fn next(&self) -> Option<Nanos> {
        self.due.first_key_value().map(|(key, _)| key.0)
    }

    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        self.due.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove())
    }
}
