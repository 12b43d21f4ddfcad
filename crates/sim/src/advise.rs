//! Purchase advice for a trace: of the devices on offer, the sets on the frontier of price, mean response
//! time, p99 and flash life.
//!
//! | file | purpose |
//! |---|---|
//! | `set` | sets with one kind of device, or a faster kind before it |
//! | `second` | sets with two faster kinds, near the best of these |
//! | `arrivals` | arrival times, if the trace has none |
//! | `demand` | the trace, its extents numbered |
//! | `split` | requests that a fast device of some size serves, copies to it and write-back from it |
//! | `response` | each device's response times for its part of the trace, by its timing model |
//! | `frontier`, `pick` | the sets that no other dominates, and the one to buy |
//! | `budget` | what a limit on writes to flash costs |
//! | `simulation` | the engine over the same trace, in virtual time |
//!
//! A prediction combines the response times of the fast devices for the requests they would get with those of
//! the slow devices for the rest. Each size of fast devices on offer needs a point of the miss-ratio curve:
//! of blocks under W-TinyLFU, which is closest to what `adaptive` does. It leaves out the map's own commands
//! and a policy's reactions to the devices' load. [`Search::simulate`] includes all of it.
//!
//! [`Job`]s depend only on the trace, so a driver may run them on any number of threads.

mod arrivals;
mod budget;
mod demand;
mod device_set;
mod frontier;
mod response;
mod second_kind;
mod selection;
mod simulation;
mod split;
#[cfg(test)]
mod tests;

pub use arrivals::{scale_to_rate, split_in_halves};
pub use budget::BudgetCost;
pub use demand::{Demand, MeasuredPart};
pub use device_set::{Cents, DeviceGroup, DeviceSet, Offer, sets};
pub use frontier::frontier;
pub use response::{Job, JobOutcome, Stream, TracePart};
pub use second_kind::with_second;
pub use selection::{Limits, Rule, SetFigures};
pub use simulation::{RunSettings, Simulated, device_name, is_fast};
pub use split::{Level, Sizes, Slots};

use crate::cache::BlockTraceError;
use crate::flash::DAYS_PER_YEAR;
use crate::responses::{ResponseHistogram, Responses};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use thiserror::Error;
use weir_model::{Bytes, ExtentSize};

/// Extent size of pools, the default.
const EXTENT: ExtentSize = ExtentSize::DEFAULT;
/// Ratio of required capacity to data: weir warns about a pool that is more than 80 % full.
pub const HEADROOM: f64 = 1.25;
/// Maximum load of devices that keep up.
const LOAD_MAX: f64 = 2.0;
/// Share of a fast device's slots that is used before the engine makes room.
const FAST_FILL_SHARE: f64 = 0.92;
/// Seconds in a day, and days in a year.
const DAY: f64 = 86_400.0;
const YEAR: f64 = 365.25;

/// Required capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredCapacity {
    /// All data.
    pub capacity: Bytes,
    /// The active part of it, which the trace's footprint represents.
    pub active: Bytes,
}

/// Flash life; infinite if nothing wears out.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Years(pub f64);

impl Years {
    /// Longer than a drive is kept.
    pub const LIFE_CAP: Self = Self(10.0);
    /// The life of devices that do not wear out.
    pub const UNLIMITED: Self = Self(f64::INFINITY);

    /// Returns the life in years, up to the limit beyond which it makes no difference.
    fn capped(self) -> f64 {
        self.0.min(Self::LIFE_CAP.0)
    }
}

impl fmt::Display for Years {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            years if years.is_infinite() => f.write_str("does not wear"),
            years if years > 100.0 => f.write_str("over 100 years"),
            years if years < 1.0 => write!(f, "{:.2} days", years * DAYS_PER_YEAR),
            years if years < 10.0 => write!(f, "{years:.1} years"),
            years => write!(f, "{years:.0} years"),
        }
    }
}

