//! Why an experiment was not possible.

use thiserror::Error;
use weir_engine::{AdminError, StartError};
use weir_map::MapError;
use weir_model::{Bytes, Nanos, RequestError};

/// Why an experiment was not possible. Messages have the form "what is wrong; the way out".
#[derive(Debug, Error)]
pub enum SimError {
    /// No such drive.
    #[error("device {device}: there is no model of {model:?}; there are {known}")]
    UnknownDrive {
        /// The device's name.
        device: String,
        /// The model asked for.
        model: String,
        /// All there are.
        known: String,
    },
    /// No such policy, or it cannot be set so.
    #[error("there is no policy {0}; there are {names}", names = policies())]
    UnknownPolicy(String),
    /// The data does not fit.
    #[error("{data} of data do not fit into {room}; scale the devices to more than 100 % in all")]
    TooSmall {
        /// What there is before the load begins, in whole extents.
        data: Bytes,
        /// What all devices have for data.
        room: Bytes,
    },
    /// The devices cannot be a pool.
    #[error(transparent)]
    Pool(#[from] MapError),
    /// The engine does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A volume of the load's is not possible.
    #[error(transparent)]
    Volume(AdminError),
    /// A request failed.
    #[error("a request failed {1} after the start: {0}")]
    Request(RequestError, Nanos),
    /// Nothing is to come, and something is still waited for.
    #[error(
        "internal error: no event is left {0} after the start, but requests are in flight; please report it"
    )]
    Stuck(Nanos),
    /// The same instant never ends.
    #[error("internal error: virtual time does not advance {0} after the start; please report it")]
    Circles(Nanos),
    /// The words of a load make none.
    #[error("{0}")]
    Load(String),
}

/// The names of all policies.
fn policies() -> String {
    weir_policy::placement::ALL.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
}
