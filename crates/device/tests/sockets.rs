//! Tests of clients over unix sockets and TCP: everything arrives, in order, whatever they do.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Rig, rings};
use weir_device::{DeviceError, Event, Listen, ReactorOptions, Ring, SocketAccess};
use weir_model::{Bytes, ConnId, Memory, Nanos, ReceiveMode};

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}
type Client = Box<dyn Stream>;

fn unix(path: PathBuf) -> Listen {
    Listen::private(path)
}

fn local() -> Listen {
    Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// Runs a test over every ring and kind of socket, with a client connected.
fn run_on_all_rings(test: fn(&mut Rig, ConnId, Client)) {
    let folder = tempfile::tempdir().unwrap();
    for ring in rings() {
        println!("{ring:?}, unix");
        let path = folder.path().join(format!("{ring:?}.sock"));
        let mut rig = Rig::new(ring, None);
        rig.reactor.listen(&unix(path.clone())).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let conn = rig.accepted();
        test(&mut rig, conn, Box::new(client));

        println!("{ring:?}, TCP");
        let mut rig = Rig::new(ring, None);
        let listener = rig.reactor.listen(&local()).unwrap();
        let client = TcpStream::connect(rig.reactor.address(listener).unwrap()).unwrap();
        let conn = rig.accepted();
        test(&mut rig, conn, Box::new(client));
    }
}

fn in_background<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(f)
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 4 + i) as u8).collect()
}

#[test]
fn bytes_come_back_in_order() {
    run_on_all_rings(|rig, conn, mut client| {
        let talk = in_background(move || {
            client.write_all(&numbered(100_000)).unwrap();
            let mut back = vec![0; 100_000];
            client.read_exact(&mut back).unwrap();
            back
        });
        let buffer = rig.arena.take(Bytes(100_000)).unwrap();
        let mut got = 0;
        while got < 100_000 {
            rig.reactor.recv(conn, &[buffer.part(got, 100_000 - got)], ReceiveMode::Any);
            let (_, result) = rig.received();
            got += result.unwrap() as u32;
        }
        let parts = [buffer.part(0, 10), buffer.part(10, 89_990), buffer.part(90_000, 10_000)];
        rig.reactor.send(conn, &parts);
        assert_eq!(rig.sent(), (conn, Ok(())));
        assert!(talk.join().unwrap() == numbered(100_000));
    });
}

