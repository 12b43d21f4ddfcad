//! `user_optimal`: each access may take its blocks to the device that answers this user fastest.
//!
//! Source: user-optimal migration in networked storage (a dissertation of 2007, chapter III). Devices may be
//! behind networks, and every host decides for itself by the responses that it sees: queue, network and all.
//!
//! Rule, for an access to blocks that are all on device A:
//!
//! 1. A list of candidates notes the blocks: those on it become the newest; others enter with a small
//!    probability, and the access ends here. The list drops the least recently used, so it holds mostly
//!    blocks that are accessed often and recently.
//! 2. B is the device with space whose mean response is least; devices within half of delta of it are tied,
//!    and one of them is drawn. A must be the slowest device, or tied with it, and slower than B by more than
//!    `delta = 2 sd(device) + 2 sd(round trip)`, each deviation the larger one of A's and B's.
//! 3. The migration takes a token. Without one the request is processed normally.
//! 4. A read is answered from A, and its blocks move to B; a write goes to B instead of A. The rest of the
//!    extent stays on A: an extent is on two devices at most, with a bit for each block. An extent that is on
//!    two devices migrates only between them.
//!
//! In the background, extents on two devices that nobody has accessed for a minute are merged into the place
//! with more blocks, when no client waits or space runs short.
//!
//! Constants: the factor 2 and four tokens are published. The text calls tokens both the number of requests
//! migrated "at any given time" and a rate "per second"; the key `tokens_are` selects. The deviation of a
//! device is that of its mean response in a second, or of single responses (`deviation`): the text does not
//! say. The length of the list (65,536 blocks), the probability (10 %), the minute and the adaptive number of
//! tokens are ours. The rule `locality` is the publication's comparator: every accessed block moves to a
//! device without a network in front of it, and data that is not accessed makes space there.
//!
//! When not: if devices differ by less than their responses vary, nothing moves, and a static stripe does the
//! same for less.

mod locality;
mod tokens;

use super::{
    Access, Action, DeviceView, KeptPlaces, Key, PlaceView, Placement, PolicyContext, Question, RESERVE,
    Reasons, Settings, Stripe, Subscriptions, WriteTo,
};
use crate::{Lru, MovingDeviation};
use locality::Locality;
use tokens::MigrationTokens;
use weir_model::{BLOCK, BlockRange, DeviceId, ExtentKey, Nanos, Op, PlaceId, PlaceKind, Rng};

const RULE: Key = Key::choice(
    "rule",
    &["user-optimal", "locality"],
    "where accessed blocks go: to the device that answers fastest, or to one without a network in front",
);
const ALLOCATION: Key = Key::choice(
    "allocation",
    &["stripe", "sequential"],
    "where new extents go: to all devices in turn, to one after the other",
);
const FIRST: Key = Key::count("first", 0, (0, 255), "the device, from 0, with which the sequence begins");
const SDS: Key = Key::number(
    "sds",
    2.0,
    (0.0, 100.0),
    "standard deviations by which responses must differ for a migration",
);
const DEVIATION: Key = Key::choice(
    "deviation",
    &["mean", "single"],
    "the deviation of a device: of its mean response in a second, or of single responses",
);
const TOKENS: Key = Key::number("tokens", 4.0, (0.0, 100_000.0), "requests that may be migrated");
const TOKENS_ARE: Key = Key::choice(
    "tokens_are",
    &["per-second", "at-once"],
    "whether tokens limit the requests migrated in a second, or those in progress",
);
const ADAPT: Key = Key::flag("adapt", false, "the number of tokens adapts, from 1 to 16");
const ENTER: Key = Key::percent("enter", 10.0, "the probability that an accessed block becomes a candidate");
const LIST: Key = Key::count("list", 65_536, (1, 1 << 24), "blocks on the list of candidates");
const ON: Key =
    Key::choice("on", &["access", "read", "write"], "the accesses that migrate: all, reads, writes");
const INACTIVE: Key =
    Key::time("inactive", Nanos::secs(60), "time without accesses after which an extent may be merged");

/// The tunable constants.
pub(super) const KEYS: &[Key] =
    &[RULE, ALLOCATION, FIRST, SDS, DEVIATION, TOKENS, TOKENS_ARE, ADAPT, ENTER, LIST, ON, INACTIVE];