/// Why there is no advice. Messages have the form "what is wrong; what to do".
#[derive(Debug, Error)]
pub enum AdviseError {
    /// The trace cannot be loaded.
    #[error(transparent)]
    Trace(#[from] BlockTraceError),
    /// There are no requests after the warm-up.
    #[error("nothing is read or written in it after its first third, which warms up; take a longer trace")]
    NoRequests,
    /// The drive model is unknown.
    #[error("device {offer}: there is no model of {model:?}; write one of {known}", known = models())]
    UnknownDrive {
        /// The device's name in the list.
        offer: String,
        /// The given model.
        model: String,
    },
    /// No set of the offers has enough room.
    #[error(
        "{wanted} of data and a fifth of free space need {room}, more than {most} \
         devices of any kind have; put larger devices on the list, or ask for less"
    )]
    InsufficientCapacity {
        /// The data.
        wanted: Bytes,
        /// The data plus the required free space.
        room: Bytes,
        /// Maximum number of devices of one kind in a set.
        most: u32,
    },
}

fn models() -> String {
    weir_timing::drives::all().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// Forecast for a set.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The figures by which it is judged.
    pub figures: SetFigures,
    /// Response times of all requests.
    pub responses: Responses,
    /// Ratio of the time until the busiest device has answered everything to the time in which it was
    /// requested.
    pub load: f64,
    /// Share of the reads that fast devices serve; 1 if there is only one kind.
    pub hit_share: f64,
    /// Share of the reads that the fastest kind serves.
    pub fastest_share: f64,
}

impl Forecast {
    /// Reports whether the devices keep up with the trace: everything is answered within twice the time, as
    /// in a run.
    pub fn keeps_up(&self) -> bool {
        self.load <= LOAD_MAX && self.responses.count > 0
    }

    /// Returns a message with figures for devices that cannot keep up.
    pub fn cannot_keep_up(&self) -> Option<String> {
        (!self.keeps_up()).then(|| match self.responses.count {
            0 => "nothing that it answers is measured".to_owned(),
            _ => format!("cannot keep up: {:.1} times what its devices can do", self.load),
        })
    }
}

/// A search for the sets to buy.
#[derive(Debug)]
pub struct Search<'a> {
    demand: &'a Demand,
    offers: &'a [Offer],
    required: RequiredCapacity,
}

impl<'a> Search<'a> {
    /// Creates a search for this trace, among these offers, for this amount of data.
    pub fn new(demand: &'a Demand, offers: &'a [Offer], wanted: RequiredCapacity) -> Self {
        Self { demand, offers, required: wanted }
    }

    /// Returns the ratio of the active data to the trace's footprint.
    fn scale(&self) -> f64 {
        (self.required.active.0 as f64 / self.demand.footprint().0.max(1) as f64).max(f64::MIN_POSITIVE)
    }

    fn is_scaled(&self) -> bool {
        self.scale() > 1.0 + 1e-9
    }

    /// Returns the slots of a set's fast devices, scaled down to the trace's footprint.
    fn sizes(&self, set: &DeviceSet) -> Option<Sizes> {
        let slots = |several: DeviceGroup| {
            several.size(self.offers).0 as f64 / self.scale() / EXTENT.bytes().0 as f64
        };
        let all = self.demand.extents();
        let in_all: f64 = set.fast_kinds().map(slots).sum();
        // If all data fits, the engine need not make room.
        let taken = if in_all >= f64::from(all) * HEADROOM { 1.0 } else { FAST_FILL_SHARE };
        let slots = |several: DeviceGroup| (slots(several) * taken) as u32;
        let fast = slots(set.fast?).clamp(1, all);
        let second = set.second.map_or(0, |second| slots(second).clamp(1, all)).min(all - fast);
        Some(Sizes { fast: Slots(fast), second: Slots(second) })
    }

    /// Returns the jobs needed to judge these sets.
    pub fn jobs(&self, sets: &[DeviceSet]) -> Vec<Job> {
        let mut jobs: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for stream in sets.iter().flat_map(|set| self.streams(set)) {
            jobs.entry(stream.part.sizes()).or_default().insert(stream);
        }
        jobs.into_iter()
            .map(|(sizes, streams)| Job { sizes, streams: streams.into_iter().collect() })
            .collect()
    }