#[test]
fn a_whole_receive_waits_for_all_of_it_and_spans_buffers() {
    run_on_all_rings(|rig, conn, mut client| {
        let talk = in_background(move || {
            for piece in numbered(50_000).chunks(7_000) {
                client.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            client.write_all(b"tail").unwrap();
        });
        let (a, b) = (rig.arena.take(Bytes(20_000)).unwrap(), rig.arena.take(Bytes(30_000)).unwrap());
        let parts = [a.part(0, 20_000), b.part(0, 30_000)];
        rig.reactor.recv(conn, &parts, ReceiveMode::Full);
        assert_eq!(rig.received(), (conn, Ok(50_000)));
        assert!(rig.arena.bytes(parts[0]) == &numbered(50_000)[..20_000]);
        assert!(rig.arena.bytes(parts[1]) == &numbered(50_000)[20_000..]);
        talk.join().unwrap();
        rig.reactor.recv(conn, &[a], ReceiveMode::Full);
        assert_eq!(rig.received(), (conn, Ok(4)), "the stream ended before the buffer was full");
        rig.reactor.recv(conn, &[a], ReceiveMode::Any);
        assert_eq!(rig.received(), (conn, Ok(0)));
    });
}

/// A receive ends with its last byte, in whatever pieces it arrives; what follows it is another receive's.
#[test]
fn a_long_receive_ends_with_its_last_byte() {
    const LENGTHS: [usize; 4] = [65_536, 262_145, 300_000, 700_001];
    run_on_all_rings(|rig, conn, mut client| {
        let talk = in_background(move || {
            for len in LENGTHS {
                let all = numbered(len);
                let (start, end) = all.split_at(len - 70_000.min(len / 2));
                for piece in [start, end] {
                    client.write_all(&piece[..piece.len() - 1]).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                    client.write_all(&piece[piece.len() - 1..]).unwrap();
                }
                // The next bytes come when these have been received.
                client.read_exact(&mut [0]).unwrap();
                client.write_all(b"head").unwrap();
            }
            client.write_all(&numbered(100_000)).unwrap();
        });
        let buffer = rig.arena.take(Bytes(1_000_000)).unwrap();
        for len in LENGTHS {
            let part = buffer.part(0, len as u32);
            rig.reactor.recv(conn, &[part], ReceiveMode::Full);
            assert_eq!(rig.received(), (conn, Ok(len)));
            assert!(rig.arena.bytes(part) == numbered(len), "{len}");
            rig.reactor.send(conn, &[buffer.part(0, 1)]);
            assert_eq!(rig.sent(), (conn, Ok(())));
            rig.reactor.recv(conn, &[buffer.part(0, 4)], ReceiveMode::Full);
            assert_eq!(rig.received(), (conn, Ok(4)));
        }
        rig.reactor.recv(conn, &[buffer.part(0, 300_000)], ReceiveMode::Full);
        assert_eq!(rig.received(), (conn, Ok(100_000)), "the stream ended before the buffer was full");
        talk.join().unwrap();
    });
}

/// A send of far more bytes than a socket buffers, in more parts than one call takes, to a slow client.
#[test]
fn a_large_send_to_a_slow_client_is_finished() {
    run_on_all_rings(|rig, conn, mut client| {
        const LEN: usize = 12_000_000;
        let talk = in_background(move || {
            let mut all = Vec::new();
            let mut piece = vec![0; 300_000];
            while all.len() < LEN {
                let got = client.read(&mut piece).unwrap();
                assert!(got > 0, "ended after {}", all.len());
                all.extend_from_slice(&piece[..got]);
                std::thread::yield_now();
            }
            all
        });
        let buffers: Vec<_> = (0..3000).map(|_| rig.arena.take(Bytes(4096)).unwrap()).collect();
        let parts: Vec<_> = buffers.iter().map(|b| b.part(96, 4000)).collect();
        for (part, bytes) in parts.iter().zip(numbered(LEN).chunks(4000)) {
            rig.arena.bytes_mut(*part).copy_from_slice(bytes);
        }
        rig.reactor.send(conn, &parts);
        assert_eq!(rig.sent(), (conn, Ok(())));
        assert!(talk.join().unwrap() == numbered(LEN));
    });
}

#[test]
fn a_client_that_vanishes_is_noticed_and_others_are_not_disturbed() {
    run_on_all_rings(|rig, conn, client| {
        let buffer = rig.arena.take(Bytes(4096)).unwrap();
        rig.reactor.recv(conn, &[buffer], ReceiveMode::Full);
        rig.reactor.wait(Some(rig.reactor.now() + Nanos::millis(1)), &mut rig.events);
        drop(client);
        let (_, result) = rig.received();
        assert!(matches!(result, Ok(0) | Err(_)), "{result:?}");
        let mut failed = false;
        for _ in 0..50 {
            rig.reactor.send(conn, &[buffer]);
            failed |= rig.sent().1.is_err();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(failed, "sending to nobody must fail sooner or later");
        rig.reactor.close(conn);
        rig.closed(conn);
        rig.arena.give(buffer);
    });
}

#[test]
fn closing_with_commands_in_flight_frees_their_buffers() {
    run_on_all_rings(|rig, conn, mut client| {
        let (inward, outward) =
            (rig.arena.take(Bytes(4096)).unwrap(), rig.arena.take(Bytes::mib(4)).unwrap());
        rig.arena.bytes_mut(inward).fill(0);
        rig.reactor.recv(conn, &[inward], ReceiveMode::Full);
        rig.reactor.send(conn, &[outward; 4]);
        rig.reactor.wait(Some(rig.reactor.now() + Nanos::millis(2)), &mut rig.events);
        rig.reactor.close(conn);
        rig.reactor.close(conn);
        rig.closed(conn);
        assert!(!rig.events.iter().any(|e| matches!(e, Event::Closed { .. } | Event::Received { .. })));
        // Debug builds would panic here if the kernel still had one of them.
        rig.arena.give(inward);
        rig.arena.give(outward);
        rig.reactor.recv(conn, &[inward], ReceiveMode::Any);
        rig.reactor.send(conn, &[inward]);
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
    });
}

#[test]
fn closed_connection_id_is_not_reused() {
    for ring in rings() {
        let mut rig = Rig::new(ring, None);
        let listener = rig.reactor.listen(&local()).unwrap();
        let address = rig.reactor.address(listener).unwrap();
        let mut names = Vec::new();
        for _ in 0..5 {
            let _client = TcpStream::connect(address).unwrap();
            let conn = rig.accepted();
            assert_eq!(conn.index(), 0, "numbers are used again");
            assert!(!names.contains(&conn));
            names.push(conn);
            rig.reactor.close(conn);
            rig.closed(conn);
        }
    }
}

#[test]
fn many_clients_at_once() {
    for ring in rings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.sock");
        let mut rig = Rig::new(ring, None);
        rig.reactor.listen(&unix(path.clone())).unwrap();
        let clients: Vec<_> = (0..40u8)
            .map(|i| {
                let path = path.clone();
                in_background(move || {
                    let mut client = UnixStream::connect(path).unwrap();
                    client.write_all(&[i; 1000]).unwrap();
                    let mut back = [0; 1000];
                    client.read_exact(&mut back).unwrap();
                    assert_eq!(back, [i; 1000]);
                })
            })
            .collect();
        let mut buffers = std::collections::BTreeMap::new();
        let mut closed = 0;
        while closed < 40 {
            rig.reactor.wait(Some(rig.reactor.now() + common::TIMEOUT), &mut rig.events);
            for event in std::mem::take(&mut rig.events) {
                match event {
                    Event::Accepted { conn, .. } => {
                        let buffer = rig.arena.take(Bytes(1000)).unwrap();
                        buffers.insert(conn, buffer.part(0, 1000));
                        rig.reactor.recv(conn, &[buffer.part(0, 1000)], ReceiveMode::Full);
                    }
                    Event::Received { conn, result } => {
                        assert_eq!(result, Ok(1000));
                        rig.reactor.send(conn, &[buffers[&conn]]);
                    }
                    Event::Sent { conn, .. } => rig.reactor.close(conn),
                    Event::Closed { .. } => closed += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        clients.into_iter().for_each(|c| c.join().unwrap());
    }
}

#[test]
fn only_stale_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let mut rig = Rig::new(Ring::Auto, None);
    let living = UnixListener::bind(&path).unwrap();
    let error = rig.reactor.listen(&unix(path.clone())).unwrap_err();
    assert!(matches!(error, DeviceError::SocketInUse { .. }), "{error}");
    drop(living);
    assert!(path.exists(), "the socket file stays behind");
    rig.reactor.listen(&unix(path.clone())).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    UnixStream::connect(&path).unwrap();
    rig.reactor.stop_listening();
    assert!(!path.exists());
    std::fs::write(&path, "text").unwrap();
    let error = rig.reactor.listen(&unix(path.clone())).unwrap_err();
    assert!(matches!(error, DeviceError::NotASocket { .. }), "{error}");
    assert!(Path::new(&path).exists());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = rig.reactor.listen(&Listen::Tcp(taken.local_addr().unwrap())).unwrap_err();
    assert!(matches!(error, DeviceError::ListenTcp { .. }), "{error}");
}

#[test]
fn socket_permissions_ignore_umask() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(Ring::Auto, None);
    let own = std::fs::metadata(folder.path()).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    for (number, mode) in [0o600, 0o660, 0o666, 0o200].into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.sock"));
        let (owner, group) = if is_root { (Some(12_345), Some(23_456)) } else { (None, Some(own.gid())) };
        let access = SocketAccess { mode, owner, group };
        rig.reactor.listen(&Listen::Unix { path: path.clone(), access }).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.mode() & 0o7777, mode);
        assert_eq!((found.uid(), found.gid()), (owner.unwrap_or(own.uid()), group.unwrap_or(own.gid())));
        UnixStream::connect(&path).unwrap();
    }
}

