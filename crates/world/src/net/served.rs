//! The whole server in the simulated world, checked by the oracle: steps in, failures out.
//!
//! - `run`: the event loop.
//! - `clients`: connections, and the state of closed ones.
//! - `control`: recordings, and volumes that are created and removed.
//! - `orders`: the operator's orders.
//! - `limits`: refusals of clients.
//! - `faults`: device failures.
//! - `lifecycle`: crashes, restarts, opening.

mod clients;
mod control;
mod faults;
mod lifecycle;
mod limits;
mod orders;
mod run;

use super::client::Connection;
use super::hostile_client::HostileConnection;
use super::judge::{Faults, Judge};
use super::operator::{Operator, SentRequest};
use super::recording::{Recording, RequestKey};
use super::sockets::{Report, Sockets};
use super::{Disconnect, NetAction, ServerSetup};
use crate::campaign::{History, Outcome};
use crate::driver::lifecycle::create_pool;
use crate::driver::space_guarantees::{SpaceGuarantees, VolumeShape};
use crate::driver::{Copies, Failure, HistoryStep, PendingCrash, Setup, VolumeSpec};
use crate::{Oracle, Statistics, Ticket, World};
use weir_engine::Engine;
use weir_map::Superblock;
use weir_model::{Bytes, DeviceId, IoCompletion, Nanos, VolumeOffset};
use weir_session::Server;

/// Time limit for progress with healthy devices. On every connection with a reply or request outstanding,
/// some bytes of a reply arrive, some bytes of a request are accepted, or the connection ends as it should,
/// within this time.
///
/// The slowest simulated devices need at most 0.2 s per command, and execute commands in parallel. A piece of
/// a request needs about ten of them, one after the other, if space is short and commits and a checkpoint
/// come first; and so may the piece before it that has its blocks or its memory.
pub const REPLY_TIMEOUT: Nanos = Nanos::secs(5);

/// Time limit for control requests while devices fail: they are answered, with success or failure, within
/// this time plus the deadlines of the devices that respond late.
///
/// A removal waits for requests in flight. Each may wait half a minute for space, and then as long again for
/// copies to be moved out of its way while devices write them back.
pub const CHANGE_TIMEOUT: Nanos = Nanos::secs(60);

/// Maximum number of events without a byte to or from any client and without a step or order completing.
const IDLE_EVENTS_MAX: u32 = 200_000;

/// A volume in its current state.
#[derive(Clone, Debug, PartialEq)]
struct Volume {
    name: String,
    spec: VolumeSpec,
}

/// A change whose connection ended before it was answered.
#[derive(Clone, Copy, Debug)]
struct LostChange {
    volume: usize,
    ticket: Ticket,
    /// When its client closed the connection.
    closed: u64,
}

/// A served pool in the simulated world.
pub struct ServedPool {
    setup: Setup,
    front: ServerSetup,
    world: World,
    sockets: Sockets,
    /// `None` while the pool is being opened.
    server: Option<Server<Engine, Sockets>>,
    oracle: Oracle,
    volumes: Vec<Volume>,
    clients: Vec<Option<Connection>>,
    lost_changes: Vec<LostChange>,
    /// Volumes of clients that disconnected while a flush of theirs was in flight, with the time.
    unseen_flushes: Vec<(usize, u64)>,
    /// Counts clients' actions on their connections, which orders any two of them.
    moment: u64,
    /// By volume, when a client last asked to be admitted; unknown for good once a client has left before it
    /// was admitted.
    admission_times: Vec<u64>,
    /// By client, when it closed its sending side.
    half_closed: Vec<u64>,
    hostile_clients: Vec<HostileConnection>,
    operator: Operator,
    /// Operators that create volumes beside the others, and remove them.
    side_operators: [Operator; 2],
    side_volumes: control::SideVolumes,
    recording: Option<Box<Recording>>,
    /// Client requests since the server began, in the form of recordings.
    client_requests: Vec<RequestKey>,
    /// True if a recording was requested since the server started.
    has_recorded: bool,
    replacing: Option<orders::PendingReplacement>,
    names: u64,
    pending_crash: PendingCrash,
    copies: Copies,
    /// The devices' superblocks, as they were created.
    layout: Vec<Superblock>,
    faults: Faults,
    /// True if metadata was damaged before the pool was last opened, or before the attempt.
    was_damaged: bool,
    /// Space guaranteed to writes.
    space_guarantees: SpaceGuarantees,
    /// A future jump of the clock: the number of events until then, and its length.
    jump: Option<(u64, Nanos)>,
    /// The operator's request whose outcome is unknown.
    unsettled: Option<SentRequest>,
    /// True if the server was asked to stop.
    is_stopping: bool,
    done: Vec<IoCompletion>,
    reports: Vec<Report>,
    idle_events: u32,
    answered: u64,
    answered_since_crash: u64,
    /// Free memory without a server, and without clients.
    all_free: Bytes,
    at_rest: Bytes,
    statistics: Statistics,
}