    fn streams(&self, set: &DeviceSet) -> Vec<Stream> {
        let sizes = self.sizes(set);
        let part = |(level, several): (Level, DeviceGroup)| {
            let part = sizes.map_or(TracePart::Whole, |sizes| TracePart::Level(level, sizes));
            let model = self.offers[several.offer].model.clone();
            Stream { model, part, devices: several.count, is_scaled: self.is_scaled() }
        };
        set.levels().map(part).collect()
    }

    /// Runs a job.
    pub fn play(&self, job: &Job) -> JobOutcome {
        job.play(self.demand)
    }

    /// Computes the forecasts of the sets from the results of their [`Self::jobs`].
    pub fn forecasts(&self, sets: &[DeviceSet], jobs: &[Job], found: &[JobOutcome]) -> Vec<Forecast> {
        let responses = found.iter().flat_map(|found| &found.responses);
        let responses: BTreeMap<_, _> = responses.map(|(stream, played)| (stream, played)).collect();
        let found: BTreeMap<_, _> = jobs.iter().map(|job| job.sizes).zip(found).collect();
        let days = self.demand.duration().as_secs_f64() / DAY;
        let forecast = |set: &DeviceSet| {
            let mut all = ResponseHistogram::new();
            let mut load: f64 = 0.0;
            for played in self.streams(set).iter().filter_map(|stream| responses.get(stream)) {
                all.merge(&played.responses);
                load = load.max(played.load);
            }
            let responses = all.responses();
            let (written, [fastest_share, second_share]) = found
                .get(&self.sizes(set))
                .map_or_else(Default::default, |found| (found.written, found.hit_shares));
            let written = set.levels().map(|(level, several)| (several, written[level as usize]));
            let life = flash_life(self.offers, written, days);
            let judged =
                SetFigures { price: set.price(self.offers), mean: responses.mean, p99: responses.p99, life };
            Forecast {
                figures: judged,
                responses,
                load,
                hit_share: fastest_share + second_share,
                fastest_share,
            }
        };
        sets.iter().map(forecast).collect()
    }
}

/// Returns the flash life of the kind that wears out first, if these bytes are written to each kind in `days`
/// days.
fn flash_life(offers: &[Offer], written: impl Iterator<Item = (DeviceGroup, Bytes)>, days: f64) -> Years {
    let life = |(DeviceGroup { offer, count }, bytes): (DeviceGroup, Bytes)| {
        let endurance = offers[offer].endurance?;
        let a_day = bytes.0 as f64 / days.max(f64::MIN_POSITIVE);
        Some(endurance.0 as f64 * f64::from(count) / a_day / YEAR)
    };
    Years(written.filter_map(life).fold(f64::INFINITY, f64::min))
}

/// Selects the sets to simulate, by ascending price. From the frontier: the three best by the rule of the
/// limits, and the cheapest and the fastest, which show the effect of more and less money. In addition: the
/// best with a single kind, which does not depend on reuse; and, if one has two fast kinds, the best with
/// one, which shows the value of the second kind.
pub fn finalists(sets: &[DeviceSet], judged: &[SetFigures], limits: &Limits) -> Vec<usize> {
    let frontier = frontier(judged);
    let ranked = |indices: &mut dyn Iterator<Item = usize>| {
        limits.rank(&indices.map(|index| (index, judged[index])).collect::<Vec<_>>())
    };
    let of_kinds =
        |count: usize| ranked(&mut (0..sets.len()).filter(|index| sets[*index].kinds().count() == count));
    let best = ranked(&mut frontier.iter().copied());
    let fastest = frontier.iter().min_by_key(|index| judged[**index].mean);
    let all = best.iter().take(3).chain(frontier.first()).chain(fastest).copied();
    let mut all: BTreeSet<_> = all.chain(of_kinds(1).first().copied()).collect();
    if all.iter().any(|index| sets[*index].second.is_some()) {
        all.extend(of_kinds(2).first());
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|index| (judged[*index].price, *index));
    all
}
