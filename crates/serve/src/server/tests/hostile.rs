//! Tests of clients that take more than their share, or occupy resources they do not use. They count turns
//! and clients, not time.

use super::*;
use weir_session::admission::HANDSHAKES_MAX;
use weir_session::turns::Cost;

impl Running {
    /// Returns the numbers of clients, handshakes, idle clients, refused clients and control sessions.
    fn counts(&self) -> [u64; 5] {
        let answer = control::ask(&self.path("control"), &Request::Status);
        let Ok(Answer::Status(counts)) = answer else { panic!("{answer:?}") };
        serde_json::from_value(counts).unwrap()
    }

    /// Waits until the counts satisfy `wanted`.
    fn await_counts(&self, wanted: impl Fn(&[u64; 5]) -> bool) -> [u64; 5] {
        loop {
            let counts = self.counts();
            if wanted(&counts) {
                return counts;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn check_client(client: &mut Client, cookie: u64) {
    client.send(&write(cookie, 8192, &pattern(cookie, 10_000)));
    assert_eq!(client.receive(), ServerMessage::Simple { cookie, error: 0 });
}

#[test]
fn newest_handshake_evicts_oldest_but_no_client() {
    run_on_all_rings(Limits { clients: 2, ..Limits::default() }, |server| {
        let mut first = server.client();
        let half_open: Vec<_> =
            (0..HANDSHAKES_MAX + 50).map(|_| UnixStream::connect(server.path("nbd")).unwrap()).collect();
        let mut second = server.client();
        check_client(&mut first, 1);
        check_client(&mut second, 2);
        let counts = server.await_counts(|counts| counts[1] <= u64::from(HANDSHAKES_MAX));
        assert_eq!((counts[0], counts[3]), (2, 0), "{counts:?}");
        assert!(server.try_client().is_err(), "there are two");
        drop(half_open);
        drop(second);
        server.await_counts(|counts| counts[..2] == [1, 0]);
        let mut third = server.client();
        check_client(&mut third, 3);
        check_client(&mut first, 4);
        assert_eq!(server.counts()[3], 1);
    });
}

#[test]
fn idle_clients_are_parked_and_resumed() {
    run_on_all_rings(Limits { idle_timeout: Nanos::millis(5), ..Limits::default() }, |server| {
        let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
        for round in 0..3 {
            clients.iter_mut().for_each(|client| check_client(client, round));
            server.await_counts(|counts| counts[..3] == [20, 0, 20]);
        }
        drop(clients);
        server.await_counts(|counts| counts[..3] == [0, 0, 0]);
    });
}

#[test]
fn idle_control_sessions_are_evicted() {
    run_on_all_rings(Limits::default(), |server| {
        let connect = || UnixStream::connect(server.path("control")).unwrap();
        let mut silent: Vec<_> = (0..100).map(|_| connect()).collect();
        for session in &mut silent {
            // Some sessions are already closed.
            let _ = session.write_all(b"{\"do\":");
        }
        let counts = server.counts();
        assert!(counts[4] <= 17, "{counts:?}");
        drop(silent);
        server.await_counts(|counts| counts[4] == 1);
    });
}

#[test]
fn unresponsive_control_sessions_are_closed() {
    run_on_all_rings(Limits { control_timeout: Nanos::millis(20), ..Limits::default() }, |server| {
        let connect = || UnixStream::connect(server.path("control")).unwrap();
        let (silent, mut half, mut deaf) = (connect(), connect(), connect());
        half.write_all(b"{\"do\":\"sta").unwrap();
        deaf.set_nonblocking(true).unwrap();
        // Writes until the buffers of both sides are full.
        let questions = b"{\"do\":\"dance\"}\n".repeat(1000);
        while deaf.write_all(&questions).is_ok() {}
        for session in [&silent, &half] {
            let mut session = session;
            assert_eq!(session.read(&mut [0; 16]).unwrap_or(0), 0);
        }
        // The answers that it did not take are all that is left.
        deaf.set_nonblocking(false).unwrap();
        let _ = deaf.read_to_end(&mut Vec::new());
        server.await_counts(|counts| counts[4] == 1);
    });
}

#[test]
fn stalled_recorders_are_evicted() {
    run_on_all_rings(Limits { control_timeout: Nanos::millis(50), ..Limits::default() }, |server| {
        let mut deaf = UnixStream::connect(server.path("control")).unwrap();
        deaf.write_all(b"{\"do\":\"record\",\"volumes\":[\"ram\"]}\n").unwrap();
        let mut client = server.client();
        let names = ["ram".to_owned()];
        let mut cookie = 0;
        // Enough requests to fill the recorder's socket; its session is then closed, and the next one may
        // record.
        while let Err(answer) = crate::recording::Recording::begin(&server.path("control"), &names).unwrap() {
            assert!(matches!(answer, Answer::Failed { class: Class::Refused, .. }), "{answer:?}");
            for _ in 0..1000 {
                client.send(&request(command::TRIM, 0, cookie, 4096, 4096));
                assert_eq!(client.receive(), ServerMessage::Simple { cookie, error: 0 });
                cookie += 1;
            }
        }
    });
}

/// A server whose turns the test drives.
struct SteppedServer {
    _folder: tempfile::TempDir,
    server: Server<Ram>,
    events: Vec<Event>,
    clients: Vec<UnixStream>,
}

impl SteppedServer {
    /// Creates a server with `count` clients past the handshake.
    fn with_clients(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits::default();
        let arena = Arena::new(limits.memory()).unwrap();
        let reactor = Reactor::new(&ReactorOptions::default(), Devices::default(), &arena).unwrap();
        let describe = Box::new(|_: &Ram, _: &Reactor, _: &ClientCounts| serde_json::Value::Null);
        let mut server =
            Server::new(reactor, arena, Ram::new(Bytes::mib(1)).with_recording(), &limits, describe);
        let path = folder.path().join("nbd");
        server.listen(&Listen::private(path.clone())).unwrap();
        let mut turned = Self { _folder: folder, server, events: Vec::new(), clients: Vec::new() };
        for _ in 0..count {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&encode_handshake(false)).unwrap();
            let wanted = turned.clients.len() as u64 + 1;
            turned.clients.push(stream);
            while turned.server.session.counts().clients < wanted {
                turned.turn();
            }
        }
        turned
    }

    fn turn(&mut self) {
        let server = &mut self.server;
        server.wait(&mut self.events);
        for event in self.events.drain(..) {
            server.handle_event(event);
        }
        server.turn();
    }
}

/// Twenty connections have a hundred flushes each in their sockets; one more requests 32 blocks. All belong
/// to one party, which is the worst case.
#[test]
fn flush_flood_is_bounded_per_turn() {
    let mut turned = SteppedServer::with_clients(21);
    let (good, flood) = turned.clients.split_last_mut().unwrap();
    for client in flood {
        (0..100).for_each(|cookie| client.write_all(&request(command::FLUSH, 0, cookie, 0, 0)).unwrap());
    }
    (0..32).for_each(|cookie| good.write_all(&request(command::READ, 0, cookie, 0, 4096)).unwrap());
    while turned.server.session.volumes().submitted().len() < 2032 {
        turned.turn();
    }
    let submitted = turned.server.session.volumes().submitted();
    let last = submitted.iter().rposition(|(_, op)| *op == Op::Read).unwrap();
    let before = submitted[..last].iter().filter(|(_, op)| *op == Op::Flush).count();
    // One round in which some flushes had not arrived, and one in which all had.
    assert!(before <= 40, "{before} flushes were before 32 reads");
    // The flushes were not postponed either.
    assert!(submitted.iter().filter(|(_, op)| *op == Op::Flush).count() == 2000);
}

/// The server receives from other clients during a flood: the flood's own sends, which complete at once, must
/// not keep it from polling for arrivals.
#[test]
fn client_is_served_during_flood() {
    let mut turned = SteppedServer::with_clients(3);
    for client in &mut turned.clients[..2] {
        let flood: Vec<u8> = (0..1000).flat_map(|cookie| request(command::FLUSH, 0, cookie, 0, 0)).collect();
        client.write_all(&flood).unwrap();
    }
    for _ in 0..20 {
        turned.turn();
    }
    for round in 0..20 {
        let before = turned.server.session.volumes().submitted().len();
        turned.clients[2].write_all(&request(command::READ, 0, round, 0, 4096)).unwrap();
        let asked = |turned: &SteppedServer| {
            turned.server.session.volumes().submitted()[before..].iter().position(|(_, op)| *op == Op::Read)
        };
        let mut turns = 0;
        while asked(&turned).is_none() {
            turned.turn();
            turns += 1;
        }
        assert!(turns <= 3, "the client was heard after {turns} turns");
    }
    let flushes =
        turned.server.session.volumes().submitted().iter().filter(|(_, op)| *op == Op::Flush).count();
    assert!(flushes < 2000, "the flood is not over: {flushes}");
}

/// The engine runs after one turn's worth of requests, however many clients have requests.
#[test]
fn one_turn_is_bounded_for_all_clients_together() {
    let mut turned = SteppedServer::with_clients(10);
    for client in &mut turned.clients {
        (0..100).for_each(|cookie| client.write_all(&request(command::READ, 0, cookie, 0, 4096)).unwrap());
    }
    let mut most = 0;
    while turned.server.session.volumes().submitted().len() < 1000 {
        let before = turned.server.session.volumes().submitted().len();
        turned.turn();
        most = most.max(turned.server.session.volumes().submitted().len() - before);
    }
    let bound = Cost::TURN.0.div_ceil(Cost::of_payload(4096).0) as usize;
    assert!(most <= bound, "{most} requests in one turn");
}