impl History {
    /// Runs a history of a served pool.
    pub(crate) fn run_served(&self, begun: &mut usize) -> Outcome {
        let mut served = match ServedPool::new(&self.setup) {
            Ok(served) => served,
            Err(failure) => return Outcome::failed(failure, 0),
        };
        let mut steps = self.steps.iter();
        let result = steps.try_for_each(|step| {
            *begun += 1;
            served.step(step)
        });
        let failure = result.and_then(|()| served.end()).err().map(|failure| (failure, *begun));
        Outcome {
            failure,
            statistics: served.statistics.clone(),
            digest: served.world.digest() ^ served.copies.digest(),
        }
    }
}

impl ServedPool {
    /// Creates a pool with its volumes and its server, without clients.
    pub fn new(setup: &Setup) -> Result<Self, Failure> {
        let setup = setup.clone();
        let no_front = || Failure::Server("none is wanted".to_owned());
        let front = setup.served.clone().ok_or_else(no_front)?;
        let mut world = World::new(setup.seed, setup.memory, &setup.devices)?;
        world.memory.mark_damaged_zeros();
        let layout = create_pool(&mut world, &setup)?;
        let named =
            |(number, spec): (usize, &VolumeSpec)| Volume { name: format!("volume{number}"), spec: *spec };
        let mut served = Self {
            sockets: Sockets::new(setup.seed, world.now()),
            server: None,
            oracle: crate::driver::lifecycle::oracle(&setup.volumes),
            volumes: setup.volumes.iter().enumerate().map(named).collect(),
            clients: front.clients.iter().map(|_| None).collect(),
            lost_changes: Vec::new(),
            unseen_flushes: Vec::new(),
            moment: 0,
            admission_times: vec![0; setup.volumes.len()],
            half_closed: vec![0; front.clients.len()],
            hostile_clients: Vec::new(),
            operator: Operator::default(),
            side_operators: Default::default(),
            side_volumes: control::SideVolumes::default(),
            recording: None,
            client_requests: Vec::new(),
            has_recorded: false,
            replacing: None,
            names: 0,
            pending_crash: PendingCrash::default(),
            copies: Copies::default(),
            layout,
            faults: Faults::default(),
            was_damaged: false,
            space_guarantees: SpaceGuarantees::default(),
            jump: None,
            unsettled: None,
            is_stopping: false,
            done: Vec::new(),
            reports: Vec::new(),
            idle_events: 0,
            answered: 0,
            answered_since_crash: 0,
            all_free: Bytes(0),
            at_rest: Bytes(0),
            statistics: Statistics { runs: 1, ..Statistics::default() },
            world,
            front,
            setup,
        };
        served.start()?;
        Ok(served)
    }