/// The maximum number of extents on two devices that are remembered with the time of their last access.
const SPLIT_MAX: usize = 65_536;
/// The number of extents merged per round.
const MERGES: usize = 4;
/// The number of extents examined per round after the start, to find those on two devices.
const LOOKS: usize = 256;

/// The mean responses of a device in the seconds so far.
#[derive(Clone, Copy, Debug)]
struct Seconds {
    /// Clients' commands, and the sum of their responses, at the last round.
    completed: u64,
    total: Nanos,
    means: MovingDeviation,
}

/// The state of the policy.
#[derive(Clone, Debug)]
pub struct UserOptimal {
    allocation: Allocation,
    /// The state of the rule `locality`, if that is the rule.
    locality: Option<Locality>,
    sds: f64,
    of_single_responses: bool,
    tokens: MigrationTokens,
    enter: f64,
    on_reads: bool,
    on_writes: bool,
    inactive: Nanos,
    /// The candidates: blocks of extents.
    list: Lru<(ExtentKey, u16), ()>,
    seconds: Vec<Seconds>,
    /// Extents that are on two devices, and when each was last accessed.
    split: Lru<ExtentKey, Nanos>,
    /// The position of the search for extents that were on two devices at the start; `None` at its end.
    search: Option<ExtentKey>,
    /// The last write that was migrated, and where.
    last_write: Option<(ExtentKey, BlockRange, DeviceId)>,
}

/// The allocation of new extents.
#[derive(Clone, Copy, Debug)]
enum Allocation {
    Stripe(Stripe),
    /// One device after the other, from this one on.
    Sequential {
        first: usize,
    },
}

impl Allocation {
    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        match self {
            Self::Stripe(stripe) => stripe.allocate(context, access),
            Self::Sequential { first } => {
                let devices = context.devices;
                let turn = |i: usize| &devices[(*first + i) % devices.len()];
                (0..devices.len()).map(turn).find(|device| device.free > 0).map(|device| device.id)
            }
        }
    }
}

impl UserOptimal {
    pub(super) fn new(settings: &Settings) -> Self {
        let on = settings.choice(&ON);
        Self {
            allocation: match settings.choice(&ALLOCATION) {
                1 => Allocation::Sequential { first: settings.get(&FIRST) as usize },
                _ => Allocation::Stripe(Stripe::default()),
            },
            locality: (settings.choice(&RULE) == 1).then(Locality::default),
            sds: settings.get(&SDS),
            of_single_responses: settings.choice(&DEVIATION) == 1,
            tokens: MigrationTokens::new(
                settings.get(&TOKENS),
                settings.choice(&TOKENS_ARE) == 1,
                settings.flag(&ADAPT),
            ),
            enter: settings.get(&ENTER),
            on_reads: on != 2,
            on_writes: on != 1,
            inactive: settings.time(&INACTIVE),
            list: Lru::new(settings.get(&LIST) as usize),
            seconds: Vec::new(),
            split: Lru::new(SPLIT_MAX),
            search: Some(ExtentKey::default()),
            last_write: None,
        }
    }

    /// Returns the standard deviation of a device's responses.
    fn deviation(&self, device: &DeviceView) -> Nanos {
        if self.of_single_responses {
            return device.response_spread.deviation();
        }
        self.seconds.get(device.id.index()).map_or(Nanos(0), |seconds| seconds.means.deviation())
    }

    /// Returns by how much the responses of two devices must differ for a migration.
    fn delta(&self, a: &DeviceView, b: &DeviceView) -> Nanos {
        let device = self.deviation(a).max(self.deviation(b));
        let network = a.round_trip.deviation().max(b.round_trip.deviation());
        Nanos((self.sds * (device + network).0 as f64) as u64)
    }

    /// Notes an access in the list of candidates. Returns whether its blocks were candidates before.
    fn is_candidate(&mut self, access: &Access, random: &mut Rng) -> bool {
        let blocks = (access.blocks.first..access.blocks.end()).map(|block| (access.key, block));
        let is_listed = self.list.touch((access.key, access.blocks.first)).is_some();
        let enters = is_listed || random.chance(self.enter);
        for block in blocks {
            if self.list.touch(block).is_none() && enters {
                self.list.insert(block, ());
            }
        }
        is_listed
    }

