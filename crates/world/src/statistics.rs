//! Coverage of runs: amounts, and which fault struck at which moment. It shows what was never tested.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use weir_engine::Activity;
use weir_model::Bytes;

mod traits;

pub use traits::Trait;

/// A fault or event that struck the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// The power failed.
    PowerLoss,
    /// The server was killed.
    Kill,
    /// The clock jumped ahead.
    TimeJump,
    /// A read failed, one of a few.
    ReadError,
    /// A write failed, one of a few.
    WriteError,
    /// A flush failed, one of a few.
    FlushError,
    /// A read failed, as all do from then on.
    ReadErrors,
    /// A write failed, as all do from then on.
    WriteErrors,
    /// A flush failed, as all do from then on.
    FlushErrors,
    /// A slow device completed a command late.
    Slow,
    /// A completion was held back, perhaps for ever.
    Hang,
    /// A command was sent to a device that had vanished.
    Vanish,
    /// A device was truncated.
    Truncated,
    /// A write was sent to a full device.
    Full,
    /// A write was acknowledged and never executed.
    LostWrite,
    /// A write was executed elsewhere.
    MisdirectedWrite,
    /// A bit of the metadata flipped while the power was off.
    MetadataRot,
    /// A bit of user data flipped while the power was off.
    DataRot,
}

/// A moment at which something strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// Nothing was in progress.
    Idle,
    /// The pool was being opened.
    Recovery,
    /// The engine was doing this, perhaps among other things.
    During(Activity),
}

/// Statistics of runs; those of several runs can be added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Completed runs.
    pub runs: u64,
    /// Runs in which a volume received space that another had freed.
    pub runs_with_reuse: u64,
    /// Answered requests.
    pub requests: u64,
    /// Requests that failed for lack of space.
    pub no_space: u64,
    /// Requests that failed because of a device.
    pub errors: u64,
    /// Bytes read back and compared.
    pub compared: Bytes,
    /// Abrupt stops, including those while opening.
    pub crashes: u64,
    /// Of these, in copies of a pool that itself continued.
    pub in_copies: u64,
    /// Of all, while the pool was being opened.
    pub in_recovery: u64,
    /// Crashes after the journal had wrapped around.
    pub after_wrap: u64,
    /// Crashes while a checkpoint was being written.
    pub in_checkpoint: u64,
    /// Cases of damaged metadata that kept a pool from opening.
    pub damage_detected: u64,
    /// Cases of damaged metadata with which the pool opened: repaired from the mirror, or irrelevant.
    pub damage_tolerated: u64,
    /// Pools that may have lost the last frame of their only journal, and were abandoned.
    pub pools_abandoned: u64,
    /// Damaged sectors of user data that were read: unnoticed, because there are no checksums.
    pub damaged_data: u64,
    /// Audits of the devices.
    pub audits: u64,
    /// Audits at which redundancy was not complete yet.
    pub restored: u64,
    /// Permanent losses of a device, in copies of the pool.
    pub losses: u64,
    /// Replacements of such a device by a blank one.
    pub replacements: u64,
    /// Number of strikes at each moment.
    pub hits: BTreeMap<(FaultKind, Moment), u64>,
    /// Number of strikes at each moment to pools with each trait.
    pub triples: BTreeMap<(FaultKind, Moment, Trait), u64>,
    /// Number of crashes by requests answered since the previous crash, without those in copies.
    pub gaps: BTreeMap<u64, u64>,
}

impl Statistics {
    /// Returns the median of requests answered between crashes.
    #[must_use]
    pub fn median_gap(&self) -> u64 {
        let half = self.gaps.values().sum::<u64>() / 2;
        let mut seen = 0;
        let middle = self.gaps.iter().find(|(_, crashes)| {
            seen += **crashes;
            seen > half
        });
        middle.map_or(0, |(gap, _)| *gap)
    }

    /// Returns the possible pairs that occurred fewer than `times` times, with their counts.
    #[must_use]
    pub fn rarer_than(&self, times: u64) -> Vec<(FaultKind, Moment, u64)> {
        let pairs =
            FaultKind::ALL.iter().flat_map(|strike| Moment::all().map(move |moment| (*strike, moment)));
        let reachable = pairs.filter(|(strike, moment)| strike.impossible_at(*moment).is_none());
        let counted = reachable.map(|(strike, moment)| (strike, moment, self.hits(strike, moment)));
        counted.filter(|(_, _, hits)| *hits < times).collect()
    }

    /// Returns how often this happened at that moment.
    #[must_use]
    pub fn hits(&self, strike: FaultKind, moment: Moment) -> u64 {
        self.hits.get(&(strike, moment)).copied().unwrap_or(0)
    }
}

