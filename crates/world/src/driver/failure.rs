//! Failures of a history.

use super::RequestSpec;
use crate::{Difference, UnknownModel};
use thiserror::Error;
use weir_engine::{AdminError, AdminId, StartError};
use weir_map::MapError;
use weir_model::{Bytes, DeviceId, DeviceSet, Io, Nanos, RequestError, RequestId, VolumeOffset};

/// Forbidden behaviour of the engine, or an invalid setup.
#[derive(Debug, Error)]
pub enum Failure {
    /// The pending crash occurs: the current step ends here. It never leaves the driver.
    #[error("a crash was due")]
    CrashDue,
    /// A failure after a crash of a copy of the pool.
    #[error("in a copy of the pool that crashed: {0}")]
    InCopy(Box<Failure>),
    /// The engine panicked: an assertion did not hold.
    #[error("panic: {0}")]
    Panic(String),
    /// The engine changed the buffer of a write that a device had not completed.
    #[error("buffer of {0:?} changed while the device owned it")]
    BufferChanged(Io),
    /// A read returned data that no order of the requests explains.
    #[error("{ask:?}: {difference}")]
    Difference {
        /// The read.
        ask: RequestSpec,
        /// The difference between expected and actual data.
        difference: Box<Difference>,
    },
    /// A request failed without a reason in the request or the devices.
    #[error("{ask:?} failed: {error}")]
    Refused {
        /// The request.
        ask: RequestSpec,
        /// The error.
        error: RequestError,
    },
    /// A request was acknowledged as durable after a device had lost durable data.
    #[error("{ask:?} was acknowledged though device {device} had been truncated before it was asked for")]
    Truncated {
        /// The request.
        ask: RequestSpec,
        /// The device.
        device: DeviceId,
    },
    /// A write was refused although there was space.
    #[error("{ask:?} was told there is no space: at most {needed} of {room} extents can be in use")]
    SpaceLeft {
        /// The request.
        ask: RequestSpec,
        /// Number of extents that may hold data.
        needed: u64,
        /// Number of extents available.
        room: u64,
    },
    /// The reported space usage of a volume differs from that of its extents.
    #[error("volume {volume:?} is reported to take {reported}, its extents take {found}")]
    Usage {
        /// The volume.
        volume: String,
        /// Usage reported by the map.
        reported: Bytes,
        /// Usage of its extents.
        found: Bytes,
    },
    /// Requests are in flight and no event is pending.
    #[error("{left} requests are never answered; the oldest is {oldest:?}, submitted at {since}")]
    Stuck {
        /// Number of requests.
        left: usize,
        /// One of them.
        oldest: Option<RequestSpec>,
        /// When it was submitted.
        since: Nanos,
    },
    /// A reply to no request, a duplicate, or one with a buffer other than the request's.
    #[error("reply {0:?} answers no request under way, or has another buffer")]
    StrayReply(RequestId),
    /// The offline check found damage after a mere crash.
    #[error("the check finds: {}", findings(.0))]
    Check(Box<weir_map::check::Report>),
    /// The offline check and the opening of a pool with damaged metadata disagree.
    #[error("the pool {}, but the check finds: {}", if *opened { "opens" } else { "does not open" }, findings(report))]
    CheckMismatch {
        /// Whether it opened.
        opened: bool,
        /// The earlier report of the check.
        report: Box<weir_map::check::Report>,
    },
    /// The pool did not open.
    #[error("opening the pool: {0}")]
    Open(#[from] MapError),
    /// The engine did not start.
    #[error("starting the engine: {0}")]
    Start(#[from] StartError),
    /// A volume could not be created or removed.
    #[error("{command} failed: {error}")]
    Admin {
        /// The command.
        command: String,
        /// The error.
        error: AdminError,
    },
    /// A volume was refused although the metadata area has room for it.
    #[error("a volume is refused, though at most {needed} of {room} pages for metadata are needed")]
    MetadataSpaceLeft {
        /// Number of pages that may be needed.
        needed: u64,
        /// Number of pages available.
        room: u64,
    },
    /// A volume was refused, however much space was freed.
    #[error("a volume is refused for want of metadata room, though all others were trimmed")]
    MetadataNeverFree,
    /// An operator's command is never answered.
    #[error("{0} is never answered")]
    NeverDone(String),
    /// An answer to no command, or a duplicate.
    #[error("{0:?} is answered, and is no command under way")]
    StrayAnswer(AdminId),
    /// A command was executed that must be refused.
    #[error("{command} was carried out")]
    NotRefused {
        /// The command.
        command: String,
    },
    /// A volume was removed while a request to it was in flight.
    #[error("a volume was removed while this was under way: {ask:?}")]
    RemovedWhileInUse {
        /// The request.
        ask: RequestSpec,
    },
    /// A request was executed, or failed for another reason, after the removal of its volume was requested.
    #[error("{ask:?} was answered as if its volume were not being removed")]
    AfterRemoval {
        /// The request.
        ask: RequestSpec,
    },
    /// No request is in flight, but the engine stays busy without completing anything.
    #[error("the engine is busy without end: {0}")]
    Idle(String),
    /// The engine does not stop.
    #[error("the engine does not stop")]
    NeverStops,
    /// A volume is missing, there is a surplus one, or one has changed.
    #[error("the pool has the volumes {found}, not {expected}")]
    Volumes {
        /// The volumes found.
        found: String,
        /// The expected volumes.
        expected: String,
    },
    /// Some extents are neither free nor owned by a volume, or are owned twice.
    #[error("{taken} are taken, but the volumes own {owned}")]
    Leak {
        /// Space that is not free.
        taken: Bytes,
        /// Space owned by volumes.
        owned: Bytes,
    },
    /// The devices' contents deviate from the format.
    #[error("the devices hold what the format does not allow: {0}")]
    OnDisk(#[from] crate::ondisk::Defect),
    /// Copies that must be equal differ.
    #[error("on the devices differ {0}")]
    StateMismatch(String),
    /// The devices hold data of a volume that no order of the requests explains.
    #[error("stored on the devices, for {ask:?}: {difference}")]
    Stored {
        /// A read of the examined range.
        ask: RequestSpec,
        /// The difference between expected and actual data.
        difference: Box<Difference>,
    },
    /// Two locations of a block hold different bytes.
    #[error("the copies of volume {volume} at {offset} on devices {copies:?} differ")]
    CopiesDiffer {
        /// The volume.
        volume: usize,
        /// Offset of the block.
        offset: VolumeOffset,
        /// Devices of the two copies.
        copies: [DeviceId; 2],
    },
    /// Redundancy is not restored although there is space for it and all devices are healthy.
    #[error("after {within} of quiet {lacking} is not in two places")]
    NotRedundant {
        /// Data in one location only.
        lacking: String,
        /// How long the test waited.
        within: Nanos,
    },
    /// The status is wrong about data that lacks a copy.
    #[error("the status says of volume {volume:?} that {said} lacks a copy")]
    Misreported {
        /// Name of the volume.
        volume: String,
        /// What is said to lack a copy.
        said: String,
    },
    /// Data that a policy buffers in two locations is in one.
    #[error("the first block of extent {extent} of volume {volume:?} is buffered in one place only")]
    BufferedOnce {
        /// The volume.
        volume: String,
        /// The extent.
        extent: u64,
    },
    /// A pool opened without these devices although it must not.
    #[error("the pool opened without {0:?}, which it must not")]
    OpenedWithout(DeviceSet),
    /// A device has returned, and the pool does not use it.
    #[error("device {0} is back, and something still fails")]
    DeviceUnused(DeviceId),
    /// The engine does not report the block status at this offset of a volume.
    #[error("no block status at {0}")]
    NoStatus(VolumeOffset),
    /// The server violated a client's expectations.
    #[error("client {client}: {what}")]
    Client {
        /// Index of the client.
        client: usize,
        /// Description of the violation.
        what: String,
    },
    /// The server violated an expectation.
    #[error("the server: {0}")]
    Server(String),
    /// The setup's placement policy is unknown.
    #[error("no placement policy {0:?}")]
    UnknownPolicy(String),
    /// The setup's timing model is unknown.
    #[error(transparent)]
    Setup(#[from] UnknownModel),
}

/// Returns the findings of a check.
fn findings(report: &weir_map::check::Report) -> String {
    if report.findings.is_empty() {
        return "nothing".to_owned();
    }
    let found = report.findings.iter().map(|f| format!("{} of {} at {}: {}", f.what, f.device, f.at, f.why));
    found.collect::<Vec<_>>().join("; ")
}
