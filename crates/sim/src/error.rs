//! Errors of experiments.

use thiserror::Error;
use weir_engine::{AdminError, StartError};
use weir_flash::{ConfigError, LogError};
use weir_map::MapError;
use weir_model::{Bytes, Nanos, RequestError};

/// Why an experiment is not possible. Messages have the form "what is wrong; what to do".
#[derive(Debug, Error)]
pub enum SimError {
    /// The drive model is unknown.
    #[error("device {device}: there is no model of {model:?}; there are {known}")]
    UnknownDrive {
        /// Device name.
        device: String,
        /// The given model.
        model: String,
        /// All known models.
        known: String,
    },
    /// The policy is unknown, or its settings are invalid.
    #[error("there is no policy {0}; there are {names}", names = policies())]
    UnknownPolicy(String),
    /// The data does not fit.
    #[error("{data} of data do not fit into {room}; scale the devices to more than 100 % in all")]
    TooSmall {
        /// Data before the load begins, in whole extents.
        data: Bytes,
        /// Total space for data of all devices.
        room: Bytes,
    },
    /// The devices cannot form a pool.
    #[error(transparent)]
    Pool(#[from] MapError),
    /// The engine fails to start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A volume of the load cannot be created.
    #[error(transparent)]
    Volume(AdminError),
    /// A request failed.
    #[error("a request failed {1} after the start: {0}")]
    Request(RequestError, Nanos),
    /// No event is pending, although requests are in flight.
    #[error(
        "internal error: no event is left {0} after the start, but requests are in flight; please report it"
    )]
    Stuck(Nanos),
    /// Virtual time does not advance.
    #[error("internal error: virtual time does not advance {0} after the start; please report it")]
    TimeStalled(Nanos),
    /// The simulated flash device is smaller than the load's data.
    #[error("the load has {data} of data, and the device a capacity of {capacity}; give it at least as much")]
    DeviceTooSmall {
        /// Data of the load.
        data: Bytes,
        /// Capacity of the device.
        capacity: Bytes,
    },
    /// The simulated flash device has no pages, or too many for a page map of 32 bits.
    #[error(
        "{capacity} in pages of {page}; a device has 1 to 2^32 - 1 pages: change the capacity or the page"
    )]
    DevicePages {
        /// Capacity of the device.
        capacity: Bytes,
        /// Size of a page.
        page: Bytes,
    },
    /// The geometry of the simulated flash device is impossible.
    #[error(transparent)]
    Nand(#[from] ConfigError),
    /// The log of the simulated flash device failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A stacked log has too few segments.
    #[error(
        "log {log} of layer {layer} has {segments} segments of {segment}, and needs {least} or more: make \
         the layer larger or its segments smaller"
    )]
    LogTooSmall {
        /// The layer, from 1.
        layer: usize,
        /// The log in it, from 1.
        log: usize,
        /// Number of its segments.
        segments: u64,
        /// Size of a segment.
        segment: Bytes,
        /// The fewest segments.
        least: u64,
    },
    /// A stacked log failed.
    #[error("log {log} of layer {layer}: {error}")]
    StackedLog {
        /// The layer, from 1.
        layer: usize,
        /// The log in it, from 1.
        log: usize,
        /// What failed.
        error: LogError,
    },
    /// The load writes nothing.
    #[error(
        "the load made {0} requests without a write; lower reads= of the load, or take a trace that writes"
    )]
    NoWrites(u64),
    /// A request is outside the data that the load declared.
    #[error("internal error: a request {at} after the start is outside the load's data; please report it")]
    OutsideData {
        /// Its arrival time.
        at: Nanos,
    },
    /// A host does not say which brick each of its devices is.
    #[error("a host has {devices} devices and names {bricks} bricks; name one for each device")]
    Bricks {
        /// Number of bricks named.
        bricks: usize,
        /// Number of devices of its pool.
        devices: usize,
    },
    /// A simulated file system has nothing below its fast tier.
    #[error("the file system has no tier below the fast one; name a drive for one")]
    NoTier,
    /// The fast tier of a simulated file system holds next to nothing.
    #[error("a fast tier of {size} is too small; give it {least} or more")]
    FastTierTooSmall {
        /// The given size.
        size: Bytes,
        /// The smallest size.
        least: Bytes,
    },
    /// The words of a load are invalid.
    #[error("{0}")]
    Load(String),
}

/// Returns the names of all policies.
fn policies() -> String {
    weir_policy::placement::ALL.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
}