#[test]
fn socket_is_removed_if_chown_fails() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("given.sock");
    let access = SocketAccess { group: Some(12_345), owner: Some(23_456), ..SocketAccess::default() };
    let at = Listen::Unix { path: path.clone(), access };
    let listen = move || {
        // Root may give a file to anyone, so this thread continues as nobody.
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        Rig::new(Ring::Plain, None).reactor.listen(&at).unwrap_err()
    };
    let error = in_background(listen).join().unwrap();
    assert!(matches!(error, DeviceError::SocketAccess { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("owner 23456 and group 12345") && said.contains("given.sock"), "{said}");
    assert!(!path.exists());
}

#[test]
fn nobody_is_accepted_after_listening_ended() {
    for ring in rings() {
        let mut rig = Rig::new(ring, None);
        let listener = rig.reactor.listen(&local()).unwrap();
        let address = rig.reactor.address(listener).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        rig.accepted();
        rig.reactor.stop_listening();
        rig.reactor.wait(Some(rig.reactor.now() + Nanos::millis(5)), &mut rig.events);
        assert!(TcpStream::connect(address).is_err(), "{ring:?}");
    }
}

#[test]
fn deadlines_wakers_and_signals_end_a_wait() {
    for ring in rings() {
        let options = ReactorOptions { ring, signals: true, ..Default::default() };
        let mut rig = Rig::with(&options, None);
        let at = rig.reactor.now() + Nanos::millis(20);
        let now = rig.reactor.wait(Some(at), &mut rig.events);
        assert!(now >= at && rig.events.is_empty(), "{ring:?}: {now} {:?}", rig.events);
        for _ in 0..2 {
            let waker = rig.reactor.waker();
            let caller = in_background(move || waker.wake());
            rig.until("a waker", |e| matches!(e, Event::Woken).then_some(()));
            caller.join().unwrap();
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::TERM).unwrap();
            rig.until("a signal", |e| matches!(e, Event::Stop).then_some(()));
        }
    }
}

#[test]
fn a_client_that_closed_its_end_is_reported_before_its_bytes_are_received() {
    run_on_all_rings(|rig, conn, mut client| {
        let hung_up = |rig: &Rig| {
            let mut gone = Vec::new();
            rig.reactor.hung_up(&[conn, ConnId::new(99, 0)], &mut gone);
            gone
        };
        client.write_all(b"unread").unwrap();
        assert_eq!(hung_up(rig), []);
        drop(client);
        // Over TCP the end of the stream takes time to pass through the kernel.
        while hung_up(rig) != [conn] {
            std::thread::yield_now();
        }
        let buffer = rig.arena.take(Bytes(100)).unwrap();
        rig.reactor.recv(conn, &[buffer.part(0, 100)], ReceiveMode::Any);
        assert_eq!(rig.received(), (conn, Ok(6)));
        rig.reactor.close(conn);
        assert_eq!(hung_up(rig), []);
    });
}
