//! Tiers below the region: directories on other file systems, whose files, *containers*, hold the contents of
//! files that were evicted (TridentFS).
//!
//! [`Containers`] is all that the namespace knows of them. [`ContainerFiles`] are real files,
//! [`SimulatedContainers`] lose what no sync covers.

mod files;
mod found;
pub mod header;
mod heat;
mod lease;
pub mod marker;
pub mod rescue;
mod simulated;

pub use crate::layout::tier::{Class, Container, Role, Tier, TierNumber};
pub use files::{ContainerFiles, allocated_bytes, container_path};
pub use found::FoundTier;
pub use header::Header;
pub(crate) use heat::Heat;
pub use simulated::SimulatedContainers;

use crate::layout::Time;
use rustc_hash::FxHashSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What to look for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that may differ from zero.
    Data,
    /// Bytes that read as zeros because nothing is allocated for them; the end of the file is one.
    Hole,
}

/// Length and times of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerStat {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last read.
    pub accessed: Time,
    /// Time of the last change of contents.
    pub modified: Time,
}

/// What a tier can do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierState {
    /// All of it.
    Ready,
    /// Its file system is read-only: nothing is evicted to it.
    ReadOnly,
    /// Its directory is not there, or is another one; the reason.
    Gone(String),
}

/// Space of the file system that a tier is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierSpace {
    /// Identity of the file system: tiers may share one.
    pub device: u64,
    /// Size in bytes.
    pub total_bytes: u64,
    /// Bytes that may still be written.
    pub free_bytes: u64,
}

/// The work of a tier since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierWork {
    /// Accumulated time in which it was busy, in seconds.
    pub busy_seconds: f64,
    /// Bytes per second of the last second with work; `None` before.
    pub rate: Option<f64>,
}

/// The containers of all tiers of a region.
///
/// What is written is *durable* (survives a power loss) after [`sync`](Self::sync) of the container. Before
/// that, any part of it may survive or be lost, its name in the directory included.
pub trait Containers: fmt::Debug + Send + Sync {
    /// Creates an empty container. It takes the place of one with the same number, which an interrupted
    /// eviction left.
    ///
    /// # Errors
    /// Returns the operating system's error, as all of these do.
    fn create(&self, container: Container) -> io::Result<()>;

    /// Reads bytes; returns how many, less than asked for at the end.
    fn read(&self, container: Container, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Writes all of the bytes.
    fn write(&self, container: Container, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns the length.
    fn len(&self, container: Container) -> io::Result<u64>;

    /// Returns length and times.
    fn stat(&self, container: Container) -> io::Result<ContainerStat>;

    /// Sets the times of the last read and of the last change.
    fn set_times(&self, container: Container, accessed: Time, modified: Time) -> io::Result<()>;

    /// Returns its file, for the kernel to read and write it.
    fn file(&self, container: Container) -> io::Result<Arc<File>>;

    /// Notes that others than this may have changed it: the next sync covers that, too.
    fn note_change(&self, container: Container) -> io::Result<()>;

    /// Returns whether others than this have it open or mapped. An error: that cannot be told.
    fn is_used_by_others(&self, container: Container) -> io::Result<bool>;

    /// Sets the length; new bytes are zeros.
    fn set_len(&self, container: Container, len: u64) -> io::Result<()>;

    /// Makes a range read as zeros, without space where that is possible. The length stays.
    fn punch(&self, container: Container, range: Range<u64>) -> io::Result<()>;

    /// Allocates space for a range. Contents and length stay.
    fn allocate(&self, container: Container, range: Range<u64>) -> io::Result<()>;

    /// Returns the first offset with data, or of a hole, at or after `offset`; the end is a hole.
    fn seek(&self, container: Container, offset: u64, what: Seek) -> io::Result<Option<u64>>;

    /// Makes all of a container and its name durable.
    fn sync(&self, container: Container) -> io::Result<()>;

    /// Makes a container durable that others than this may have written to.
    fn sync_written_by_others(&self, container: Container) -> io::Result<()> {
        self.note_change(container)?;
        self.sync(container)
    }

    /// Removes a container.
    fn remove(&self, container: Container) -> io::Result<()>;

    /// Returns the numbers of all containers of a tier.
    fn list(&self, tier: TierNumber) -> io::Result<Vec<u64>>;

    /// Returns what a container tells about its file; `None` if it has no header.
    fn header(&self, container: Container) -> io::Result<Option<Header>>;

    /// Sets what a container tells about its file.
    fn set_header(&self, container: Container, header: &Header) -> io::Result<()>;

    /// Makes the directory of a tier that is being added the tier's, durably.
    ///
    /// # Errors
    /// As all; `AlreadyExists` if it is that of a tier already.
    fn adopt(&self, number: TierNumber, tier: &Tier) -> io::Result<()>;

    /// Notes in the directory of a tier whether it is leaving, for a repair of the tier table.
    fn note_leaving(&self, _: TierNumber, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// Gives up the directory of a tier that was removed, with all that is left in it.
    fn release(&self, number: TierNumber) -> io::Result<()>;

    /// Returns what a tier can do now.
    fn state(&self, tier: TierNumber) -> TierState;

    /// Returns the space of a tier.
    fn space(&self, tier: TierNumber) -> io::Result<TierSpace>;

    /// Returns the work of a tier.
    fn work(&self, tier: TierNumber) -> TierWork;
}

/// Returns the space of so many tiers together. Those on the same file system share theirs.
pub fn space_of_all(containers: &dyn Containers, tiers: u32) -> TierSpace {
    let mut devices = FxHashSet::default();
    let mut sum = TierSpace { device: 0, total_bytes: 0, free_bytes: 0 };
    for tier in (0..tiers).map(TierNumber) {
        // Nothing can be stored in a tier that is gone.
        if let Ok(space) = containers.space(tier)
            && devices.insert(space.device)
        {
            sum.total_bytes += space.total_bytes;
            sum.free_bytes += space.free_bytes;
        }
    }
    sum
}

/// Containers of a region whose tiers were not opened: every use fails.
#[derive(Clone, Copy, Debug)]
pub struct NoContainers;

fn not_opened<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::ENXIO))
}

