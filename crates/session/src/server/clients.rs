//! The NBD clients: scheduling their turns and driving their sockets.
//!
//! The cost of a server turn depends on the number of clients with work to do, not on the number of clients.
//! Clients with work are in [`Turns`], in the queue of handshakes, or among the *touched* clients, whose
//! sockets are processed when the turn ends.
//!
//! - `leave`: clients that are closed, evicted or idle.

mod disconnect;
mod unseen_losses;

use super::recorder::Recorder;
use super::{Environment, client_of};
use crate::admission::{Admission, Budget, ClientCounts, HANDSHAKES_MAX, Limits, Refusal, RefusalLog};
use crate::connection::{Connection, Credit, Step};
use crate::nbd::Export;
use crate::port::Port;
use crate::slab::Slab;
use crate::turns::{Cost, Turns};
use crate::volumes::Volumes;
use std::collections::{BTreeSet, VecDeque};
use unseen_losses::UnseenLosses;
use weir_model::{
    Bytes, ConnId, IoError, Memory, Mutant, Nanos, Op, Peer, Planted, ReceiveMode, Reply, Request,
    RequestError, VolumeId,
};

/// Cost of a turn that produced nothing.
const EMPTY_TURN_COST: Cost = Cost(8);
/// Number of clients waiting for memory that are retried each turn.
const STARVED_RETRIES: usize = 8;
/// Bytes of a handshake's answer that count as one step.
const ANSWER_BYTES_PER_STEP: u64 = 4096;
/// Number of clients polled for a hang-up that count as one step of a handshake.
const POLLED_PER_STEP: u64 = 64;
const NO_CLIENT: u16 = u16::MAX;

/// All NBD clients.
pub(super) struct Clients {
    slots: Slab<Client>,
    /// Client of each of the reactor's connections, by connection index.
    by_conn: Vec<u16>,
    credit: Credit,
    admission: Admission,
    budget: Budget,
    pub(super) refusals: RefusalLog,
    handshakes_dropped: u64,
    /// Time limit of a handshake.
    handshake_timeout: Nanos,
    /// Idle time after which a client's buffers are released.
    idle_timeout: Nanos,
    turns: Turns<Party>,
    /// Handshakes with something to do, round-robin.
    ready_handshakes: VecDeque<u16>,
    /// Clients in the handshake, oldest first.
    handshakes: BTreeSet<(Nanos, u16)>,
    /// Clients that wait for memory that other clients use.
    starved: VecDeque<u16>,
    /// Clients whose sockets must be processed at the end of the turn.
    touched: Vec<u16>,
    /// When to check for idle clients.
    next_idle_check: Option<Nanos>,
    /// Number of clients that have released their buffers.
    idle_count: u64,
    unseen_losses: UnseenLosses,
    /// True if no more clients are admitted.
    finishing: bool,
    planted: Planted,
}

/// A unit of fairness: the connections of one peer to one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Party {
    peer: Peer,
    volume: VolumeId,
}

struct Client {
    conn: ConnId,
    peer: Peer,
    connection: Connection,
    since: Nanos,
    /// When bytes last arrived from it.
    last_received: Nanos,
    stage: Stage,
    waits_for: WaitsFor,
    /// True if it has released its buffers.
    is_idle: bool,
    /// True while its receive is being cancelled to release the buffers.
    cancelling: bool,
    is_touched: bool,
    socket: Socket,
}

/// Stage of a client's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// Admitted.
    Admitted,
    /// About to be closed.
    Finished,
}

/// The event that a client without a turn waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// None: the client has something to do.
    Nothing,
    /// More bytes from the client.
    Bytes,
    /// A reply or a send of its own.
    OwnIo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    Open,
    /// The kernel still uses its buffers.
    Closing,
    Closed,
}

