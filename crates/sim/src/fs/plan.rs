//! What is simulated: the machine, its tiers and its policies.

use super::BottomFs;
use weir_model::{Bytes, Nanos};
use weir_policy::Watermarks;
use weir_policy::distribution::{DISTRIBUTION, DistributionPolicy, DistributionSettings};
use weir_policy::eviction::ITEM_EVICTION;
use weir_policy::eviction::items::{ItemEvictionPolicy, ItemSettings};
use weir_policy::promotion::{PROMOTION, PromotionPolicy};

/// A simulation, apart from its load.
#[derive(Clone, Debug)]
pub struct FsPlan {
    /// What changes are written to first.
    pub fast: FastTier,
    /// The tiers below, at least one.
    pub tiers: Vec<TierPlan>,
    /// The eviction policy.
    pub eviction: &'static ItemEvictionPolicy,
    /// Its settings.
    pub eviction_settings: ItemSettings,
    /// The distribution policy.
    pub distribution: &'static DistributionPolicy,
    /// Its settings.
    pub distribution_settings: DistributionSettings,
    /// The promotion policy.
    pub promotion: &'static PromotionPolicy,
    /// The watermarks of eviction.
    pub watermarks: Watermarks,
    /// Where the rates of the tiers come from that distribution uses.
    pub rates: RateSource,
    /// The machine.
    pub machine: Machine,
    /// Virtual time that is measured at most; `None` until the load ends.
    pub duration: Option<Nanos>,
}

impl FsPlan {
    /// Creates a plan with the default policies.
    pub fn new(fast: FastTier, tiers: Vec<TierPlan>) -> Self {
        Self {
            fast,
            tiers,
            eviction: &ITEM_EVICTION[0],
            eviction_settings: ItemSettings::default(),
            distribution: &DISTRIBUTION[0],
            distribution_settings: DistributionSettings::default(),
            promotion: &PROMOTION[0],
            watermarks: Watermarks::default(),
            rates: RateSource::Measured,
            machine: Machine::default(),
            duration: None,
        }
    }
}

/// What changes are written to first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastTier {
    /// NVM of this size, which holds metadata and data of files.
    Nvm(Bytes),
    /// Memory that does not keep its contents: at most so much changed data, written back after 30 s or when
    /// there is more.
    Memory(Bytes),
}

impl FastTier {
    /// Returns its size.
    pub fn size(self) -> Bytes {
        match self {
            Self::Nvm(size) | Self::Memory(size) => size,
        }
    }
}

/// A tier below: a file system on a modelled drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPlan {
    /// Name of the modelled drive.
    pub drive: String,
    /// Size of the drive.
    pub size: Bytes,
    /// The file system on it.
    pub bottom: BottomFs,
}

/// Where the rates of the tiers come from.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSource {
    /// Measured every second while the load runs.
    Measured,
    /// Given for each tier, in bytes per second, as from a trial run.
    Given(Vec<f64>),
}

/// The machine in front of the tiers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Number of processors.
    pub processors: usize,
    /// Processor time of an operation, besides that of its program and of copying.
    pub operation: Nanos,
    /// Rate at which a processor copies data, in bytes per second.
    pub copy_rate: Bytes,
    /// Size of the page cache.
    pub memory: Bytes,
    /// Size of a file's metadata in NVM.
    pub metadata: Bytes,
    /// Number of directories over which the containers of a tier are spread, at least 1.
    pub directories: u64,
    /// Share of the page cache, in percent, that may wait to be written to a tier. A client that writes more
    /// to a container waits.
    pub unwritten_percent_max: u8,
    /// Whether what leaves NVM waits in the page cache, within that share, so that its space is free at once.
    /// Otherwise its space is free when it is written.
    pub evicts_to_memory: bool,
}

impl Machine {
    /// Returns the number of bytes that may wait to be written to a tier.
    pub(super) fn unwritten_max(&self) -> Bytes {
        Bytes(self.memory.0 * u64::from(self.unwritten_percent_max) / 100)
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            processors: 2,
            operation: Nanos::micros(20),
            copy_rate: Bytes(1_500_000_000),
            memory: Bytes::mib(1664),
            metadata: Bytes(256),
            directories: 150,
            unwritten_percent_max: 10,
            evicts_to_memory: false,
        }
    }
}
