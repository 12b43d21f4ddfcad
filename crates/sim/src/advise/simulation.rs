//! Confirms a set's forecast: runs the engine with the trace on it in virtual time.

use super::{
    DAY, DeviceGroup, DeviceSet, EXTENT, HEADROOM, Level, MeasuredPart, Offer, Search, SetFigures, flash_life,
};
use crate::place::endurance::{DeviceEndurance, FlashRating};
use crate::place::outcome::Outcome;
use crate::place::run::DURATION_MIN;
use crate::{
    DeviceSize, DeviceSpec, Load as _, Mode, Plan, PoolSpec, Replay, SimError, place_with_endurance,
};
use weir_engine::MOVER_SHARE;
use weir_model::{Bytes, Nanos, Seed};
use weir_policy::harm::MoveControl;
use weir_policy::placement::by_name;
use weir_trace::Trace;

/// How a trace is run.
#[derive(Clone, Copy, Debug)]
pub struct RunSettings<'p> {
    /// Placement policy.
    pub policy: &'p str,
    /// Number of requests after which a run ends, though not before two rounds of the trace.
    pub requests: u64,
    /// Random seed.
    pub seed: Seed,
    /// What is assumed of flash.
    pub rating: FlashRating,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The figures by which the set is judged.
    pub figures: SetFigures,
    /// The complete outcome of the run.
    pub outcome: Outcome,
    /// Endurance of the flash of each kind that is flash, the fastest first: of all devices of the kind, at
    /// their full size.
    pub endurance: Vec<(DeviceGroup, DeviceEndurance)>,
}

/// Repetitions of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repetitions {
    /// Total number of rounds: whole rounds, until ten minutes have passed, as in `weir sim place`.
    total: u64,
    /// Number of warm-up rounds: a third, rounded up; none if the trace runs once.
    warm_up: u64,
}

impl Repetitions {
    /// Returns the repetitions for a run that ends after `requests` requests, though not before two rounds.
    fn of(trace: &Trace, requests: u64) -> Self {
        let period = Replay::new(trace.clone(), 1.0).duration();
        match DURATION_MIN.0.div_ceil(period.0.max(1)) {
            0 | 1 => Self { total: 1, warm_up: 0 },
            wanted => {
                let all = wanted.min(requests / trace.records.len().max(1) as u64).max(2);
                Self { total: all, warm_up: all.div_ceil(3) }
            }
        }
    }
}

impl MeasuredPart {
    /// Returns the measured part of a trace in a run of at most `requests` requests.
    pub fn of(trace: &Trace, requests: u64) -> Self {
        match Repetitions::of(trace, requests).warm_up {
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
    pub fn simulate(
        &self,
        set: &DeviceSet,
        trace: &Trace,
        runs: &RunSettings<'_>,
    ) -> Result<Simulated, SimError> {
        let mut load = Replay::new(trace.clone(), 1.0);
        let (period, rounds) = (load.duration(), Repetitions::of(trace, runs.requests));
        let data: u64 = load.volumes(EXTENT).iter().map(crate::VolumeData::count).sum();
        let pool = self.pool(set, Bytes(data * EXTENT.bytes().0));
        let policy = by_name(runs.policy).ok_or_else(|| SimError::UnknownPolicy(runs.policy.into()))?;
        let plan = Plan {
            mode: Mode::Open,
            duration: Nanos(period.0.saturating_mul(rounds.total)),
            requests: u64::MAX,
            warm_up: (rounds.warm_up > 0).then(|| Nanos(period.0.saturating_mul(rounds.warm_up))),
            windows: 1,
            seed: runs.seed,
        };
        let outcome = place_with_endurance(&pool, policy, &mut load, &plan, runs.rating)?;
        let days = outcome.measured.as_secs_f64() / DAY;
        let written = |level: Level| {
            let devices = outcome.devices.iter().filter(|device| is_of_level(level, &device.name));
            Bytes(devices.map(|device| device.writes.bytes.0).sum())
        };
        let written = set.levels().map(|(level, several)| (several, written(level)));
        let life = flash_life(self.offers, written, days);
        let judged =
            SetFigures { price: set.price(self.offers), mean: outcome.all.mean, p99: outcome.all.p99, life };
        let endurance = set.levels().filter_map(|(level, several)| {
            Some((several, endurance_of_kind(self.offers, (level, several), &outcome, runs.rating)?))
        });
        Ok(Simulated { figures: judged, endurance: endurance.collect(), outcome })
    }

    /// Returns the set as a pool for this much data.
    fn pool(&self, set: &DeviceSet, data: Bytes) -> PoolSpec {
        let share = |(level, several): (Level, DeviceGroup)| match level {
            Level::Slow => HEADROOM / f64::from(several.count),
            Level::Fast | Level::Second => {
                let size = self.offers[several.offer].size.0 as f64 / self.scale();
                (size / data.0 as f64).min(HEADROOM)
            }
        };
        let devices = |(level, several): (Level, DeviceGroup)| {
            let share = share((level, several));
            let size =
                if self.is_scaled() { DeviceSize::Share(share) } else { DeviceSize::ShareUnscaled(share) };
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
            moves: MoveControl::default(),
        }
    }
}

/// Returns the endurance of all devices of a kind together; `None` if they are no flash.
fn endurance_of_kind(
    offers: &[Offer],
    (level, DeviceGroup { offer, count }): (Level, DeviceGroup),
    outcome: &Outcome,
    rating: FlashRating,
) -> Option<DeviceEndurance> {
    let devices = outcome.devices.iter().filter(|device| is_of_level(level, &device.name));
    let found: Vec<_> = devices.filter_map(|device| device.endurance).collect();
    let source = found.first()?.source;
    let written: f64 = found.iter().filter_map(|one| one.lifetime.bytes_per_day).sum();
    let programmed: f64 = found.iter().map(|one| one.programmed_bytes_per_day).sum();
    let amplification = if written > 0.0 { programmed / written } else { found.first()?.amplification };
    let capacity = Bytes(offers[offer].size.0 * u64::from(count));
    Some(DeviceEndurance::with_amplification(rating, capacity, written, (amplification, source)))
}

/// Returns the name of a kind's devices in a pool.
const fn kind_name(level: Level) -> &'static str {
    match level {
        Level::Fast => "fast",
        Level::Second => "middle",
        Level::Slow => "slow",
    }
}

/// Returns the name of a device in a pool: `fast`, `fast2`.
pub fn device_name(level: Level, number: u32) -> String {
    let names = kind_name(level);
    if number == 1 { names.to_owned() } else { format!("{names}{number}") }
}

fn is_of_level(level: Level, device: &str) -> bool {
    device.starts_with(kind_name(level))
}

/// Reports whether the device of this name is one of a set's fast ones, of either kind.
pub fn is_fast(device: &str) -> bool {
    [Level::Fast, Level::Second].into_iter().any(|level| is_of_level(level, device))
}
