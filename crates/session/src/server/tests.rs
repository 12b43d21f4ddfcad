//! Tests of the server over scripted sockets.

use super::*;
use crate::client::{encode_handshake, pattern, request, write};
use crate::nbd::wire::command;
use crate::ram::Ram;
use std::collections::BTreeMap;
use weir_model::{HeapMemory, Io, ReceiveMode};

/// Scripted sockets: the test supplies the bytes that arrive.
#[derive(Default)]
struct ScriptedPort {
    /// Buffers of the receive in flight on each connection.
    receiving: BTreeMap<ConnId, Vec<Buffer>>,
    sending: Vec<(ConnId, Vec<Buffer>)>,
    closing: Vec<ConnId>,
    cancelled: Vec<ConnId>,
    hung_up: Vec<ConnId>,
}

impl Port for ScriptedPort {
    fn recv(&mut self, conn: ConnId, into: &[Buffer], _: ReceiveMode) {
        let before = self.receiving.insert(conn, into.to_vec());
        assert_eq!(before, None, "one receive at a time");
    }
    fn cancel_recv(&mut self, conn: ConnId) {
        self.cancelled.push(conn);
    }
    fn send(&mut self, conn: ConnId, parts: &[Buffer]) {
        self.sending.push((conn, parts.to_vec()));
    }
    fn close(&mut self, conn: ConnId) {
        self.closing.push(conn);
    }
    fn poll_hung_up(&mut self, conns: &[ConnId], gone: &mut Vec<ConnId>) {
        gone.extend(conns.iter().filter(|conn| self.hung_up.contains(conn)));
    }
    fn set_accepting(&mut self, _: bool) {}
    fn stop_listening(&mut self) {}
    fn start(&mut self, io: Io) {
        panic!("a volume in memory has no devices: {io:?}");
    }
}

struct ScriptedServer {
    server: Server<Ram, ScriptedPort>,
    port: ScriptedPort,
    memory: HeapMemory,
    /// Bytes sent to each client.
    sent: BTreeMap<ConnId, Vec<u8>>,
    /// Largest number of requests answered in a turn.
    answered_max: usize,
    now: Nanos,
}

const OLD: ConnId = ConnId::new(0, 0);
const NEW: ConnId = ConnId::new(1, 0);

impl ScriptedServer {
    fn new() -> Self {
        let limits = Limits { clients: 4, ..Limits::default() };
        let describe = Box::new(|_: &Ram, _: &ScriptedPort, _: &ClientCounts| serde_json::Value::Null);
        let server = Server::new(Ram::new(Bytes::mib(1)).with_alias("two"), &limits, Nanos(0), describe);
        let (port, memory) = (ScriptedPort::default(), HeapMemory::new(limits.memory()));
        Self { server, port, memory, sent: BTreeMap::new(), answered_max: 0, now: Nanos(0) }
    }

    fn with<T>(
        &mut self,
        run: impl FnOnce(&mut Server<Ram, ScriptedPort>, &mut Environment<'_, ScriptedPort, HeapMemory>) -> T,
    ) -> T {
        self.at(self.now, run)
    }

    fn at<T>(
        &mut self,
        now: Nanos,
        run: impl FnOnce(&mut Server<Ram, ScriptedPort>, &mut Environment<'_, ScriptedPort, HeapMemory>) -> T,
    ) -> T {
        let mut environment = Environment { port: &mut self.port, memory: &mut self.memory, now };
        run(&mut self.server, &mut environment)
    }

    fn accept(&mut self, conn: ConnId) {
        self.with(|server, environment| server.accepted(conn, Peer::Process(1), environment));
        self.settle();
    }

    /// Accepts a client, which opens the volume.
    fn connect(&mut self, conn: ConnId) {
        self.accept(conn);
        self.deliver(conn, &encode_handshake(false));
    }

    /// Delivers bytes to the connection, as far as receives are in flight.
    fn deliver(&mut self, conn: ConnId, mut bytes: &[u8]) {
        while !bytes.is_empty()
            && let Some(into) = self.port.receiving.remove(&conn)
        {
            let mut arrived = 0;
            for part in into {
                let len = bytes.len().min(part.len as usize);
                self.memory.bytes_mut(part.part(0, len as u32)).copy_from_slice(&bytes[..len]);
                bytes = &bytes[len..];
                arrived += len;
            }
            self.with(|server, environment| server.received(conn, Ok(arrived), environment));
            self.settle();
        }
    }

    /// Turns the server until it sends nothing more; every send completes at once.
    fn settle(&mut self) {
        loop {
            let answered = self.with(|server, environment| server.turn(environment));
            self.answered_max = self.answered_max.max(answered);
            let (sent, closed) =
                (std::mem::take(&mut self.port.sending), std::mem::take(&mut self.port.closing));
            for conn in &closed {
                self.port.receiving.remove(conn);
                self.with(|server, environment| server.closed(*conn, environment));
            }
            for (conn, parts) in sent.iter().filter(|(conn, _)| !closed.contains(conn)) {
                let bytes = parts.iter().flat_map(|part| self.memory.bytes(*part).to_vec());
                self.sent.entry(*conn).or_default().extend(bytes);
                self.with(|server, environment| server.sent(*conn, Ok(()), environment));
            }
            if sent.is_empty() && closed.is_empty() {
                return;
            }
        }
    }

    /// Returns the error code of a FLUSH reply.
    fn flush(&mut self, conn: ConnId) -> u32 {
        self.ask(conn, &request(command::FLUSH, 0, 7, 0, 0))
    }

    /// Returns the error code of the reply to a request without data.
    fn ask(&mut self, conn: ConnId, request: &[u8]) -> u32 {
        self.deliver(conn, request);
        let reply = self.sent.get(&conn).and_then(|sent| sent.last_chunk::<16>()).expect("a reply");
        assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes(), "a simple reply");
        u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]])
    }

    fn first_block(&self) -> &[u8] {
        &self.server.volumes().contents()[..4096]
    }
}

