//! How a history can fail.

use super::Ask;
use crate::{Difference, UnknownModel};
use thiserror::Error;
use weir_engine::{AdminError, AdminId, StartError};
use weir_map::MapError;
use weir_model::{Bytes, DeviceId, DeviceSet, Nanos, RequestError, RequestId, VolumeOffset};

/// The engine (or the set-up of a test) did what it must not.
#[derive(Debug, Error)]
pub enum Failure {
    /// The armed crash strikes: what was being done ends here. Never leaves the driver.
    #[error("a crash was due")]
    Cut,
    /// After a crash of a copy of the pool.
    #[error("in a copy of the pool that crashed: {0}")]
    InCopy(Box<Failure>),
    /// The engine gave up: what it was sure of was not so.
    #[error("panic: {0}")]
    Panic(String),
    /// A read answered what no order of the requests explains.
    #[error("{ask:?}: {difference}")]
    Difference {
        /// The read.
        ask: Ask,
        /// What was wrong with the answer.
        difference: Box<Difference>,
    },
    /// A request failed though nothing was wrong with it or the devices.
    #[error("{ask:?} failed: {error}")]
    Refused {
        /// The request.
        ask: Ask,
        /// What it was told.
        error: RequestError,
    },
    /// A request was acknowledged as durable after a device had lost what was.
    #[error("{ask:?} was acknowledged though device {device} had been truncated before it was asked for")]
    Truncated {
        /// The request.
        ask: Ask,
        /// The device.
        device: DeviceId,
    },
    /// There was room for the write.
    #[error("{ask:?} was told there is no space: at most {needed} of {room} extents can be in use")]
    SpaceLeft {
        /// The request.
        ask: Ask,
        /// Extents that may hold something.
        needed: u64,
        /// Extents there are.
        room: u64,
    },
    /// A volume is said to take other space than its extents do.
    #[error("volume {volume:?} is reported to take {reported}, its extents take {found}")]
    Usage {
        /// The volume.
        volume: String,
        /// What the map reports.
        reported: Bytes,
        /// What its extents take.
        found: Bytes,
    },
    /// Requests are under way and nothing will ever happen.
    #[error("{left} requests are never answered; the oldest is {oldest:?}, submitted at {since}")]
    Stuck {
        /// How many.
        left: usize,
        /// One of them.
        oldest: Option<Ask>,
        /// When it was submitted.
        since: Nanos,
    },
    /// A reply to nothing, a second one, or one with another buffer than the request's.
    #[error("reply {0:?} answers no request under way, or has another buffer")]
    StrayReply(RequestId),
    /// The offline check finds damage after a mere crash.
    #[error("the check finds: {}", findings(.0))]
    Check(Box<weir_map::check::Report>),
    /// The offline check and the opening of a pool with damaged metadata differ.
    #[error("the pool {}, but the check finds: {}", if *opened { "opens" } else { "does not open" }, findings(report))]
    NotForetold {
        /// Whether it opened.
        opened: bool,
        /// What the check said before.
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
        /// Why.
        error: AdminError,
    },
    /// A volume was refused though the metadata area has room for it.
    #[error("a volume is refused, though at most {needed} of {room} pages for metadata are needed")]
    MetadataRoomLeft {
        /// Pages that may be needed.
        needed: u64,
        /// Pages there are.
        room: u64,
    },
    /// A volume was refused, whatever was given back.
    #[error("a volume is refused for want of metadata room, though all others were trimmed")]
    MetadataNeverFree,
    /// A command of the operator is never answered.
    #[error("{0} is never answered")]
    NeverDone(String),
    /// An answer to no command, or a second one.
    #[error("{0:?} is answered, and is no command under way")]
    StrayAnswer(AdminId),
    /// A command was carried out that must be refused.
    #[error("{command} was carried out")]
    Done {
        /// The command.
        command: String,
    },
    /// A volume was removed while a request was under way.
    #[error("a volume was removed while this was under way: {ask:?}")]
    RemovedUnder {
        /// The request.
        ask: Ask,
    },
    /// A request was carried out, or failed for another reason, after its volume was to be removed.
    #[error("{ask:?} was answered as if its volume were not being removed")]
    AfterRemoval {
        /// The request.
        ask: Ask,
    },
    /// No request is under way, and the engine is busy all the same, with nothing that ends.
    #[error("the engine is busy without end: {0}")]
    Idle(String),
    /// The engine was told to stop and does not.
    #[error("the engine does not stop")]
    NeverStops,
    /// A volume is missing, there is one too many, or one has changed.
    #[error("the pool has the volumes {found}, not {expected}")]
    Volumes {
        /// What there is.
        found: String,
        /// What there should be.
        expected: String,
    },
    /// Some extents are neither free nor any volume's, or owned twice.
    #[error("{taken} are taken, but the volumes own {owned}")]
    Leak {
        /// What is not free.
        taken: Bytes,
        /// What volumes have.
        owned: Bytes,
    },
    /// Something on the devices is not what the format says.
    #[error("the devices hold what the format does not allow: {0}")]
    OnDisk(#[from] crate::ondisk::Defect),
    /// What must be the same in several places is not.
    #[error("on the devices differ {0}")]
    Unlike(String),
    /// The devices hold for a volume what no order of the requests explains.
    #[error("stored on the devices, for {ask:?}: {difference}")]
    Stored {
        /// A read of what was looked at.
        ask: Ask,
        /// What was wrong with it.
        difference: Box<Difference>,
    },
    /// Two places that hold a block hold different bytes.
    #[error("the copies of volume {volume} at {offset} on devices {copies:?} differ")]
    CopiesDiffer {
        /// The volume.
        volume: usize,
        /// Where in it.
        offset: VolumeOffset,
        /// Where the two copies are.
        copies: [DeviceId; 2],
    },
    /// Redundancy is not back though there is space for it and all devices are well.
    #[error("after {within} of quiet {lacking} is not in two places")]
    NotRedundant {
        /// What is in one place only.
        lacking: String,
        /// How long was waited.
        within: Nanos,
    },
    /// What a policy buffers in two places is in one.
    #[error("the first block of extent {extent} of volume {volume:?} is buffered in one place only")]
    BufferedOnce {
        /// The volume.
        volume: String,
        /// Which extent of it.
        extent: u64,
    },
    /// A pool opened though it must not without these devices.
    #[error("the pool opened without {0:?}, which it must not")]
    OpenedWithout(DeviceSet),
    /// A device is back, and the pool does not use it.
    #[error("device {0} is back, and something still fails")]
    NotWhole(DeviceId),
    /// The engine does not say what is at this offset of a volume.
    #[error("no block status at {0}")]
    NoStatus(VolumeOffset),
    /// The server did to a client what it must not.
    #[error("client {client}: {what}")]
    Client {
        /// The client, by its position.
        client: usize,
        /// What it did.
        what: String,
    },
    /// The server did what it must not.
    #[error("the server: {0}")]
    Server(String),
    /// The set-up names no placement policy.
    #[error("no placement policy {0:?}")]
    UnknownPolicy(String),
    /// The set-up names no timing model.
    #[error(transparent)]
    Setup(#[from] UnknownModel),
}

/// What a check found, and nothing else of it.
fn findings(report: &weir_map::check::Report) -> String {
    if report.findings.is_empty() {
        return "nothing".to_owned();
    }
    let found = report.findings.iter().map(|f| format!("{} of {} at {}: {}", f.what, f.device, f.at, f.why));
    found.collect::<Vec<_>>().join("; ")
}