    /// Returns the device to which the blocks should go from `from`, by their responses.
    fn faster(&self, context: &mut PolicyContext<'_>, access: &Access, from: DeviceId) -> Option<DeviceId> {
        let a = *context.device(from)?;
        let second = second_place(access, from);
        let is_possible = |device: &DeviceView| match second {
            Some(second) => device.id == second && device.is_usable,
            None => device.id != from && device.has_space(),
        };
        let devices = context.devices;
        let best = devices.iter().filter(|device| is_possible(device)).min_by_key(|d| d.mean_response())?;
        let delta = self.delta(&a, best);
        let (response, tie) = (a.mean_response(), Nanos(delta.0 / 2));
        let slowest =
            devices.iter().filter(|device| device.is_usable).map(DeviceView::mean_response).max()?;
        let is_known = response < Nanos::MAX;
        if !is_known || response <= best.mean_response() + delta || slowest > response + tie {
            return None;
        }
        let tied = |device: &&DeviceView| {
            is_possible(device) && device.mean_response() <= best.mean_response() + tie
        };
        let count = devices.iter().filter(tied).count() as u64;
        devices.iter().filter(tied).nth(context.random.below(count) as usize).map(|device| device.id)
    }

    /// Decides whether the access migrates its blocks; then spends a token and returns the target.
    fn decide(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        if access.places.as_slice().len() > 1 {
            self.note_split(context, access.key);
        }
        let is_candidate = match &mut self.locality {
            Some(locality) => {
                locality.note(access.key);
                true
            }
            None => self.is_candidate(access, context.random),
        };
        let from = only_place(access).filter(|_| is_candidate)?;
        let to = match &mut self.locality {
            Some(locality) => return locality.target(context, from, second_place(access, from)),
            None => self.faster(context, access, from)?,
        };
        let response = |id: DeviceId| context.device(id).map_or(Nanos(0), DeviceView::mean_response);
        let lasts = response(from) + response(to);
        self.tokens.take(context.now, lasts, from, to).then_some(to)
    }

    /// Remembers an extent as one that is on two devices, as just accessed. One that is forgotten for it is
    /// merged.
    fn note_split(&mut self, context: &mut PolicyContext<'_>, key: ExtentKey) {
        if let Some((old, _)) = self.split.insert(key, context.now).filter(|(old, _)| *old != key) {
            merge(context, old);
        }
    }

    /// Updates the mean responses by the second that has passed.
    fn measure(&mut self, devices: &[DeviceView]) {
        // What a device did before the first round was not within a second.
        let new = devices.iter().skip(self.seconds.len());
        self.seconds.extend(new.map(|device| Seconds {
            completed: device.completed(),
            total: device.total_response,
            means: MovingDeviation::NONE,
        }));
        for (seconds, device) in self.seconds.iter_mut().zip(devices) {
            let count = device.completed() - seconds.completed;
            let time = device.total_response - seconds.total;
            if let Some(mean) = time.0.checked_div(count) {
                seconds.means.add(Nanos(mean));
            }
            (seconds.completed, seconds.total) = (device.completed(), device.total_response);
        }
    }

    /// Searches a part of the map for extents that were on two devices at the start.
    fn find_split(&mut self, context: &mut PolicyContext<'_>) {
        for _ in 0..LOOKS {
            let Some(from) = self.search else { return };
            let Some(key) = context.map.next(from) else {
                self.search = None;
                return;
            };
            self.search = Some(locality::after(key));
            if context.map.places(key).as_slice().len() > 1 && self.split.get(&key).is_none() {
                self.note_split(context, key);
            }
        }
    }

    /// Merges inactive extents that are on two devices, if no client waits or space runs short.
    fn merge_inactive(&mut self, context: &mut PolicyContext<'_>) {
        let is_short =
            |device: &DeviceView| device.is_usable && device.free <= device.extents / (RESERVE / 2);
        let is_idle = context.devices.iter().all(|device| device.in_flight == 0);
        if !is_idle && !context.devices.iter().any(is_short) {
            return;
        }
        let inactive = |(_, accessed): &(ExtentKey, &Nanos)| context.now.since(**accessed) >= self.inactive;
        let due: Vec<_> =
            self.split.iter_oldest().take(MERGES).filter(inactive).map(|(key, _)| key).collect();
        for key in due {
            if context.actions.len() >= context.actions_max {
                return;
            }
            self.split.remove(&key);
            merge(context, key);
        }
    }
}

/// Returns the device of the one place that is valid for all blocks of the access, if no other is valid for
/// any.
fn only_place(access: &Access) -> Option<DeviceId> {
    let mut holding = access.places.as_slice().iter().filter(|place| place.blocks > 0);
    let place = holding.next().filter(|place| place.blocks == access.blocks.count)?;
    holding.next().is_none().then_some(place.id.device)
}