/// The first client to FLUSH after lost writes gets an error, and so does every other client: the lost writes
/// may be its own.
#[test]
fn every_client_sees_a_loss() {
    const EIO: u32 = 5;
    let mut scripted = ScriptedServer::new();
    for conn in [OLD, NEW] {
        scripted.connect(conn);
        assert_eq!(scripted.flush(conn), 0);
    }
    for loss in 1..3 {
        scripted.server.volumes.lose_writes();
        for conn in [OLD, NEW] {
            let trim = request(command::TRIM, 0, 8, 0, 4096);
            assert_eq!(scripted.ask(conn, &trim), 0, "loss {loss}, {conn:?}: a TRIM says nothing of it");
            assert_eq!(scripted.flush(conn), EIO, "loss {loss}, {conn:?} has not been told");
        }
        for conn in [NEW, OLD] {
            assert_eq!(scripted.flush(conn), 0, "loss {loss}, {conn:?} has been told");
        }
    }
    let later = ConnId::new(2, 0);
    scripted.connect(later);
    assert_eq!(scripted.flush(later), 0, "it came after that");
    // The client disconnected without having written anything: its successor need not get the error.
    scripted.port.hung_up.push(later);
    let last = ConnId::new(3, 0);
    scripted.connect(last);
    assert_eq!(scripted.server.volumes().pending_error(), None, "it knew of all losses");
}

/// A client loses its connection, reconnects and repeats the failed FLUSH. It may not have seen the failure,
/// so the FLUSH fails again.
#[test]
fn unseen_loss_is_reported_again() {
    for (is_lost, says_goodbye) in [(true, false), (false, false), (true, true)] {
        let mut scripted = ScriptedServer::new();
        scripted.connect(OLD);
        scripted.server.volumes.lose_writes();
        scripted.deliver(OLD, &request(command::FLUSH, 0, 1, 0, 0));
        assert_eq!(scripted.server.volumes().pending_error(), None, "it was told");
        if says_goodbye {
            scripted.deliver(OLD, &request(command::DISC, 0, 2, 0, 0));
        }
        if is_lost {
            scripted.port.hung_up.push(OLD);
        }
        scripted.connect(NEW);
        let is_owed = scripted.server.volumes().pending_error().is_some();
        assert_eq!(is_owed, is_lost && !says_goodbye, "lost: {is_lost}, said goodbye: {says_goodbye}");
        scripted.deliver(NEW, &request(command::FLUSH, 0, 1, 0, 0));
        assert_eq!(scripted.server.volumes().pending_error(), None, "it is told once more");
    }
}

