//! What to buy for a trace: of devices on sale, the sets on the frontier of price, mean response, p99 and flash life.
//!
//! | file | what it does |
//! |---|---|
//! | `set` | the sets there are: one kind of device, or a faster kind before it |
//! | `second` | … and two faster kinds, near the best of these |
//! | `arrivals` | when requests come, where the trace does not say so |
//! | `demand` | the trace, its extents numbered |
//! | `split` | which requests a fast device of some size answers, what is copied to it and brought home |
//! | `respond` | what each device takes for its part of the trace, by its timing model |
//! | `frontier`, `pick` | what no other set is better than, and which of these to buy |
//! | `confirm` | the engine over the same trace, in virtual time |
//!
//! A prediction is the responses of the fast devices to what they would be asked and those of the slow ones to the rest, put
//! together. For each size of fast devices on sale a point of the miss-ratio curve is needed: of blocks under W-TinyLFU, which
//! is most like what `adaptive` does. It leaves out the map's own commands and all that a policy does in answer to how
//! devices fare. [`Search::simulate`] has all of it.
//!
//! [`Job`]s depend on nothing but the trace, so that a driver may play them on as many threads as it likes.

mod arrivals;
mod confirm;
mod demand;
mod frontier;
mod pick;
mod respond;
mod second;
mod set;
mod split;
#[cfg(test)]
mod tests;

pub use arrivals::{at_rate, halves};
pub use confirm::{Runs, Simulated, device_name, is_fast};
pub use demand::{Demand, Measured};
pub use frontier::frontier;
pub use pick::{Judged, Limits, Rule};
pub use respond::{Found, Job, Part, Stream};
pub use second::with_second;
pub use set::{Cents, DeviceSet, Offer, Several, sets};
pub use split::{Level, Sizes, Slots};

use crate::cache::BlockTraceError;
use crate::place::outcome::{Collected, Responses};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use thiserror::Error;
use weir_model::{Bytes, ExtentSize};

/// The extents pools have unless told otherwise.
const EXTENT: ExtentSize = ExtentSize::DEFAULT;
/// Room there is to be, to the data: weir warns of a pool that is fuller than 80 %.
pub const HEADROOM: f64 = 1.25;
/// The load of devices that keep up, at most.
const LOAD_MOST: f64 = 2.0;
/// Of a fast device's slots, those that are taken before the engine makes room.
const TAKEN: f64 = 0.92;
/// Seconds.
const DAY: f64 = 86_400.0;
const YEAR: f64 = 365.25;

/// What is to have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// All data.
    pub capacity: Bytes,
    /// The part of it that is in use: what the trace's footprint stands for.
    pub active: Bytes,
}

/// How long flash lasts; more than anything if nothing wears out.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Years(pub f64);

impl Years {
    /// Longer than anybody keeps a drive.
    pub const ENOUGH: Self = Self(10.0);
    /// Nothing wears out.
    pub const UNWORN: Self = Self(f64::INFINITY);

    /// As far as it makes a difference, in years.
    fn that_matters(self) -> f64 {
        self.0.min(Self::ENOUGH.0)
    }
}

impl fmt::Display for Years {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            years if years.is_infinite() => f.write_str("does not wear"),
            years if years > 100.0 => f.write_str("over 100 years"),
            years if years < 10.0 => write!(f, "{years:.1} years"),
            years => write!(f, "{years:.0} years"),
        }
    }
}

/// Why there is no advice. Messages have the form "what is wrong; the way out".
#[derive(Debug, Error)]
pub enum AdviseError {
    /// The trace cannot be had.
    #[error(transparent)]
    Trace(#[from] BlockTraceError),
    /// Nothing is asked after the warm-up.
    #[error("nothing is read or written in it after its first third, which warms up; take a longer trace")]
    Nothing,
    /// No such model.
    #[error("device {offer}: there is no model of {model:?}; write one of {known}", known = models())]
    UnknownDrive {
        /// The device's name in the list.
        offer: String,
        /// The model it names.
        model: String,
    },
    /// Whatever is bought is too small.
    #[error(
        "{wanted} of data and a fifth of free space need {room}, more than {most} \
         devices of any kind have; put larger devices on the list, or ask for less"
    )]
    NoRoom {
        /// The data.
        wanted: Bytes,
        /// … with what is to be left free.
        room: Bytes,
        /// The most devices of a kind there are in a set.
        most: u32,
    },
}

fn models() -> String {
    weir_timing::drives::all().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// What a set is expected to come to.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// What it is judged by.
    pub judged: Judged,
    /// Responses to all requests.
    pub responses: Responses,
    /// The time until the busiest device has answered all, to the time in which it was asked for.
    pub load: f64,
    /// Of the reads, the share that fast devices answer; all if there is one kind only.
    pub hit_share: f64,
    /// … and that those of the fastest kind do.
    pub fastest_share: f64,
}

impl Forecast {
    /// Whether the devices keep up with the trace: all is answered within as much time again, as in a run.
    pub fn keeps_up(&self) -> bool {
        self.load <= LOAD_MOST && self.responses.count > 0
    }

    /// What is to be said of devices that cannot keep up: by how much.
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
    wanted: Wanted,
}