/// Returns the device of the extent's other place.
fn second_place(access: &Access, from: DeviceId) -> Option<DeviceId> {
    let places = access.places.as_slice().iter();
    places.map(|place| place.id.device).find(|device| *device != from)
}

/// Moves all of an extent that is on several devices to the place with the most blocks; of equal ones, to the
/// one with the most free space.
fn merge(context: &mut PolicyContext<'_>, key: ExtentKey) {
    let places = context.map.places(key);
    let wholes = places.as_slice().iter().filter(|place| place.id.kind == PlaceKind::Whole);
    let free = |place: &PlaceView| context.device(place.id.device).map_or(0, |device| device.free);
    let largest = wholes.max_by_key(|place| (place.of_extent, free(place)));
    let Some(to) = largest.filter(|_| places.as_slice().len() > 1).map(|place| place.id) else { return };
    let blocks = BlockRange { first: 0, count: context.extent.blocks() };
    context.actions.push(Action::Move { key, blocks, to });
}

impl Placement for UserOptimal {
    fn name(&self) -> &'static str {
        "user_optimal"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        self.allocation.allocate(context, access)
    }

    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, writes: self.on_writes, ..Subscriptions::default() }
    }

    /// Migrates what a client reads: its data is written to the other device as well.
    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        match access.op {
            Op::Read if self.on_reads && context.actions.len() < context.actions_max => {
                if let Some(device) = self.decide(context, access) {
                    let to = PlaceId { device, kind: PlaceKind::Whole };
                    context.actions.push(Action::Move { key: access.key, blocks: access.blocks, to });
                }
            }
            Op::Read | Op::Write => {
                self.is_candidate(access, context.random);
            }
            _ => {
                for block in access.blocks.first..access.blocks.end() {
                    self.list.remove(&(access.key, block));
                }
            }
        }
    }

    /// Repeats the decision on a write; a write that was not noted before stays in place.
    fn write_to(&mut self, _: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        match self.last_write {
            Some((key, blocks, device)) if (key, blocks) == (access.key, access.blocks) => {
                WriteTo::Whole(device)
            }
            _ => WriteTo::InPlace,
        }
    }

    /// Redirects a write of whole blocks; other writes would need the rest of their blocks first.
    fn write(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        self.last_write = None;
        let is_whole = access.bytes.0 == u64::from(access.blocks.count) * BLOCK;
        if access.op != Op::Write || !self.on_writes || !is_whole {
            self.accessed(context, access);
        } else if let Some(device) = self.decide(context, access) {
            self.last_write = Some((access.key, access.blocks, device));
        }
        self.write_to(context, access)
    }

    /// Extents on two devices are kept so; the policy merges them itself.
    fn kept_places(&self) -> KeptPlaces {
        KeptPlaces::All
    }

    fn round_interval(&self) -> Option<Nanos> {
        Some(Nanos::secs(1))
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        self.measure(context.devices);
        self.tokens.adapt(context.now);
        self.find_split(context);
        self.merge_inactive(context);
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        for device in context.devices {
            let name = about.name(device.id);
            let response = match device.mean_response() {
                Nanos::MAX => "none".to_owned(),
                mean => format!("{mean}, standard deviation {}", self.deviation(device)),
            };
            reasons.figure(format_args!("mean response of {name}"), response);
            if let Some(mean) = device.round_trip.mean() {
                let trip = format!("{mean}, standard deviation {}", device.round_trip.deviation());
                reasons.figure(format_args!("round trip to {name}"), trip);
            }
        }
        if self.locality.is_some() {
            reasons
                .moves_if("it is accessed while it is behind a network and a device without one has space");
            return reasons;
        }
        let is_listed = self.list.get(&(about.key, about.block)).is_some();
        reasons.figure("on the list of candidates", if is_listed { "yes" } else { "no" });
        reasons.figure("tokens", format_args!("{:.0}", self.tokens.count()));
        if let Some(here) = about.places.device() {
            reasons.moves_if(format_args!(
                "it is accessed while on the list, a token is available, and the mean response of {} exceeds \
                 that of another device with space by more than {} standard deviations",
                about.name(here),
                self.sds
            ));
        }
        reasons
    }
}

#[cfg(test)]
mod tests;