/// A client loses its connection, and another one connects and takes the error before it is back.
#[test]
fn unseen_loss_is_reported_whoever_connects_first() {
    const EIO: u32 = 5;
    let mut scripted = ScriptedServer::new();
    scripted.connect(OLD);
    scripted.server.volumes.lose_writes();
    scripted.port.hung_up.push(OLD);
    for conn in [NEW, ConnId::new(2, 0)] {
        scripted.connect(conn);
        assert_eq!(scripted.flush(conn), EIO, "{conn:?}: it may be the client that disconnected");
        assert_eq!(scripted.flush(conn), 0, "{conn:?}: once");
    }
}

/// Clients that have been told of a loss come and go: those that connect an hour after it are told nothing.
#[test]
fn loss_is_not_reported_to_successors_forever() {
    const MINUTES: u64 = 60;
    let mut scripted = ScriptedServer::new();
    scripted.connect(OLD);
    scripted.server.volumes.lose_writes();
    let mut before = OLD;
    for (conn, at, error) in [(NEW, 0, 5), (ConnId::new(2, 0), 50, 5), (ConnId::new(3, 0), 70, 0)] {
        scripted.port.hung_up.push(before);
        scripted.now = Nanos::secs(at * MINUTES);
        scripted.connect(conn);
        assert_eq!(scripted.flush(conn), error, "after {at} minutes");
        before = conn;
    }
}

/// A client loses its connection, reconnects and writes. The server must not execute writes of the lost
/// connection that it has not parsed yet.
#[test]
fn reconnect_discards_unparsed_writes() {
    for (is_lost, volume) in [(true, "ram"), (false, "ram"), (true, "two")] {
        let mut scripted = ScriptedServer::new();
        scripted.accept(OLD);
        let greeting = encode_handshake(false);
        let (options, name) = greeting.split_at(greeting.len() - 3);
        assert_eq!(name, b"ram");
        scripted.deliver(OLD, &[options, volume.as_bytes()].concat());
        assert_eq!(scripted.server.counts().clients, 1);
        if is_lost {
            scripted.port.hung_up.push(OLD);
        }
        scripted.accept(NEW);
        scripted.deliver(NEW, &[encode_handshake(false), write(1, 0, &pattern(2, 4096))].concat());
        assert!(scripted.first_block() == pattern(2, 4096));
        scripted.deliver(OLD, &write(1, 0, &pattern(1, 4096)));
        // If the client is still connected, or the new one uses another volume, the write is executed.
        let is_ended = is_lost && volume == "ram";
        let expected = if is_ended { pattern(2, 4096) } else { pattern(1, 4096) };
        assert!(scripted.first_block() == expected, "lost: {is_lost}, of {volume}");
        assert_eq!(scripted.server.counts().clients, if is_ended { 1 } else { 2 });
    }
}

/// A client that accepts no reply keeps its connection only until the farewell timeout expires.
#[test]
fn stop_has_grace_period() {
    let mut scripted = ScriptedServer::new();
    scripted.connect(OLD);
    let flush = request(command::FLUSH, 0, 1, 0, 0);
    let into = scripted.port.receiving.remove(&OLD).expect("it is heard")[0];
    scripted.memory.bytes_mut(into.part(0, flush.len() as u32)).copy_from_slice(&flush);
    scripted.with(|server, environment| {
        server.received(OLD, Ok(flush.len()), environment);
        server.turn(environment);
        server.begin_stop(environment);
        server.turn(environment);
    });
    assert_eq!(scripted.port.sending.len(), 1, "the reply");
    let late = STOP_GRACE_PERIOD + Nanos(1);
    for (now, closing) in [(Nanos(0), vec![]), (Nanos(STOP_GRACE_PERIOD.0 - 1), vec![]), (late, vec![OLD])] {
        assert!(scripted.at(now, |server, environment| server.advance_stop(environment)).is_none());
        assert_eq!(scripted.port.closing, closing, "at {now:?}");
    }
    let end = scripted.at(late, |server, environment| {
        server.sent(OLD, Err(IoError::Lost), environment);
        server.closed(OLD, environment);
        server.turn(environment);
        server.advance_stop(environment)
    });
    assert_eq!(end, Some(ServerOutcome::Graceful));
}

