//! Confirms a set's forecast: runs the engine with the trace on it in virtual time.

use super::{DeviceSet, EXTENT, HEADROOM, Judged, Level, Measured, Search, Several, flash_life};
use crate::place::outcome::Outcome;
use crate::place::run::LEAST;
use crate::{DeviceSize, DeviceSpec, Load as _, Mode, Plan, PoolSpec, Replay, SimError, place};
use weir_engine::MOVER_SHARE;
use weir_model::{Bytes, Nanos, Seed};
use weir_policy::harm::Moves;
use weir_policy::placement::by_name;
use weir_trace::Trace;

/// How a trace is run.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'p> {
    /// Placement policy.
    pub policy: &'p str,
    /// Number of requests after which a run ends, though not before two rounds of the trace.
    pub requests: u64,
    /// Random seed.
    pub seed: Seed,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The figures by which the set is judged.
    pub judged: Judged,
    /// The complete outcome of the run.
    pub outcome: Outcome,
}

/// Repetitions of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rounds {
    /// Total number of rounds: whole rounds, until ten minutes have passed, as in `weir sim place`.
    all: u64,
    /// Number of warm-up rounds: a third, rounded up; none if the trace runs once.
    warm_up: u64,
}

impl Rounds {
    /// Returns the repetitions for a run that ends after `requests` requests, though not before two rounds.
    fn of(trace: &Trace, requests: u64) -> Self {
        let period = Replay::new(trace.clone(), 1.0).lasts();
        match LEAST.0.div_ceil(period.0.max(1)) {
            0 | 1 => Self { all: 1, warm_up: 0 },
            wanted => {
                let all = wanted.min(requests / trace.records.len().max(1) as u64).max(2);
                Self { all, warm_up: all.div_ceil(3) }
            }
        }
    }
}

impl Measured {
    /// Returns the measured part of a trace in a run of at most `requests` requests.
    pub fn of(trace: &Trace, requests: u64) -> Self {
        match Rounds::of(trace, requests).warm_up {
            0 => Self::LastTwoThirds,
            // More than two make no difference.
            warm_up => Self::After(warm_up.min(2) as u32),
        }
    }
}

impl Search<'_> {
    /// Runs a trace on a set whose devices are scaled down as in the search. The trace may be the one of the
    /// search, or another of the same machine.
    ///
    /// # Errors
    /// Fails if the engine cannot run it.
    pub fn simulate(&self, set: &DeviceSet, trace: &Trace, runs: &Runs<'_>) -> Result<Simulated, SimError> {
        let mut load = Replay::new(trace.clone(), 1.0);
        let (period, rounds) = (load.lasts(), Rounds::of(trace, runs.requests));
        let data: u64 = load.spaces(EXTENT).iter().map(crate::Space::count).sum();
        let pool = self.pool(set, Bytes(data * EXTENT.bytes().0));
        let policy = by_name(runs.policy).ok_or_else(|| SimError::UnknownPolicy(runs.policy.into()))?;
        let plan = Plan {
            mode: Mode::Open,
            lasts: Nanos(period.0.saturating_mul(rounds.all)),
            requests: u64::MAX,
            warm_up: (rounds.warm_up > 0).then(|| Nanos(period.0.saturating_mul(rounds.warm_up))),
            windows: 1,
            seed: runs.seed,
        };
        let outcome = place(&pool, policy, &mut load, &plan)?;
        let days = outcome.measured.as_secs_f64() / super::DAY;
        let written = |level: Level| {
            let devices = outcome.devices.iter().filter(|device| is_one_of(level, &device.name));
            Bytes(devices.map(|device| device.writes.bytes.0).sum())
        };
        let written = set.levels().map(|(level, several)| (several, written(level)));
        let life = flash_life(self.offers, written, days);
        let judged =
            Judged { price: set.price(self.offers), mean: outcome.all.mean, p99: outcome.all.p99, life };
        Ok(Simulated { judged, outcome })
    }

    /// Returns the set as a pool for this much data.
    fn pool(&self, set: &DeviceSet, data: Bytes) -> PoolSpec {
        let share = |(level, several): (Level, Several)| match level {
            Level::Slow => HEADROOM / f64::from(several.count),
            Level::Fast | Level::Second => {
                let size = self.offers[several.offer].size.0 as f64 / self.scale();
                (size / data.0 as f64).min(HEADROOM)
            }
        };
        let devices = |(level, several): (Level, Several)| {
            let share = share((level, several));
            let size = if self.is_scaled() { DeviceSize::Share(share) } else { DeviceSize::Part(share) };
            let model = &self.offers[several.offer].model;
            (1..=several.count).map(move |number| DeviceSpec {
                name: device_name(level, number),
                model: model.clone(),
                size,
                metadata: None,
                noise: None,
            })
        };
        PoolSpec {
            extent: EXTENT,
            devices: set.levels().flat_map(devices).collect(),
            mover_share: MOVER_SHARE,
            extent_cache: Bytes(0),
            moves: Moves::default(),
        }
    }
}

/// Returns the name of a kind's devices in a pool.
const fn names(level: Level) -> &'static str {
    match level {
        Level::Fast => "fast",
        Level::Second => "middle",
        Level::Slow => "slow",
    }
}

/// Returns the name of a device in a pool: `fast`, `fast2`.
pub fn device_name(level: Level, number: u32) -> String {
    let names = names(level);
    if number == 1 { names.to_owned() } else { format!("{names}{number}") }
}

fn is_one_of(level: Level, device: &str) -> bool {
    device.starts_with(names(level))
}

/// Reports whether the device of this name is one of a set's fast ones, of either kind.
pub fn is_fast(device: &str) -> bool {
    [Level::Fast, Level::Second].into_iter().any(|level| is_one_of(level, device))
}