impl Clients {
    pub(super) fn new(limits: &Limits, now: Nanos, planted: Planted) -> Self {
        Self {
            // Evicted clients occupy a slot until the kernel has released their buffers.
            slots: Slab::new(limits.clients + 2 * HANDSHAKES_MAX),
            by_conn: Vec::new(),
            credit: credit(limits),
            admission: Admission::new(limits),
            budget: Budget::new(now),
            refusals: RefusalLog::default(),
            handshakes_dropped: 0,
            handshake_timeout: limits.handshake_timeout,
            idle_timeout: limits.idle_timeout,
            turns: Turns::default(),
            ready_handshakes: VecDeque::new(),
            handshakes: BTreeSet::new(),
            starved: VecDeque::new(),
            touched: Vec::new(),
            next_idle_check: None,
            idle_count: 0,
            unseen_losses: UnseenLosses::default(),
            finishing: false,
            planted,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Returns the number of clients of each kind.
    pub(super) fn counts(&self, limit: u16) -> ClientCounts {
        ClientCounts {
            clients: self.admission.count().into(),
            limit: limit.into(),
            handshakes: self.handshakes.len() as u64,
            idle: self.idle_count,
            refused: self.refusals.total(),
            handshakes_dropped: self.handshakes_dropped,
            sessions: 0,
        }
    }

    /// Returns the time by which the server must turn next. `accepts` says whether the volumes accept
    /// requests.
    pub(super) fn deadline(&self, now: Nanos, accepts: bool, is_listening: bool) -> Option<Nanos> {
        let more = (accepts && !self.turns.is_empty()).then_some(now);
        let greeting = (!self.ready_handshakes.is_empty()).then(|| self.budget.due(false));
        let accept = (!is_listening && !self.finishing).then(|| self.budget.due(true));
        let expires = self.handshakes.first().map(|(since, _)| *since + self.handshake_timeout);
        let all = [more, greeting, accept, expires, self.next_idle_check, self.refusals.due(now)];
        all.into_iter().flatten().min()
    }

    /// Reports whether another client may be accepted now.
    pub(super) fn may_accept(&mut self, now: Nanos) -> bool {
        self.budget.may_accept(now)
    }

    /// Charges a new connection, of either socket, to the budget.
    pub(super) fn note_accepted(&mut self) {
        self.budget.spend(1);
    }

    /// Returns the number of clients that use a volume.
    pub(super) fn client_count(&self, volume: VolumeId) -> usize {
        self.slots.iter().filter(|(_, client)| client.connection.volume() == Some(volume)).count()
    }

    /// Admits a new client; returns false if there is no room for it.
    pub(super) fn accept<P: Port, M: Memory>(
        &mut self,
        conn: ConnId,
        peer: Peer,
        environment: &mut Environment<'_, P, M>,
    ) -> bool {
        if let Err(why) = self.admission.check(peer) {
            self.refusals.note(why);
            return false;
        }
        if self.handshakes.len() >= usize::from(HANDSHAKES_MAX)
            && let Some(number) = self.handshake_to_evict()
        {
            self.drop_handshake(number);
        }
        let number = self.slots.next();
        let connection = match self.slots.is_full() {
            true => None,
            false => Connection::new(u32::from(number), &self.credit, environment.memory),
        };
        let connection = connection.map(|connection| connection.with_mutants(self.planted));
        let Some(connection) = connection else {
            self.refusals.note(Refusal::Memory);
            return false;
        };
        let now = environment.now;
        let client = Client {
            conn,
            peer,
            connection,
            since: now,
            last_received: now,
            stage: Stage::Handshake,
            waits_for: WaitsFor::Nothing,
            is_idle: false,
            cancelling: false,
            is_touched: false,
            socket: Socket::Open,
        };
        let Ok(_) = self.slots.insert(client) else { return false };
        if self.by_conn.len() <= conn.index() {
            self.by_conn.resize(conn.index() + 1, NO_CLIENT);
        }
        self.by_conn[conn.index()] = number;
        self.handshakes.insert((now, number));
        self.ready_handshakes.push_back(number);
        self.touch(number);
        true
    }

    fn touch(&mut self, number: u16) {
        if let Some(client) = self.slots.get_mut(number)
            && !std::mem::replace(&mut client.is_touched, true)
        {
            self.touched.push(number);
        }
    }

    /// Queues the client: it has something to do.
    fn wake(&mut self, number: u16) {
        let Some(client) = self.slots.get_mut(number) else { return };
        client.waits_for = WaitsFor::Nothing;
        match client.stage {
            Stage::Handshake if !self.ready_handshakes.contains(&number) => {
                self.ready_handshakes.push_back(number);
            }
            Stage::Admitted => self.turns.mark_ready(number),
            Stage::Handshake | Stage::Finished => {}
        }
    }

    /// Queues the client if it waits for a reply or a send of its own.
    fn wake_waiting(&mut self, number: u16) {
        if self.slots.get(number).is_some_and(|client| client.waits_for == WaitsFor::OwnIo) {
            self.wake(number);
        }
    }

    fn number_of(&self, conn: ConnId) -> Option<u16> {
        let number = *self.by_conn.get(conn.index())?;
        self.slots.get(number).filter(|client| client.conn == conn).map(|_| number)
    }

    /// Handles received bytes; returns false if the connection is not an NBD client.
    pub(super) fn received<P: Port, M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<usize, IoError>,
        environment: &mut Environment<'_, P, M>,
    ) -> bool {
        let Some(number) = self.number_of(conn) else { return false };
        let Some(client) = self.slots.get_mut(number) else { return false };
        let was_cancelled = std::mem::take(&mut client.cancelling);
        let result = match result {
            Ok(1..) if was_cancelled && self.planted.is(Mutant::CancelledReceiveLost) => Err(IoError::Lost),
            result => result,
        };
        match result {
            Err(_) if was_cancelled => {
                client.connection.receive_cancelled();
                self.release_idle_client(number, environment);
            }
            Ok(bytes) => {
                client.last_received = environment.now;
                client.connection.received(Bytes(bytes as u64));
                if client.stage == Stage::Admitted {
                    if std::mem::take(&mut client.is_idle) {
                        self.idle_count -= 1;
                    }
                    self.next_idle_check.get_or_insert(environment.now + self.idle_timeout);
                }
            }
            Err(_) => client.connection.abort(),
        }
        self.wake(number);
        self.touch(number);
        true
    }

    /// Handles the end of a send; returns false if the connection is not an NBD client.
    pub(super) fn sent<M: Memory>(
        &mut self,
        conn: ConnId,
        result: Result<(), IoError>,
        memory: &mut M,
    ) -> bool {
        let Some(number) = self.number_of(conn) else { return false };
        let Some(client) = self.slots.get_mut(number) else { return false };
        client.connection.sent(memory);
        if result.is_err() {
            client.connection.abort();
        }
        self.wake_waiting(number);
        self.touch(number);
        true
    }

    /// Handles the end of a connection: its socket is closed and its buffers are free.
    pub(super) fn closed<M: Memory>(&mut self, conn: ConnId, memory: &mut M) {
        let Some(number) = self.number_of(conn) else { return };
        self.by_conn[conn.index()] = NO_CLIENT;
        self.remove_from_queues(number);
        let Some(client) = self.slots.get_mut(number) else { return };
        client.connection.abort();
        client.socket = Socket::Closed;
        self.remove_if_done(number, memory);
    }

    fn remove_if_done<M: Memory>(&mut self, number: u16, memory: &mut M) {
        let done = |client: &Client| client.socket == Socket::Closed && client.connection.is_idle();
        if self.slots.get(number).is_some_and(done)
            && let Some(client) = self.slots.remove(number)
        {
            client.connection.release(memory);
        }
    }

    /// Handles writes of the volume that a device has lost: any client of the volume may have some of them in
    /// flight.
    #[cold]
    fn note_lost_writes(&mut self, volume: VolumeId, error: RequestError) {
        for (_, client) in self.slots.iter_mut() {
            if client.connection.volume() == Some(volume) {
                client.connection.note_lost_writes(error);
            }
        }
    }

    /// Handles a reply of the engine.
    #[inline]
    pub(super) fn reply<V: Volumes, M: Memory>(&mut self, reply: Reply, volumes: &V, memory: &mut M) {
        let number = client_of(reply.id);
        let Some(client) = self.slots.get_mut(number) else { return };
        let volume = client.connection.volume();
        let reply = client.connection.report_losses(reply, || volumes.last_loss(volume?));
        let lost_writes = reply.result.err().filter(|error| matches!(error, RequestError::FlushFailed(_)));
        client.connection.reply(reply, memory);
        if let (Some(error), Some(volume)) = (lost_writes, volume) {
            self.note_lost_writes(volume, error);
            self.note_unseen_losses(number);
        }
        let Some(client) = self.slots.get_mut(number) else { return };
        if client.socket == Socket::Closed {
            return self.remove_if_done(number, memory);
        }
        if client.waits_for == WaitsFor::OwnIo {
            self.wake(number);
        }
        self.touch(number);
    }

    /// Lets clients submit in turn what has arrived and their credit allows, up to a bound for all clients
    /// together, and receives from those that have nothing left.
    pub(super) fn submit<V: Volumes, P: Port, M: Memory>(
        &mut self,
        volumes: &mut V,
        exports: &[Export],
        mut recorder: Option<&mut Recorder>,
        environment: &mut Environment<'_, P, M>,
    ) {
        for _ in 0..self.starved.len().min(STARVED_RETRIES) {
            if let Some(number) = self.starved.pop_front() {
                self.wake_waiting(number);
            }
        }
        self.process_handshakes(volumes, exports, environment);
        // The debt is recorded before a client that was just admitted submits its first request.
        let unseen = self.unseen_losses.take_new(environment.now, |volume| volumes.last_loss(volume));
        unseen.into_iter().for_each(|(volume, loss)| volumes.fail_next_flush(volume, loss.device));
        let mut left = Cost::TURN.0;
        while left > 0
            && volumes.can_accept()
            && let Some(number) = self.turns.take_next()
        {
            let Some(client) = self.slots.get_mut(number) else { continue };
            let served =
                RequestTargets { volumes: &mut *volumes, exports, recorder: recorder.as_deref_mut() };
            let (cost, then) = client.turn(Cost(left), served, &self.credit, environment);
            let cost = cost.max(EMPTY_TURN_COST);
            left = left.saturating_sub(cost.0);
            self.after_turn(number, then);
            self.turns.charge(number, cost, then == TurnOutcome::More);
            self.touch(number);
        }
    }

    fn after_turn(&mut self, number: u16, outcome: TurnOutcome) {
        let Some(client) = self.slots.get_mut(number) else { return };
        client.waits_for = match outcome {
            TurnOutcome::More => WaitsFor::Nothing,
            TurnOutcome::Receive => WaitsFor::Bytes,
            TurnOutcome::Wait | TurnOutcome::Finished => WaitsFor::OwnIo,
        };
        if outcome == TurnOutcome::Wait && client.connection.lacks_memory() && !self.starved.contains(&number)
        {
            self.starved.push_back(number);
        }
    }

    /// Continues handshakes, in turn, within their budget.
    fn process_handshakes<V: Volumes, P: Port, M: Memory>(
        &mut self,
        volumes: &V,
        exports: &[Export],
        environment: &mut Environment<'_, P, M>,
    ) {
        for _ in 0..self.ready_handshakes.len() {
            if !self.budget.has_step(environment.now) {
                return;
            }
            let Some(number) = self.ready_handshakes.pop_front() else { return };
            let Some(client) = self.slots.get_mut(number) else { continue };
            let step = client.connection.step(exports, &self.credit, environment.memory);
            let answer = client.connection.answer_len() as u64;
            self.budget.spend(1 + answer / ANSWER_BYTES_PER_STEP);
            self.touch(number);
            match step {
                Step::Negotiated => self.admit(number, volumes, environment),
                Step::Receive => {
                    if let Some(client) = self.slots.get_mut(number) {
                        client.waits_for = WaitsFor::Bytes;
                        client.receive(environment);
                    }
                }
                Step::Wait | Step::Finished | Step::Request(_) => self.after_turn(number, TurnOutcome::Wait),
            }
        }
    }

    /// Admits a client that has chosen its volume.
    fn admit<V: Volumes, P: Port, M: Memory>(
        &mut self,
        number: u16,
        volumes: &V,
        environment: &mut Environment<'_, P, M>,
    ) {
        self.end_disconnected(number, environment);
        let Some(client) = self.slots.get_mut(number) else { return };
        if self.planted.is(Mutant::LimitsNotCheckedAgain) {
            self.admission.admit_unchecked(client.peer);
        } else if let Err(why) = self.admission.admit(client.peer) {
            self.refusals.note(why);
            return self.abort(number);
        }
        self.handshakes.remove(&(client.since, number));
        client.stage = Stage::Admitted;
        self.next_idle_check.get_or_insert(environment.now + self.idle_timeout);
        let volume = client.connection.volume().unwrap_or(VolumeId(0));
        let count = volumes.last_loss(volume).map_or(0, |loss| loss.number);
        client.connection.note_past_losses(self.unseen_losses.before(volume, count, environment.now));
        self.turns.join(number, Party { peer: client.peer, volume });
        self.wake(number);
    }

    /// Sends pending replies, and closes the sockets of clients that are done.
    pub(super) fn finish_turn<V: Volumes, P: Port, M: Memory>(
        &mut self,
        volumes: &V,
        environment: &mut Environment<'_, P, M>,
    ) {
        self.expire(environment);
        let mut at = 0;
        while let Some(&number) = self.touched.get(at) {
            at += 1;
            let Some(client) = self.slots.get_mut(number) else { continue };
            if client.socket == Socket::Open && client.connection.wants_to_send() {
                let parts = client.connection.gather(environment.memory, |of, runs| volumes.runs(of, runs));
                if parts.is_empty() {
                    // There is no memory for headers; the client is retried when others have released some.
                    client.waits_for = WaitsFor::OwnIo;
                    self.starved.push_back(number);
                } else {
                    environment.port.send(client.conn, parts);
                    self.wake_waiting(number);
                }
            }
        }
        self.close_touched(environment);
        if let Some(line) = self.refusals.line(environment.now) {
            tracing::warn!("{line}");
        }
    }
}

/// Returns the limits on the memory that clients may use.
fn credit(limits: &Limits) -> Credit {
    Credit::new(limits.clients, limits.memory_per_client, limits.reserve)
}

/// Targets of the clients' requests.
struct RequestTargets<'a, V> {
    volumes: &'a mut V,
    exports: &'a [Export],
    recorder: Option<&'a mut Recorder>,
}

