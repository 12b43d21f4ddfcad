//! Traits of a pool: the third dimension of coverage, beside what happened and when.

use super::{FaultKind, Moment, Statistics};
use crate::driver::Setup;
use std::fmt;
use weir_map::Hardening;
use weir_model::{BLOCK, Bytes};

/// A trait of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trait {
    /// Some volume has two copies.
    TwoCopies,
    /// A policy buffers in two locations.
    Duplexed,
    /// The metadata is mirrored.
    MirroredMap,
    /// A policy moves data.
    Moves,
    /// A volume's map is durable at every first write.
    Hardened,
    /// Volumes are over-provisioned by more than a quarter.
    Crowded,
    /// The journal has at most 12 pages.
    TinyJournal,
    /// Extents have more than 64 blocks.
    LargeExtents,
    /// There are five devices or more.
    ManyDevices,
    /// The size of a volume is not a multiple of a block.
    OddSize,
    /// There is an extent cache.
    Cache,
    /// Durable writes are a write and a flush, as for files.
    WriteThenFlush,
}

impl Trait {
    /// All traits.
    pub const ALL: &[Self] = &[
        Self::TwoCopies,
        Self::Duplexed,
        Self::MirroredMap,
        Self::Moves,
        Self::Hardened,
        Self::Crowded,
        Self::TinyJournal,
        Self::LargeExtents,
        Self::ManyDevices,
        Self::OddSize,
        Self::Cache,
        Self::WriteThenFlush,
    ];

    /// Returns the traits of a pool.
    #[must_use]
    pub fn of(setup: &Setup) -> Vec<Self> {
        Self::ALL.iter().copied().filter(|it| it.is_of(setup)).collect()
    }

    fn is_of(self, setup: &Setup) -> bool {
        let own = || setup.volumes.iter().filter_map(|volume| volume.policy);
        let mut policies = own().chain([setup.policy.as_str()]);
        let total = |sizes: &mut dyn Iterator<Item = Bytes>| sizes.map(|size| size.0).sum::<u64>();
        match self {
            Self::TwoCopies => setup.volumes.iter().any(|volume| volume.copies > 1),
            Self::Duplexed => policies.any(|policy| policy == "hystor-twice"),
            Self::MirroredMap => setup.mirrored,
            Self::Moves => policies
                .any(|policy| weir_policy::placement::find_policy(policy).is_none_or(|known| known.moves)),
            Self::Hardened => setup.volumes.iter().any(|volume| volume.hardening == Hardening::Write),
            Self::Crowded => {
                let promised =
                    total(&mut setup.volumes.iter().map(|v| Bytes(v.size.0 * u64::from(v.copies))));
                promised * 4 > total(&mut setup.devices.iter().map(|device| device.size)) * 5
            }
            Self::TinyJournal => setup.journal_pages <= 12,
            Self::LargeExtents => setup.extent.blocks() > 64,
            Self::ManyDevices => setup.devices.len() >= 5,
            Self::OddSize => setup.volumes.iter().any(|volume| !volume.size.0.is_multiple_of(BLOCK)),
            Self::Cache => setup.extent_cache > Bytes(0),
            Self::WriteThenFlush => setup.durable_writes == weir_engine::DurableWrites::WriteThenFlush,
        }
    }
}

impl Statistics {
    /// Returns at how many of the possible moments this has happened to such a pool, and the number of
    /// possible moments.
    #[must_use]
    pub fn moments_covered(&self, strike: FaultKind, of: Trait) -> (usize, usize) {
        let possible = || Moment::all().filter(move |moment| strike.impossible_at(*moment).is_none());
        let met = possible().filter(|moment| self.triples.contains_key(&(strike, *moment, of)));
        (met.count(), possible().count())
    }
}

impl fmt::Display for Trait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TwoCopies => "two copies",
            Self::Duplexed => "duplexed write-back area",
            Self::MirroredMap => "mirrored metadata",
            Self::Moves => "a policy that moves",
            Self::Hardened => "hardening write",
            Self::Crowded => "crowded",
            Self::TinyJournal => "tiny journal",
            Self::LargeExtents => "large extents",
            Self::ManyDevices => "five devices or more",
            Self::OddSize => "odd volume size",
            Self::Cache => "extent cache",
            Self::WriteThenFlush => "write, then flush",
        })
    }
}
