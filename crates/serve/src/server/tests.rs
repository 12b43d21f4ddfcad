//! Tests of the whole server over real sockets, with a volume in memory.

mod hostile;

use super::*;
use crate::control::{self, Answer, Class, Request};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_device::{Devices, ReactorOptions, Ring};
use weir_model::{Bytes, Op};
use weir_session::Ram;
use weir_session::client::{ServerMessage, decode_messages, encode_handshake, pattern, request, write};
use weir_session::nbd::wire::{Reader, command};

/// A server on a thread of its own, stopped when dropped.
struct Running {
    folder: tempfile::TempDir,
    stopper: Waker,
    thread: Option<JoinHandle<ServerOutcome>>,
}

impl Running {
    fn start(ring: Ring, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let arena = Arena::new(limits.memory()).unwrap();
            let options = ReactorOptions { ring, ..ReactorOptions::default() };
            let reactor = Reactor::new(&options, Devices::default(), &arena).unwrap();
            let describe = Box::new(|_: &Ram, _: &Reactor, counts: &ClientCounts| {
                let ClientCounts { clients, handshakes, idle, refused, sessions, .. } = *counts;
                serde_json::json!([clients, handshakes, idle, refused, sessions])
            });
            let mut server = Server::new(reactor, arena, Ram::new(Bytes::mib(16)), &limits, describe);
            server.listen(&Listen::private(path.join("nbd"))).unwrap();
            server.listen_for_control(&path.join("control")).unwrap();
            tell.send(server.stopper()).unwrap();
            server.run()
        });
        Self { folder, stopper: told.recv().unwrap(), thread: Some(thread) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a client past the handshake.
    fn client(&self) -> Client {
        self.try_client().unwrap()
    }

    /// Returns a client past the handshake, or an error if it is refused.
    fn try_client(&self) -> std::io::Result<Client> {
        let mut stream = UnixStream::connect(self.path("nbd"))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(&encode_handshake(true))?;
        let context = 20 + 4 + 15;
        let mut answers = [0; 18 + 20 + 20 + 10];
        stream.read_exact(&mut answers)?;
        stream.read_exact(&mut answers[..context])?;
        Ok(Client { stream })
    }

    /// Returns a client past the handshake, once the server has room for it.
    fn retrying_client(&self) -> Client {
        loop {
            match self.try_client() {
                Ok(client) => return client,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn end(&mut self) -> ServerOutcome {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stopper.wake();
            let end = thread.join();
            if !std::thread::panicking() {
                assert_eq!(end.unwrap(), ServerOutcome::Graceful);
            }
        }
    }
}

struct Client {
    stream: UnixStream,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Receives the next message, a simple reply or a chunk.
    fn receive(&mut self) -> ServerMessage {
        let mut bytes = vec![0; 16];
        self.stream.read_exact(&mut bytes).unwrap();
        if Reader(&bytes).u32() != Some(0x6744_6698) {
            bytes.resize(20, 0);
            self.stream.read_exact(&mut bytes[16..]).unwrap();
            let len = u32::from_be_bytes(bytes[16..20].try_into().unwrap()) as usize;
            bytes.resize(20 + len, 0);
            self.stream.read_exact(&mut bytes[20..]).unwrap();
        }
        decode_messages(&bytes).pop().unwrap()
    }

    /// Reports whether the server has closed the connection.
    fn is_closed(&mut self) -> bool {
        loop {
            match self.stream.read(&mut [0; 4096]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
    }
}

fn run_on_all_rings(limits: Limits, test: fn(&mut Running)) {
    for ring in [Ring::Auto, Ring::Plain] {
        test(&mut Running::start(ring, limits));
    }
}

#[test]
fn clients_share_one_volume() {
    run_on_all_rings(Limits::default(), |server| {
        let (mut one, mut two) = (server.client(), server.client());
        let long = pattern(1, 3 << 20);
        one.send(&write(1, 512, &long));
        assert_eq!(one.receive(), ServerMessage::Simple { cookie: 1, error: 0 });
        two.send(&request(command::READ, 0, 2, 512, 3 << 20));
        let mut found = vec![0; 3 << 20];
        loop {
            let ServerMessage::Data { cookie: 2, is_last: done, offset, bytes } = two.receive() else {
                panic!("no data")
            };
            found[offset as usize - 512..][..bytes.len()].copy_from_slice(&bytes);
            if done {
                break;
            }
        }
        assert!(found == long);
    });
}

#[test]
fn many_requests_in_flight_are_all_answered() {
    run_on_all_rings(Limits::default(), |server| {
        let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for (number, client) in (0u64..).zip(&mut clients) {
            let mut stream = client.stream.try_clone().unwrap();
            std::thread::spawn(move || {
                for cookie in 0..1000 {
                    let at = number * (4 << 20) + cookie % 900 * 4096;
                    stream.write_all(&write(cookie, at, &pattern(cookie, 4096))).unwrap();
                }
            });
        }
        for client in &mut clients {
            let mut seen = vec![false; 1000];
            for _ in 0..1000 {
                let ServerMessage::Simple { cookie, error: 0 } = client.receive() else {
                    panic!("no success")
                };
                assert!(!std::mem::replace(&mut seen[cookie as usize], true));
            }
        }
    });
}

#[test]
fn slow_client_does_not_delay_others() {
    run_on_all_rings(Limits { memory_per_client: Bytes::mib(2), ..Limits::default() }, |server| {
        let mut deaf = server.client();
        deaf.send(&write(0, 0, &pattern(1, 8 << 20)));
        assert_eq!(deaf.receive(), ServerMessage::Simple { cookie: 0, error: 0 });
        (0..50).for_each(|cookie| deaf.send(&request(command::READ, 0, cookie, 0, 8 << 20)));
        let mut other = server.client();
        for cookie in 0..100 {
            other.send(&write(cookie, 8 << 20, &pattern(cookie, 65536)));
            assert_eq!(other.receive(), ServerMessage::Simple { cookie, error: 0 });
        }
    });
}

#[test]
fn excess_clients_are_refused() {
    run_on_all_rings(Limits { clients: 2, ..Limits::default() }, |server| {
        for _ in 0..10 {
            let (mut one, mut two) = (server.retrying_client(), server.retrying_client());
            assert!(server.try_client().is_err());
            two.send(&request(command::FLUSH, 0, 1, 0, 0));
            assert_eq!(two.receive(), ServerMessage::Simple { cookie: 1, error: 0 });
            one.send(&request(command::DISC, 0, 2, 0, 0));
            assert!(one.is_closed());
        }
    });
}

#[test]
fn silent_clients_are_disconnected() {
    run_on_all_rings(Limits { handshake_timeout: Nanos::millis(20), ..Limits::default() }, |server| {
        let mut silent = Client { stream: UnixStream::connect(server.path("nbd")).unwrap() };
        let mut other = server.retrying_client();
        assert!(silent.is_closed());
        other.send(&request(command::FLUSH, 0, 1, 0, 0));
        assert_eq!(other.receive(), ServerMessage::Simple { cookie: 1, error: 0 });
    });
}

#[test]
fn stop_completes_in_flight_requests() {
    run_on_all_rings(Limits::default(), |server| {
        let mut client = server.client();
        client.send(&write(1, 0, &pattern(1, 1 << 20)));
        assert_eq!(client.receive(), ServerMessage::Simple { cookie: 1, error: 0 });
        // Half a write: the stop does not wait for the rest.
        client.send(&write(2, 0, &pattern(1, 1 << 20))[..500_000]);
        server.stopper.wake();
        assert_eq!(server.end(), ServerOutcome::Graceful);
        assert!(client.is_closed());
        assert!(!server.path("nbd").exists() && !server.path("control").exists());
    });
}

#[test]
fn the_control_socket_answers_in_order() {
    run_on_all_rings(Limits::default(), |server| {
        let path = server.path("control");
        assert_eq!(
            control::ask(&path, &Request::Status).unwrap(),
            Answer::Status(serde_json::json!([0, 0, 0, 0, 1]))
        );
        let refused = |request| match control::ask(&path, &request).unwrap() {
            Answer::Failed { class, message } => (class, message),
            other => panic!("{other:?}"),
        };
        let create = Request::CreateVolume {
            name: "x".into(),
            size_bytes: 1 << 20,
            hardening: Default::default(),
            copies: 1,
        };
        assert_eq!(refused(create).0, Class::Usage);
        let client = server.client();
        let (class, message) = refused(Request::RemoveVolume { name: "ram".into() });
        assert!(class == Class::Refused && message.contains("1 client uses volume \"ram\""), "{message}");
        drop(client);

        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"nonsense\n{\"do\":\"status\"}\n{\"do\":").unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream.try_clone().unwrap()));
        assert!(lines.next().unwrap().unwrap().starts_with("{\"failed\""));
        assert!(lines.next().unwrap().unwrap().starts_with("{\"status\":["));
        let _ = stream.write_all(&[b'x'; control::LINE_MAX + 1]);
        assert!(lines.next().is_none_or(|line| line.is_err()), "a line without end");

        assert_eq!(control::ask(&path, &Request::Stop).unwrap(), Answer::Done);
        assert_eq!(server.end(), ServerOutcome::Graceful);
        assert_eq!(control::ask(&path, &Request::Stop).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
    });
}

#[test]
fn second_stop_is_immediate() {
    run_on_all_rings(Limits::default(), |server| {
        // A client that receives nothing delays a graceful stop.
        let mut deaf = server.client();
        deaf.send(&write(0, 0, &pattern(1, 8 << 20)));
        assert_eq!(deaf.receive(), ServerMessage::Simple { cookie: 0, error: 0 });
        deaf.send(&request(command::READ, 0, 1, 0, 8 << 20));
        assert_eq!(control::ask(&server.path("control"), &Request::Stop).unwrap(), Answer::Done);
        server.stopper.wake();
        assert_eq!(server.end(), ServerOutcome::Immediate);
    });
}

/// A disconnected client may still have requests on a slow device: until they complete, the server has
/// nothing to wake up for.
#[test]
fn no_deadline_after_clients_are_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { handshake_timeout: Nanos::secs(3600), ..Limits::default() };
    let arena = Arena::new(limits.memory()).unwrap();
    let reactor = Reactor::new(&ReactorOptions::default(), Devices::default(), &arena).unwrap();
    let describe = Box::new(|_: &Ram, _: &Reactor, _: &ClientCounts| serde_json::Value::Null);
    let mut server = Server::new(reactor, arena, Ram::new(Bytes::mib(1)), &limits, describe);
    let path = folder.path().join("nbd");
    server.listen(&Listen::private(path.clone())).unwrap();
    let _client = UnixStream::connect(path).unwrap();
    let mut events = Vec::new();
    while server.session.counts().handshakes == 0 {
        server.wait(&mut events);
        for event in events.drain(..) {
            server.handle_event(event);
        }
    }
    let (session, mut outside) = server.parts();
    assert_eq!(session.begin_stop(&mut outside), StopRequest::Started);
    // This is longer than the time clients get to receive their last replies.
    outside.now += Nanos::secs(60);
    let late = outside.now;
    assert_eq!(session.advance_stop(&mut outside), None, "its socket is still closing");
    assert!(session.deadline(late).is_none_or(|at| at > late), "a deadline that stays past");
    loop {
        let (session, mut outside) = server.parts();
        if session.advance_stop(&mut outside).is_some() {
            break;
        }
        server.wait(&mut events);
        for event in events.drain(..) {
            server.handle_event(event);
        }
        server.turn();
    }
}

#[test]
fn requests_are_recorded_once_at_a_time() {
    run_on_all_rings(Limits::default(), |server| {
        let mut client = server.client();
        let control = server.path("control");
        let begin = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            crate::recording::Recording::begin(&control, &names).unwrap()
        };
        let volume = "ram";
        assert!(matches!(begin(&["dusk"]), Err(Answer::Failed { class: Class::Usage, .. })));
        client.send(&write(1, 0, &pattern(1, 4096)));
        client.receive();
        let recording = begin(&[volume]).expect("begun");
        assert!(matches!(begin(&[volume]), Err(Answer::Failed { class: Class::Refused, .. })));
        // A write that is split into several pieces is recorded as one request.
        client.send(&write(2, 512, &pattern(2, 3 << 20)));
        client.receive();
        client.send(&request(command::FLUSH, 0, 3, 0, 0));
        client.receive();
        client.send(&request(command::TRIM, 0, 4, 8192, 65_536));
        client.receive();
        let mut heard = Vec::new();
        let (how, dropped) =
            recording.end(|one| heard.push((one.volume, one.op, one.offset.0, one.len.0))).unwrap();
        assert_eq!((how, dropped), (crate::recording::RecordingState::Complete, 0));
        assert_eq!(heard, [(0, Op::Write, 512, 3 << 20), (0, Op::Trim, 8192, 65_536)]);
        // A client that disconnects without ending its recording makes room for the next.
        drop(begin(&[volume]).expect("begun"));
        while begin(&[volume]).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