/// Outcome of a client's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnOutcome {
    More,
    Receive,
    Wait,
    Finished,
}

impl Client {
    /// Submits requests up to a cost bound; returns the cost and the outcome.
    fn turn<V: Volumes, P: Port, M: Memory>(
        &mut self,
        most: Cost,
        targets: RequestTargets<'_, V>,
        credit: &Credit,
        environment: &mut Environment<'_, P, M>,
    ) -> (Cost, TurnOutcome) {
        let RequestTargets { volumes, exports, mut recorder } = targets;
        let mut cost = Cost(0);
        let planted = volumes.planted();
        loop {
            let step = self.connection.step(exports, credit, environment.memory);
            cost.0 += Cost::STATUS.0 * self.connection.take_statuses();
            match step {
                Step::Request(request) => {
                    cost.0 += cost_of(&request).0;
                    if let Some(recorder) = &mut recorder
                        && let Some(asked) = self.connection.client_request(&request)
                    {
                        recorder.note(environment.now, asked, planted);
                    }
                    volumes.submit(environment.now, request, environment.memory);
                }
                Step::Negotiated => {}
                Step::Receive => {
                    self.receive(environment);
                    return (cost, TurnOutcome::Receive);
                }
                Step::Wait => return (cost, TurnOutcome::Wait),
                Step::Finished => return (cost, TurnOutcome::Finished),
            }
            if cost >= most || !volumes.can_accept() {
                return (cost, TurnOutcome::More);
            }
        }
    }

    fn receive<P: Port, M: Memory>(&mut self, environment: &mut Environment<'_, P, M>) {
        if let Some(room) = self.connection.receive(environment.memory) {
            let fill = if room.fill_all { ReceiveMode::Full } else { ReceiveMode::Any };
            environment.port.recv(self.conn, room.parts(), fill);
        }
    }
}

fn cost_of(request: &Request) -> Cost {
    match request.op {
        Op::Flush => Cost::FLUSH,
        Op::Read | Op::Write => Cost::of_payload(request.len.0),
        Op::Trim | Op::WriteZeroes { .. } => Cost::of_range(request.len.0),
    }
}