    /// Waits for every reply and checks all volumes, before and after a restart. A pending crash is
    /// cancelled.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.pending_crash.disarm();
        let steps = [
            HistoryStep::Check,
            HistoryStep::Net(NetAction::DisconnectAll),
            HistoryStep::Restart,
            HistoryStep::Check,
            HistoryStep::Restart,
        ];
        steps.iter().try_for_each(|step| self.step(step))
    }

    /// Returns the statistics so far.
    #[must_use]
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Executes one step.
    pub fn step(&mut self, step: &HistoryStep) -> Result<(), Failure> {
        let result = self.begin(step);
        match self.pending_crash.take_due(&result) {
            Some(crash) => self.crash(&crash),
            None => result,
        }
    }

    fn begin(&mut self, step: &HistoryStep) -> Result<(), Failure> {
        self.idle_events = 0;
        match step {
            HistoryStep::Net(act) => self.act(act),
            HistoryStep::Request(ask) => {
                self.act(&NetAction::Request(ask.volume, super::ClientRequest::Request(*ask)))
            }
            HistoryStep::Wait(answers) => self.wait(*answers as u64),
            HistoryStep::Pass(time) => self.advance_by(*time),
            HistoryStep::Crash(crash) => self.pending_crash.arm(crash),
            HistoryStep::CrashCopy(crash) => {
                self.copies.arm(crash);
                self.crash_copies()
            }
            HistoryStep::CrashCopyDuring(..) | HistoryStep::CrashCopyAfterDurable(_) => Ok(()),
            HistoryStep::Restart => self.restart(),
            HistoryStep::Check => self.check(),
            HistoryStep::Jump { after: 0, time } => {
                // Two jumps without a look at the replies between them would be a single pause.
                self.advance_by(Nanos(0))?;
                self.jump(*time);
                Ok(())
            }
            HistoryStep::Jump { after, time } => {
                self.jump = Some((*after, *time));
                Ok(())
            }
            HistoryStep::Break(device, fault) => {
                self.break_device(*device, fault);
                Ok(())
            }
            // These steps are only for pools without a server.
            HistoryStep::Replace(_)
            | HistoryStep::Submit(_)
            | HistoryStep::Audit
            | HistoryStep::Lose(_)
            | HistoryStep::Tune(_) => Ok(()),
        }
    }

    /// Returns what a client's replies are judged by.
    fn judge(&mut self, number: usize) -> (Judge<'_>, Option<&mut Connection>, &mut Sockets, &mut u64) {
        let Volume { name: volume, spec } = &self.volumes[self.front.clients[number].volume];
        let shape = VolumeShape { extent: self.setup.extent, size: spec.size };
        let members = (0..if self.setup.mirrored { 2 } else { 1 }).map(DeviceId).collect();
        let judge = Judge {
            oracle: &mut self.oracle,
            space_guarantees: &mut self.space_guarantees,
            shape,
            faults: &self.faults,
            engine: self.server.as_ref().map(Server::volumes),
            volume,
            members,
        };
        (judge, self.clients[number].as_mut(), &mut self.sockets, &mut self.moment)
    }

    fn act(&mut self, act: &NetAction) -> Result<(), Failure> {
        let all = self.front.clients.len();
        match act {
            NetAction::Request(client, request) => self.ask(client % all, *request),
            NetAction::Disconnect(client, how) => self.leave(client % all, *how),
            NetAction::Stall(client, time) => {
                let until = self.world.now() + *time;
                self.clients[client % all].iter_mut().for_each(|connection| connection.stall(until));
                Ok(())
            }
            NetAction::DisconnectAll => self.disconnect_all(),
            NetAction::Order(order) => {
                self.queue_request(order);
                Ok(())
            }
            NetAction::HostileClient(stranger) => {
                self.connect_hostile_client(*stranger);
                Ok(())
            }
        }
    }

    /// Waits for everything in flight; then reads all volumes through the clients with the longest reads,
    /// queries block status, and flushes.
    fn check(&mut self) -> Result<(), Failure> {
        self.drain()?;
        if self.front.limits.clients_per_address < 64 {
            // So that the clients that read everything are admitted.
            self.disconnect_all()?;
        }
        for volume in 0..self.volumes.len() {
            let of_it = self.front.clients.iter().enumerate().filter(|(_, client)| client.volume == volume);
            let Some((client, character)) = of_it.max_by_key(|(_, client)| client.len_max) else { continue };
            let (piece, size) = (character.len_max.min(Bytes::mib(1)), self.volumes[volume].spec.size);
            let ask = |op, at, len| crate::driver::RequestSpec {
                volume,
                op,
                offset: VolumeOffset(at),
                len,
                fua: false,
            };
            for at in (0..size.0).step_by(piece.0 as usize) {
                self.ask(client, super::ClientRequest::Request(ask(weir_model::Op::Read, at, piece)))?;
            }
            self.ask(client, super::ClientRequest::Status(VolumeOffset(0), size, false))?;
            self.ask(client, super::ClientRequest::Request(ask(weir_model::Op::Flush, 0, Bytes(0))))?;
        }
        self.drain()
    }
}
