//! Errors of experiments.

use thiserror::Error;
use weir_engine::{AdminError, StartError};
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
    /// The words of a load are invalid.
    #[error("{0}")]
    Load(String),
}

/// Returns the names of all policies.
fn policies() -> String {
    weir_policy::placement::ALL.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
}