impl<'a> Search<'a> {
    /// For this trace, among these offers, for so much data.
    pub fn new(demand: &'a Demand, offers: &'a [Offer], wanted: Wanted) -> Self {
        Self { demand, offers, wanted }
    }

    /// By how much what is in use is more than what the trace touches.
    fn scale(&self) -> f64 {
        (self.wanted.active.0 as f64 / self.demand.footprint().0.max(1) as f64).max(f64::MIN_POSITIVE)
    }

    fn is_scaled(&self) -> bool {
        self.scale() > 1.0 + 1e-9
    }

    /// The slots of a set's fast devices that the trace meets: as many fewer as it is smaller than what it stands for.
    fn sizes(&self, set: &DeviceSet) -> Option<Sizes> {
        let slots =
            |several: Several| several.size(self.offers).0 as f64 / self.scale() / EXTENT.bytes().0 as f64;
        let all = self.demand.extents();
        let in_all: f64 = set.fast_kinds().map(slots).sum();
        // Where all fits there is no need to make room.
        let taken = if in_all >= f64::from(all) * HEADROOM { 1.0 } else { TAKEN };
        let slots = |several: Several| (slots(several) * taken) as u32;
        let fast = slots(set.fast?).clamp(1, all);
        let second = set.second.map_or(0, |second| slots(second).clamp(1, all)).min(all - fast);
        Some(Sizes { fast: Slots(fast), second: Slots(second) })
    }

    /// What has to be played for these sets to be judged.
    pub fn jobs(&self, sets: &[DeviceSet]) -> Vec<Job> {
        let mut jobs: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for stream in sets.iter().flat_map(|set| self.parts(set)) {
            jobs.entry(stream.part.sizes()).or_default().insert(stream);
        }
        jobs.into_iter()
            .map(|(sizes, streams)| Job { sizes, streams: streams.into_iter().collect() })
            .collect()
    }

    fn parts(&self, set: &DeviceSet) -> Vec<Stream> {
        let sizes = self.sizes(set);
        let part = |(level, several): (Level, Several)| {
            let part = sizes.map_or(Part::All, |sizes| Part::Of(level, sizes));
            let model = self.offers[several.offer].model.clone();
            Stream { model, part, devices: several.count, is_scaled: self.is_scaled() }
        };
        set.levels().map(part).collect()
    }

    /// Finds out what a job is for.
    pub fn play(&self, job: &Job) -> Found {
        job.play(self.demand)
    }

    /// What the sets come to by what was found out by their [`Self::jobs`].
    pub fn forecasts(&self, sets: &[DeviceSet], jobs: &[Job], found: &[Found]) -> Vec<Forecast> {
        let responses = found.iter().flat_map(|found| &found.responses);
        let responses: BTreeMap<_, _> = responses.map(|(stream, played)| (stream, played)).collect();
        let found: BTreeMap<_, _> = jobs.iter().map(|job| job.sizes).zip(found).collect();
        let days = self.demand.lasts().as_secs_f64() / DAY;
        let forecast = |set: &DeviceSet| {
            let mut all = Collected::new();
            let mut load: f64 = 0.0;
            for played in self.parts(set).iter().filter_map(|stream| responses.get(stream)) {
                all.merge(&played.collected);
                load = load.max(played.load);
            }
            let responses = all.responses();
            let (written, [fastest_share, second_share]) = found
                .get(&self.sizes(set))
                .map_or_else(Default::default, |found| (found.written, found.hit_shares));
            let written = set.levels().map(|(level, several)| (several, written[level as usize]));
            let life = flash_life(self.offers, written, days);
            let judged =
                Judged { price: set.price(self.offers), mean: responses.mean, p99: responses.p99, life };
            Forecast { judged, responses, load, hit_share: fastest_share + second_share, fastest_share }
        };
        sets.iter().map(forecast).collect()
    }
}

/// How long the flash lasts of which wears out first, if so much is written to each kind in so many days.
fn flash_life(offers: &[Offer], written: impl Iterator<Item = (Several, Bytes)>, days: f64) -> Years {
    let life = |(Several { offer, count }, bytes): (Several, Bytes)| {
        let endurance = offers[offer].endurance?;
        let a_day = bytes.0 as f64 / days.max(f64::MIN_POSITIVE);
        Some(endurance.0 as f64 * f64::from(count) / a_day / YEAR)
    };
    Years(written.filter_map(life).fold(f64::INFINITY, f64::min))
}

/// Of what was found of all sets, those to be tried by the engine, by ascending price: of the frontier the three best by the rule
/// the limits make, the cheapest and the fastest, so that it is known what more and less money comes to; the best of
/// a single kind, which does not need that anything is asked for again; and, if one has two fast kinds, the best with one, so that it
/// is known what the second one is worth.
pub fn finalists(sets: &[DeviceSet], judged: &[Judged], limits: &Limits) -> Vec<usize> {
    let frontier = frontier(judged);
    let ranked = |indices: &mut dyn Iterator<Item = usize>| {
        limits.ranked(&indices.map(|index| (index, judged[index])).collect::<Vec<_>>())
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