/// Cancelling the receive of an idle client does not close its connection.
#[test]
fn idle_client_releases_buffers() {
    let mut scripted = ScriptedServer::new();
    scripted.connect(OLD);
    assert_eq!(scripted.flush(OLD), 0);
    let later = Limits::default().idle_timeout + Nanos(1);
    scripted.at(later, |server, environment| server.turn(environment));
    assert_eq!((&scripted.port.cancelled[..], scripted.server.counts().idle), (&[OLD][..], 0));
    scripted.port.receiving.remove(&OLD);
    scripted.at(later, |server, environment| {
        server.received(OLD, Err(IoError::Lost), environment);
        server.turn(environment);
    });
    assert_eq!((scripted.server.counts().idle, scripted.server.counts().clients), (1, 1));
    assert!(scripted.port.closing.is_empty());
    assert_eq!(scripted.flush(OLD), 0);
    assert_eq!(scripted.server.counts().idle, 0);
    // A receive that fails without having been cancelled means that the connection has failed.
    scripted.with(|server, environment| {
        server.received(OLD, Err(IoError::Lost), environment);
        server.turn(environment);
    });
    assert_eq!(scripted.port.closing, [OLD]);
}

/// The server closes a silent control session when its timeout expires, and not before. A session that
/// records requests has no timeout while it keeps up.
#[test]
fn silent_control_session_times_out() {
    let limit = Limits::default().control_timeout;
    for records in [false, true] {
        let mut scripted = ScriptedServer::new();
        scripted.with(|server, environment| server.accepted_control(OLD, environment));
        scripted.settle();
        if records {
            scripted.deliver(OLD, b"{\"do\":\"record\",\"volumes\":[\"ram\"]}\n");
            assert!(!scripted.sent[&OLD].is_empty(), "it is told that it records");
        }
        let expires = if records { None } else { Some(limit) };
        assert_eq!(scripted.server.sessions.deadline(Nanos(0)), expires, "records: {records}");
        for (now, closing) in [(Nanos(limit.0 - 1), false), (limit, !records)] {
            scripted.at(now, |server, environment| server.turn(environment));
            assert_eq!(scripted.port.closing == [OLD], closing, "records: {records}, at {now:?}");
        }
    }
}

#[test]
fn silent_client_releases_buffers() {
    let mut scripted = ScriptedServer::new();
    scripted.connect(OLD);
    assert_eq!((scripted.server.counts().idle, scripted.server.counts().clients), (0, 1));
    scripted.at(Limits::default().idle_timeout + Nanos(1), |server, environment| server.turn(environment));
    assert_eq!(scripted.server.counts().idle, 1);
    scripted.at(Limits::default().idle_timeout + Nanos(2), |server, environment| {
        server.received(OLD, Err(IoError::Lost), environment);
        server.turn(environment);
    });
    assert_eq!((scripted.server.counts().idle, scripted.server.counts().clients), (0, 0), "it is gone");
}

/// The client could not rest at the first check, because its reply was still in flight.
#[test]
fn slow_client_releases_buffers_later() {
    let mut scripted = ScriptedServer::new();
    scripted.connect(OLD);
    let flush = request(command::FLUSH, 0, 7, 0, 0);
    let into = scripted.port.receiving.remove(&OLD).expect("it is heard");
    scripted.memory.bytes_mut(into[0].part(0, flush.len() as u32)).copy_from_slice(&flush);
    scripted.with(|server, environment| {
        server.received(OLD, Ok(flush.len()), environment);
        server.turn(environment);
    });
    assert_eq!(scripted.port.sending.len(), 1, "the answer");
    let later = Limits::default().idle_timeout + Nanos(1);
    scripted.at(later, |server, environment| {
        server.turn(environment);
        server.sent(OLD, Ok(()), environment);
        server.turn(environment);
    });
    assert!(scripted.port.cancelled.is_empty(), "it was busy");
    scripted.at(later + later, |server, environment| server.turn(environment));
    assert_eq!(scripted.port.cancelled, [OLD], "so that it can rest");
}

#[test]
fn idle_control_sessions_are_evicted() {
    let mut scripted = ScriptedServer::new();
    for number in 0..18 {
        let now = Nanos(u64::from(number));
        scripted.at(now, |server, environment| server.accepted_control(ConnId::new(number, 0), environment));
    }
    assert_eq!(scripted.port.closing, [ConnId::new(0, 0), ConnId::new(1, 0)]);
}

#[test]
fn control_sessions_take_turns() {
    let mut scripted = ScriptedServer::new();
    for conn in [OLD, NEW] {
        scripted.with(|server, environment| server.accepted_control(conn, environment));
        scripted.settle();
    }
    for (conn, lines) in [(OLD, &b"one\ntwo\n"[..]), (NEW, b"three\n")] {
        let into = scripted.port.receiving.remove(&conn).expect("it is heard");
        scripted.memory.bytes_mut(into[0].part(0, lines.len() as u32)).copy_from_slice(lines);
        scripted.with(|server, environment| server.received(conn, Ok(lines.len()), environment));
    }
    let lines = std::iter::from_fn(|| scripted.server.sessions.next_request(Nanos(0)));
    let lines: Vec<_> = lines.map(|(_, line)| String::from_utf8_lossy(&line).into_owned()).collect();
    assert_eq!(lines, ["one", "three", "two"]);
}