impl AddAssign<&Self> for Statistics {
    fn add_assign(&mut self, other: &Self) {
        self.runs += other.runs;
        self.runs_with_reuse += other.runs_with_reuse;
        self.requests += other.requests;
        self.no_space += other.no_space;
        self.errors += other.errors;
        self.compared += other.compared;
        self.crashes += other.crashes;
        self.in_copies += other.in_copies;
        self.in_recovery += other.in_recovery;
        self.after_wrap += other.after_wrap;
        self.in_checkpoint += other.in_checkpoint;
        self.damage_detected += other.damage_detected;
        self.damage_tolerated += other.damage_tolerated;
        self.pools_abandoned += other.pools_abandoned;
        self.damaged_data += other.damaged_data;
        self.audits += other.audits;
        self.restored += other.restored;
        self.losses += other.losses;
        self.replacements += other.replacements;
        other.hits.iter().for_each(|(hit, times)| *self.hits.entry(*hit).or_default() += times);
        other.triples.iter().for_each(|(hit, times)| *self.triples.entry(*hit).or_default() += times);
        other.gaps.iter().for_each(|(gap, times)| *self.gaps.entry(*gap).or_default() += times);
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, requests, no_space, errors, crashes, compared, .. } = self;
        write!(
            f,
            "{runs} runs, {requests} requests ({no_space} without space, {errors} failed), {crashes} crashes, \
             {compared} compared"
        )
    }
}

impl FaultKind {
    /// Reports whether it is silent: commands seem to succeed.
    #[must_use]
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::LostWrite | Self::MisdirectedWrite | Self::MetadataRot | Self::DataRot)
    }

    /// All strikes.
    pub const ALL: &[Self] = &[
        Self::PowerLoss,
        Self::Kill,
        Self::TimeJump,
        Self::ReadError,
        Self::WriteError,
        Self::FlushError,
        Self::ReadErrors,
        Self::WriteErrors,
        Self::FlushErrors,
        Self::Slow,
        Self::Hang,
        Self::Vanish,
        Self::Truncated,
        Self::Full,
        Self::LostWrite,
        Self::MisdirectedWrite,
        Self::MetadataRot,
        Self::DataRot,
    ];

    /// Returns why this cannot happen at that moment, if it cannot.
    #[must_use]
    pub const fn impossible_at(self, moment: Moment) -> Option<&'static str> {
        let of_a_command = !matches!(
            self,
            Self::PowerLoss
                | Self::Kill
                | Self::TimeJump
                | Self::Truncated
                | Self::MetadataRot
                | Self::DataRot
        );
        match (self, moment) {
            (_, Moment::Idle) if of_a_command => {
                Some("it strikes a command, which is under way then; probes and superblocks count as idle")
            }
            (Self::Truncated, Moment::Recovery) => Some("it is drawn for pools that are served"),
            (Self::TimeJump, Moment::Recovery) => Some("who opens a pool asks no clock"),
            (Self::MetadataRot | Self::DataRot, Moment::Recovery) => {
                Some("bits change while the power is off, before the pool is opened")
            }
            (
                Self::LostWrite | Self::MisdirectedWrite | Self::MetadataRot,
                Moment::During(Activity::Degraded),
            ) => {
                Some("it would strike the only good copy of a map that has none: see the maps without mirror")
            }
            (
                Self::LostWrite | Self::MisdirectedWrite | Self::MetadataRot | Self::DataRot,
                Moment::During(Activity::InDoubt | Activity::Degraded),
            ) => Some("devices either fail or deceive: of both together nothing could be promised"),
            _ => None,
        }
    }
}

impl Moment {
    /// Returns all moments.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Idle, Self::Recovery].into_iter().chain(Activity::ALL.map(Self::During))
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PowerLoss => "power cut",
            Self::Kill => "kill",
            Self::TimeJump => "time jumps",
            Self::ReadError => "read error",
            Self::WriteError => "write error",
            Self::FlushError => "flush error",
            Self::ReadErrors => "reads fail",
            Self::WriteErrors => "writes fail",
            Self::FlushErrors => "flushes fail",
            Self::Slow => "slow",
            Self::Hang => "hangs",
            Self::Vanish => "gone",
            Self::Truncated => "truncated",
            Self::Full => "full",
            Self::LostWrite => "lost write",
            Self::MisdirectedWrite => "misdirected",
            Self::MetadataRot => "metadata rot",
            Self::DataRot => "data rot",
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.pad("idle"),
            Self::Recovery => f.pad("recovery"),
            Self::During(activity) => f.pad(&activity.to_string()),
        }
    }
}