impl Containers for NoContainers {
    fn create(&self, _: Container) -> io::Result<()> {
        not_opened()
    }
    fn read(&self, _: Container, _: u64, _: &mut [u8]) -> io::Result<usize> {
        not_opened()
    }
    fn write(&self, _: Container, _: u64, _: &[u8]) -> io::Result<()> {
        not_opened()
    }
    fn len(&self, _: Container) -> io::Result<u64> {
        not_opened()
    }
    fn stat(&self, _: Container) -> io::Result<ContainerStat> {
        not_opened()
    }
    fn set_times(&self, _: Container, _: Time, _: Time) -> io::Result<()> {
        not_opened()
    }
    fn file(&self, _: Container) -> io::Result<Arc<File>> {
        not_opened()
    }
    fn note_change(&self, _: Container) -> io::Result<()> {
        not_opened()
    }
    fn is_used_by_others(&self, _: Container) -> io::Result<bool> {
        not_opened()
    }
    fn set_len(&self, _: Container, _: u64) -> io::Result<()> {
        not_opened()
    }
    fn punch(&self, _: Container, _: Range<u64>) -> io::Result<()> {
        not_opened()
    }
    fn allocate(&self, _: Container, _: Range<u64>) -> io::Result<()> {
        not_opened()
    }
    fn seek(&self, _: Container, _: u64, _: Seek) -> io::Result<Option<u64>> {
        not_opened()
    }
    fn sync(&self, _: Container) -> io::Result<()> {
        not_opened()
    }
    fn remove(&self, _: Container) -> io::Result<()> {
        not_opened()
    }
    fn list(&self, _: TierNumber) -> io::Result<Vec<u64>> {
        not_opened()
    }
    fn header(&self, _: Container) -> io::Result<Option<Header>> {
        not_opened()
    }
    fn set_header(&self, _: Container, _: &Header) -> io::Result<()> {
        not_opened()
    }
    fn adopt(&self, _: TierNumber, _: &Tier) -> io::Result<()> {
        not_opened()
    }
    fn release(&self, _: TierNumber) -> io::Result<()> {
        not_opened()
    }
    fn state(&self, _: TierNumber) -> TierState {
        TierState::Gone("it was not opened".to_owned())
    }
    fn space(&self, _: TierNumber) -> io::Result<TierSpace> {
        not_opened()
    }
    fn work(&self, _: TierNumber) -> TierWork {
        TierWork::default()
    }
}