/// The reactor polls only for clients that wait for each answer.
#[test]
fn turn_returns_the_number_of_answers() {
    let mut scripted = ScriptedServer::new();
    scripted.connect(OLD);
    assert_eq!(scripted.answered_max, 0, "a handshake is no request");
    scripted.flush(OLD);
    assert_eq!(scripted.answered_max, 1);
    let three: Vec<u8> = (0..3).flat_map(|id| request(command::READ, 0, id, 0, 512)).collect();
    scripted.deliver(OLD, &three);
    assert_eq!(scripted.answered_max, 3);
}

/// Other clients use almost all memory when an idle client sends a request: too little is left to read it, or
/// for its reply. The reply is sent once they have released some.
#[test]
fn reply_waits_for_memory_and_is_sent() {
    let mut waited = 0;
    for spare in 0..8 {
        let mut scripted = ScriptedServer::new();
        scripted.connect(OLD);
        let idle = Limits::default().idle_timeout + Nanos(1);
        scripted.at(idle, |server, environment| server.turn(environment));
        assert_eq!(scripted.server.counts().idle, 1, "it has released its buffers");
        let before = scripted.sent[&OLD].len();
        let mut taken: Vec<_> = std::iter::from_fn(|| scripted.memory.take(Bytes(4096))).collect();
        taken.drain(..spare).for_each(|buffer| scripted.memory.give(buffer));
        scripted.deliver(OLD, &request(command::FLUSH, 0, 7, 0, 0));
        // The volume answers in a turn of its own.
        scripted.settle();
        waited += u32::from(scripted.sent[&OLD].len() == before);
        taken.into_iter().for_each(|buffer| scripted.memory.give(buffer));
        scripted.settle();
        assert_eq!(scripted.sent[&OLD].len(), before + 16, "with {spare} pages left");
    }
    assert!(waited > 0, "there was always memory");
}

/// Three sessions each send a request and end their sending side, as `nc -N` does. A turn answers one
/// session; the others wait and get their answers all the same.
#[test]
fn control_session_that_ended_its_side_is_answered() {
    let mut scripted = ScriptedServer::new();
    let sessions = [0, 1, 2].map(|number| ConnId::new(number, 0));
    for conn in sessions {
        scripted.with(|server, environment| server.accepted_control(conn, environment));
        scripted.settle();
    }
    for conn in sessions {
        let into = scripted.port.receiving.remove(&conn).expect("it is heard");
        scripted.memory.bytes_mut(into[0].part(0, 4)).copy_from_slice(b"one\n");
        scripted.with(|server, environment| server.received(conn, Ok(4), environment));
    }
    scripted.with(|server, environment| server.turn(environment));
    for conn in sessions {
        if scripted.port.receiving.remove(&conn).is_some() {
            scripted.with(|server, environment| server.received(conn, Ok(0), environment));
        }
    }
    scripted.settle();
    assert_eq!(scripted.sent.keys().copied().collect::<Vec<_>>(), sessions);
}

/// A session whose answer cannot be sent is closed. The requests that it has sent ahead are not carried out.
#[test]
fn control_session_that_takes_no_answer_is_closed() {
    let mut scripted = ScriptedServer::new();
    scripted.with(|server, environment| server.accepted_control(OLD, environment));
    scripted.settle();
    let into = scripted.port.receiving.remove(&OLD).expect("it is heard");
    scripted.memory.bytes_mut(into[0].part(0, 8)).copy_from_slice(b"one\ntwo\n");
    scripted.with(|server, environment| server.received(OLD, Ok(8), environment));
    scripted.with(|server, environment| server.turn(environment));
    assert_eq!(std::mem::take(&mut scripted.port.sending).len(), 1, "the first answer");
    scripted.with(|server, environment| server.sent(OLD, Err(IoError::Lost), environment));
    scripted.settle();
    assert!(scripted.sent.is_empty(), "the second request is not answered");
    assert!(!scripted.port.receiving.contains_key(&OLD), "it is closed");
}
