//! The geometry and the times of a NAND device.

use weir_flash::{ConfigError, LogConfig, Metadata};
use weir_model::{Bytes, Nanos};
use weir_timing::ssd::SsdParams;

/// A NAND device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nand {
    /// Size of a page.
    pub page: Bytes,
    /// Pages in a block, which is erased as a whole.
    pub block: u32,
    /// Planes in a die. They read, program and erase independently of one another.
    pub planes: u32,
    /// Dies at a channel.
    pub dies: u32,
    /// Channels.
    pub channels: u32,
    /// What is collected and erased at once.
    pub erase_unit: EraseUnit,
    /// Time to read a page.
    pub read: Nanos,
    /// Time to program a page.
    pub program: Nanos,
    /// Time to erase a block.
    pub erase: Nanos,
    /// Transfer rate of a channel, in bytes per second.
    pub channel_rate: Bytes,
    /// How much flash is over-provisioned.
    pub over_provisioning: OverProvisioning,
}

/// What is collected and erased at once: a segment of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EraseUnit {
    /// A block of one plane.
    #[default]
    Block,
    /// A block of each plane of a die.
    Die,
    /// A superblock: a block of each plane of all dies.
    Superblock,
}

impl EraseUnit {
    /// All, by the names that commands use.
    pub const ALL: [(&'static str, Self); 3] =
        [("block", Self::Block), ("die", Self::Die), ("superblock", Self::Superblock)];

    /// Returns the unit's name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, unit)| *unit == self).map_or("", |(name, _)| name)
    }
}

/// Over-provisioned flash by one of the two usual conventions: U pages for the user, T in use in all, which
/// leaves out the free blocks in reserve and the open ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverProvisioning {
    /// Spare factor: `(T - U) / T`.
    OfAll(f64),
    /// `(T - U) / U`.
    OfUser(f64),
}

impl OverProvisioning {
    /// Returns the spare factor, `(T - U) / T`.
    pub fn spare(self) -> f64 {
        match self {
            Self::OfAll(share) => share,
            Self::OfUser(share) => share / (1.0 + share),
        }
    }
}

/// Time until a program or an erase is suspended for a read.
const SUSPEND: Nanos = Nanos::micros(30);
/// The controller's time per command.
const COMMAND: Nanos = Nanos(500);
/// Time until the write buffer acknowledges.
const ACKNOWLEDGE: Nanos = Nanos::micros(15);
/// Size of the write buffer: a share of the capacity, within limits.
const BUFFER_SHARE: u64 = 1000;
const BUFFER_MIN: Bytes = Bytes::kib(256);
const BUFFER_MAX: Bytes = Bytes::mib(32);

impl Default for Nand {
    /// A TLC device of 8 channels: times recalled of 3D TLC NAND, as in the model `ssd-nvme`.
    fn default() -> Self {
        Self {
            page: Bytes::kib(4),
            block: 256,
            planes: 2,
            dies: 4,
            channels: 8,
            erase_unit: EraseUnit::Block,
            read: Nanos::micros(60),
            program: Nanos::micros(500),
            erase: Nanos::micros(3500),
            channel_rate: Bytes(800_000_000),
            over_provisioning: OverProvisioning::OfAll(0.07),
        }
    }
}

impl Nand {
    /// Returns the number of planes of all dies.
    pub const fn all_planes(&self) -> u64 {
        self.channels as u64 * self.dies as u64 * self.planes as u64
    }

    /// Returns the number of pages that are erased at once.
    pub fn segment_pages(&self) -> u64 {
        let blocks = match self.erase_unit {
            EraseUnit::Block => 1,
            EraseUnit::Die => self.planes.into(),
            EraseUnit::Superblock => self.all_planes(),
        };
        u64::from(self.block) * blocks
    }

    /// Returns the settings of the log for this many pages of the user.
    pub(super) fn log(&self, user_pages: u32) -> Result<LogConfig, ConfigError> {
        let pages = u32::try_from(self.segment_pages()).unwrap_or(u32::MAX);
        LogConfig::for_device(user_pages, self.over_provisioning.spare(), pages, Metadata::default())
    }

    /// Returns the parameters of the SSD's model; `capacity` is the user's.
    ///
    /// Each plane is one of the model's dies. Channels limit the rates of both directions.
    pub(super) fn timing(&self, capacity: Bytes) -> SsdParams {
        let channels = Bytes(self.channel_rate.0 * u64::from(self.channels));
        // A plane programs a page in this time, erases included.
        let per_page = self.program.0 + self.erase.0 / u64::from(self.block.max(1));
        let programmed = self.all_planes() * self.page.0 * 1_000_000_000 / per_page.max(1);
        let buffer = Bytes(capacity.0 / BUFFER_SHARE).clamp(BUFFER_MIN, BUFFER_MAX);
        SsdParams {
            dies: u32::try_from(self.all_planes()).unwrap_or(u32::MAX),
            page: self.page,
            read: self.read,
            suspend: Some(SUSPEND),
            erase: self.erase,
            block: self.block,
            command: COMMAND,
            read_rate: channels,
            write_rate: channels,
            duplex: false,
            acknowledge: ACKNOWLEDGE,
            buffer,
            drain_rate: Bytes(programmed.min(channels.0).max(1)),
            streams: 1,
            random_percent: 100,
            random: Nanos(0),
            spare: Some(self.over_provisioning.spare()),
            program: self.program,
            flush: ACKNOWLEDGE,
        }
    }
}
